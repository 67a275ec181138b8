//! Who goes first: a pool's memory, the pool, its owner, or the importer's use.
//!
//! Memory that a fresh import shows after its owner freed it is not read: nothing
//! says what lies there.

use super::super::Scene;
use super::{BYTES, exporter, id, imported, range_size};
use crate::call::{Ask, Got};
use crate::memory::MARK;
use crate::other::Process;
use crate::pool::{AskPools, import_pooled, make_pooled, pooled};
use crate::rows::{code, distance, right, same};
use gpuipc::sys::handle_type;
use std::os::fd::AsFd;

/// The owner frees the memory while it is imported here.
pub(in super::super) fn freed(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some((exporter, pool, base)) = imported(scene) else {
        return;
    };
    let (owner, made) = (&exporter.process, &exporter.made);
    let Some(fresh) = scene.process(0) else {
        return;
    };
    rows.row("the owner frees it", owner.free(made.base));
    rows.row("the owner's cuCtxSynchronize", owner.synchronize());
    rows.row("BUFFER_ID", code(&id(here, base)));
    rows.row("RANGE_SIZE", range_size(here, base));
    rows.row("data", right(here.read(base), MARK));
    let again = here.import_pointer(pool, &made.data);
    rows.row("import again: address", same(again, base));
    let elsewhere = import_pooled(&fresh, made);
    rows.row("a fresh process imports it", code(&elsewhere));
    if let Ok((_, base)) = elsewhere {
        rows.row("a fresh process: RANGE_SIZE", range_size(&fresh, base));
        rows.row("a fresh process: free", fresh.free(base));
    }
    rows.row("free", here.free(base));
    if again.is_ok() {
        rows.row("free again", here.free(base));
    }
    rows.row(
        "import after the free",
        code(&here.import_pointer(pool, &made.data)),
    );
}

/// The owner frees memory and allocates again, before anybody imported it.
pub(in super::super) fn address_again(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    let Some(exporter) = exporter(scene) else {
        return;
    };
    let (owner, made) = (&exporter.process, &exporter.made);
    let Some(pool) = rows.got("import the pool", here.pool_import(made.fd.as_fd())) else {
        return;
    };
    let mut lying = made.base;
    for (name, bytes) in [("same size", BYTES), ("half the size", BYTES / 2)] {
        let row = |question: &str, answer: Got<String>| {
            rows.row(format!("{name}: {question}"), answer);
        };
        let word = |answer: Got<&'static str>| answer.map(str::to_owned);
        let again = owner
            .free(lying)
            .and_then(|()| owner.synchronize())
            .and_then(|()| pooled(owner, made.pool, bytes))
            .and_then(|again| Ok((again, owner.export_pointer(again)?)));
        rows.row(format!("{name}: allocated again"), code(&again));
        let Ok((again, new)) = again else { return };
        lying = again;
        let _ = owner.put(again, MARK + bytes);
        row("address", word(same(Ok(again), made.base)));
        row("pointer as before", word(same(Ok(new), made.data)));
        let old = here.import_pointer(pool, &made.data);
        rows.row(format!("{name}: the old pointer"), code(&old));
        if let Ok(old) = old {
            rows.row(
                format!("{name}: the old pointer: RANGE_SIZE"),
                range_size(here, old),
            );
        }
        let imported = here.import_pointer(pool, &new);
        rows.row(format!("{name}: the new pointer"), code(&imported));
        let Ok(imported) = imported else { continue };
        if let Ok(old) = old {
            let far = distance(Ok(imported), old).map(|far| far.to_string());
            row("the new pointer: distance from the old", far);
        }
        rows.row(
            format!("{name}: the new pointer: RANGE_SIZE"),
            range_size(here, imported),
        );
        row(
            "the new pointer: data",
            word(right(here.read(imported), MARK + bytes)),
        );
        rows.row(
            format!("{name}: the new pointer: free"),
            here.free(imported),
        );
        if let Ok(old) = old {
            rows.row(format!("{name}: the old pointer: free"), here.free(old));
        }
    }
}

/// The owner destroys its pool.
pub(in super::super) fn destroyed(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    let Some(exporter) = exporter(scene) else {
        return;
    };
    let (owner, made) = (&exporter.process, &exporter.made);
    let import = |name: &str, may_read: bool| {
        let pool = here.pool_import(made.fd.as_fd());
        rows.row(format!("{name}: import the pool"), code(&pool));
        let Ok(pool) = pool else { return };
        let base = here.import_pointer(pool, &made.data);
        rows.row(format!("{name}: import the pointer"), code(&base));
        if let Ok(base) = base {
            rows.row(format!("{name}: RANGE_SIZE"), range_size(here, base));
            if may_read {
                rows.row(format!("{name}: data"), right(here.read(base), MARK));
            }
            rows.row(format!("{name}: free"), here.free(base));
        }
        rows.row(format!("{name}: destroy"), here.pool_destroy(pool));
    };
    let create = || owner.pool(handle_type::POSIX_FILE_DESCRIPTOR, 0);
    rows.row(
        "the owner destroys the pool in use",
        owner.pool_destroy(made.pool),
    );
    import("in use", true);
    let second = create();
    rows.row(
        "a new pool while it is in use: handle",
        same(second, made.pool),
    );
    rows.row("the owner frees the memory", owner.free(made.base));
    import("freed", false);
    let third = create();
    rows.row("a new pool after that: handle", same(third, made.pool));
    if let (Ok(second), Ok(third)) = (second, third) {
        rows.row(
            "a new pool after that: as the first new one",
            same(Ok(third), second),
        );
    }
    import("new pools made", false);
}

