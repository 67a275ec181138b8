//! A script played: each step done by its process, and its answer compared with
//! what the model says.

use crate::ground::Ground;
use crate::model::{Model, Wrong};
use crate::step::{Case, PROCESSES, Step};
use gpuipc_core::HandleType;
use gpuipc_tests::pattern_byte;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What was expected, and what came in its place.
#[derive(Debug)]
pub(crate) struct Deviation {
    pub(crate) expected: String,
    pub(crate) came: String,
}

pub(crate) type Done = Result<(), Deviation>;

pub(crate) fn deviation<T>(
    expected: impl Into<String>,
    came: impl Into<String>,
) -> Result<T, Deviation> {
    Err(Deviation {
        expected: expected.into(),
        came: came.into(),
    })
}

/// A script under way.
pub(crate) struct Play<'a> {
    pub(crate) ground: &'a mut Ground,
    pub(crate) model: Model,
    /// What was done, a line each.
    pub(crate) script: Vec<String>,
    /// Forked processes that stay.
    pub(crate) children: Vec<i32>,
}

/// Plays a script on `ground`; the text of an error is the whole script, what was
/// expected of its last line, and what came.
pub(crate) fn play(ground: &mut Ground, case: &Case, wrong: Option<Wrong>) -> Result<(), String> {
    ground.begin();
    let mut play = Play {
        ground,
        model: Model::new(wrong),
        script: Vec::new(),
        children: Vec::new(),
    };
    let done = catch_unwind(AssertUnwindSafe(|| play.all(case)));
    play.end_children();
    let (script, told) = (
        play.script.join("\n  "),
        match done {
            Ok(Ok(())) => {
                ground.counts.cases += 1;
                return Ok(());
            }
            Ok(Err(Deviation { expected, came })) => {
                format!("expected: {expected}\n    came: {came}")
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>();
                format!("panicked: {}", text.map_or("?", String::as_str))
            }
        },
    );
    ground.forget();
    Err(format!("\n  {script}\n{told}\n"))
}

impl Play<'_> {
    fn all(&mut self, case: &Case) -> Done {
        for step in &case.steps {
            self.step(step)?;
        }
        self.end(case.order)
    }

    fn step(&mut self, step: &Step) -> Done {
        self.ground.counts.steps += 1;
        match step {
            Step::Alloc {
                process,
                kind,
                longer,
                second,
            } => self.alloc(process % PROCESSES, *kind, *longer, *second),
            Step::Write { buffer, seed } => self
                .buffer(*buffer)
                .map_or(Ok(()), |buffer| self.write(buffer, *seed)),
            Step::Export {
                buffer,
                start,
                len,
                types,
                on_demand,
                registered,
            } => self
                .buffer(*buffer)
                .map_or(Ok(()), |buffer| match registered {
                    None => self.export(buffer, (*start, *len), types, *on_demand),
                    Some(how) => self.register(buffer, (*start, *len), *how),
                }),
            Step::Import {
                process,
                export,
                options,
            } => match newest(self.model.exports.len(), *export) {
                Some(export) => self.import(process % PROCESSES, export, options),
                None => Ok(()),
            },
            Step::Read { mapping } => self
                .mapping(*mapping)
                .map_or(Ok(()), |mapping| self.read(mapping)),
            Step::WriteThrough { mapping, seed } => self
                .mapping(*mapping)
                .map_or(Ok(()), |mapping| self.write_through(mapping, *seed)),
            Step::ExportMapping { mapping } => self
                .mapping(*mapping)
                .map_or(Ok(()), |mapping| self.export_mapping(mapping)),
            Step::DropMapping { mapping } => self
                .mapping(*mapping)
                .map_or(Ok(()), |mapping| self.drop_mapping(mapping)),
            Step::Unmap { mapping } => self
                .mapping(*mapping)
                .map_or(Ok(()), |mapping| self.unmap(mapping)),
            Step::Reserve { process } => self.reserve(process % PROCESSES),
            Step::DropPlace { place } => {
                let there = self.model.places_there(|_| true);
                match newest(there.len(), *place) {
                    Some(at) => self.drop_place(there[at]),
                    None => Ok(()),
                }
            }
            Step::DropExport { export } => {
                let is_live = |export: &usize| !self.model.exports[*export].is_dropped;
                let live: Vec<_> = (0..self.model.exports.len()).filter(is_live).collect();
                match newest(live.len(), *export) {
                    Some(at) => self.drop_export(live[at]),
                    None => Ok(()),
                }
            }
            Step::Free { buffer } => self
                .buffer(*buffer)
                .map_or(Ok(()), |buffer| self.free(buffer)),
            Step::DropIpc { process } => self.drop_ipc(process % PROCESSES),
            Step::CloseIdle { process } => self.close_idle(process % PROCESSES),
            Step::Fork { process, stays } => self.fork(process % PROCESSES, *stays),
            Step::Kill { process } => self.kill(process % PROCESSES),
        }
    }

    /// The nth newest buffer that is there.
    fn buffer(&self, nth: usize) -> Option<usize> {
        let is_there = |at: &usize| !self.model.buffers[*at].is_freed;
        let there: Vec<_> = (0..self.model.buffers.len()).filter(is_there).collect();
        Some(there[newest(there.len(), nth)?])
    }

    /// The nth newest mapping that is there.
    fn mapping(&self, nth: usize) -> Option<usize> {
        let is_there = |at: &usize| !self.model.mappings[*at].is_dropped;
        let there: Vec<_> = (0..self.model.mappings.len()).filter(is_there).collect();
        Some(there[newest(there.len(), nth)?])
    }

    pub(crate) fn say(&mut self, life: usize, line: &str) {
        let seat = self.model.lives[life].seat;
        self.script.push(format!("P{}: {line}", seat + 1));
    }

    /// Adds to the last line.
    pub(crate) fn result(&mut self, text: &str) {
        if let Some(line) = self.script.last_mut() {
            line.push_str(text);
        }
    }

    pub(crate) fn ask(&mut self, life: usize, line: &str) -> String {
        let seat = self.model.lives[life].seat;
        self.ground.child(seat).ask(line)
    }

    /// The rest of an answer that must begin with `ok`.
    pub(crate) fn ok(&mut self, life: usize, line: &str) -> Result<String, Deviation> {
        let answer = self.ask(life, line);
        match answer.strip_prefix("ok") {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => deviation("it works", answer),
        }
    }
}

/// The index of the nth newest of so many.
pub(crate) fn newest(count: usize, nth: usize) -> Option<usize> {
    Some(count.checked_sub(1)? - nth % count)
}

pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| pattern_byte(seed, at)).collect()
}

/// `types=` as an option of the child, if there are some.
pub(crate) fn words(types: &[HandleType]) -> String {
    let names: Vec<&str> = types.iter().map(|handle_type| handle_type.name()).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(" types={}", names.join(","))
    }
}

pub(crate) fn b(buffer: usize) -> String {
    format!("B{}", buffer + 1)
}

pub(crate) fn m(mapping: usize) -> String {
    format!("M{}", mapping + 1)
}
