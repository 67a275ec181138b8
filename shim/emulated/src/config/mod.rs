//! Settings of this process, read once: a profile, a file over it, and the
//! environment over both.
//!
//! A setting that cannot be understood is never replaced by a default: it is
//! kept as [`Config::problem`], and `cuInit` fails with it.

mod gpus;
mod profile;
mod settings;
mod value;

pub(crate) use value::parts;

use settings::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::OnceLock;

/// `/dev/shm` below this size (a container's default is 64 MiB) is not used.
const LEAST_SHM: u64 = 256 << 20;

/// Two GPUs by the machine's numbers, the smaller one first.
pub(crate) type Pair = (u32, u32);

/// What the settings say.
#[derive(Debug)]
pub(crate) struct Config {
    /// The directory that plays the machine.
    pub(crate) dir: PathBuf,
    /// The UUID of each of the machine's GPUs.
    pub(crate) uuids: Vec<[u8; 16]>,
    /// This process's devices: the machine's number of each, in order.
    pub(crate) visible: Vec<u32>,
    /// Whether the list of this process's devices has one of them twice.
    pub(crate) sees_one_twice: bool,
    /// GPUs that reach each other's memory.
    pub(crate) peers: BTreeSet<Pair>,
    /// How many other GPUs one device may reach at the same time.
    pub(crate) peer_limit: usize,
    /// The fabric domain.
    pub(crate) imex: Option<String>,
    /// Bytes that each GPU claims.
    pub(crate) memory: u64,
    /// Whether memory takes room in the directory only when it is written.
    pub(crate) room_on_write: bool,
    /// Device attributes that differ; `None` is one that the driver does not
    /// know.
    pub(crate) attributes: BTreeMap<u32, Option<i32>>,
    /// Least granularity of VMM memory, and the recommended one.
    pub(crate) granularity: (u64, u64),
    /// Least granularity of multicast objects, and the recommended one.
    pub(crate) multicast_granularity: (u64, u64),
    /// How many multicast objects the machine's switches have room for.
    pub(crate) multicast_slots: usize,
    /// In CUDA's form, 13000 for 13.0. Newer symbols are missing.
    pub(crate) driver_version: u32,
    /// More symbols that this driver lacks.
    pub(crate) missing: Vec<String>,
    /// Whether reading a freed pool pointer ends the context.
    pub(crate) stale_pool_is_fatal: bool,
    /// Faults, as written.
    pub(crate) faults: FaultTexts,
    /// Why the driver cannot start, a line each.
    pub(crate) problems: Vec<String>,
}

/// The settings of the fault injector, as written.
#[derive(Debug, Default)]
pub(crate) struct FaultTexts {
    /// Calls that fail.
    pub(crate) fail: Option<String>,
    /// Calls that take longer.
    pub(crate) delay: Option<String>,
    /// Calls that fail at random.
    pub(crate) random: Option<String>,
}

impl Config {
    /// Whether a GPU reaches memory of another one.
    pub(crate) fn reaches(&self, a: u32, b: u32) -> bool {
        a == b || self.peers.contains(&(a.min(b), a.max(b)))
    }
}

/// The settings.
pub(crate) fn config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        read(
            |name| gpuipc_sys::environment::variable(name)?.into_string().ok(),
            &names.collect::<Vec<_>>(),
            |path| std::fs::read_to_string(path),
        )
    })
}

