//! Texts of settings as values.

use super::Pair;
use gpuipc_sys::CALLS;
use std::collections::{BTreeMap, BTreeSet};

const MOST_GPUS: u32 = 64;
/// The file of a piece of memory begins its bytes at this boundary.
const LEAST_GRANULARITY: u64 = 64 << 10;
const MOST_GRANULARITY: u64 = 1 << 30;

/// The parts of a list with commas.
pub(crate) fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

pub(super) fn gpus(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|gpus| *gpus <= MOST_GPUS);
    number.ok_or_else(|| format!("not a number up to {MOST_GPUS}"))
}

pub(super) fn limit(text: &str) -> Result<usize, String> {
    match text {
        "none" => Ok(usize::MAX),
        text => text
            .parse()
            .map_err(|_| "neither a number nor `none`".to_owned()),
    }
}

/// Bytes, or with KiB, MiB, GiB.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let (number, shift) = units
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)))
        .unwrap_or((text, 0));
    let number: Option<u64> = number.trim().parse().ok();
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| "not a number of bytes, KiB, MiB or GiB".to_owned())
}

/// `all`, `none`, or pairs such as `0-1,2-3`.
pub(super) fn peers(text: &str, gpus: u32) -> Result<BTreeSet<Pair>, String> {
    let all = (0..gpus).flat_map(|a| (a + 1..gpus).map(move |b| (a, b)));
    match text {
        "all" => Ok(all.collect()),
        "none" => Ok(BTreeSet::new()),
        list => {
            let pair = |part: &str| -> Option<Pair> {
                let (a, b) = part.split_once('-')?;
                let (a, b): (u32, u32) = (a.trim().parse().ok()?, b.trim().parse().ok()?);
                (a != b && a.max(b) < gpus).then_some((a.min(b), a.max(b)))
            };
            parts(list)
                .map(|part| {
                    pair(part).ok_or_else(|| {
                        format!("{part:?} is not a pair of the machine's {gpus} GPUs, as in 0-1")
                    })
                })
                .collect()
        }
    }
}

/// `NUMBER=VALUE` with commas; the value `none` is an attribute that the
/// driver does not know.
pub(super) fn attributes(text: &str) -> Result<BTreeMap<u32, Option<i32>>, String> {
    let attribute = |part: &str| -> Option<(u32, Option<i32>)> {
        let (number, value) = part.split_once('=')?;
        let value = match value.trim() {
            "none" => None,
            value => Some(value.parse().ok()?),
        };
        Some((number.trim().parse().ok()?, value))
    };
    parts(text)
        .map(|part| {
            attribute(part).ok_or_else(|| format!("{part:?} is not ATTRIBUTE=VALUE in numbers"))
        })
        .collect()
}

/// The least one, or that and the recommended one with a comma.
pub(super) fn granularity(text: &str) -> Result<(u64, u64), String> {
    let mut sizes = Vec::new();
    for part in parts(text) {
        let size = bytes(part)?;
        if !size.is_power_of_two() || !(LEAST_GRANULARITY..=MOST_GRANULARITY).contains(&size) {
            return Err("not a power of two from 64KiB to 1GiB".to_owned());
        }
        sizes.push(size);
    }
    match sizes[..] {
        [least] => Ok((least, least)),
        [least, recommended] if least <= recommended => Ok((least, recommended)),
        _ => Err("not one size, or a smaller and a larger one".to_owned()),
    }
}

pub(super) fn version(text: &str) -> Result<u32, String> {
    let number = text.parse().ok();
    number
        .filter(|version| (2000..=99_990).contains(version))
        .ok_or_else(|| "not a version in CUDA's form, as 11040 for 11.4".to_owned())
}

pub(super) fn symbols(text: &str) -> Result<Vec<String>, String> {
    parts(text)
        .map(|symbol| {
            let known = CALLS.iter().any(|call| call.symbol == symbol);
            known
                .then(|| symbol.to_owned())
                .ok_or_else(|| format!("the emulated driver has no call {symbol:?}"))
        })
        .collect()
}

pub(super) fn stale_pool(text: &str) -> Result<bool, String> {
    match text {
        "old" => Ok(false),
        "fatal" => Ok(true),
        _ => Err("neither `old` nor `fatal`".to_owned()),
    }
}

pub(super) fn room(text: &str) -> Result<bool, String> {
    match text {
        "taken" => Ok(false),
        "on-write" => Ok(true),
        _ => Err("neither `taken` nor `on-write`".to_owned()),
    }
}