/// The owner destroys the pool, which nobody uses any more but for an import.
pub(in super::super) fn destroyed_while_imported(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some((exporter, pool, base)) = imported(scene) else {
        return;
    };
    let (owner, made) = (&exporter.process, &exporter.made);
    rows.row("the owner frees the memory", owner.free(made.base));
    rows.row("the owner destroys the pool", owner.pool_destroy(made.pool));
    rows.row("the owner's cuCtxSynchronize", owner.synchronize());
    rows.row("data", right(here.read(base), MARK));
    rows.row("write", here.put(base, MARK + 1));
    rows.row("data after that", right(here.read(base), MARK + 1));
    let again = here.import_pointer(pool, &made.data);
    rows.row("import the pointer again", same(again, base));
    let other = make_pooled(owner, 0, BYTES);
    rows.row(
        "a new pool",
        other.as_ref().map(|_| "CUDA_SUCCESS").map_err(|code| *code),
    );
    if let Ok(other) = other {
        rows.row("a new pool: handle", same(Ok(other.pool), made.pool));
        rows.row("a new pool: address", same(Ok(other.base), made.base));
        rows.row("a new pool: pointer", same(Ok(other.data), made.data));
        let wrong = here.import_pointer(pool, &other.data);
        rows.row("a new pool's pointer in the old pool", code(&wrong));
        if let Ok(wrong) = wrong {
            rows.row(
                "a new pool's pointer in the old pool: free",
                here.free(wrong),
            );
        }
        let right_one = import_pooled(here, &other);
        rows.row("a new pool: import", code(&right_one));
        if let Ok((_, base)) = right_one {
            rows.row("a new pool: data", right(here.read(base), MARK));
        }
    }
    rows.row("data at last", right(here.read(base), MARK + 1));
    rows.row("free", here.free(base));
    rows.row("destroy", here.pool_destroy(pool));
}

pub(in super::super) fn exporter_ends(scene: &Scene) {
    after_its_end(scene, Process::end);
}

pub(in super::super) fn exporter_killed(scene: &Scene) {
    after_its_end(scene, Process::kill);
}

fn after_its_end(scene: &Scene, end: impl FnOnce(&mut Process) -> bool) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some((mut exporter, pool, base)) = imported(scene) else {
        return;
    };
    let (owner, made) = (&mut exporter.process, &exporter.made);
    let unopened = pooled(owner, made.pool, BYTES).and_then(|other| owner.export_pointer(other));
    let Some(unopened) = scene.set_up("memory not imported", unopened) else {
        return;
    };
    let Some(fresh) = scene.process(0) else {
        return;
    };
    rows.row("the exporter has ended", end(owner));
    rows.row("BUFFER_ID", code(&id(here, base)));
    rows.row("data", right(here.read(base), MARK));
    rows.row("write", here.put(base, MARK + 1));
    rows.row(
        "import the pointer again",
        same(here.import_pointer(pool, &made.data), base),
    );
    let other = here.import_pointer(pool, &unopened);
    rows.row("import a pointer not imported before", code(&other));
    let second = here.pool_import(made.fd.as_fd());
    rows.row("import the pool again", code(&second));
    if let Ok(second) = second {
        let again = here.import_pointer(second, &made.data);
        rows.row("import the pool again: pointer", code(&again));
    }
    let elsewhere = fresh.pool_import(made.fd.as_fd());
    rows.row("a fresh process imports the pool", code(&elsewhere));
    if let Ok(pool) = elsewhere {
        let base = fresh.import_pointer(pool, &made.data);
        rows.row("a fresh process imports the pointer", code(&base));
        if let Ok(base) = base {
            rows.row("a fresh process: RANGE_SIZE", range_size(&fresh, base));
        }
    }
    rows.row("data after all that", right(here.read(base), MARK + 1));
    rows.row("free", here.free(base));
    rows.row("destroy", here.pool_destroy(pool));
}

/// The exporter ends before anybody imported anything.
pub(in super::super) fn exporter_gone(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    let Some(mut exporter) = exporter(scene) else {
        return;
    };
    rows.row("the exporter has ended", exporter.process.end());
    let pool = here.pool_import(exporter.made.fd.as_fd());
    rows.row("import the pool", code(&pool));
    let Ok(pool) = pool else { return };
    rows.row("rights of device 0", here.pool_get_access(pool, 0));
    let base = here.import_pointer(pool, &exporter.made.data);
    rows.row("import the pointer", code(&base));
    if let Ok(base) = base {
        rows.row("RANGE_SIZE", range_size(here, base));
        rows.row("free", here.free(base));
    }
    rows.row("destroy", here.pool_destroy(pool));
}
