//! One case shared with the importing process and back.

use crate::attempt::{AttemptText, Side};
use crate::case::{Case, Usage};
use crate::child::Importer;
use crate::output::Failure;
use crate::pattern;
use crate::session::Session;
use crate::source::Source;
use gpuipc::{ExportOptions, GpuIpcMemHandle, HandleType, TypeFlags};

/// What became of it.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub(crate) case: Case,
    pub(crate) bytes: usize,
    /// Handles that the range needed.
    pub(crate) handles: usize,
    pub(crate) allocated: bool,
    pub(crate) exported_types: Vec<HandleType>,
    pub(crate) used: Option<String>,
    pub(crate) import_us: Option<u64>,
    pub(crate) verified: bool,
    pub(crate) attempts: Vec<AttemptText>,
    pub(crate) error: Option<String>,
}

impl Trial {
    /// A trial that has not begun.
    pub(crate) const fn of(case: Case, bytes: usize) -> Self {
        Self {
            case,
            bytes,
            handles: 0,
            allocated: false,
            exported_types: Vec::new(),
            used: None,
            import_us: None,
            verified: false,
            attempts: Vec::new(),
            error: None,
        }
    }

    /// Allocates, exports, has the importer verify and use the memory, verifies
    /// what it wrote. Fails only where there is nobody to share with any more.
    pub(crate) fn run(
        session: &Session,
        importer: &mut Importer,
        case: Case,
        bytes: usize,
        options: &ExportOptions,
    ) -> Result<Self, Failure> {
        let mut trial = Self::of(case, bytes);
        let source = match Source::allocate(session, case.memory, bytes) {
            Ok(source) => source,
            Err(error) => {
                trial.error = Some(error.to_string());
                return Ok(trial);
            }
        };
        trial.allocated = true;
        match trial.exchange(session, importer, &source, options) {
            Ok(()) => trial.verified = true,
            // An error of the library lists its attempts below its first line;
            // the trial has them by themselves.
            Err(Failure::Text(text)) => trial.error = text.lines().next().map(str::to_owned),
            Err(failure) => return Err(failure),
        }
        Ok(trial)
    }

    fn exchange(
        &mut self,
        session: &Session,
        importer: &mut Importer,
        source: &Source,
        options: &ExportOptions,
    ) -> Result<(), Failure> {
        let exported = source.export(session, options).inspect_err(|error| {
            self.attempts = AttemptText::all(Side::Export, error.attempts());
        })?;
        self.attempts = AttemptText::all(Side::Export, exported.attempts());
        let handles = exported.handles();
        self.handles = handles.len();
        self.exported_types = exported_types(handles);
        source.fill(pattern::exported_seed(handles), &mut || {
            importer.still_working()
        })?;
        let answer = importer.import(self.case.usage, handles)?;
        self.used = answer.used;
        self.import_us = answer.import_us;
        self.attempts.extend(answer.attempts);
        if let Some(error) = answer.error {
            return Err(Failure::text(error));
        }
        if usize::try_from(answer.bytes) != Ok(self.bytes) {
            return Err(Failure::text(format!(
                "the importer mapped {} bytes instead of {}",
                answer.bytes, self.bytes
            )));
        }
        let (seed, wrong) = match self.case.usage {
            Usage::Answer | Usage::AnswerAndCpu => (
                pattern::answer_seed(handles),
                "the exporter does not see what the importer wrote",
            ),
            Usage::ReadOnly => (
                pattern::exported_seed(handles),
                "memory that was mapped for reading only has changed",
            ),
        };
        let difference = source.compare(seed, &mut || importer.still_working())?;
        if let Some(difference) = difference {
            return Err(Failure::text(format!("{wrong}: {difference}")));
        }
        if !source.edges_are_untouched()? {
            return Err(Failure::text(
                "the importer wrote beyond the range that was exported",
            ));
        }
        Ok(())
    }
}

/// The types by which all of a range can be imported.
pub(crate) fn exported_types(handles: &[GpuIpcMemHandle]) -> Vec<HandleType> {
    let types = handles.iter().map(GpuIpcMemHandle::types);
    let common = types.fold(TypeFlags::all(), TypeFlags::intersection);
    common.types().into_iter().collect()
}
