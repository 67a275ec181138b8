//! Measuring in turn: the library, the raw calls, the library, and so on, so that
//! whatever else the machine does meets both.

use super::statistics::{self, Pairs};
use crate::output::Failure;
use std::time::{Duration, Instant};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) quick: bool,
}

impl Effort {
    /// How long one figure may take, if it has been measured often enough.
    const fn time(self) -> Duration {
        Duration::from_millis(if self.quick { 60 } else { 2000 })
    }

    /// How often it is measured at least.
    const fn least(self) -> usize {
        if self.quick { statistics::LEAST } else { 15 }
    }

    const fn most(self) -> usize {
        if self.quick { 25 } else { 501 }
    }

    /// How long processes work at the same time for one number a second.
    pub(crate) const fn slice(self) -> Duration {
        Duration::from_millis(if self.quick { 10 } else { 100 })
    }

    /// Measures several things a round: for each the library's and the raw calls'
    /// value. The first round is not counted.
    pub(crate) fn rounds<const THINGS: usize>(
        self,
        mut round: impl FnMut() -> Result<[(f64, f64); THINGS], Failure>,
    ) -> Result<[Pairs; THINGS], Failure> {
        round()?;
        let mut all: [Pairs; THINGS] = core::array::from_fn(|_| Pairs::default());
        let start = Instant::now();
        for done in 0..self.most() {
            if done >= self.least() && start.elapsed() >= self.time() {
                break;
            }
            for (pairs, pair) in all.iter_mut().zip(round()?) {
                pairs.push(pair);
            }
        }
        Ok(all)
    }

    /// The same for what has no raw calls beside it.
    pub(crate) fn alone(
        self,
        mut round: impl FnMut() -> Result<f64, Failure>,
    ) -> Result<Vec<f64>, Failure> {
        let [pairs] = self.rounds(|| Ok([(round()?, f64::NAN)]))?;
        Ok(pairs.library)
    }
}

/// Microseconds of a duration.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Runs it; what it gives, and the microseconds that it took.
pub(crate) fn timed<T, E: Into<Failure>>(
    work: impl FnOnce() -> Result<T, E>,
) -> Result<(T, f64), Failure> {
    let start = Instant::now();
    let done = work();
    let took = start.elapsed();
    Ok((done.map_err(Into::into)?, micros(took)))
}

/// The microseconds that it takes to drop it.
pub(crate) fn time_of_drop<T>(thing: T) -> f64 {
    let start = Instant::now();
    drop(thing);
    micros(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_enough_for_an_interval_and_end() {
        let effort = Effort { quick: true };
        let mut called = 0;
        let [first, second] = effort
            .rounds(|| {
                called += 1;
                Ok([(f64::from(called), 1.0), (2.0, 4.0)])
            })
            .expect("nothing fails");
        assert!((statistics::LEAST..=25).contains(&first.len()));
        assert_eq!(first.library.first(), Some(&2.0));
        assert_eq!(second.raw, vec![4.0; first.len()]);
    }

    #[test]
    fn a_failure_ends_them() {
        let failed = Effort { quick: true }.alone(|| Err(Failure::text("no")));
        assert!(failed.is_err());
    }
}
