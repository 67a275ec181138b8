//! The trials: every kind of memory of every GPU, by each type alone, imported
//! by another process on every GPU.

use super::check::Check;
use super::gpus::cannot_be_used;
use crate::case::Case;
use crate::child::Importer;
use crate::driver::{Kind, Opened};
use crate::importer;
use crate::output::Failure;
use crate::session::Session;
use crate::size;
use crate::trial::Trial;
use gpuipc::{ExportOptions, HandleType, Memory};
use serde_json::{Value, json};

const BYTES: usize = 2 << 20;
/// An importing process that fails is started anew, as often as this.
const LIVES: u32 = 2;

/// A trial by one type.
#[derive(Debug)]
pub(crate) struct Tried {
    trial: Trial,
    kind: Kind,
    handle_type: HandleType,
    device: i32,
    importer_device: i32,
    /// Why it failed and what to do about it.
    failed: Option<(String, String)>,
}

impl Tried {
    /// The type, if it works.
    pub(crate) fn works(&self) -> Option<HandleType> {
        self.trial.verified.then_some(self.handle_type)
    }

    pub(crate) fn to_json(&self) -> Value {
        let attempts = self.trial.attempts.iter();
        let attempts: Vec<Value> = attempts.map(crate::attempt::AttemptText::to_json).collect();
        json!({
            "driver": self.kind.name(),
            "memory": self.trial.case.memory.name(),
            "type": self.handle_type.name(),
            "device": self.device,
            "importer_device": self.importer_device,
            "verdict": if self.trial.verified { "ok" } else { "no" },
            "handles": self.trial.handles,
            "bytes": self.trial.bytes,
            "allocated": self.trial.allocated,
            "import_us": self.trial.import_us,
            "attempts": attempts,
            "error": self.trial.error,
            "reason": self.failed.as_ref().map(|(reason, _)| reason),
            "cure": self.failed.as_ref().map(|(_, cure)| cure),
        })
    }
}

/// The types by which a kind of memory can go.
const fn ways(memory: Memory) -> &'static [HandleType] {
    match memory {
        Memory::CudaMalloc => &[HandleType::RuntimeIpc],
        Memory::VmmFabric => &[HandleType::PosixFd, HandleType::Fabric],
        // The others, and kinds to come, share at least by descriptor.
        _ => &[HandleType::PosixFd],
    }
}

/// The importing processes, one a GPU, started when they are needed.
struct Importers {
    kind: Kind,
    timeout_ms: Option<u64>,
    slots: Vec<Slot>,
}

struct Slot {
    importer: Option<Importer>,
    lives: u32,
    /// Why there is none.
    reason: String,
}

impl Importers {
    fn on(&mut self, device: i32) -> Result<&mut Importer, String> {
        let (kind, timeout_ms) = (self.kind, self.timeout_ms);
        let slot = usize::try_from(device).ok();
        let slot = slot
            .and_then(|slot| self.slots.get_mut(slot))
            .ok_or_else(|| format!("there is no GPU {device}"))?;
        if slot.importer.is_none() {
            if slot.lives == 0 {
                return Err(slot.reason.clone());
            }
            slot.lives -= 1;
            match importer::start(kind, device, timeout_ms) {
                Ok(importer) => slot.importer = Some(importer),
                Err(failure) => {
                    // The next start would not go better.
                    slot.lives = 0;
                    slot.reason = failure.to_string();
                }
            }
        }
        slot.importer.as_mut().ok_or_else(|| slot.reason.clone())
    }

    fn lost(&mut self, device: i32, reason: &str) {
        let slot = usize::try_from(device).ok();
        if let Some(slot) = slot.and_then(|slot| self.slots.get_mut(slot)) {
            slot.importer = None;
            reason.clone_into(&mut slot.reason);
        }
    }
}

