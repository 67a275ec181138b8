//! Answers as rows: `section / question = answer`.

use crate::call::{GONE, Got, MISSING, NOT_FOR_CPU};
use crate::raw::Raw;
use core::fmt::{self, Display};
use gpuipc::sys::CuResult;
use std::io::Write;

/// Prints one section's rows.
#[derive(Debug)]
pub(crate) struct Rows {
    section: &'static str,
    raw: Raw,
}

/// What can stand behind `=`.
pub(crate) trait Answer {
    /// The text; `raw` knows the names of codes.
    fn text(&self, raw: Raw) -> String;
}

impl Rows {
    /// Rows of this section.
    pub(crate) const fn new(section: &'static str, raw: Raw) -> Self {
        Self { section, raw }
    }

    /// Prints a row.
    pub(crate) fn row(&self, question: impl Display, answer: impl Answer) {
        let answer = answer.text(self.raw);
        let mut stdout = std::io::stdout().lock();
        let line = format!("{} / {question} = {answer}\n", self.section);
        // Whole lines at once: what a process said before it died is kept.
        let told = stdout
            .write_all(line.as_bytes())
            .and_then(|()| stdout.flush());
        if told.is_err() {
            std::process::exit(1);
        }
    }

    /// Prints a row and gives the answer if there is one.
    pub(crate) fn got<T>(&self, question: impl Display, answer: Got<T>) -> Option<T> {
        self.row(question, code(&answer));
        answer.ok()
    }
}

/// Only the code of an answer.
pub(crate) fn code<T>(answer: &Got<T>) -> CuResult {
    match answer {
        Ok(_) => CuResult::SUCCESS,
        Err(code) => *code,
    }
}

/// Whether an answer is what it should be.
pub(crate) fn right(answer: Got<u64>, wanted: u64) -> Got<&'static str> {
    answer.map(|answer| if answer == wanted { "right" } else { "wrong" })
}

/// Whether an answer equals another one.
pub(crate) fn same<T: PartialEq>(answer: Got<T>, other: T) -> Got<&'static str> {
    answer.map(|answer| if answer == other { "same" } else { "other" })
}

/// A context as words.
pub(crate) fn context(answer: Got<u64>, known: u64) -> Got<&'static str> {
    answer.map(|context| match context {
        0 => "null",
        context if context == known => "the context",
        _ => "another",
    })
}

/// An address as the distance from another one.
pub(crate) fn distance(answer: Got<u64>, from: u64) -> Got<Distance> {
    answer.map(|address| Distance(address, from))
}

/// See [`distance`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Distance(u64, u64);

impl Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self(0, from) if from != 0 => f.write_str("null"),
            Self(address, from) if address >= from => write!(f, "+{}", address - from),
            Self(address, from) => write!(f, "-{}", from - address),
        }
    }
}

impl Answer for CuResult {
    fn text(&self, raw: Raw) -> String {
        match *self {
            MISSING => "(no such call)".to_owned(),
            GONE => "(nobody answers)".to_owned(),
            NOT_FOR_CPU => "(not for the CPU)".to_owned(),
            code => match code.name() {
                Some(name) => name.to_owned(),
                None => raw
                    .error_text(code, true)
                    .unwrap_or_else(|_| format!("CUresult {}", code.0)),
            },
        }
    }
}

impl<T: Answer> Answer for Got<T> {
    fn text(&self, raw: Raw) -> String {
        match self {
            Ok(answer) => answer.text(raw),
            Err(code) => code.text(raw),
        }
    }
}

/// A call's code, and that of the capture's end where it has one of its own.
impl Answer for (CuResult, CuResult) {
    fn text(&self, raw: Raw) -> String {
        let call = self.0.text(raw);
        match self.1 {
            CuResult::SUCCESS => call,
            end => format!("{call}, capture: {}", end.text(raw)),
        }
    }
}

impl Answer for () {
    fn text(&self, raw: Raw) -> String {
        CuResult::SUCCESS.text(raw)
    }
}

impl Answer for bool {
    fn text(&self, _: Raw) -> String {
        if *self { "yes" } else { "no" }.to_owned()
    }
}

macro_rules! as_displayed {
    ($($ty:ty),*) => { $(
        impl Answer for $ty {
            fn text(&self, _: Raw) -> String {
                self.to_string()
            }
        }
    )* };
}

as_displayed!(u64, i32, u32, &str, String, Distance);
