//! Numbers of bytes as people write and read them.

const UNITS: [(&str, u64); 4] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

/// Reads `4096`, `512KiB`, `64MiB`, `1 GiB`. At least one byte.
pub(crate) fn parse(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let digits_end = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let unit = unit.trim();
    let factor = if unit.is_empty() || unit.eq_ignore_ascii_case("b") {
        Some(1)
    } else {
        UNITS
            .iter()
            .find(|(name, _)| unit.eq_ignore_ascii_case(name))
            .map(|(_, factor)| *factor)
    };
    let factor =
        factor.ok_or("a whole number of bytes, or one followed by KiB, MiB, GiB or TiB")?;
    if digits.is_empty() {
        return Err("a size starts with a whole number".to_owned());
    }
    let bytes = digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or("more bytes than there are addresses")?;
    if bytes == 0 {
        return Err("at least one byte".to_owned());
    }
    Ok(bytes)
}

/// Writes `64 MiB` where that is exact, else `1.5 MiB (1572865 bytes)`.
pub(crate) fn text(bytes: u64) -> String {
    match UNITS.iter().find(|(_, factor)| bytes >= *factor) {
        None => format!("{bytes} bytes"),
        Some((name, factor)) if bytes.is_multiple_of(*factor) => {
            format!("{} {name}", bytes / factor)
        }
        Some((name, factor)) => {
            // One decimal is for reading; the exact number stands beside it.
            let tenths = u128::from(bytes) * 10 / u128::from(*factor);
            format!("{}.{} {name} ({bytes} bytes)", tenths / 10, tenths % 10)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{parse, text};

    #[test]
    fn sizes_are_read_with_and_without_a_unit() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("17B"), Ok(17));
        assert_eq!(parse("512KiB"), Ok(512 << 10));
        assert_eq!(parse("64mib"), Ok(64 << 20));
        assert_eq!(parse(" 1 GiB "), Ok(1 << 30));
        assert_eq!(parse("2TiB"), Ok(2 << 40));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for wrong in [
            "",
            "MiB",
            "0",
            "0KiB",
            "-1",
            "1.5GiB",
            "64MB",
            "1 KiB KiB",
            "18446744073709551616",
            "16777216TiB",
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn sizes_are_written_exactly() {
        assert_eq!(text(17), "17 bytes");
        assert_eq!(text(1024), "1 KiB");
        assert_eq!(text(64 << 20), "64 MiB");
        assert_eq!(text((1 << 20) + (1 << 19) + 1), "1.5 MiB (1572865 bytes)");
        assert_eq!(
            text(u64::MAX),
            "16777215.9 TiB (18446744073709551615 bytes)"
        );
    }
}