fn read(
    variable: impl Fn(&str) -> Option<String>,
    names: &[String],
    file: impl Fn(&str) -> std::io::Result<String>,
) -> Config {
    let mut settings = Settings::collect(&variable, names, file);
    let gpus: u32 = settings.take("gpus", value::gpus);
    let uuids = settings.take("uuids", |text| gpus::uuids(text, gpus));
    // CUDA's own variable is the most specific: also an empty one counts.
    let visible = variable("CUDA_VISIBLE_DEVICES").or_else(|| settings.text("visible"));
    let visible = gpus::visible(visible.as_deref(), &uuids);
    Config {
        dir: settings.text("dir").map_or_else(default_dir, PathBuf::from),
        sees_one_twice: visible.is_none(),
        visible: visible.unwrap_or_default(),
        uuids,
        peers: settings.take("peer", |text| value::peers(text, gpus)),
        peer_limit: settings.take("peer_limit", value::limit),
        imex: settings.text("imex").filter(|name| name != "none"),
        memory: settings.take("memory", value::bytes),
        room_on_write: settings.take("room", value::room),
        attributes: settings.take("attributes", value::attributes),
        granularity: settings.take("granularity", value::granularity),
        multicast_granularity: settings.take("multicast_granularity", value::granularity),
        multicast_slots: settings.take("multicast_slots", value::limit),
        driver_version: settings.take("driver_version", value::version),
        missing: settings.take("missing", value::symbols),
        stale_pool_is_fatal: settings.take("stale_pool", value::stale_pool),
        faults: FaultTexts {
            fail: settings.text("fail"),
            delay: settings.text("delay"),
            random: settings.text("random"),
        },
        problems: settings.problems,
    }
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

#[cfg(test)]
mod tests {
    use super::{Config, read};
    use std::io;

    fn with(variables: &[(&str, &str)], file: &str) -> Config {
        let names: Vec<String> = variables
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect();
        read(
            |name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, text)| (*text).to_owned())
            },
            &names,
            |path| match path {
                "there" => Ok(file.to_owned()),
                _ => Err(io::ErrorKind::NotFound.into()),
            },
        )
    }

    #[test]
    fn a_variable_wins_over_the_file_and_the_file_over_the_profile() {
        let file = "# a comment\nprofile = no-peer\n\ngpus = 4\nmemory = 1GiB\npeer = 0-1, 2-3\n";
        let settings = [
            ("GPUIPC_EMULATED_CONFIG", "there"),
            ("GPUIPC_EMULATED_MEMORY", "4096"),
        ];
        let config = with(&settings, file);
        assert_eq!(config.problems, [""; 0]);
        assert_eq!((config.uuids.len(), config.memory), (4, 4096));
        assert!(config.reaches(1, 0) && config.reaches(2, 3) && config.reaches(2, 2));
        assert!(!config.reaches(0, 2));
        assert_eq!(config.attributes.get(&132), Some(&Some(0)), "the profile's");
        let h200 = with(&[("GPUIPC_EMULATED_PROFILE", "h200"), settings[0]], file);
        assert!(h200.attributes.is_empty(), "the variable's profile");
    }

    #[test]
    fn what_cannot_be_understood_is_a_problem_that_names_it() {
        for (name, text) in [
            ("PROFILE", "h2000"),
            ("CONFIG", "absent"),
            ("GPUS", "two"),
            ("GPUS", "65"),
            ("UUIDS", "GPU-1234"),
            ("PEER", "some"),
            ("PEER", "0-2"),
            ("PEER_LIMIT", "-1"),
            ("MEMORY", "much"),
            ("ATTRIBUTES", "102"),
            ("GRANULARITY", "3000000"),
            ("MULTICAST_GRANULARITY", "3000000"),
            ("MULTICAST_SLOTS", "few"),
            ("DRIVER_VERSION", "11.4"),
            ("MISSING", "cuMemMapp"),
            ("STALE_POOL", "maybe"),
            ("ROOM", "some"),
        ] {
            let name = format!("GPUIPC_EMULATED_{name}");
            let config = with(&[(&name, text)], "");
            let [problem] = &config.problems[..] else {
                panic!("{name}={text}: {:?}", config.problems);
            };
            assert!(
                problem.contains(&name) && problem.contains(text),
                "{problem}"
            );
        }
        let config = with(&[("GPUIPC_EMULATED_IMX", "A")], "");
        assert!(config.problems[0].contains("GPUIPC_EMULATED_IMX"));
        let config = with(&[("GPUIPC_EMULATED_TEST_X", "A"), ("OTHER", "A")], "");
        assert_eq!(config.problems, [""; 0]);
        for (file, line) in [("gpu = 2", "line 1"), ("gpus = 2\nnonsense", "line 2")] {
            let config = with(&[("GPUIPC_EMULATED_CONFIG", "there")], file);
            assert!(config.problems[0].contains(line), "{:?}", config.problems);
        }
    }

    #[test]
    fn every_profile_is_understood() {
        for (name, _) in super::profile::PROFILES {
            let config = with(&[("GPUIPC_EMULATED_PROFILE", name)], "");
            assert_eq!(config.problems, [""; 0], "{name}");
        }
    }
}
