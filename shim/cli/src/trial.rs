//! One kind of memory shared with the importing process and back.

use crate::attempt::{AttemptText, Side};
use crate::child::Importer;
use crate::output::Failure;
use crate::pattern;
use crate::session::Session;
use crate::window::Window;
use gpuipc::{ExportOptions, HandleType, Memory};

/// What became of it.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub(crate) memory: Memory,
    pub(crate) bytes: usize,
    pub(crate) allocated: bool,
    pub(crate) offered: Vec<HandleType>,
    pub(crate) used: Option<String>,
    pub(crate) import_us: Option<u64>,
    pub(crate) verified: bool,
    pub(crate) attempts: Vec<AttemptText>,
    pub(crate) error: Option<String>,
}

impl Trial {
    /// A trial that has not begun.
    pub(crate) const fn of(memory: Memory, bytes: usize) -> Self {
        Self {
            memory,
            bytes,
            allocated: false,
            offered: Vec::new(),
            used: None,
            import_us: None,
            verified: false,
            attempts: Vec::new(),
            error: None,
        }
    }

    /// Allocates, exports, has the importer verify and answer, verifies the
    /// answer. Fails only where there is nobody to share with any more.
    pub(crate) fn run(
        session: &Session,
        importer: &mut Importer,
        memory: Memory,
        bytes: usize,
        options: &ExportOptions,
    ) -> Result<Self, Failure> {
        let mut trial = Self::of(memory, bytes);
        let window = match Window::allocate(session, memory, bytes) {
            Ok(window) => window,
            Err(error) => {
                trial.error = Some(error.to_string());
                return Ok(trial);
            }
        };
        trial.allocated = true;
        match trial.exchange(session, importer, &window, options) {
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
        window: &Window,
        options: &ExportOptions,
    ) -> Result<(), Failure> {
        let exported = window.export(session, options).inspect_err(|error| {
            self.attempts = AttemptText::all(Side::Export, error.attempts());
        })?;
        self.attempts = AttemptText::all(Side::Export, exported.attempts());
        let [handle] = exported.handles() else {
            return Err(Failure::text(
                "one allocation was exported in several segments",
            ));
        };
        self.offered = handle.types().types().into_iter().collect();
        window.fill(pattern::offered_seed(handle), &mut || {
            importer.still_working()
        })?;
        let answer = importer.import(handle)?;
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
        let difference = window.compare(pattern::answer_seed(handle), &mut || {
            importer.still_working()
        })?;
        if let Some(difference) = difference {
            return Err(Failure::text(format!(
                "the exporter does not see what the importer wrote: {difference}"
            )));
        }
        if !window.edges_are_untouched()? {
            return Err(Failure::text(
                "the importer wrote beyond the window that was exported",
            ));
        }
        Ok(())
    }
}