/// Runs all. `report` is called after each exporting GPU.
pub(crate) fn run(
    opened: &Opened,
    timeout_ms: Option<u64>,
    report: &mut dyn FnMut(Vec<Check>) -> Result<(), Failure>,
) -> Result<Vec<Tried>, Failure> {
    let count = opened.driver.device_count().unwrap_or(0);
    let slot = || Slot {
        importer: None,
        lives: LIVES,
        reason: String::new(),
    };
    let mut importers = Importers {
        kind: opened.kind,
        timeout_ms,
        slots: (0..count).map(|_| slot()).collect(),
    };
    let mut all = Vec::new();
    for device in 0..count {
        let session = match Session::on_device(opened.kind.choice(), "GPU", device) {
            Ok(session) => session,
            Err(failure) => {
                report(vec![cannot_be_used(device, &failure)])?;
                continue;
            }
        };
        let mut here = Vec::new();
        for memory in Memory::ALL {
            for handle_type in ways(memory) {
                // The own GPU first: the others are compared with it.
                let others = (0..count).filter(|other| *other != device);
                for importer_device in std::iter::once(device).chain(others) {
                    let tried = try_one(
                        &session,
                        &mut importers,
                        Case::of(memory),
                        *handle_type,
                        importer_device,
                    )?;
                    here.push(tried);
                }
            }
        }
        report(lines(&here))?;
        all.extend(here);
    }
    Ok(all)
}

fn try_one(
    session: &Session,
    importers: &mut Importers,
    case: Case,
    handle_type: HandleType,
    importer_device: i32,
) -> Result<Tried, Failure> {
    let failed = |error: String| {
        let mut trial = Trial::of(case, BYTES);
        trial.error = Some(error);
        trial
    };
    let options = ExportOptions::default().types(&[handle_type]);
    let trial = match importers.on(importer_device) {
        Err(reason) => failed(reason),
        Ok(importer) => match Trial::run(session, importer, case, BYTES, &options) {
            Ok(trial) => trial,
            Err(Failure::Stdout(error)) => return Err(Failure::Stdout(error)),
            Err(failure) => {
                let reason = failure.to_string();
                importers.lost(importer_device, &reason);
                failed(reason)
            }
        },
    };
    let failed = (!trial.verified).then(|| explain(&trial, session));
    Ok(Tried {
        kind: session.opened.kind,
        device: session.device,
        trial,
        handle_type,
        importer_device,
        failed,
    })
}

/// Why a trial failed, and what to do about it.
fn explain(trial: &Trial, session: &Session) -> (String, String) {
    let error = trial.error.as_deref().unwrap_or("it was not verified");
    // An export that failed is an attempt, too; what the importer says is last.
    if let (None, Some(attempt)) = (&trial.used, trial.attempts.last()) {
        return (attempt.what(), attempt.hint().to_owned());
    }
    let hint = session.opened.allocation_hint(trial.case.memory);
    let hint = hint.trim_start_matches("; ");
    if trial.allocated || error.contains("importing process") {
        let cure = "see open files and broker above; GPUIPC_LOG=debug tells each step";
        (error.to_owned(), cure.to_owned())
    } else if hint.is_empty() {
        let cure = "free GPU memory, or see the code in CUDA's documentation";
        (format!("not allocated: {error}"), cure.to_owned())
    } else {
        (format!("not allocated: {error}"), hint.to_owned())
    }
}

/// One line for all importing GPUs with the same outcome.
fn lines(tried: &[Tried]) -> Vec<Check> {
    let mut groups: Vec<Vec<&Tried>> = Vec::new();
    for one in tried {
        let same = |group: &&mut Vec<&Tried>| {
            group.first().is_some_and(|first| {
                first.trial.case.memory == one.trial.case.memory
                    && first.handle_type == one.handle_type
                    && first.failed == one.failed
            })
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    let line = |group: Vec<&Tried>| {
        let first = group.first()?;
        let devices: Vec<String> = group
            .iter()
            .map(|tried| tried.importer_device.to_string())
            .collect();
        let emulated = match first.kind {
            Kind::Cuda => "",
            Kind::Emulated => "emulated ",
        };
        let between = format!(
            "{emulated}GPU {} to GPU {}",
            first.device,
            devices.join(", ")
        );
        let subject = format!("{} {}", first.trial.case.memory, first.handle_type);
        Some(match &first.failed {
            Some((reason, cure)) => Check::no(subject, format!("{between}: {reason}"), cure),
            None => {
                let times = group.iter().filter_map(|tried| tried.trial.import_us);
                let slowest = times.max().unwrap_or(0);
                let bytes = size::text(first.trial.bytes as u64);
                Check::ok(
                    subject,
                    format!("{between}: {bytes} verified, import in {slowest} us"),
                )
            }
        })
    };
    groups.into_iter().filter_map(line).collect()
}
