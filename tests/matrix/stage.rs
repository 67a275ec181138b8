//! An exporter and an importer, and one operation of theirs that is run again
//! and again: prepare, act, look at what came of it, clean up.

use crate::PROGRAM;
use gpuipc_core::{GpuIpcMemHandle, TypeFlags};
use gpuipc_tests::{LEGACY_SEED, Scratch, TestChild, VMM_SEED, all_types, handle_of, to_hex};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The range that is shared: its offset and its length.
pub(crate) const OFFSET: u64 = 4096;
pub(crate) const LEN: u64 = 4096;
/// The memory around it, small where it may be: all of it is filled.
pub(crate) const SMALL: u64 = 2 * 4096;
/// The granularity, the least that there is; also for memory of several kinds
/// with one length.
pub(crate) const LARGE: u64 = 64 << 10;
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
    /// Three allocations side by side: a first, a middle and a last one.
    Segments,
    Pool,
    /// A pool with both handle types; the library does not allocate it.
    PoolFabric,
    HostNuma,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::CudaMalloc => "cuda-malloc",
            Self::VmmFd => "vmm-fd",
            Self::VmmFabric => "vmm-fabric",
            Self::AllTypes => "all-types",
            Self::Segments => "segments",
            Self::Pool => "pool",
            Self::PoolFabric => "pool-fabric",
            Self::HostNuma => "host-numa",
        }
    }

    /// The orders of types that matter: the default one, each type alone where
    /// there are more, and the default one turned around.
    pub(crate) const fn orders(self) -> &'static [&'static str] {
        match self {
            Self::CudaMalloc | Self::VmmFd | Self::Segments | Self::Pool | Self::HostNuma => &[""],
            Self::VmmFabric | Self::PoolFabric => &["", "PosixFd", "Fabric"],
            Self::AllTypes => &[
                "",
                "PosixFd",
                "Fabric",
                "RuntimeIpc",
                "RuntimeIpc,Fabric,PosixFd",
            ],
        }
    }

    /// How it may be shared.
    pub(crate) const fn ways(self) -> &'static [Way] {
        match self {
            Self::CudaMalloc | Self::AllTypes => &[Way::Plain],
            Self::VmmFd | Self::VmmFabric | Self::Segments => {
                &[Way::Plain, Way::OnDemand, Way::Placed, Way::MoreDevices]
            }
            Self::Pool | Self::PoolFabric => &[Way::Plain, Way::MoreDevices, Way::Beside],
            Self::HostNuma => &[Way::Plain, Way::OnDemand, Way::Placed, Way::Host],
        }
    }

    /// Whether the helper process allocates and frees it like the others.
    pub(crate) const fn is_buffer(self) -> bool {
        !matches!(self, Self::AllTypes | Self::PoolFabric)
    }

    /// The allocation's bytes.
    pub(crate) const fn size(self) -> u64 {
        match self {
            Self::AllTypes => LARGE,
            Self::Segments => 3 * LARGE,
            _ => SMALL,
        }
    }

    /// The range's bytes, from [`OFFSET`] on.
    pub(crate) const fn len(self) -> u64 {
        match self {
            // A part of the first piece, the second one, a part of the third.
            Self::Segments => 2 * LARGE,
            _ => LEN,
        }
    }

    /// Of a large range not every byte is compared.
    pub(crate) const fn step(self) -> u64 {
        match self {
            Self::Segments => 61,
            _ => 1,
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

/// How it is shared, beside the types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Plain,
    /// The exporter keeps no descriptor, and makes one when it is asked.
    OnDemand,
    /// At a place in a reservation of the importer's.
    Placed,
    /// For two devices.
    MoreDevices,
    /// For the CPU, too.
    Host,
    /// Both sides hold other memory of the same pool.
    Beside,
}

impl Way {
    const fn fits(self, side: Side) -> bool {
        match self {
            Self::Plain => true,
            Self::OnDemand => !matches!(
                side,
                Side::Alloc | Side::DropBuffer | Side::Import | Side::DropMapping
            ),
            Self::Placed | Self::MoreDevices | Self::Host => {
                matches!(side, Side::Import | Side::DropMapping)
            }
            Self::Beside => !matches!(side, Side::Alloc | Side::ExportAgain),
        }
    }
}

/// What is done, and in which process calls fail meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    /// An allocation: fails in the exporter.
    Alloc,
    /// The first export of an allocation: fails in the exporter.
    Export,
    /// Another range of an allocation that is exported.
    ExportAgain,
    /// The end of an export.
    DropExport,
    /// The end of the exporter's memory.
    DropBuffer,
    /// Fails in the importer.
    Import,
    /// An import that fails in the exporter, which answers for its exports.
    Answer,
    /// The end of a mapping that was read from.
    DropMapping,
}

