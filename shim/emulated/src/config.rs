//! Settings of this process, read from the environment once.

use std::path::PathBuf;
use std::sync::OnceLock;

/// `/dev/shm` below this size (a container's default is 64 MiB) is not used.
const LEAST_SHM: u64 = 256 << 20;
const DEFAULT_GPUS: u32 = 2;
const MOST_GPUS: u32 = 64;
const DEFAULT_MEMORY: u64 = 139 << 30;

/// What the environment says.
#[derive(Debug)]
pub(crate) struct Config {
    /// The directory that plays the machine.
    pub(crate) dir: PathBuf,
    /// This process's devices: the machine's number of each, in order.
    pub(crate) visible: Vec<u32>,
    /// The fabric domain.
    pub(crate) imex: Option<String>,
    /// Whether a GPU reaches another one's memory.
    pub(crate) peers: bool,
    /// Bytes that each GPU claims.
    pub(crate) memory: u64,
    /// Symbols that this driver lacks.
    pub(crate) missing: Vec<String>,
    /// Calls that fail, as written.
    pub(crate) fail: Option<String>,
}

/// The settings.
pub(crate) fn config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| read(|name| std::env::var(name).ok()))
}

fn read(variable: impl Fn(&str) -> Option<String>) -> Config {
    let given = |name: &str| variable(name).filter(|text| !text.is_empty());
    let gpus =
        number(given("GPUIPC_EMULATED_GPUS"), u64::from(DEFAULT_GPUS)).min(u64::from(MOST_GPUS));
    let gpus = u32::try_from(gpus).unwrap_or(MOST_GPUS);
    Config {
        dir: given("GPUIPC_EMULATED_DIR").map_or_else(default_dir, PathBuf::from),
        visible: visible(variable("CUDA_VISIBLE_DEVICES").as_deref(), gpus),
        imex: given("GPUIPC_EMULATED_IMEX").filter(|name| name != "none"),
        peers: given("GPUIPC_EMULATED_PEER").as_deref() != Some("none"),
        memory: number(given("GPUIPC_EMULATED_MEMORY"), DEFAULT_MEMORY),
        missing: given("GPUIPC_EMULATED_MISSING")
            .map(|list| {
                list.split(',')
                    .map(|symbol| symbol.trim().to_owned())
                    .collect()
            })
            .unwrap_or_default(),
        fail: given("GPUIPC_EMULATED_FAIL"),
    }
}

fn number(text: Option<String>, default: u64) -> u64 {
    let Some(text) = text else { return default };
    text.trim().parse().unwrap_or_else(|_| {
        log::error!("{text:?} is no number; {default} is taken");
        default
    })
}

fn default_dir() -> PathBuf {
    let roomy = rustix::fs::statvfs("/dev/shm")
        .is_ok_and(|stat| stat.f_blocks.saturating_mul(stat.f_frsize) >= LEAST_SHM);
    PathBuf::from(if roomy {
        "/dev/shm/gpuipc-emulated"
    } else {
        "/tmp/gpuipc-emulated"
    })
}

/// CUDA's rule: entries in order, up to the first that names no GPU.
fn visible(list: Option<&str>, gpus: u32) -> Vec<u32> {
    let Some(list) = list else {
        return (0..gpus).collect();
    };
    let mut devices = Vec::new();
    for entry in list.split(',') {
        let entry = entry.trim();
        let device = match entry.strip_prefix("GPU-") {
            Some(start) if !start.is_empty() => {
                let mut found = (0..gpus).filter(|device| uuid_text(*device).starts_with(start));
                // An ambiguous start names no GPU.
                found.next().filter(|_| found.next().is_none())
            }
            _ => entry.parse().ok().filter(|device| *device < gpus),
        };
        match device {
            Some(device) if !devices.contains(&device) => devices.push(device),
            _ => break,
        }
    }
    devices
}

/// The UUID of one of the machine's GPUs: the same in every process, always.
pub(crate) fn uuid(device: u32) -> [u8; 16] {
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

/// The UUID as `nvidia-smi` writes it, without `GPU-`.
fn uuid_text(device: u32) -> String {
    let mut text = String::new();
    for (index, byte) in uuid(device).iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{uuid, uuid_text, visible};

    #[test]
    fn visible_list_ends_at_the_first_invalid_entry() {
        assert_eq!(visible(None, 2), [0, 1]);
        assert_eq!(visible(Some("1,0"), 2), [1, 0]);
        assert_eq!(visible(Some("1"), 2), [1]);
        assert_eq!(visible(Some("1,7,0"), 2), [1]);
        assert_eq!(visible(Some("-1"), 2), [0; 0]);
        assert_eq!(visible(Some(""), 2), [0; 0]);
    }

    #[test]
    fn visible_list_takes_the_start_of_a_uuid() {
        let start = format!("GPU-{}", &uuid_text(1)[..13]);
        assert_eq!(visible(Some(&start), 2), [1]);
        assert_eq!(visible(Some("GPU-zz"), 2), [0; 0]);
    }

    #[test]
    fn uuids_differ_and_stay() {
        assert_ne!(uuid(0), uuid(1));
        assert_eq!(uuid(0), uuid(0));
    }
}
