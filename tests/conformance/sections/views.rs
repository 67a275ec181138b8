//! Importers that see other GPUs than the exporter, or the same in another order.
//!
//! The exporter must see all GPUs in the machine's order: `CUDA_VISIBLE_DEVICES`
//! is best not set where answers are recorded.

use super::Scene;
use super::pointer::{ordinal, properties};
use crate::call::{Ask, Got};
use crate::memory::{Kind, MARK, MIB, make_fd, make_legacy, map};
use crate::rows::{code, right};
use gpuipc::sys::{IPC_MEM_LAZY_ENABLE_PEER_ACCESS as LAZY, access};
use std::fmt::Write as _;
use std::os::fd::AsFd;

const BYTES: u64 = 2 * MIB;

pub(super) fn views(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    let Some((_, handle)) = scene.set_up("memory", make_legacy(here, BYTES)) else {
        return;
    };
    let made = make_fd(here, Kind::VMM_FD, BYTES);
    let Some((made, exported)) = scene.set_up("VMM memory", made) else {
        return;
    };
    let count = if scene.has_two_gpus() { 2 } else { 1 };
    let mut uuids = Vec::new();
    for device in 0..count {
        let Some(uuid) = scene.set_up("UUID", here.uuid(device, 2)) else {
            return;
        };
        uuids.push(uuid);
    }
    for (name, visible) in lists(&uuids) {
        let Some(importer) = scene.process_seeing(&visible) else {
            return;
        };
        let row = |question: &str, answer: Got<String>| {
            rows.row(format!("{name}: {question}"), answer);
        };
        let done = |answer: Got<()>| answer.map(|()| "CUDA_SUCCESS".to_owned());
        let init = importer.init(0);
        row("cuInit", done(init));
        let seen = importer.device_count();
        row("devices", seen.map(|seen| seen.to_string()));
        let Ok(seen) = seen else { continue };
        for device in 0..i32::try_from(seen).unwrap_or(0).min(4) {
            let uuid = importer.uuid(device, 2).map(|uuid| {
                let known = uuids.iter().position(|known| *known == uuid);
                known.map_or("another".to_owned(), |known| {
                    format!("the exporter's {known}")
                })
            });
            row(&format!("device {device}"), uuid);
        }
        if seen == 0 {
            continue;
        }
        let context = crate::memory::ready(&importer, 0);
        row("context of its device 0", done(context.map(drop)));
        let base = importer.open(&handle, LAZY);
        row("legacy open", done(base.map(drop)));
        if let Ok(base) = base {
            let data = right(importer.read(base), MARK);
            row("legacy data", data.map(str::to_owned));
            let number = ordinal(&importer, base);
            row("legacy ordinal", number.map(|number| number.to_string()));
            row("legacy close", done(importer.close(base)));
        }
        let imported = importer.import_fd(exported.fd.as_fd());
        row("VMM import", done(imported.map(drop)));
        let Ok(imported) = imported else { continue };
        row("VMM properties", properties(&importer, imported));
        let base = map(&importer, imported, made.size, 0, access::READ_WRITE);
        row("VMM map", done(base.map(drop)));
        if let Ok(base) = base {
            let data = right(importer.read(base), MARK);
            row("VMM data", data.map(str::to_owned));
            let number = ordinal(&importer, base);
            row("VMM ordinal", number.map(|number| number.to_string()));
            let rights = importer.set_access(base, made.size, 1, access::READ_WRITE);
            row("VMM rights for its device 1", done(rights));
        }
    }
    rows.row("here, after all that", code(&here.alloc(MIB)));
}

/// Lists of visible devices, by name.
fn lists(uuids: &[[u8; 16]]) -> Vec<(&'static str, String)> {
    let mut lists = Vec::new();
    if let Some(uuid) = uuids.first() {
        lists.push(("by UUID", uuid_text(uuid)));
    }
    for list in ["0", "", "-1", "99,0", "0,99", "0,0", "text"] {
        lists.push((if list.is_empty() { "none" } else { list }, list.to_owned()));
    }
    if let Some(uuid) = uuids.get(1) {
        for list in ["1", "1,0", "0,1", "1,-1,0"] {
            lists.push((list, list.to_owned()));
        }
        lists.push(("second by UUID", uuid_text(uuid)));
    }
    lists
}

/// As `nvidia-smi` writes it.
fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = "GPU-".to_owned();
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
