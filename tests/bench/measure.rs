//! Measuring in turn, medians, and the rows that are printed.

use crate::Result;
use serde_json::{Value, json};
use std::error::Error;
use std::fmt;
use std::time::{Duration, Instant};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) quick: bool,
}

impl Effort {
    /// How long processes work at the same time for one number a second.
    pub(crate) const fn slice(self) -> Duration {
        Duration::from_millis(if self.quick { 10 } else { 100 })
    }

    /// Measures several things a round: for each the library's and the raw calls' value. The first
    /// round is not counted.
    pub(crate) fn rounds<const THINGS: usize>(
        self,
        mut round: impl FnMut() -> Result<[(f64, f64); THINGS]>,
    ) -> Result<[Pairs; THINGS]> {
        let (least, most, time) = if self.quick {
            (5, 25, 60)
        } else {
            (15, 501, 2000)
        };
        round()?;
        let mut all: [Pairs; THINGS] = core::array::from_fn(|_| Pairs::default());
        let start = Instant::now();
        for done in 0..most {
            if done >= least && start.elapsed() >= Duration::from_millis(time) {
                break;
            }
            for (pairs, (library, raw)) in all.iter_mut().zip(round()?) {
                pairs.library.push(library);
                pairs.raw.push(raw);
            }
        }
        Ok(all)
    }

    /// The same for what has no raw calls beside it.
    pub(crate) fn alone(self, mut round: impl FnMut() -> Result<f64>) -> Result<Pairs> {
        let [pairs] = self.rounds(|| Ok([(round()?, f64::NAN)]))?;
        Ok(Pairs::alone(pairs.library))
    }
}

/// What was measured in turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairs {
    library: Vec<f64>,
    /// As many, or none.
    raw: Vec<f64>,
}

impl Pairs {
    pub(crate) const fn alone(library: Vec<f64>) -> Self {
        Self {
            library,
            raw: Vec::new(),
        }
    }

    /// How much more the library takes, of each pair.
    pub(crate) fn differences(&self) -> Self {
        Self::alone(self.each(|library, raw| library - raw))
    }

    pub(crate) fn divided_by(self, count: usize) -> Self {
        let divide = |values: Vec<f64>| values.into_iter().map(|all| all / count as f64).collect();
        Self {
            library: divide(self.library),
            raw: divide(self.raw),
        }
    }

    fn ratios(&self) -> Vec<f64> {
        self.each(|library, raw| library / raw)
    }

    fn each(&self, of: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let pairs = self.library.iter().zip(&self.raw);
        pairs.map(|(library, raw)| of(*library, *raw)).collect()
    }
}

/// The value below which so many quarters of all lie.
fn quartile(values: &[f64], quarters: usize) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
        .get(sorted.len().saturating_sub(1) * quarters / 4)
        .copied()
}

/// What a figure is to reach.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    RatioAtMost(f64),
    RatioAtLeast(f64),
}

/// One figure.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    figure: String,
    unit: &'static str,
    pairs: Pairs,
    target: Option<Target>,
    /// Why there are no numbers, after "skipped" or "failed".
    why: Option<String>,
}

impl Row {
    pub(crate) const HEAD: &str = "figure                                                         library     raw calls  ratio [quartiles]        target";

    pub(crate) fn new(figure: impl Into<String>, unit: &'static str, pairs: Pairs) -> Self {
        Self {
            figure: figure.into(),
            unit,
            pairs,
            target: None,
            why: None,
        }
    }

    /// Without numbers.
    pub(crate) fn none(figure: &str, what: &str, why: &str) -> Self {
        let why = Some(format!("{what}: {}", why.replace('\n', "; ")));
        Self {
            why,
            ..Self::new(figure, "", Pairs::default())
        }
    }

    pub(crate) const fn target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    /// The target in words, and whether it is met.
    fn verdict(&self) -> Option<(String, bool)> {
        let library = quartile(&self.pairs.library, 2)?;
        let ratio = quartile(&self.pairs.ratios(), 2).unwrap_or(f64::NAN);
        let unit = self.unit;
        Some(match self.target? {
            Target::AtMost(limit) => (format!("<= {limit} {unit}"), library <= limit),
            Target::AtLeast(limit) => (format!(">= {limit} {unit}"), library >= limit),
            Target::RatioAtMost(limit) => (format!("ratio <= {limit}"), ratio <= limit),
            Target::RatioAtLeast(limit) => (format!("ratio >= {limit}"), ratio >= limit),
        })
    }

