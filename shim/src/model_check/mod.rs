//! Models of the code that threads share. The model checker shuttle runs each model many
//! times, one thread at a time, and chooses the next thread at each lock, wait, channel
//! and thread.
//!
//! ```sh
//! RUSTFLAGS="--cfg gpuipc_shuttle" cargo test -p gpuipc --lib --target-dir target/model_check model_check:: -- --nocapture
//! ```
//!
//! The models run the library's own code ([`crate::import::slots`],
//! [`crate::export::registry`], [`crate::export::reference`], [`crate::fd::broker::started`],
//! [`crate::fd::broker::thread`]) with another driver behind it. A wait never times out
//! here. So a lost wake-up is a deadlock, which shuttle reports, and not a delay. A count
//! of references changes in one step with the code around it. Drops run in every order
//! that the locks allow.
//!
//! A failure prints its schedule, which `shuttle::replay` repeats.
//!
//! Each of these faults was put into the code once, and was found within 2,000 schedules:
//!
//! - a turn that is not taken, not ended after a failure, or ended after the wake-up
//! - only one waiter woken, or none
//! - a slot that is used after its removal, that is removed while it has a value or a
//!   maker, or together with its neighbours, or that is never removed
//! - a value entered after its turn
//! - a lock held during the driver's call, or two locks taken in the other order
//! - a reference dropped, or an export forgotten, while the registry's lock or another
//!   entry forbids it
//! - no second look before registering
//! - a reference that does not wait at its end
//! - a thread that is not told to stop, or joins itself
//! - a start outside the lock, or one that is not kept

mod broker;
mod exports;
mod mappings;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

/// How many schedules a model runs under, by variable.
const VARIABLE: &str = "MODEL_SCHEDULES";
const SCHEDULES: usize = 10_000;

/// How often the schedulers that count change their mind, at most, in a schedule: a
/// race of three threads in a certain order needs two.
const DEPTH: usize = 3;

/// Runs a model under half of the schedules by pure chance, and under the other
/// half with priorities that change at a few places by chance (PCT).
fn check(name: &str, model: impl Fn() + Send + Sync + Clone + 'static) {
    let schedules = std::env::var(VARIABLE).map_or(SCHEDULES, |value| {
        value
            .parse()
            .unwrap_or_else(|_| panic!("{VARIABLE} is no number: {value}"))
    });
    let half = schedules.div_ceil(2);
    let ran =
        run(RandomScheduler::new(half), model.clone()) + run(PctScheduler::new(DEPTH, half), model);
    println!("model check: {name}: {ran} schedules");
    assert_eq!(ran, 2 * half);
}

fn run(scheduler: impl Scheduler + 'static, model: impl Fn() + Send + Sync + 'static) -> usize {
    Runner::new(scheduler, Config::new()).run(model)
}
