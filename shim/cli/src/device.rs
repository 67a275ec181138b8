//! A GPU as the command line names it: by its ordinal or by its UUID.

use gpuipc::DeviceId;
use gpuipc::core::DeviceUuid;

/// Reads `0`, or `GPU-01234567-89ab-cdef-f0e1-d2c3b4a59687` as `nvidia-smi -L`
/// prints it (`MIG-..` for a part of a GPU).
pub(crate) fn parse(text: &str) -> Result<DeviceId, String> {
    let text = text.trim();
    match ["GPU-", "MIG-"]
        .iter()
        .find_map(|head| text.strip_prefix(head))
    {
        Some(digits) => uuid(digits).map(DeviceId::Uuid).ok_or_else(|| {
            "a UUID has 32 hex digits: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx".to_owned()
        }),
        None => text
            .parse()
            .ok()
            .filter(|ordinal| *ordinal >= 0)
            .map(DeviceId::Ordinal)
            .ok_or_else(|| "a GPU is a number from 0 on, or a UUID: GPU-..".to_owned()),
    }
}

/// Digits in groups of 8, 4, 4, 4 and 12.
fn uuid(text: &str) -> Option<DeviceUuid> {
    let groups: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    if lengths != [8, 4, 4, 4, 12] {
        return None;
    }
    let digits = groups.concat();
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let digit = |at: usize| char::from(*pair.get(at)?).to_digit(16);
        *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
    }
    Some(DeviceUuid(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_read_by_ordinal_and_by_uuid() {
        assert_eq!(parse("0"), Ok(DeviceId::Ordinal(0)));
        assert_eq!(parse(" 15 "), Ok(DeviceId::Ordinal(15)));
        let text = "GPU-01234567-89ab-cdef-f0e1-d2c3b4a59687";
        let Ok(DeviceId::Uuid(uuid)) = parse(text) else {
            panic!("it is a UUID");
        };
        assert_eq!(uuid.to_string(), text);
        assert_eq!(parse(&text.replace("GPU", "MIG")), Ok(DeviceId::Uuid(uuid)));
        let upper = text.to_uppercase();
        assert_eq!(parse(&upper), Ok(DeviceId::Uuid(uuid)));
    }

    #[test]
    fn what_names_no_gpu_is_refused() {
        for wrong in [
            "",
            "-1",
            "1.5",
            "all",
            "01234567-89ab-cdef-f0e1-d2c3b4a59687",
            "GPU-0123",
            "GPU-0123456789abcdeff0e1d2c3b4a59687",
            "GPU-01234567-89ab-cdef-f0e1-d2c3b4a5968x",
            "GPU-01234567-89ab-cdef-f0e1-d2c3b4a59é7",
            "99999999999",
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
