//! `gpuipc inspect`: what handles say. The secrets in them are not shown.

use crate::handle_file;
use crate::output::{Failure, line};
use crate::together::Together;
use crate::{size, table};
use gpuipc::GpuIpcMemHandle;
use gpuipc::core::{Attributes, HostId};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file with the handle, or with all handles of a range, - for stdin;
    /// several files are read one after the other
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// One JSON object a line for each handle, and for several one more for the
    /// range that they are
    #[arg(long)]
    json: bool,
}

/// Stands for the token and for the driver's bytes: who has them can use the memory.
const MASKED: &str = "(not shown)";

/// See the module.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let handles = handle_file::read_all(&args.files)?;
    for (index, handle) in handles.iter().enumerate() {
        if args.json {
            line(json_of(handle))?;
            continue;
        }
        if index > 0 {
            line("")?;
        }
        line(table::render(&rows(handle)))?;
    }
    match Together::of(&handles) {
        None => Ok(()),
        Some(together) if args.json => line(together.to_json()),
        Some(together) => line(format!("\n{}", together.text())),
    }
}

fn types(handle: &GpuIpcMemHandle) -> Vec<&'static str> {
    handle
        .types()
        .types()
        .iter()
        .map(|handle_type| handle_type.name())
        .collect()
}

fn attributes(handle: &GpuIpcMemHandle) -> Vec<&'static str> {
    const NAMES: [(Attributes, &str); 4] = [
        (Attributes::TICKET, "Ticket"),
        (Attributes::MEM_POOL, "MemPool"),
        (Attributes::HOST_NUMA, "HostNuma"),
        (Attributes::MULTICAST, "Multicast"),
    ];
    NAMES
        .into_iter()
        .filter(|(attribute, _)| handle.attributes().contains(*attribute))
        .map(|(_, name)| name)
        .collect()
}

fn or_none(names: &[&str]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

/// Whether a handle is of this host; `None` where one of the two has no host id.
fn is_of_this_host(handle: &GpuIpcMemHandle) -> Option<bool> {
    let (its, own) = (handle.host_id(), gpuipc::host_id().ok()?);
    let none = HostId::default();
    (its != none && own != none).then_some(its == own)
}

fn rows(handle: &GpuIpcMemHandle) -> Vec<[String; 2]> {
    let range = handle.range();
    let host = handle.host_id().to_string();
    let where_it_is = match is_of_this_host(handle) {
        Some(true) => "this host",
        Some(false) => {
            "another host, another boot of this one, or a container with a boot id of its own"
        }
        None => "unknown: the exporter or this process has no host id",
    };
    let mut rows = Vec::new();
    let mut row = |name: &str, text: String| rows.push([name.to_owned(), text]);
    row(
        "version",
        format!(
            "{}, for readers of version {} or newer",
            handle.version(),
            handle.min_reader()
        ),
    );
    row("types", or_none(&types(handle)));
    row("attributes", or_none(&attributes(handle)));
    row("length", size::text(handle.length()));
    row("offset", size::text(handle.offset_from_base()));
    row("allocation", size::text(handle.base_size()));
    row("allocation id", handle.allocation_id().to_string());
    row(
        "range",
        format!(
            "number {}, {}; segment {} of {}, at {}",
            range.id,
            size::text(range.length),
            range.segment_index,
            range.segment_count,
            size::text(range.offset)
        ),
    );
    if let Some(node) = handle.numa_node() {
        row("device", format!("none: host memory of NUMA node {node}"));
    } else {
        row("device", handle.device_uuid().to_string());
    }
    row("process id", handle.process_id().to_string());
    row("host id", format!("{host} ({where_it_is})"));
    row(
        "pid",
        format!(
            "{} in pid namespace {}",
            handle.pid(),
            handle.pid_namespace()
        ),
    );
    row("network namespace", handle.net_namespace().to_string());
    if !handle.fabric_cluster().is_zero() {
        row(
            "fabric",
            format!(
                "cluster {}, clique {}",
                handle.fabric_cluster(),
                handle.fabric_clique()
            ),
        );
    }
    if handle.attributes().contains(Attributes::MULTICAST) {
        row("multicast", format!("{} devices", handle.num_devices()));
    }
    let of_pool = if handle.attributes().contains(Attributes::MEM_POOL) {
        row(
            "pool",
            format!("number {} of its exporter", handle.pool_id()),
        );
        row("pool pointer", MASKED.to_owned());
        " (of the pool)"
    } else {
        ""
    };
    if handle.runtime_ipc().is_some() {
        row("legacy handle", MASKED.to_owned());
    }
    if handle.fabric().is_some() {
        row("fabric handle", format!("{MASKED}{of_pool}"));
    }
    if let Some(ticket) = handle.ticket() {
        row("broker", ticket.endpoint.to_string());
        row("token", MASKED.to_owned());
        let fd = ticket.fd.map_or("none".to_owned(), |fd| fd.to_string());
        row("exporter's fd", format!("{fd}{of_pool}"));
    }
    row("checksum", format!("{:#010x}, correct", handle.checksum()));
    rows
}

fn json_of(handle: &GpuIpcMemHandle) -> Value {
    let range = handle.range();
    let masked = |there: bool| there.then_some(MASKED);
    let fabric = !handle.fabric_cluster().is_zero();
    json!({
        "version": handle.version(),
        "min_reader": handle.min_reader(),
        "types": types(handle),
        "attributes": attributes(handle),
        "length": handle.length(),
        "offset_from_base": handle.offset_from_base(),
        "base_size": handle.base_size(),
        "allocation_id": handle.allocation_id(),
        "range_id": range.id,
        "range_length": range.length,
        "range_offset": range.offset,
        "segment_index": range.segment_index,
        "segment_count": range.segment_count,
        "device_uuid": handle.device_uuid().to_string(),
        "numa_node": handle.numa_node(),
        "num_devices": handle.num_devices(),
        "process_id": handle.process_id().to_string(),
        "host_id": handle.host_id().to_string(),
        "this_host": is_of_this_host(handle),
        "pid": handle.pid(),
        "pid_namespace": handle.pid_namespace(),
        "net_namespace": handle.net_namespace(),
        "fabric_cluster": fabric.then(|| handle.fabric_cluster().to_string()),
        "fabric_clique": handle.fabric_clique(),
        "pool_id": handle.pool_id(),
        "pool_pointer": masked(handle.pool_pointer().is_some()),
        "runtime_ipc": masked(handle.runtime_ipc().is_some()),
        "fabric": masked(handle.fabric().is_some()),
        "endpoint": handle.ticket().map(|ticket| ticket.endpoint.to_string()),
        "token": masked(handle.ticket().is_some()),
        "fd": handle.ticket().and_then(|ticket| ticket.fd),
        "checksum": handle.checksum(),
    })
}
