//! The ways from an exporter to an importer, and which of them are left.

use crate::{PROGRAM, after};
use core::fmt;
use gpuipc_core::GpuIpcMemHandle;
use gpuipc_tests::{Scratch, TestChild, by_broker_alone, out_of_reach, to_hex};
use std::path::PathBuf;

/// Bytes of a range: few, since each is compared.
const LEN: u64 = 4096;
const SEED: u64 = 91;

/// Something that the system does not give to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// System calls, by the names that the helper process knows, with this errno.
    Calls(&'static str, i32),
    /// Files that grow to this many bytes and more.
    LargeFiles(u64),
    /// Files of /proc, by a shell's line in a mount namespace of its own.
    Proc(&'static str),
}

impl Refused {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Calls(names, errno) => format!("{names}={errno}"),
            Self::LargeFiles(limit) => format!("RLIMIT_FSIZE={limit}"),
            Self::Proc(line) => line.to_owned(),
        }
    }
}

/// What is left to share memory by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ways {
    /// The broker under its abstract name.
    pub(crate) abstract_name: bool,
    /// The broker under its name in a folder.
    pub(crate) file_name: bool,
    /// The descriptor by its number, proven by the export table.
    pub(crate) number: bool,
    /// Whether it shows that both are on one host; else a broker's answer must.
    pub(crate) host: bool,
}

impl Ways {
    pub(crate) const ALL: Self = Self {
        abstract_name: true,
        file_name: true,
        number: true,
        host: true,
    };

    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            abstract_name: self.abstract_name && other.abstract_name,
            file_name: self.file_name && other.file_name,
            number: self.number && other.number,
            host: self.host && other.host,
        }
    }

    fn broker(self) -> bool {
        self.abstract_name || self.file_name
    }

    /// Whether memory of `cuMemCreate` comes across at all.
    pub(crate) fn shares_vmm(self) -> bool {
        self.broker() || self.number
    }

    /// The same for memory of `cuMemAlloc`: the driver alone shares it.
    pub(crate) fn shares_legacy(self) -> bool {
        self.broker() || self.host
    }
}

/// An exporter that has exported both kinds of memory, and where its broker's name is.
pub(crate) struct Exporter {
    pub(crate) child: TestChild,
    scratch: Scratch,
    /// Or why not.
    pub(crate) vmm: Result<GpuIpcMemHandle, String>,
    pub(crate) legacy: Result<GpuIpcMemHandle, String>,
}

impl Exporter {
    pub(crate) fn start(refused: &[Refused]) -> Self {
        let scratch = Scratch::new();
        let mut child = start(&scratch, "sockets", refused);
        child.ok("log");
        // The page that tells a forked child is made with the first memory. All else is
        // refused after that: the emulated driver's memory needs it.
        let (early, late): (Vec<_>, Vec<_>) = refused.iter().copied().partition(
            |refused| matches!(refused, Refused::Calls(name, _) if ["wipe-on-fork", "madvise"].contains(name)),
        );
        refuse(&mut child, &early);
        let [vmm, legacy] = ["vmm-fd", "cuda-malloc"].map(|memory| {
            let (buffer, _) = child.alloc(memory, LEN);
            child.ok(&format!("fill {buffer} {SEED}"));
            buffer
        });
        refuse(&mut child, &late);
        let [vmm, legacy] = [vmm, legacy].map(|buffer| export(&mut child, buffer));
        Self {
            child,
            scratch,
            vmm,
            legacy,
        }
    }

    /// A process beside it.
    pub(crate) fn importer(&self, refused: &[Refused]) -> Importer {
        let scratch = &self.scratch;
        let mut both = start(scratch, "sockets", refused);
        let mut abstract_name = start(scratch, "elsewhere", refused);
        let mut file_name = start(scratch, "sockets", refused);
        refuse(
            &mut file_name,
            &[Refused::Calls("connect-abstract", libc::ECONNREFUSED)],
        );
        for child in [&mut both, &mut abstract_name, &mut file_name] {
            refuse(child, refused);
        }
        Importer {
            both,
            abstract_name,
            file_name,
        }
    }
}

