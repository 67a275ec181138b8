//! What the demo and the doctor share: a kind of memory, and what the importer
//! does with it.

use gpuipc::Memory;

/// What the importer does once it has the memory. It compares every byte, in
/// each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// Overwrites it with an answer.
    Answer,
    /// The same, and reads the bytes by the CPU, too, before and after.
    AnswerAndCpu,
    /// Maps it for reading only, and tries to write, which must be refused.
    ReadOnly,
}

impl Usage {
    /// Every usage.
    pub(crate) const ALL: [Self; 3] = [Self::Answer, Self::AnswerAndCpu, Self::ReadOnly];

    /// The number that stands for it in a request.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Answer => 0,
            Self::AnswerAndCpu => 1,
            Self::ReadOnly => 2,
        }
    }

    /// The usage with this number.
    pub(crate) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|usage| usage.code() == code)
    }

    /// That all of it went well.
    pub(crate) const fn done(self) -> &'static str {
        match self {
            Self::Answer => "yes",
            Self::AnswerAndCpu => "yes, CPU too",
            Self::ReadOnly => "yes, no writes",
        }
    }
}

/// Something to share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) memory: Memory,
    pub(crate) usage: Usage,
}

impl Case {
    /// Memory of this kind, used in all ways that it allows.
    pub(crate) const fn of(memory: Memory) -> Self {
        let usage = match memory {
            Memory::HostNuma => Usage::AnswerAndCpu,
            _ => Usage::Answer,
        };
        Self {
            name: memory.name(),
            memory,
            usage,
        }
    }

    /// Each kind of memory, and one mapped for reading only.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let read_only = Self {
            name: "read-only",
            memory: Memory::VmmFd,
            usage: Usage::ReadOnly,
        };
        Memory::ALL.into_iter().map(Self::of).chain([read_only])
    }
}