impl Side {
    const ALL: [Self; 8] = [
        Self::Alloc,
        Self::Export,
        Self::ExportAgain,
        Self::DropExport,
        Self::DropBuffer,
        Self::Import,
        Self::Answer,
        Self::DropMapping,
    ];

    /// Whether it is done with memory of this kind.
    const fn fits(self, kind: Kind) -> bool {
        match self {
            Self::Alloc | Self::DropBuffer => kind.is_buffer(),
            Self::Export | Self::ExportAgain | Self::DropExport => !matches!(kind, Kind::AllTypes),
            Self::Import | Self::Answer | Self::DropMapping => true,
        }
    }

    /// Whether types are chosen for it.
    const fn has_types(self) -> bool {
        !matches!(self, Self::Alloc | Self::DropExport | Self::DropBuffer)
    }

    pub(crate) const fn in_exporter(self) -> bool {
        !matches!(self, Self::Import | Self::DropMapping)
    }

    /// Whether it only gives things back.
    pub(crate) const fn is_drop(self) -> bool {
        matches!(
            self,
            Self::DropExport | Self::DropBuffer | Self::DropMapping
        )
    }

    /// Whether the exporter's export stands all the time.
    const fn needs_export(self) -> bool {
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
    pub(crate) way: Way,
    /// The types allowed, in order; empty for the default.
    pub(crate) types: &'static str,
    /// The current context of the process in which calls fail: a device's, or
    /// `none`.
    pub(crate) context: &'static str,
}

impl Case {
    /// With and without a current context; each order where there is one.
    pub(crate) fn all(kind: Kind) -> Vec<Self> {
        let mut cases = Vec::new();
        for context in ["none", "0"] {
            for &way in kind.ways() {
                for types in kind.orders() {
                    for side in Side::ALL {
                        if !side.fits(kind)
                            || !way.fits(side)
                            || (!side.has_types() && !types.is_empty())
                            // There, a context changes nothing that it does not change here.
                            || (way != Way::Plain && context != "none")
                            || (way == Way::OnDemand && *types == "Fabric")
                        {
                            continue;
                        }
                        cases.push(Self {
                            kind,
                            side,
                            way,
                            types,
                            context,
                        });
                    }
                }
            }
        }
        cases
    }

