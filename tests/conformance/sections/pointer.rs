//! Everything that the library asks about a pointer.

use crate::call::{Ask, Got};
use crate::rows::{Rows, context, distance};
use core::fmt::Display;
use gpuipc::sys::{location, memory_type, pointer_attribute as attribute};

/// Pointer attributes at `ptr`: addresses as distances from `base`, ids as set
/// or not, the context as `context` or not.
pub(crate) fn attributes(
    rows: &Rows,
    who: &dyn Ask,
    place: impl Display,
    ptr: u64,
    base: u64,
    known: u64,
) {
    let get = |number| who.attribute(number, ptr);
    let row = |name: &str, answer: Got<String>| rows.row(format!("{place}: {name}"), answer);
    let number = |name, at| row(name, get(at).map(|value| value.to_string()));
    let address = |name, at| row(name, distance(get(at), base).map(|far| far.to_string()));
    let set = |name, at| {
        let text = |value| if value == 0 { "null" } else { "set" }.to_owned();
        row(name, get(at).map(text));
    };
    row(
        "CONTEXT",
        context(get(attribute::CONTEXT), known).map(str::to_owned),
    );
    row("MEMORY_TYPE", memory(get(attribute::MEMORY_TYPE)));
    set("BUFFER_ID", attribute::BUFFER_ID);
    number("IS_MANAGED", attribute::IS_MANAGED);
    row(
        "DEVICE_ORDINAL",
        ordinal(who, ptr).map(|ordinal| ordinal.to_string()),
    );
    number(
        "IS_LEGACY_CUDA_IPC_CAPABLE",
        attribute::IS_LEGACY_CUDA_IPC_CAPABLE,
    );
    address("RANGE_START_ADDR", attribute::RANGE_START_ADDR);
    number("RANGE_SIZE", attribute::RANGE_SIZE);
    number("MAPPED", attribute::MAPPED);
    number("ALLOWED_HANDLE_TYPES", attribute::ALLOWED_HANDLE_TYPES);
    set("MEMPOOL_HANDLE", attribute::MEMPOOL_HANDLE);
    number("MAPPING_SIZE", attribute::MAPPING_SIZE);
    address("MAPPING_BASE_ADDR", attribute::MAPPING_BASE_ADDR);
    set("MEMORY_BLOCK_ID", attribute::MEMORY_BLOCK_ID);
}

fn memory(answer: Got<u64>) -> Got<String> {
    let name = |value: u64| match u32::try_from(value) {
        Ok(memory_type::HOST) => "host".to_owned(),
        Ok(memory_type::DEVICE) => "device".to_owned(),
        _ => value.to_string(),
    };
    answer.map(name)
}

/// The attribute DEVICE_ORDINAL, which can be negative.
pub(crate) fn ordinal(who: &dyn Ask, ptr: u64) -> Got<i32> {
    let answer = who.attribute(attribute::DEVICE_ORDINAL, ptr)?;
    Ok(u32::try_from(answer).map_or(i32::MIN, u32::cast_signed))
}

/// `cuMemGetAddressRange` as a distance from `base` and a length.
pub(crate) fn range(who: &dyn Ask, ptr: u64, base: u64) -> Got<String> {
    let (start, size) = who.range(ptr)?;
    let start = distance(Ok(start), base)?;
    Ok(format!("{start}, {size}"))
}

/// `cuMemGetAllocationPropertiesFromHandle` as words.
pub(crate) fn properties(who: &dyn Ask, handle: u64) -> Got<String> {
    let prop = who.properties(handle)?;
    let place = match prop.location.kind {
        location::DEVICE => "device".to_owned(),
        location::HOST_NUMA => "host node".to_owned(),
        kind => format!("location kind {kind}"),
    };
    Ok(format!(
        "type {}, {place} {}, handle types {}",
        prop.kind, prop.location.id, prop.requested_handle_types
    ))
}
