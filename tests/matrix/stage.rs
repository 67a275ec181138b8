//! An exporter and an importer, and one operation of theirs that is run again
//! and again: prepare, act, look at what came of it, clean up.

use crate::PROGRAM;
use gpuipc_core::GpuIpcMemHandle;
use gpuipc_tests::{LEGACY_SEED, Peer, Scratch, VMM_SEED, all_types, handle_of, to_hex};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The window that is shared: its offset and its length.
pub(crate) const OFFSET: u64 = 4096;
pub(crate) const LEN: u64 = 4096;
/// The memory around it, small where it may be: all of it is filled.
pub(crate) const SMALL: u64 = 2 * 4096;
/// For memory of several kinds with one length: the granularity.
pub(crate) const LARGE: u64 = 2 << 20;
/// The pattern in memory of one kind.
pub(crate) const SEED: u64 = 7;

/// The longest that anything may take: more than every deadline inside.
const IN_TIME: Duration = Duration::from_secs(15);

/// What is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    CudaMalloc,
    VmmFd,
    VmmFabric,
    /// All three types in one handle; forged, so not exported as it is.
    AllTypes,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::CudaMalloc => "cuda-malloc",
            Self::VmmFd => "vmm-fd",
            Self::VmmFabric => "vmm-fabric",
            Self::AllTypes => "all-types",
        }
    }

    /// The orders of types that matter: the default one, each type alone where
    /// there are more, and the default one turned around.
    pub(crate) const fn orders(self) -> &'static [&'static str] {
        match self {
            Self::CudaMalloc | Self::VmmFd => &[""],
            Self::VmmFabric => &["", "PosixFd", "Fabric"],
            Self::AllTypes => &[
                "",
                "PosixFd",
                "Fabric",
                "RuntimeIpc",
                "RuntimeIpc,Fabric,PosixFd",
            ],
        }
    }

    /// The pattern that a type leads to.
    pub(crate) fn seed(self, used: &str) -> u64 {
        match (self, used) {
            (Self::AllTypes, "RuntimeIpc") => LEGACY_SEED,
            (Self::AllTypes, _) => VMM_SEED,
            _ => SEED,
        }
    }
}

/// What is done, and in which process calls fail meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The first export of an allocation: fails in the exporter.
    Export,
    /// Another window of an allocation that is on offer.
    ExportAgain,
    /// The end of an offer.
    DropOffer,
    /// The end of the exporter's memory.
    DropBuffer,
    /// Fails in the importer.
    Import,
    /// An import that fails in the exporter, which answers for its offers.
    Answer,
    /// The end of a mapping that was read from.
    DropMapping,
}

impl Side {
    pub(crate) const fn in_exporter(self) -> bool {
        !matches!(self, Self::Import | Self::DropMapping)
    }

    /// Whether it only gives things back.
    pub(crate) const fn is_drop(self) -> bool {
        matches!(self, Self::DropOffer | Self::DropBuffer | Self::DropMapping)
    }

    /// Whether the exporter's offer stands all the time.
    const fn needs_offer(self) -> bool {
        matches!(
            self,
            Self::ExportAgain | Self::Import | Self::Answer | Self::DropMapping
        )
    }
}

/// One operation under the same conditions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) side: Side,
    /// The types allowed, in order; empty for the default.
    pub(crate) types: &'static str,
    /// The current context of the process in which calls fail: a device's, or
    /// `none`.
    pub(crate) context: &'static str,
}

impl Case {
    pub(crate) fn name(&self) -> String {
        let Self {
            kind,
            side,
            types,
            context,
        } = self;
        let types = if types.is_empty() { "default" } else { types };
        format!("{} {side:?} types={types} context={context}", kind.name())
    }
}

/// A call that is to fail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault<'a> {
    pub(crate) symbol: &'a str,
    pub(crate) nth: u64,
    pub(crate) code: u32,
}

/// What an operation gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The type used, the types offered, or nothing for a drop.
    Done(String),
    Refused {
        status: String,
        attempts: Vec<String>,
        text: String,
    },
}

/// How often each driver call was used.
pub(crate) type Uses = BTreeMap<String, u64>;

/// The processes of a case.
#[derive(Debug)]
pub(crate) struct Stage {
    case: Case,
    scratch: Scratch,
    exporter: Peer,
    importer: Peer,
    buffer: u32,
    handle: Option<GpuIpcMemHandle>,
}

impl Stage {
    pub(crate) fn new(case: Case) -> Self {
        let scratch = Scratch::new();
        let exporter = Peer::start(PROGRAM, &scratch);
        let importer = Peer::start(PROGRAM, &scratch);
        let mut stage = Self {
            case,
            scratch,
            exporter,
            importer,
            buffer: 0,
            handle: None,
        };
        stage.set_exporter();
        stage.set_importer();
        stage
    }

