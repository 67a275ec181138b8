//! Which GPUs the machine has, and which of them this process sees.

use super::value::parts;

/// The UUIDs given, or ones that are the same in every process, always.
pub(super) fn uuids(text: &str, gpus: u32) -> Result<Vec<[u8; 16]>, String> {
    if text.is_empty() {
        return Ok((0..gpus).map(made_uuid).collect());
    }
    let mut uuids = Vec::new();
    for part in parts(text) {
        let uuid = uuid_of(part).ok_or_else(|| format!("{part:?} is no UUID"))?;
        if uuids.contains(&uuid) {
            return Err(format!("{part:?} is there twice"));
        }
        uuids.push(uuid);
    }
    if u32::try_from(uuids.len()) == Ok(gpus) {
        Ok(uuids)
    } else {
        Err(format!("not as many as the machine's {gpus} GPUs"))
    }
}

/// 32 hexadecimal digits, with or without `GPU-` and hyphens.
fn uuid_of(text: &str) -> Option<[u8; 16]> {
    let digits = text.strip_prefix("GPU-").unwrap_or(text).replace('-', "");
    let plain = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = plain.then(|| u128::from_str_radix(&digits, 16).ok())?;
    number.map(u128::to_be_bytes)
}

fn made_uuid(device: u32) -> [u8; 16] {
    // A version-4 UUID made from the number by splitmix64.
    let mut state = 0x6770_7569_7063_0000_u64 ^ u64::from(device);
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&next().to_le_bytes());
    bytes[8..].copy_from_slice(&next().to_le_bytes());
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

/// CUDA's rule: entries in order, up to the first that names no GPU. `None` where
/// a GPU is there twice.
pub(super) fn visible(list: Option<&str>, uuids: &[[u8; 16]]) -> Option<Vec<u32>> {
    let gpus = 0..u32::try_from(uuids.len()).unwrap_or(u32::MAX);
    let Some(list) = list else {
        return Some(gpus.collect());
    };
    let mut devices = Vec::new();
    for entry in list.split(',') {
        let entry = entry.trim();
        let device = match entry.strip_prefix("GPU-") {
            Some(start) if !start.is_empty() => {
                let found = gpus.clone().zip(uuids);
                let mut found = found.filter(|(_, uuid)| uuid_text(uuid).starts_with(start));
                // An ambiguous start names no GPU.
                found
                    .next()
                    .filter(|_| found.next().is_none())
                    .map(|(gpu, _)| gpu)
            }
            _ => entry.parse().ok().filter(|device| gpus.contains(device)),
        };
        match device {
            Some(device) if devices.contains(&device) => return None,
            Some(device) => devices.push(device),
            None => break,
        }
    }
    Some(devices)
}

/// The UUID as `nvidia-smi` writes it, without `GPU-`.
fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::new();
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{made_uuid, uuid_text, uuids, visible};

    fn two() -> Vec<[u8; 16]> {
        uuids("", 2).expect("two")
    }

    #[test]
    fn visible_list_ends_at_the_first_invalid_entry() {
        for (list, devices) in [
            (None, &[0, 1][..]),
            (Some("1,0"), &[1, 0]),
            (Some("1"), &[1]),
            (Some("1,7,0"), &[1]),
            (Some("-1"), &[]),
            (Some(""), &[]),
            (Some("0,7,0"), &[0]),
        ] {
            assert_eq!(visible(list, &two()).as_deref(), Some(devices), "{list:?}");
        }
    }

    #[test]
    fn visible_list_names_no_gpu_twice() {
        assert_eq!(visible(Some("0,0"), &two()), None);
        assert_eq!(visible(Some("0,1,0"), &two()), None);
    }

    #[test]
    fn visible_list_takes_the_start_of_a_uuid() {
        let start = format!("GPU-{}", &uuid_text(&made_uuid(1))[..13]);
        assert_eq!(visible(Some(&start), &two()), Some(vec![1]));
        assert_eq!(visible(Some("GPU-zz"), &two()), Some(vec![]));
    }

    #[test]
    fn uuids_differ_and_stay_and_may_be_given() {
        assert_ne!(made_uuid(0), made_uuid(1));
        assert_eq!(made_uuid(0), made_uuid(0));
        let given = "GPU-00112233-4455-6677-8899-aabbccddeeff,000102030405060708090a0b0c0d0e0f";
        let both = uuids(given, 2).expect("both");
        assert_eq!((both[0][1], both[1][15]), (0x11, 0x0f));
        assert!(uuids(given, 3).is_err() && uuids("GPU-1", 1).is_err());
    }
}
