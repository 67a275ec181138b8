//! The fabric: IMEX channels, and what NVML says of each GPU.

use super::check::Check;
use super::nvml::{self, Fabric};

const CHANNELS: &str = "/dev/nvidia-caps-imex-channels";
const IMEX_CURE: &str = "for fabric handles: run nvidia-imex on every host, make a channel \
    (the driver's module parameter NVreg_CreateImexChannel0=1), and give the container its device";

/// The findings.
pub(crate) fn checks() -> Vec<Check> {
    let mut checks = vec![channels()];
    match nvml::read() {
        Err(reason) => checks.push(Check::unknown("NVML", reason)),
        Ok(gpus) if gpus.is_empty() => checks.push(Check::note("NVML", "it shows no GPU")),
        Ok(gpus) => checks.extend(gpus.iter().enumerate().map(|(index, gpu)| {
            let subject = format!("NVML GPU {index}");
            match &gpu.fabric {
                Err(reason) => Check::unknown(subject, format!("{}: {reason}", gpu.uuid)),
                Ok(fabric) => state(subject, &gpu.uuid, fabric),
            }
        })),
    }
    checks
}

fn channels() -> Check {
    let subject = "IMEX channels";
    let entries = match std::fs::read_dir(CHANNELS) {
        Ok(entries) => entries,
        Err(error) => return Check::no(subject, format!("{CHANNELS}: {error}"), IMEX_CURE),
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    names.sort();
    if names.is_empty() {
        return Check::no(subject, format!("{CHANNELS} is empty"), IMEX_CURE);
    }
    let closed: Vec<String> = names
        .iter()
        .filter_map(|name| {
            let opened = std::fs::File::options()
                .read(true)
                .write(true)
                .open(format!("{CHANNELS}/{name}"));
            opened.err().map(|error| format!("{name}: {error}"))
        })
        .collect();
    if closed.len() == names.len() {
        return Check::no(
            subject,
            format!("none can be opened: {}", closed.join(", ")),
            "give this user and container the right to the channel's device",
        );
    }
    let closed = if closed.is_empty() {
        String::new()
    } else {
        format!("; not to be opened: {}", closed.join(", "))
    };
    Check::ok(subject, format!("{}{closed}", names.join(", ")))
}

fn state(subject: String, uuid: &str, fabric: &Fabric) -> Check {
    let cluster: String = fabric
        .cluster
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let no_domain = fabric.cluster == [0; 16];
    match fabric.state {
        nvml::NOT_SUPPORTED_STATE => Check::note(
            subject,
            format!("{uuid}: NVML knows no fabric for this GPU"),
        ),
        nvml::COMPLETED if fabric.status != 0 => Check::no(
            subject,
            format!(
                "{uuid}: the registration with the fabric failed: {}",
                nvml::name(fabric.status)
            ),
            "see the log of nvidia-fabricmanager and nvidia-smi -q (Fabric)",
        ),
        nvml::COMPLETED if no_domain => Check::note(
            subject,
            format!("{uuid}: registered, but in no domain of several hosts (cluster UUID is zero)"),
        ),
        nvml::COMPLETED => Check::ok(
            subject,
            format!(
                "{uuid}: in fabric domain {cluster}, clique {}",
                fabric.clique
            ),
        ),
        other => Check::no(
            subject,
            format!(
                "{uuid}: the registration with the fabric {}",
                match other {
                    nvml::NOT_STARTED => "has not started".to_owned(),
                    nvml::IN_PROGRESS => "is in progress".to_owned(),
                    other => format!("has the unknown state {other}"),
                }
            ),
            "start nvidia-fabricmanager, or wait until it is done",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Verdict;

    #[test]
    fn a_zero_cluster_is_no_domain() {
        let mut fabric = Fabric {
            cluster: [0; 16],
            status: 0,
            clique: 7,
            state: nvml::COMPLETED,
        };
        let verdict = |fabric: &Fabric| state(String::new(), "", fabric).verdict;
        assert_eq!(verdict(&fabric), Verdict::Note);
        fabric.cluster[15] = 1;
        assert_eq!(verdict(&fabric), Verdict::Ok);
        fabric.status = 3;
        assert_eq!(verdict(&fabric), Verdict::No);
        fabric.state = nvml::IN_PROGRESS;
        assert_eq!(verdict(&fabric), Verdict::No);
        fabric.state = nvml::NOT_SUPPORTED_STATE;
        assert_eq!(verdict(&fabric), Verdict::Note);
    }
}