    fn set_exporter(&mut self) {
        let Case {
            kind,
            side,
            context,
            ..
        } = self.case;
        let exporter = &mut self.exporter;
        if side.in_exporter() {
            exporter.ok(&format!("context {context}"));
        }
        if kind == Kind::AllTypes {
            self.handle = Some(all_types(exporter, LARGE, OFFSET, LEN));
            return;
        }
        (self.buffer, _) = exporter.alloc(kind.name(), SMALL);
        exporter.ok(&format!("fill {} {SEED}", self.buffer));
        if side.needs_offer() {
            self.handle = Some(exporter.export(self.buffer, OFFSET, LEN).1);
        }
    }

    fn set_importer(&mut self) {
        if !self.case.side.in_exporter() {
            self.importer.ok(&format!("context {}", self.case.context));
        }
    }

    /// Starts the process in which calls fail anew. It has done nothing yet.
    pub(crate) fn refresh(&mut self) {
        if self.case.side.in_exporter() {
            self.exporter = Peer::start(PROGRAM, &self.scratch);
            self.set_exporter();
        } else {
            self.importer = Peer::start(PROGRAM, &self.scratch);
            self.set_importer();
        }
    }

    /// The process in which calls fail.
    pub(crate) fn faulty(&mut self) -> &mut Peer {
        if self.case.side.in_exporter() {
            &mut self.exporter
        } else {
            &mut self.importer
        }
    }

    /// The one in which none do.
    pub(crate) fn other(&mut self) -> &mut Peer {
        if self.case.side.in_exporter() {
            &mut self.importer
        } else {
            &mut self.exporter
        }
    }