    pub(crate) fn to_json(&self, driver: &str) -> Value {
        let three = |values: &[f64]| {
            let [low, median, high] = [1, 2, 3].map(|quarters| quartile(values, quarters));
            median.map(|median| json!({ "median": median, "low": low, "high": high }))
        };
        let verdict = self.verdict();
        json!({
            "driver": driver, "figure": self.figure, "unit": self.unit,
            "library": three(&self.pairs.library), "raw": three(&self.pairs.raw),
            "ratio": three(&self.pairs.ratios()), "count": self.pairs.library.len(),
            "target": verdict.as_ref().map(|(target, _)| target), "met": verdict.as_ref().map(|(_, met)| met),
            "why": self.why,
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<58}", self.figure)?;
        if let Some(why) = &self.why {
            return write!(f, "  {why}");
        }
        for values in [&self.pairs.library, &self.pairs.raw] {
            let value = quartile(values, 2).map(|value| format!("{} {}", number(value), self.unit));
            write!(f, " {:>13}", value.unwrap_or_default())?;
        }
        let ratios = self.pairs.ratios();
        let ratio = match [1, 2, 3].map(|quarters| quartile(&ratios, quarters)) {
            [Some(low), Some(median), Some(high)] => format!("{median:.3} [{low:.3}, {high:.3}]"),
            _ => String::new(),
        };
        let verdict = self
            .verdict()
            .map(|(target, met)| format!("  {target}: {}", if met { "met" } else { "missed" }));
        write!(f, "  {ratio:<23}{}", verdict.unwrap_or_default())
    }
}

/// Three digits that matter, or all before the point.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Microseconds of a duration.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Runs it; what it returns, and the microseconds that it took.
pub(crate) fn timed<T, E: Into<Box<dyn Error>>>(
    work: impl FnOnce() -> Result<T, E>,
) -> Result<(T, f64)> {
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
    fn quartiles_are_in_their_places() {
        let of = |values: &[f64]| [1, 2, 3].map(|quarters| quartile(values, quarters));
        assert_eq!(
            of(&[5.0, 1.0, 3.0, 2.0, 4.0]),
            [Some(2.0), Some(3.0), Some(4.0)]
        );
        assert_eq!(of(&[7.0]), [Some(7.0); 3]);
        assert_eq!(of(&[]), [None; 3]);
    }

    #[test]
    fn a_ratio_is_that_of_each_pair_and_a_target_that_of_the_median() {
        let pairs = Pairs {
            library: vec![2.0, 30.0, 4.0],
            raw: vec![1.0, 10.0, 4.0],
        };
        assert_eq!(pairs.ratios(), [2.0, 3.0, 1.0]);
        let met = |target| Row::new("x", "us", pairs.clone()).target(target).verdict();
        assert_eq!(met(Target::AtMost(4.0)), Some(("<= 4 us".to_owned(), true)));
        assert_eq!(
            met(Target::AtLeast(5.0)),
            Some((">= 5 us".to_owned(), false))
        );
        assert_eq!(
            met(Target::RatioAtMost(1.9)),
            Some(("ratio <= 1.9".to_owned(), false))
        );
        let text = Row::new("x", "us", pairs.clone()).to_string();
        assert!(
            text.contains("4.00 us") && text.contains("2.000 [1.000, 2.000]"),
            "{text}"
        );
        assert!(
            Row::none("y", "skipped", "no room")
                .to_string()
                .ends_with("skipped: no room")
        );
    }

    #[test]
    fn the_first_round_is_not_counted_and_a_failure_ends_them() {
        let mut called = 0.0;
        let quick = Effort { quick: true };
        let pairs = quick.alone(|| {
            called += 1.0;
            Ok(called)
        });
        let library = pairs.expect("nothing fails").library;
        assert!((5..=25).contains(&library.len()));
        assert_eq!(library.first(), Some(&2.0));
        assert!(quick.alone(|| Err("no".into())).is_err());
    }
}
