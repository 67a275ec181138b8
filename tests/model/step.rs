//! What processes do, as numbers that proptest draws and makes smaller.
//!
//! A step names its object by a number that is taken modulo how many there are,
//! the newest first. So every list of steps means something, and stays meaningful
//! when steps are taken out of it.

use gpuipc_core::HandleType;
use proptest::prelude::*;

/// Processes at one time.
pub(crate) const PROCESSES: usize = 4;

/// How memory is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    VmmFd,
    /// `cuMemAlloc`, beside other small allocations in one block.
    Small,
    /// `cuMemAlloc`, in a block of its own.
    Large,
    VmmFabric,
    /// On a host NUMA node.
    HostNuma,
    Segments,
    /// A new pool.
    Pool,
    /// From the pool of another buffer of the process; a new one if there is none.
    Beside,
}

/// Memory is registered: for all types, with descriptors that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registered {
    Alone,
    /// What cannot be mapped is left to it.
    WithTransport,
}

/// One step. `process`, `buffer`, `export`, `mapping` and `place` are taken modulo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Alloc {
        process: usize,
        kind: Kind,
        longer: bool,
        /// On GPU 1.
        second: bool,
    },
    Write {
        buffer: usize,
        seed: u64,
    },
    Export {
        buffer: usize,
        start: usize,
        len: usize,
        types: Vec<HandleType>,
        on_demand: bool,
        registered: Option<Registered>,
    },
    /// `export` counts all that were ever made.
    Import {
        process: usize,
        export: usize,
        options: Options,
    },
    Read {
        mapping: usize,
    },
    WriteThrough {
        mapping: usize,
        seed: u64,
    },
    /// Which is refused: imported memory is its owner's to export.
    ExportMapping {
        mapping: usize,
    },
    DropMapping {
        mapping: usize,
    },
    /// Drops a mapping, but keeps its addresses.
    Unmap {
        mapping: usize,
    },
    /// Takes addresses.
    Reserve {
        process: usize,
    },
    DropPlace {
        place: usize,
    },
    DropExport {
        export: usize,
    },
    Free {
        buffer: usize,
    },
    DropIpc {
        process: usize,
    },
    CloseIdle {
        process: usize,
    },
    Fork {
        process: usize,
        stays: bool,
    },
    Kill {
        process: usize,
    },
}

/// What an importer asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// In the order in which they are tried; none for the library's own.
    pub(crate) types: Vec<HandleType>,
    pub(crate) live: bool,
    pub(crate) read_only: bool,
    /// The GPU; without one the memory's own.
    pub(crate) device: Option<i32>,
    /// Access for the other GPU, too.
    pub(crate) more: bool,
    /// Access for the CPU.
    pub(crate) host: bool,
    /// Into a place of the process, if it has one, and at which granule of it.
    pub(crate) place: Option<(usize, usize)>,
    /// It asks before what would come of it.
    pub(crate) ask: bool,
}

impl Options {
    /// The GPU that maps memory of this one.
    pub(crate) fn first(&self, own: i32) -> i32 {
        self.device.unwrap_or(own)
    }
}

/// A script, and the order in which all is given back after it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) steps: Vec<Step>,
    pub(crate) order: u64,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::VmmFd),
        Just(Kind::Small),
        Just(Kind::Large),
        Just(Kind::VmmFabric),
        Just(Kind::HostNuma),
        Just(Kind::Segments),
        Just(Kind::Pool),
        Just(Kind::Beside),
    ]
}

/// None most of the time.
fn types() -> impl Strategy<Value = Vec<HandleType>> {
    prop_oneof![
        6 => Just(vec![]),
        1 => Just(vec![HandleType::PosixFd]),
        1 => Just(vec![HandleType::Fabric]),
        1 => Just(vec![HandleType::RuntimeIpc, HandleType::PosixFd]),
        1 => Just(vec![HandleType::Fabric, HandleType::PosixFd]),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    let seldom = || proptest::bool::weighted(0.15);
    let device = prop_oneof![6 => Just(None), 1 => Just(Some(0)), 2 => Just(Some(1))];
    let place = proptest::option::weighted(0.25, (0..3_usize, 0..5_usize));
    let ask = proptest::bool::weighted(0.3);
    let who = (device, seldom(), seldom(), place, ask);
    (types(), seldom(), seldom(), who).prop_map(
        |(types, live, read_only, (device, more, host, place, ask))| Options {
            types,
            live,
            read_only,
            device,
            more,
            host,
            place,
            ask,
        },
    )
}

fn process() -> impl Strategy<Value = usize> {
    0..PROCESSES
}

fn alloc() -> impl Strategy<Value = Step> {
    let second = proptest::bool::weighted(0.3);
    (process(), kind(), any::<bool>(), second).prop_map(|(process, kind, longer, second)| {
        Step::Alloc {
            process,
            kind,
            longer,
            second,
        }
    })
}

fn export() -> impl Strategy<Value = Step> {
    let place = || 0..1_usize << 16;
    let how = (
        types(),
        any::<bool>(),
        prop_oneof![
            6 => Just(None),
            1 => Just(Some(Registered::Alone)),
            1 => Just(Some(Registered::WithTransport)),
        ],
    );
    (0..8_usize, place(), place(), how).prop_map(
        |(buffer, start, len, (types, on_demand, registered))| Step::Export {
            buffer,
            start,
            len,
            types,
            on_demand,
            registered,
        },
    )
}

fn import() -> impl Strategy<Value = Step> {
    (process(), 0..8_usize, options()).prop_map(|(process, export, options)| Step::Import {
        process,
        export,
        options,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let object = || 0..8_usize;
    let seed = || 1..1000_u64;
    prop_oneof![
        10 => alloc(),
        16 => export(),
        40 => import(),
        8 => object().prop_map(|mapping| Step::Read { mapping }),
        4 => (object(), seed()).prop_map(|(buffer, seed)| Step::Write { buffer, seed }),
        8 => (object(), seed()).prop_map(|(mapping, seed)| Step::WriteThrough { mapping, seed }),
        2 => object().prop_map(|mapping| Step::ExportMapping { mapping }),
        12 => object().prop_map(|mapping| Step::DropMapping { mapping }),
        4 => object().prop_map(|mapping| Step::Unmap { mapping }),
        4 => process().prop_map(|process| Step::Reserve { process }),
        2 => object().prop_map(|place| Step::DropPlace { place }),
        7 => object().prop_map(|export| Step::DropExport { export }),
        6 => object().prop_map(|buffer| Step::Free { buffer }),
        2 => process().prop_map(|process| Step::DropIpc { process }),
        2 => process().prop_map(|process| Step::CloseIdle { process }),
        2 => (process(), any::<bool>()).prop_map(|(process, stays)| Step::Fork { process, stays }),
        2 => process().prop_map(|process| Step::Kill { process }),
    ]
}

/// Scripts that begin with some memory exported, and have up to `most` steps then.
pub(crate) fn case(most: usize) -> impl Strategy<Value = Case> {
    use proptest::collection::vec;
    let steps = (
        vec(alloc(), 0..5),
        vec(export(), 0..6),
        vec(step(), 1..=most),
    );
    (steps, any::<u64>()).prop_map(|((allocs, exports, steps), order)| Case {
        steps: [allocs, exports, steps].concat(),
        order,
    })
}