    /// Runs the operation once, with faults, and looks at what came of it
    /// without them. Nothing is left of it afterwards. Gives the calls that the
    /// operation itself used, too.
    ///
    /// # Errors
    /// What is not as it must be.
    pub(crate) fn round(&mut self, faults: &[Fault<'_>]) -> Result<(Outcome, Uses), String> {
        let start = Instant::now();
        if self.case.side.in_exporter() {
            self.wait_for_broker();
        }
        let prepared = self.prepare()?;
        let before = self.uses();
        for Fault { symbol, nth, code } in faults {
            self.faulty().ok(&format!("fail {symbol} {nth} {code} 1"));
        }
        let answer = self.act(prepared);
        self.faulty().ok("no-faults");
        let mut uses = self.uses();
        for (symbol, uses) in &mut uses {
            *uses -= before.get(symbol).copied().unwrap_or(0);
        }
        uses.retain(|_, uses| *uses > 0);
        let outcome = self.look(&answer)?;
        if start.elapsed() > IN_TIME {
            return Err(format!("took {:?}", start.elapsed()));
        }
        Ok((outcome, uses))
    }

    /// Until no importer is connected any more. Before, the broker's thread may
    /// still hold what it answered about, and so give it back a little later
    /// than the offer's drop: in the middle of what is counted.
    fn wait_for_broker(&mut self) {
        /// Under its two names.
        const LISTENERS: usize = 2;
        let connected = |state: &str| {
            let sockets = state.split("\"socket:[]\": ").nth(1);
            let digits = sockets.and_then(|rest| rest.split([',', '}']).next());
            digits.and_then(|digits| digits.parse().ok()).unwrap_or(0) > LISTENERS
        };
        let start = Instant::now();
        while connected(&self.exporter.ok("state")) && start.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn uses(&mut self) -> Uses {
        let answer = self.faulty().ok("calls-all");
        answer
            .split(' ')
            .filter_map(|word| word.split_once('='))
            .map(|(symbol, uses)| (symbol.to_owned(), uses.parse().expect("a number")))
            .collect()
    }

    /// What a drop will drop; the number of a buffer, offer or mapping.
    fn prepare(&mut self) -> Result<u32, String> {
        match self.case.side {
            Side::DropOffer => Ok(self.exporter.export(self.buffer, OFFSET, LEN).0),
            Side::DropBuffer => Ok(self.exporter.alloc(self.case.kind.name(), SMALL).0),
            Side::DropMapping => {
                let import = self.import_line();
                let answer = self.importer.ask(&import);
                let (id, used) = mapping_of(&answer).ok_or(answer)?;
                let seed = self.case.kind.seed(&used);
                self.importer.ok(&format!("read {id} {seed} {OFFSET}"));
                Ok(id)
            }
            _ => Ok(0),
        }
    }

    fn act(&mut self, prepared: u32) -> String {
        let line = match self.case.side {
            Side::Export | Side::ExportAgain => self.export_line(),
            Side::DropOffer => format!("drop offer {prepared}"),
            Side::DropBuffer => format!("drop buffer {prepared}"),
            Side::DropMapping => format!("drop mapping {prepared}"),
            Side::Import => self.import_line(),
            // Asked in one process, answered by another.
            Side::Answer => {
                let import = self.import_line();
                return self.importer.ask(&import);
            }
        };
        self.faulty().ask(&line)
    }

    fn export_line(&self) -> String {
        let types = types_option(self.case.types);
        format!("export {} {OFFSET} {LEN} {types}", self.buffer)
    }

    fn import_line(&self) -> String {
        let handle = self.handle.as_ref().expect("an offer stands");
        import_line(handle, self.case.types)
    }

    /// What an answer says; what it gave is checked and given back.
    fn look(&mut self, answer: &str) -> Result<Outcome, String> {
        if let Some(refused) = refusal(answer) {
            return refused;
        }
        match self.case.side {
            Side::DropOffer | Side::DropBuffer | Side::DropMapping if answer == "ok" => {
                Ok(Outcome::Done(String::new()))
            }
            Side::Export | Side::ExportAgain => {
                let (id, handle) = offer_of(answer).ok_or_else(|| answer.to_owned())?;
                // What is offered leads to the memory, by each type.
                for handle_type in handle.types().types() {
                    let import = import_line(&handle, handle_type.name());
                    let answer = self.importer.ask(&import);
                    self.look_at_mapping(&answer)
                        .map_err(|why| format!("the exported handle: {why}"))?;
                }
                self.exporter.ok(&format!("drop offer {id}"));
                Ok(Outcome::Done(format!("{:?}", handle.types())))
            }
            Side::Import | Side::Answer => self.look_at_mapping(answer).map(Outcome::Done),
            _ => Err(answer.to_owned()),
        }
    }

    /// Reads and drops a mapping; gives the type used.
    fn look_at_mapping(&mut self, answer: &str) -> Result<String, String> {
        let (id, used) = mapping_of(answer).ok_or_else(|| answer.to_owned())?;
        let seed = self.case.kind.seed(&used);
        let read = self.importer.ask(&format!("read {id} {seed} {OFFSET}"));
        self.importer.ok(&format!("drop mapping {id}"));
        if read == "ok" {
            Ok(used)
        } else {
            Err(format!("memory by {used}: {read}"))
        }
    }
}

pub(crate) fn import_line(handle: &GpuIpcMemHandle, types: &str) -> String {
    let hex = to_hex(&handle.encode());
    format!("import {hex} timeout=5000 {}", types_option(types))
}

fn types_option(types: &str) -> String {
    if types.is_empty() {
        String::new()
    } else {
        format!("types={types}")
    }
}

/// Number and type of a mapping.
pub(crate) fn mapping_of(answer: &str) -> Option<(u32, String)> {
    let words: Vec<&str> = answer.split(' ').collect();
    match words.as_slice() {
        ["ok", id, _ptr, used, _liveness, _len, _attempts] => {
            Some((id.parse().ok()?, (*used).to_owned()))
        }
        _ => None,
    }
}

/// Number and handle of an offer.
pub(crate) fn offer_of(answer: &str) -> Option<(u32, GpuIpcMemHandle)> {
    let words: Vec<&str> = answer.split(' ').collect();
    match words.as_slice() {
        ["ok", id, hex] => Some((id.parse().ok()?, handle_of(hex))),
        _ => None,
    }
}

/// An error, which must have a status of its own and a text; `None` if the
/// answer is none.
pub(crate) fn refusal(answer: &str) -> Option<Result<Outcome, String>> {
    let words: Vec<&str> = answer.splitn(4, ' ').collect();
    let ["err", status, attempts, text] = words.as_slice() else {
        return None;
    };
    let is_name = |c: char| c.is_ascii_uppercase() || c == '_';
    if !status.chars().all(is_name) || matches!(*status, "OK" | "PANIC" | "UNKNOWN") {
        return Some(Err(format!("no status: {answer}")));
    }
    let attempts: Vec<String> = attempts
        .split(',')
        .filter(|attempt| *attempt != "-")
        .map(str::to_owned)
        .collect();
    if text.is_empty() || attempts.iter().any(|a| a.split('/').count() != 3) {
        return Some(Err(format!("says too little: {answer}")));
    }
    Some(Ok(Outcome::Refused {
        status: (*status).to_owned(),
        attempts,
        text: (*text).to_owned(),
    }))
}
