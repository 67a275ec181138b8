//! The allocator of an object's ranges.

use gpuipc::multicast::Ranges;
use proptest::prelude::*;

const SIZE: u64 = 1 << 12;

/// Takes some bytes, or gives the nth range back.
#[derive(Debug, Clone)]
enum Act {
    Take { length: u64, align: u64 },
    Give { nth: usize },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (1..SIZE / 4, 0..8_u32).prop_map(|(length, shift)| Act::Take {
            length,
            align: 1 << shift
        }),
        // Not only powers of two.
        (1..64_u64, 1..100_u64).prop_map(|(length, align)| Act::Take { length, align }),
        (0..16_usize).prop_map(|nth| Act::Give { nth }),
    ]
}

/// No byte is in two ranges, none in no range, and free ranges never touch.
fn check(ranges: &Ranges) {
    let mut all: Vec<(u64, u64, bool)> = ranges
        .free()
        .into_iter()
        .map(|(start, length)| (start, length, true))
        .chain(
            ranges
                .taken()
                .into_iter()
                .map(|(start, length)| (start, length, false)),
        )
        .collect();
    all.sort_unstable();
    let mut end = 0;
    let mut before_is_free = false;
    for (start, length, is_free) in all {
        assert_eq!(start, end, "a gap or an overlap");
        assert!(length > 0 && !(before_is_free && is_free), "not merged");
        (end, before_is_free) = (start + length, is_free);
    }
    assert_eq!(end, ranges.size());
}

/// The first place, looked for byte by byte.
fn first_fit(ranges: &Ranges, length: u64, align: u64) -> Option<u64> {
    (0..SIZE).step_by(align as usize).find(|start| {
        let inside = |(from, room): &(u64, u64)| from <= start && start + length <= from + room;
        ranges.free().iter().any(inside)
    })
}

proptest! {
    #[test]
    fn nothing_overlaps_nothing_is_lost_and_all_is_merged_in_the_end(
        acts in proptest::collection::vec(act(), 1..80)
    ) {
        let mut ranges = Ranges::new(SIZE);
        for act in acts {
            match act {
                Act::Take { length, align } => {
                    let expected = first_fit(&ranges, length, align);
                    prop_assert_eq!(ranges.take(length, align), expected);
                }
                Act::Give { nth } => {
                    if let Some((start, length)) = ranges.taken().get(nth).copied() {
                        prop_assert_eq!(ranges.give(start), Some(length));
                        prop_assert_eq!(ranges.give(start), None);
                    }
                }
            }
            check(&ranges);
        }
        for (start, _) in ranges.taken() {
            ranges.give(start);
        }
        prop_assert_eq!(ranges, Ranges::new(SIZE));
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let mut ranges = Ranges::new(10);
    assert_eq!((ranges.take(0, 1), ranges.take(1, 0)), (None, None));
    assert_eq!((ranges.take(11, 1), ranges.take(u64::MAX, 1)), (None, None));
    assert_eq!(ranges.take(1, u64::MAX), Some(0));
    assert_eq!(ranges.take(1, u64::MAX), None);
    assert_eq!((ranges.give(1), ranges.give(0)), (None, Some(1)));
    assert_eq!(Ranges::new(0).take(1, 1), None);
}
