//! Choices that a seed repeats.

/// xorshift64.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// The dice of whoever these numbers name: one seed gives each worker, each of
    /// its incarnations and each of their threads dice of its own.
    pub(super) fn of(seed: u64, names: &[u64]) -> Self {
        let mixed = names
            .iter()
            .fold(mix(seed), |mixed, name| mix(mixed ^ mix(*name)));
        // The one state that never changes is all zeros.
        Self(mixed.max(1))
    }

    /// Any number but 0.
    pub(super) const fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Below `end`, which is not 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from((self.number() >> 32) % end as u64).unwrap_or(0)
    }

    /// From `first` to `last`.
    pub(super) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + (self.number() >> 16) % (last - first + 1)
    }

    /// True once in so many times.
    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// splitmix64's last step.
const fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_choices_and_names_change_them() {
        let throws = |seed, names: &[u64]| {
            let mut dice = Dice::of(seed, names);
            (0..100).map(|_| dice.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(throws(1, &[2, 3]), throws(1, &[2, 3]));
        assert_ne!(throws(1, &[2, 3]), throws(1, &[3, 2]));
        assert_ne!(throws(1, &[2, 3]), throws(2, &[2, 3]));
        assert!(throws(0, &[]).iter().any(|throw| *throw > 500));
    }
}
