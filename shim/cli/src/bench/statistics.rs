//! Medians, and how sure they are.
//!
//! The interval is that of order statistics, which supposes nothing about the
//! distribution but that the values are independent: the `k`-th smallest and the
//! `k`-th largest of `n` values have the median between them unless fewer than
//! `k` values fall on one side of it, which is as likely as fewer than `k` heads
//! of `n` coins. `k` is the largest for which that happens in at most 5 % of all
//! cases, on both sides together.

/// Fewer values than this have no such interval: even the smallest and the
/// largest have the median between them in less than 95 % of all cases.
pub(crate) const LEAST: usize = 6;
/// More values are not taken: 0.5 to this power is still a number.
pub(crate) const MOST: usize = 1000;

/// A median, and between what it lies with at least 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Interval {
    /// Of at least one value; of fewer than [`LEAST`] from the smallest to the largest.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (first, last) = (sorted.first()?, sorted.last()?);
        let rank = rank(sorted.len());
        let from_end = sorted.len().checked_sub(rank);
        Some(Self {
            median: middle(&sorted),
            low: *sorted.get(rank.saturating_sub(1)).unwrap_or(first),
            high: from_end
                .and_then(|at| sorted.get(at))
                .copied()
                .unwrap_or(*last),
        })
    }
}

/// The `k` of the module's text; 0 where there is none.
fn rank(count: usize) -> usize {
    let count = count.min(MOST);
    let mut probability = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut below = 0.0;
    for rank in 0..=count / 2 {
        below += probability;
        if below > 0.025 {
            return rank;
        }
        probability *= (count - rank) as f64 / (rank + 1) as f64;
    }
    0
}

fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    let upper = sorted.get(half).copied().unwrap_or(f64::NAN);
    if sorted.len() % 2 == 1 {
        upper
    } else {
        let lower = half.checked_sub(1).and_then(|at| sorted.get(at));
        lower.map_or(f64::NAN, |lower| f64::midpoint(*lower, upper))
    }
}

/// What was measured in turn: the library, the raw calls, the library, and so on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pairs {
    pub(crate) library: Vec<f64>,
    pub(crate) raw: Vec<f64>,
}

impl Pairs {
    pub(crate) fn push(&mut self, (library, raw): (f64, f64)) {
        self.library.push(library);
        self.raw.push(raw);
    }

    pub(crate) fn len(&self) -> usize {
        self.library.len()
    }

    /// Of each pair, how many times as much the library's value is.
    pub(crate) fn ratio(&self) -> Option<Interval> {
        Interval::of(&self.each(|library, raw| library / raw))
    }

    /// Of each pair, how much more the library's value is.
    pub(crate) fn differences(&self) -> Vec<f64> {
        self.each(|library, raw| library - raw)
    }

    fn each(&self, of: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let pairs = self.library.iter().zip(&self.raw);
        pairs.map(|(library, raw)| of(*library, *raw)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        let median = |values: &[f64]| Interval::of(values).map(|interval| interval.median);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn ranks_are_those_of_the_sign_test() {
        // From tables of the sign test, two-sided, 5 %.
        let table = [
            (5, 0),
            (6, 1),
            (8, 1),
            (9, 2),
            (12, 3),
            (20, 6),
            (25, 8),
            (100, 40),
        ];
        for (count, expected) in table {
            assert_eq!(rank(count), expected, "{count}");
        }
        assert!((465..475).contains(&rank(MOST)));
    }

    #[test]
    fn the_interval_is_between_the_ranks() {
        let values: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        let interval = Interval::of(&values).expect("there are values");
        assert_eq!(
            (interval.low, interval.median, interval.high),
            (6.0, 10.5, 15.0)
        );
        let few = Interval::of(&[1.0, 5.0, 3.0]).expect("there are values");
        assert_eq!((few.low, few.high), (1.0, 5.0));
    }

    #[test]
    fn the_interval_holds_the_median_as_often_as_it_says() {
        // Numbers without a pattern; their median is a half.
        let mut state = 1_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut held = 0;
        for _ in 0..2000 {
            let values: Vec<f64> = (0..21).map(|_| random()).collect();
            let interval = Interval::of(&values).expect("there are values");
            held += usize::from(interval.low <= 0.5 && 0.5 <= interval.high);
        }
        assert!((1900..2000).contains(&held), "{held}");
    }

    #[test]
    fn ratios_are_of_each_pair() {
        let mut pairs = Pairs::default();
        for pair in [(2.0, 1.0), (30.0, 10.0), (4.0, 4.0)] {
            pairs.push(pair);
        }
        assert_eq!(pairs.len(), 3);
        assert_eq!(pairs.ratio().map(|ratio| ratio.median), Some(2.0));
        assert_eq!(pairs.differences(), [1.0, 20.0, 0.0]);
    }
}