    pub(crate) fn name(&self) -> String {
        let Self {
            kind,
            side,
            way,
            types,
            context,
        } = self;
        let types = if types.is_empty() { "default" } else { types };
        let way = match way {
            Way::Plain => String::new(),
            way => format!(" {way:?}"),
        };
        format!(
            "{} {side:?}{way} types={types} context={context}",
            kind.name()
        )
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
    /// The type used, the types exported, or nothing for a drop.
    Done(String),
    Refused {
        status: String,
        attempts: Vec<String>,
        text: String,
    },
}

/// How often each driver call was used.
pub(crate) type Uses = BTreeMap<String, u64>;

/// What came of an operation.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) outcome: Outcome,
    /// The driver calls that it used itself.
    pub(crate) uses: Uses,
    /// The thread's current context before and after it.
    pub(crate) contexts: [String; 2],
}

/// The processes of a case.
#[derive(Debug)]
pub(crate) struct Stage {
    case: Case,
    scratch: Scratch,
    exporter: TestChild,
    importer: TestChild,
    buffer: u32,
    /// Its address.
    ptr: u64,
    /// What an export that stands has given.
    handles: Vec<GpuIpcMemHandle>,
    /// Of the memory beside it.
    beside: Vec<GpuIpcMemHandle>,
    /// A reservation of the importer's that an import may use.
    place: Option<u32>,
}

impl Stage {
    pub(crate) fn new(case: Case) -> Self {
        let scratch = Scratch::new();
        let exporter = start(&scratch);
        let importer = start(&scratch);
        let mut stage = Self {
            case,
            scratch,
            exporter,
            importer,
            buffer: 0,
            ptr: 0,
            handles: Vec::new(),
            beside: Vec::new(),
            place: None,
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
        if side.in_exporter() {
            self.exporter.ok(&format!("context {context}"));
        }
        match kind {
            Kind::AllTypes => {
                self.handles = vec![all_types(&mut self.exporter, LARGE, OFFSET, LEN)];
                return;
            }
            Kind::PoolFabric => {
                self.ptr = odd(&mut self.exporter, kind, &self.case);
            }
            _ => {
                (self.buffer, self.ptr) = self.exporter.alloc(kind.name(), kind.size());
                self.exporter.ok(&format!("fill {} {SEED}", self.buffer));
            }
        }
        if self.case.way == Way::Beside {
            let ptr = self.alloc_beside().1;
            let line = format!("export-raw {ptr} {LEN}");
            let answer = self.exporter.ask(&line);
            (_, self.beside) = export_of(&answer).expect("memory beside can be exported");
        }
        if side.needs_export() {
            let line = self.export_line();
            let answer = self.exporter.ask(&line);
            (_, self.handles) = export_of(&answer).expect("it works without faults");
        }
    }

    /// More memory of the same pool. Gives its buffer's number, if it has one,
    /// and its address.
    fn alloc_beside(&mut self) -> (u32, u64) {
        if !self.case.kind.is_buffer() {
            return (0, odd(&mut self.exporter, self.case.kind, &self.case));
        }
        let answer = self
            .exporter
            .ok(&format!("alloc-beside {} {SMALL}", self.buffer));
        let (id, ptr) = answer.split_once(' ').expect("two words");
        (
            id.parse().expect("a number"),
            ptr.parse().expect("an address"),
        )
    }

    fn set_importer(&mut self) {
        let Case { side, context, .. } = self.case;
        if !side.in_exporter() {
            self.importer.ok(&format!("context {context}"));
        }
        if !self.beside.is_empty() && !side.in_exporter() {
            let import = import_line(&self.beside, self.case.types, "");
            self.importer.ok(&import);
        }
    }

    /// Starts the process in which calls fail anew. It has done nothing yet.
    pub(crate) fn refresh(&mut self) {
        if self.case.side.in_exporter() {
            self.exporter = start(&self.scratch);
            self.set_exporter();
        } else {
            self.importer = start(&self.scratch);
            self.set_importer();
        }
    }

    /// The process in which calls fail.
    pub(crate) fn faulty(&mut self) -> &mut TestChild {
        if self.case.side.in_exporter() {
            &mut self.exporter
        } else {
            &mut self.importer
        }
    }

    /// The one in which none do.
    pub(crate) fn other(&mut self) -> &mut TestChild {
        if self.case.side.in_exporter() {
            &mut self.importer
        } else {
            &mut self.exporter
        }
    }

    /// Runs the operation once, with faults, and looks at what came of it
    /// without them. Nothing is left of it afterwards.
    ///
    /// # Errors
    /// What is not as it must be.
    pub(crate) fn round(&mut self, faults: &[Fault<'_>]) -> Result<Round, String> {
        let start = Instant::now();
        if self.case.side.in_exporter() {
            self.wait_for_broker();
        }
        self.reserve();
        let prepared = self.prepare()?;
        let act = self.act_line(prepared);
        let mut lines = vec!["current".to_owned(), "calls-all".to_owned()];
        for Fault { symbol, nth, code } in faults {
            lines.push(format!("fail {symbol} {nth} {code} 1"));
        }
        let after = ["no-faults", "calls-all", "current"].map(str::to_owned);
        let at = lines.len();
        let mut answers;
        if self.case.side == Side::Answer {
            // Asked in one process, answered by another.
            answers = self.exporter.ask_all(&lines);
            answers.push(self.importer.ask(&act));
            answers.extend(self.exporter.ask_all(&after));
        } else {
            lines.push(act);
            lines.extend(after);
            answers = self.faulty().ask_all(&lines);
        }
        let before = uses_of(&answers[1]);
        let mut uses = uses_of(&answers[at + 2]);
        for (symbol, uses) in &mut uses {
            *uses -= before.get(symbol).copied().unwrap_or(0);
        }
        uses.retain(|_, uses| *uses > 0);
        let outcome = self.look(&answers[at])?;
        self.free_place();
        if start.elapsed() > IN_TIME {
            return Err(format!("took {:?}", start.elapsed()));
        }
        let [before, .., after] = &answers[..] else {
            return Err("no answers".to_owned());
        };
        Ok(Round {
            outcome,
            uses,
            contexts: [before.clone(), after.clone()],
        })
    }

    /// What the process in which calls fail holds. An exporter notices a little
    /// later that an importer has left.
    pub(crate) fn holds(&mut self) -> String {
        if self.case.side.in_exporter() {
            self.wait_for_broker();
        }
        self.faulty().ok("state")
    }

    /// Until no importer is connected any more. Before, the broker's thread may
    /// still hold what it answered about, and so give it back a little later
    /// than the export's drop: in the middle of what is counted.
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

    /// A place of a round's own: what could not be unmapped keeps it.
    fn reserve(&mut self) {
        if self.case.way == Way::Placed {
            let answer = self.importer.ok(&format!("reserve {}", 5 * LARGE));
            let place = answer.split(' ').next().and_then(|id| id.parse().ok());
            self.place = Some(place.expect("a number"));
        }
    }

    fn free_place(&mut self) {
        if let Some(place) = self.place.take() {
            self.importer.ok(&format!("drop place {place}"));
        }
    }

    /// What a drop will drop; the number of a buffer, export or mapping.
    fn prepare(&mut self) -> Result<u32, String> {
        let kind = self.case.kind;
        match self.case.side {
            Side::DropExport => {
                let line = self.export_line();
                let answer = self.exporter.ask(&line);
                export_of(&answer).map(|(id, _)| id).ok_or(answer)
            }
            Side::DropBuffer if self.case.way == Way::Beside => Ok(self.alloc_beside().0),
            Side::DropBuffer => Ok(self.exporter.alloc(kind.name(), kind.size()).0),
            Side::DropMapping => {
                let import = self.import_line();
                let answer = self.importer.ask(&import);
                let (id, used) = mapping_of(&answer).ok_or(answer)?;
                let read = read_line(kind, id, &used);
                self.importer.ok(&read);
                Ok(id)
            }
            _ => Ok(0),
        }
    }

    fn act_line(&self, prepared: u32) -> String {
        let kind = self.case.kind;
        match self.case.side {
            Side::Alloc => format!("alloc {} {}", kind.name(), kind.size()),
            Side::Export | Side::ExportAgain => self.export_line(),
            Side::DropExport => format!("drop export {prepared}"),
            Side::DropBuffer => format!("drop buffer {prepared}"),
            Side::DropMapping => format!("drop mapping {prepared}"),
            Side::Import | Side::Answer => self.import_line(),
        }
    }

    fn export_line(&self) -> String {
        let types = types_option(self.case.types);
        let demand = match self.case.way {
            Way::OnDemand => "on-demand",
            _ => "",
        };
        let (ptr, len) = (self.ptr + OFFSET, self.case.kind.len());
        format!("export-raw {ptr} {len} {types} {demand}")
    }

    fn import_line(&self) -> String {
        let options = match (self.case.way, self.place) {
            // Room on both sides of where it will lie.
            (_, Some(place)) => format!("place={place}+{LARGE}"),
            (Way::MoreDevices, _) => "more=1".to_owned(),
            (Way::Host, _) => "host".to_owned(),
            _ => String::new(),
        };
        import_line(&self.handles, self.case.types, &options)
    }

    /// What an answer says; what it gave is checked and given back.
    fn look(&mut self, answer: &str) -> Result<Outcome, String> {
        if let Some(refused) = refusal(answer) {
            return refused;
        }
        match self.case.side {
            Side::DropExport | Side::DropBuffer | Side::DropMapping if answer == "ok" => {
                Ok(Outcome::Done(String::new()))
            }
            Side::Alloc => {
                let id = answer
                    .strip_prefix("ok ")
                    .and_then(|rest| rest.split(' ').next());
                let id = id.ok_or_else(|| answer.to_owned())?;
                self.exporter.ok(&format!("drop buffer {id}"));
                Ok(Outcome::Done(String::new()))
            }
            Side::Export | Side::ExportAgain => {
                let (id, handles) = export_of(answer).ok_or_else(|| answer.to_owned())?;
                // What is exported leads to the memory, by each type.
                let types = handles
                    .iter()
                    .map(GpuIpcMemHandle::types)
                    .fold(TypeFlags::all(), TypeFlags::intersection);
                for handle_type in types.types() {
                    let import = import_line(&handles, handle_type.name(), "");
                    let answer = self.importer.ask(&import);
                    self.look_at_mapping(&answer)
                        .map_err(|why| format!("the exported handle: {why}"))?;
                }
                self.exporter.ok(&format!("drop export {id}"));
                Ok(Outcome::Done(format!("{types:?}")))
            }
            Side::Import | Side::Answer => self.look_at_mapping(answer).map(Outcome::Done),
            _ => Err(answer.to_owned()),
        }
    }

    /// Reads and drops a mapping; gives the type used.
    fn look_at_mapping(&mut self, answer: &str) -> Result<String, String> {
        let (id, used) = mapping_of(answer).ok_or_else(|| answer.to_owned())?;
        let read = read_line(self.case.kind, id, &used);
        let answers = self.importer.ask_all(&[read, format!("drop mapping {id}")]);
        match answers.iter().find(|answer| *answer != "ok") {
            None => Ok(used),
            Some(answer) => Err(format!("memory by {used}: {answer}")),
        }
    }
}

/// A process whose GPUs have the least granularity.
pub(crate) fn start(scratch: &Scratch) -> TestChild {
    TestChild::start_with(PROGRAM, scratch, |command| {
        command.env("GPUIPC_EMULATED_GRANULARITY", LARGE.to_string());
    })
}

/// Memory of a kind that the library does not allocate, filled; the context is
/// as the case wants it afterwards.
fn odd(exporter: &mut TestChild, kind: Kind, case: &Case) -> u64 {
    let answer = exporter.ok(&format!("alloc-odd {} {SEED}", kind.name()));
    if case.side.in_exporter() {
        exporter.ok(&format!("context {}", case.context));
    }
    answer.parse().expect("an address")
}

fn uses_of(answer: &str) -> Uses {
    answer
        .split(' ')
        .filter_map(|word| word.split_once('='))
        .map(|(symbol, uses)| (symbol.to_owned(), uses.parse().expect("a number")))
        .collect()
}

pub(crate) fn import_line(handles: &[GpuIpcMemHandle], types: &str, options: &str) -> String {
    let hex: Vec<String> = handles
        .iter()
        .map(|handle| to_hex(&handle.encode()))
        .collect();
    let hex = hex.join(",");
    format!(
        "import {hex} timeout=5000 {} {options}",
        types_option(types)
    )
}

pub(crate) fn read_line(kind: Kind, mapping: u32, used: &str) -> String {
    let (seed, step) = (kind.seed(used), kind.step());
    format!("read {mapping} {seed} {OFFSET} {step}")
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

/// Number and handles of an export.
pub(crate) fn export_of(answer: &str) -> Option<(u32, Vec<GpuIpcMemHandle>)> {
    let words: Vec<&str> = answer.split(' ').collect();
    match words.as_slice() {
        ["ok", id, hex] => Some((id.parse().ok()?, hex.split(',').map(handle_of).collect())),
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
