//! Calls that fail or take longer on purpose, and how often each was used.
//!
//! [`wrap`] puts this in front of any driver's table, the real one's too; the
//! emulated driver's [`table`](crate::table) is wrapped already. A failing call
//! never reaches the driver, so it has no effect at all. Rules and counts are
//! the process's: all wrapped tables share them. In a forked child of a process
//! that used a driver there are no faults.
//!
//! The same from the environment, each a list with commas:
//!
//! | variable | example | meaning |
//! |---|---|---|
//! | `GPUIPC_EMULATED_FAIL` | `cuMemMap@1=801,cuMemSetAccess@*=999` | the first `cuMemMap` of the process answers 801, every `cuMemSetAccess` 999 |
//! | `GPUIPC_EMULATED_DELAY` | `cuMemMap@2=50` | the second `cuMemMap` takes 50 ms longer |
//! | `GPUIPC_EMULATED_RANDOM` | `7:20` or `7:20:cuMemMap+cuMemCreate` | seed 7: twenty of a thousand uses fail, of all calls or of those named |
//!
//! One that cannot be understood makes `cuInit` fail, with a line on standard
//! error.

mod environment;
mod random;
mod rules;
mod wrap;

pub use random::CODES as RANDOM_CODES;
pub use wrap::wrap;

use gpuipc_sys::CuResult;
use random::Random;
use rules::{Act, Rule, USES, known, next_use, rules};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Makes `times` uses of a call fail with `code`, from the `nth` next one on
/// (1 is the next); `u32::MAX` times is for ever.
///
/// # Panics
/// If no call has that symbol.
pub fn fail(symbol: &str, nth: u32, code: CuResult, times: u32) {
    add(symbol, nth, times, Act::Fail(code));
}

/// Makes `times` uses of a call take `milliseconds` longer, from the `nth` next
/// one on; `u32::MAX` times is for ever. They sleep before the driver is
/// called, and hold nothing meanwhile.
///
/// # Panics
/// If no call has that symbol.
pub fn delay(symbol: &str, nth: u32, milliseconds: u64, times: u32) {
    let time = Duration::from_millis(milliseconds);
    add(symbol, nth, times, Act::Delay(time));
}

/// Does something before the `nth` next use of a call, in its thread, which holds nothing
/// meanwhile: so a test comes into the middle of what takes many calls.
///
/// # Panics
/// If no call has that symbol.
pub fn before(symbol: &str, nth: u32, act: fn()) {
    environment::taken();
    let call = known(symbol);
    let at = next_use(call) + u64::from(nth.max(1)) - 1;
    rules().add_before(call, at, act);
}

/// Makes `per_mille` of a thousand uses fail, each with a code that the driver
/// could give, chosen by `seed`: the same seed and the same uses fail alike.
///
/// `symbols` names the calls. None at all means every call but `cuInit`, the
/// error texts, and those that undo or restore something (release, unmap, free,
/// close, destroy, push, pop, set current, end of a capture), since a program cannot
/// be expected to get rid of what the driver does not let go.
///
/// # Panics
/// If no call has one of the symbols.
pub fn random(seed: u64, per_mille: u32, symbols: &[&str]) {
    environment::taken();
    let calls = symbols.iter().map(|symbol| known(symbol)).collect();
    rules().add_random(Random::new(seed, per_mille, calls));
}

/// Forgets all that [`fail`], [`delay`], [`before`], [`random`](random()) and the environment set.
pub fn clear() {
    environment::taken();
    rules().clear();
}

/// How often a call was used in this process, failures included.
///
/// # Panics
/// If no call has that symbol.
#[must_use]
pub fn calls(symbol: &str) -> u64 {
    USES[known(symbol)].load(Ordering::SeqCst)
}

fn add(symbol: &str, nth: u32, times: u32, act: Act) {
    environment::taken();
    let call = known(symbol);
    if times == 0 {
        return;
    }
    let mut rules = rules();
    let first = next_use(call) + u64::from(nth.max(1)) - 1;
    let last = match times {
        u32::MAX => u64::MAX,
        times => first + u64::from(times) - 1,
    };
    rules.add(Rule {
        call,
        first,
        last,
        act,
    });
}
