//! Helpers of the tests: scratch folders, and other processes that do as they
//! are told.
//!
//! A test talks to [`TestChild`]s, each a process of its own with the emulated
//! driver in it, in lines of text; what a line does is in `child/main.rs`. The
//! test itself holds no GPU memory, so that every handle really crosses
//! between processes.

mod child;
mod handles;
mod scratch;

/// The README's Rust, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
#[derive(Debug)]
pub struct Readme;

/// The Rust of the pages in `docs`, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../docs/memory.md")]
#[doc = include_str!("../../docs/multicast.md")]
#[derive(Debug)]
pub struct Pages;

pub use child::{Imported, Refused, TestChild, stop};
pub use handles::{LEGACY_SEED, VMM_SEED, all_types, by_broker_alone, out_of_reach};
pub use scratch::{ForEveryone, Scratch};

use gpuipc_core::{GpuIpcMemHandle, HANDLE_BYTES};

/// A handle as one word.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a word of hex digits; `None` if it is none.
#[must_use]
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|digit| {
            digit
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        })
        .collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(
        digits
            .chunks_exact(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect(),
    )
}

/// The handle in a word of hex digits.
///
/// # Panics
/// If it is none.
#[must_use]
pub fn handle_of(hex: &str) -> GpuIpcMemHandle {
    let bytes = from_hex(hex).expect("hex digits");
    assert_eq!(bytes.len(), HANDLE_BYTES);
    GpuIpcMemHandle::decode(&bytes).expect("a valid handle")
}

/// The handle with some fields changed and everything else, the checksum
/// included, made right again: what a forger would send.
///
/// # Panics
/// If the change makes no valid handle.
#[must_use]
pub fn forge(
    handle: &GpuIpcMemHandle,
    change: impl FnOnce(&mut gpuipc_core::HandleFields),
) -> GpuIpcMemHandle {
    let mut fields = handle.fields();
    change(&mut fields);
    GpuIpcMemHandle::new(&fields).expect("the change keeps the handle valid")
}

/// Byte `index` of the pattern with this seed: no two neighbouring pages alike.
#[must_use]
pub fn pattern_byte(seed: u64, index: u64) -> u8 {
    let mixed = (index ^ seed.rotate_left(17)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed.to_be_bytes()[0]
}

/// A number that tells bytes apart (FNV-1a): what a child answers to `sum`.
#[must_use]
pub fn sum_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// whether the children use the machine's own driver (`GPUIPC_TEST_DRIVER=cuda`).
#[must_use]
pub fn on_real_gpu() -> bool {
    std::env::var_os("GPUIPC_TEST_DRIVER").is_some_and(|driver| driver == "cuda")
}

/// The kinds of memory that the tests share. On a real GPU without the fabric
/// there is none for it.
#[must_use]
pub fn memories() -> &'static [&'static str] {
    if on_real_gpu() {
        &["vmm-fd", "cuda-malloc"]
    } else {
        &["vmm-fd", "cuda-malloc", "vmm-fabric"]
    }
}

/// Says why the running test did nothing.
///
/// # Panics
/// If stderr is closed.
pub fn skip(why: &str) {
    tell(&format!("SKIP {}: {why}", running()));
}

/// Whether the machine has one GPU only, of which a test then says so. The emulated one has two.
///
/// # Panics
/// If stderr is closed.
#[must_use]
pub fn lacks_a_second_gpu() -> bool {
    // One file each: nvidia0, and so on.
    let is_gpu = |name: &str| {
        let number = name.strip_prefix("nvidia");
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let lacks = on_real_gpu() && {
        let files = std::fs::read_dir("/dev").into_iter().flatten().flatten();
        let gpus = files.filter(|file| is_gpu(&file.file_name().to_string_lossy()));
        gpus.count() < 2
    };
    if lacks {
        skip("needs two GPUs");
    }
    lacks
}

/// The running test's name, which is its thread's.
fn running() -> String {
    std::thread::current().name().unwrap_or("test").to_owned()
}

/// Says a line that is shown whatever `--nocapture` says, since the harness
/// captures only what goes through `print!`.
///
/// # Panics
/// If stderr is closed.
pub fn tell(line: &str) {
    use std::io::Write;
    std::io::stderr()
        .write_all(format!("{line}\n").as_bytes())
        .expect("stderr is open");
}
