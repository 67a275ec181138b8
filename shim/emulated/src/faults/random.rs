//! Failures by chance, the same for the same seed.

use crate::table::Call;
use gpuipc_sys::CuResult;

/// The codes with which calls fail by chance ([`random`](super::random())): those that a
/// driver may give for nearly every call.
pub const CODES: [CuResult; 6] = [
    CuResult::INVALID_VALUE,
    CuResult::OUT_OF_MEMORY,
    CuResult::OPERATING_SYSTEM,
    CuResult::NOT_PERMITTED,
    CuResult::NOT_SUPPORTED,
    CuResult::UNKNOWN,
];

/// Calls that undo or restore something, those that are needed for it, and
/// `cuInit`.
const SPARED: &[Call] = &[
    Call::init,
    Call::driver_get_version,
    Call::get_error_name,
    Call::get_error_string,
    Call::primary_ctx_release,
    Call::ctx_set_current,
    Call::ctx_push_current,
    Call::ctx_pop_current,
    Call::stream_destroy,
    Call::stream_end_capture,
    Call::thread_exchange_stream_capture_mode,
    Call::graph_destroy,
    Call::mem_free,
    Call::mem_free_host,
    Call::mem_free_async,
    Call::ipc_close_mem_handle,
    Call::mem_release,
    Call::mem_address_free,
    Call::mem_unmap,
    Call::mem_pool_destroy,
    Call::multicast_unbind,
    Call::emulated_driver,
];

/// One source of failures.
#[derive(Debug)]
pub(super) struct Random {
    seed: u64,
    per_mille: u64,
    /// The calls; all but the spared ones if empty.
    calls: Vec<usize>,
}

impl Random {
    pub(super) fn new(seed: u64, per_mille: u32, calls: Vec<usize>) -> Self {
        Self {
            seed,
            per_mille: u64::from(per_mille),
            calls,
        }
    }

    /// The code with which the `nth` use of a call fails. It depends on nothing
    /// else, so that threads do not change each other's luck.
    pub(super) fn fate(&self, call: usize, nth: u64) -> Option<CuResult> {
        let meant = if self.calls.is_empty() {
            !SPARED.iter().any(|spared| *spared as usize == call)
        } else {
            self.calls.contains(&call)
        };
        let chance = mix(mix(mix(self.seed) ^ call as u64) ^ nth);
        let hit = meant && chance % 1000 < self.per_mille;
        hit.then(|| CODES[(chance / 1000 % CODES.len() as u64) as usize])
    }
}

/// splitmix64.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::{Call, Random};

    #[test]
    fn a_seed_gives_the_same_failures_and_about_as_many_as_asked_for() {
        let fates = |seed| -> Vec<_> {
            let random = Random::new(seed, 100, Vec::new());
            (1..=10_000)
                .map(|nth| random.fate(Call::mem_map as usize, nth))
                .collect()
        };
        assert_eq!(fates(1), fates(1));
        assert_ne!(fates(1), fates(2));
        let failed = fates(1).iter().flatten().count();
        assert!((800..1200).contains(&failed), "{failed} of 10,000");
    }

    #[test]
    fn what_undoes_is_spared_unless_named() {
        let unmap = Call::mem_unmap as usize;
        let all = Random::new(1, 1000, Vec::new());
        assert!(all.fate(Call::mem_map as usize, 1).is_some());
        assert!(all.fate(unmap, 1).is_none());
        let named = Random::new(1, 1000, vec![unmap]);
        assert!(named.fate(unmap, 1).is_some());
        assert!(named.fate(Call::mem_map as usize, 1).is_none());
    }
}
