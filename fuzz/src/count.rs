//! How many decodes of handles got past the checksum: libFuzzer counts executions, of which each looks
//! at many handles, and not every one gets that far.

use std::sync::atomic::{AtomicU64, Ordering};

static PAST_THE_CHECKSUM: AtomicU64 = AtomicU64::new(0);

/// One more decode whose bytes have the right checksum, whether or not they are a handle.
pub(crate) fn one_past_the_checksum() {
    PAST_THE_CHECKSUM.fetch_add(1, Ordering::Relaxed);
}

/// All of this process.
pub fn past_the_checksum() -> u64 {
    PAST_THE_CHECKSUM.load(Ordering::Relaxed)
}

/// At the end of libFuzzer's program, which ends by `exit`: the log gets the number. A run that ends by
/// a finding or a signal has no such line, and counts nothing.
#[cfg(feature = "fuzzing")]
mod at_exit {
    #![allow(unsafe_code)]
    use std::io::{Write, stderr};

    #[used]
    #[unsafe(link_section = ".fini_array")]
    static END: extern "C" fn() = end;

    extern "C" fn end() {
        let count = super::past_the_checksum();
        if count > 0 {
            // Nobody is left to be told that it failed.
            let _ = writeln!(stderr(), "count: decode past the checksum {count}");
        }
    }
}