fn export(child: &mut TestChild, buffer: u32) -> Result<GpuIpcMemHandle, String> {
    let answer = child.ask(&format!("export {buffer} 0 {LEN}"));
    match answer
        .strip_prefix("ok ")
        .and_then(|rest| rest.split_once(' '))
    {
        Some((_, hex)) => Ok(gpuipc_tests::handle_of(hex)),
        None => Err(answer),
    }
}

/// Importers that look for the broker under both names, or one alone.
pub(crate) struct Importer {
    both: TestChild,
    abstract_name: TestChild,
    file_name: TestChild,
}

impl Importer {
    /// By which ways memory comes, each tried by itself, and whether it comes when all
    /// are open.
    pub(crate) fn try_all(&mut self, exporter: &Exporter) -> Found {
        let mut tried = Vec::new();
        let mut comes = |child: &mut TestChild, handle: &GpuIpcMemHandle| {
            let answer = import(child, handle);
            let came = answer == "ok";
            tried.push(answer);
            came
        };
        let (mut ways, mut vmm) = ([false; 3], false);
        if let Ok(handle) = &exporter.vmm {
            let asked = by_broker_alone(handle);
            ways = [
                comes(&mut self.abstract_name, &asked),
                comes(&mut self.file_name, &asked),
                comes(&mut self.both, &out_of_reach(handle)),
            ];
            vmm = comes(&mut self.both, handle);
        }
        let legacy = exporter.legacy.as_ref();
        let legacy = legacy.is_ok_and(|handle| comes(&mut self.both, handle));
        Found {
            ways,
            vmm,
            legacy,
            tried,
        }
    }
}

/// What was found.
pub(crate) struct Found {
    /// Abstract name, file name, number.
    pub(crate) ways: [bool; 3],
    pub(crate) vmm: bool,
    pub(crate) legacy: bool,
    /// Each answer, in that order.
    tried: Vec<String>,
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            ways, vmm, legacy, ..
        } = self;
        write!(
            f,
            "ways {ways:?}, vmm {vmm}, legacy {legacy}, {:#?}",
            self.tried
        )
    }
}

impl Found {
    /// Where it is not what is expected.
    pub(crate) fn differs(&self, expected: Ways) -> bool {
        let Ways {
            abstract_name,
            file_name,
            number,
            ..
        } = expected;
        self.ways != [abstract_name, file_name, number]
            || self.vmm != expected.shares_vmm()
            || self.legacy != expected.shares_legacy()
    }
}

/// `ok` with the right bytes, or the error.
fn import(child: &mut TestChild, handle: &GpuIpcMemHandle) -> String {
    let answer = child.ask(&format!("import {} timeout=2000", to_hex(&handle.encode())));
    let Some(id) = answer
        .strip_prefix("ok ")
        .and_then(|rest| rest.split(' ').next())
    else {
        return answer;
    };
    let read = child.ask(&format!("read {id} {SEED} 0"));
    child.ok(&format!("drop mapping {id}"));
    read
}

fn start(scratch: &Scratch, folder: &str, refused: &[Refused]) -> TestChild {
    let folder: PathBuf = scratch.path().join(folder);
    let lines: Vec<&str> = refused
        .iter()
        .filter_map(|refused| match refused {
            Refused::Proc(line) => Some(*line),
            _ => None,
        })
        .collect();
    let program = if lines.is_empty() { PROGRAM } else { "unshare" };
    TestChild::start_with(program, scratch, |command| {
        command.env("GPUIPC_SOCKET_DIR", folder);
        if !lines.is_empty() {
            after(command, &["--mount"], &lines.join(" && "));
        }
    })
}

fn refuse(child: &mut TestChild, refused: &[Refused]) {
    for refused in refused {
        match refused {
            Refused::Calls(names, errno) => {
                let known = child.ok(&format!("refuse {names} {errno}"));
                assert_ne!(known, "", "{names}");
            }
            Refused::LargeFiles(limit) => {
                child.ok(&format!("fsize {limit}"));
            }
            Refused::Proc(_) => {}
        }
    }
}
