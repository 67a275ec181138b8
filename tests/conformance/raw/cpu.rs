//! Memory of the driver's, used by the CPU alone.
#![allow(unsafe_code)]

use super::size;
use crate::call::{Got, NOT_FOR_CPU};

/// Whether the kernel's list has a mapping around these eight bytes that the CPU
/// may use so: `r`, or `w` with `r`.
fn is_mapped(ptr: u64, may_write: bool) -> bool {
    let Ok(list) = std::fs::read_to_string("/proc/self/maps") else {
        return false;
    };
    let wanted = if may_write { "rw" } else { "r" };
    let end = ptr.saturating_add(8);
    list.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let range = range.and_then(|(from, to)| Some((number(from)?, number(to)?)));
        let is_around = range.is_some_and(|(from, to)| from <= ptr && end <= to);
        is_around
            && words
                .next()
                .is_some_and(|rights| rights.starts_with(wanted))
    })
}

/// The address as a pointer, if the CPU may use eight bytes there.
fn checked(ptr: u64, may_write: bool) -> Got<*mut u64> {
    if !ptr.is_multiple_of(8) || !is_mapped(ptr, may_write) {
        return Err(NOT_FOR_CPU);
    }
    Ok(core::ptr::with_exposed_provenance_mut(size(ptr)))
}

pub(super) fn read(ptr: u64) -> Got<u64> {
    let from = checked(ptr, false)?;
    // SAFETY: eight aligned bytes that the kernel lists as readable, checked
    // above. The driver gave the address and said that the CPU has rights there
    // (`Ask::cpu_read`), and every bit pattern is a u64. No Rust object lies
    // there; whoever else writes there is asked at other times, and volatile
    // keeps the access whole.
    Ok(unsafe { from.read_volatile() })
}

pub(super) fn write(ptr: u64, value: u64) -> Got {
    let to = checked(ptr, true)?;
    // SAFETY: as in `read`, and the kernel lists the bytes as writable.
    unsafe { to.write_volatile(value) };
    Ok(())
}
