//! Scripts that once failed, or that only few random ones come to.

use crate::ground::Ground;
use crate::is_skipped;
use crate::play::play;
use crate::step::{Case, Kind, Options, Registered, Step};
use gpuipc_core::HandleType;

fn plays(steps: Vec<Step>) {
    if is_skipped() {
        return;
    }
    let case = Case { steps, order: 0 };
    if let Err(script) = play(&mut Ground::new(&[]), &case, None) {
        panic!("{script}");
    }
}

const fn alloc(kind: Kind, longer: bool) -> Step {
    Step::Alloc {
        process: 0,
        kind,
        longer,
        second: false,
    }
}

/// All of the newest buffer.
const fn export() -> Step {
    Step::Export {
        buffer: 0,
        start: 0,
        len: usize::MAX >> 1,
        types: Vec::new(),
        on_demand: false,
        registered: None,
    }
}

/// The nth newest export.
fn import(process: usize, export: usize) -> Step {
    import_with(process, export, Options::default())
}

const fn import_with(process: usize, export: usize, options: Options) -> Step {
    Step::Import {
        process,
        export,
        options,
    }
}

/// The broker was in the middle of its answer to the second process when the export
/// went, and the first process found it still there.
#[test]
fn an_export_is_dropped_right_after_the_broker_answered() {
    let mut steps = vec![alloc(Kind::Pool, false)];
    for _ in 0..50 {
        steps.extend([
            export(),
            import(1, 0),
            Step::DropExport { export: 0 },
            import(0, 0),
            Step::DropMapping { mapping: 0 },
        ]);
    }
    plays(steps);
}

#[test]
fn memory_of_another_length_lies_where_an_importer_still_maps_what_was_freed() {
    plays(vec![
        alloc(Kind::Pool, false),
        alloc(Kind::Beside, false),
        export(),
        import(1, 0),
        Step::Free { buffer: 0 },
        alloc(Kind::Beside, true),
        export(),
        import(1, 0),
        import(1, 1),
        Step::DropMapping { mapping: 0 },
        import(1, 0),
        import(1, 1),
    ]);
}

#[test]
fn the_fabric_leads_to_revoked_memory_as_long_as_its_owner_has_it() {
    let types = vec![HandleType::PosixFd];
    let options = Options {
        types,
        ..Options::default()
    };
    let by_fd = import_with(1, 0, options);
    plays(vec![
        alloc(Kind::VmmFabric, false),
        export(),
        Step::DropExport { export: 0 },
        import(1, 0),
        by_fd.clone(),
        import(1, 0),
        Step::Free { buffer: 0 },
        by_fd,
        import(2, 0),
        import(1, 0),
    ]);
}

#[test]
fn an_open_vmm_range_serves_others_after_the_exporters_death() {
    for kind in [Kind::VmmFd, Kind::Small] {
        plays(vec![
            alloc(kind, false),
            export(),
            export(),
            import(1, 1),
            Step::Kill { process: 0 },
            import(1, 0),
            import(2, 0),
            Step::DropMapping { mapping: 1 },
            Step::DropMapping { mapping: 0 },
            import(1, 0),
        ]);
    }
}

/// It was told that the export has ended.
#[test]
fn who_asks_before_hears_of_the_mapping_that_another_range_has() {
    let options = Options {
        ask: true,
        ..Options::default()
    };
    let asks = import_with(1, 0, options);
    plays(vec![
        alloc(Kind::VmmFd, false),
        export(),
        import(1, 0),
        Step::DropExport { export: 0 },
        asks.clone(),
        Step::DropMapping { mapping: 0 },
        Step::DropMapping { mapping: 0 },
        asks,
    ]);
}

/// A pool was asked for a right to read alone, which no pool has.
#[test]
fn an_owner_reads_its_registered_pool_memory() {
    let registered = Step::Export {
        buffer: 0,
        start: 0,
        len: 100,
        types: Vec::new(),
        on_demand: false,
        registered: Some(Registered::Alone),
    };
    let options = Options {
        read_only: true,
        ..Options::default()
    };
    plays(vec![
        alloc(Kind::Pool, false),
        registered,
        import_with(0, 0, options),
    ]);
}
