//! Whether handles are all segments of one range, each once: what an import
//! needs, judged without a driver, and all that is wrong instead of the first.

use crate::size;
use gpuipc::{Error, GpuIpcMemHandle, RangeError, check_range};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Handles side by side. Segments and positions count from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Together {
    id: u64,
    length: u64,
    /// Segments that the range has.
    count: u32,
    /// They came in the order of their addresses; an import does not mind.
    in_order: bool,
    /// The first and the last of each run that nobody gave.
    missing: Vec<(u32, u32)>,
    /// The segment, and the position of its second handle.
    doubled: Vec<(u32, usize)>,
    /// The position of a handle of another range than the first one's, and the
    /// field that shows it.
    foreign: Vec<(usize, &'static str)>,
    /// A segment that does not begin where the one before it ends, or ends
    /// inside its allocation before the range does.
    gap: Option<u32>,
    /// What an import says of them.
    refused: Option<String>,
}

impl Together {
    /// Judges handles; `None` for a single one that is all of its range.
    pub(crate) fn of(handles: &[GpuIpcMemHandle]) -> Option<Self> {
        let first = handles.first()?;
        let range = first.range();
        if handles.len() == 1 && range.segment_count <= 1 {
            return None;
        }
        let mut given = BTreeSet::new();
        let (mut doubled, mut foreign) = (Vec::new(), Vec::new());
        let mut in_order = true;
        for (position, handle) in handles.iter().enumerate() {
            let index = handle.range().segment_index;
            if let Some(field) = foreign_field(first, handle) {
                foreign.push((position, field));
            } else if given.contains(&index) {
                doubled.push((index, position));
            } else {
                in_order &= given.last().is_none_or(|last| *last < index);
                given.insert(index);
            }
        }
        let refused = check_range(handles).err();
        Some(Self {
            id: range.id,
            length: range.length,
            count: range.segment_count,
            in_order,
            missing: missing(given.iter().copied(), range.segment_count),
            doubled,
            foreign,
            gap: match &refused {
                Some(Error::Range(RangeError::Gap { index, .. })) => Some(*index),
                _ => None,
            },
            refused: refused.map(|error| error.to_string()),
        })
    }

    fn is_whole(&self) -> bool {
        self.refused.is_none()
    }

    /// One line, and one for each thing that is wrong.
    pub(crate) fn text(&self) -> String {
        let range = format!("range {}, {}", self.id, size::text(self.length));
        if self.is_whole() {
            let order = if self.in_order {
                "in their order"
            } else {
                "in another order, which an import does not mind"
            };
            return format!("{range}: all {} segments are here, {order}", self.count);
        }
        let mut lines = vec![format!(
            "{range}, {} segments: an import refuses these handles: {}",
            self.count,
            self.refused.as_deref().unwrap_or_default()
        )];
        if !self.missing.is_empty() {
            let runs = self.missing.iter().map(|(from, to)| {
                if from == to {
                    from.to_string()
                } else {
                    format!("{from}-{to}")
                }
            });
            let runs: Vec<String> = runs.collect();
            lines.push(format!("  missing: segment {}", runs.join(", ")));
        }
        for (index, position) in &self.doubled {
            lines.push(format!(
                "  doubled: segment {index}, again at position {position}"
            ));
        }
        for (position, field) in &self.foreign {
            lines.push(format!(
                "  of another range: the handle at position {position} ({field} differs)"
            ));
        }
        if let Some(index) = self.gap {
            lines.push(format!(
                "  not side by side: segment {index} does not fit its neighbours"
            ));
        }
        lines.join("\n")
    }

    pub(crate) fn to_json(&self) -> Value {
        let missing = self.missing.iter();
        let doubled = self.doubled.iter();
        let foreign = self.foreign.iter();
        json!({
            "range": {
                "id": self.id,
                "length": self.length,
                "segments": self.count,
                "whole": self.is_whole(),
                "in_order": self.in_order,
                "missing": missing.map(|(from, to)| json!([from, to])).collect::<Vec<_>>(),
                "doubled": doubled
                    .map(|(index, at)| json!({ "segment": index, "position": at }))
                    .collect::<Vec<_>>(),
                "foreign": foreign
                    .map(|(at, field)| json!({ "position": at, "field": field }))
                    .collect::<Vec<_>>(),
                "gap": self.gap,
                "refused": self.refused,
            }
        })
    }
}

/// The runs that are not in `given`, which comes in order.
fn missing(given: impl Iterator<Item = u32>, count: u32) -> Vec<(u32, u32)> {
    let mut runs = Vec::new();
    let mut next = 0;
    // The end closes the last run.
    for index in given.chain([count]) {
        if next < index {
            runs.push((next, index - 1));
        }
        next = index.saturating_add(1);
    }
    runs
}

/// The field by which a handle shows to be of another range.
fn foreign_field(first: &GpuIpcMemHandle, other: &GpuIpcMemHandle) -> Option<&'static str> {
    match check_range(&[*first, *other]) {
        Err(Error::Range(RangeError::Foreign { field, .. })) => Some(field),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuipc::core::{Endpoint, HandleFields, SharedRange, Ticket, Token};

    /// Three allocations of 100 bytes, from byte 40 of the first to byte 70 of the
    /// last.
    fn fields() -> [HandleFields; 3] {
        let segment = |index: u32, offset_from_base, length, offset| HandleFields {
            base_size: 100,
            offset_from_base,
            length,
            range: SharedRange {
                id: 9,
                length: 230,
                offset,
                segment_index: index,
                segment_count: 3,
            },
            fabric: Some([1; 64]),
            ..HandleFields::default()
        };
        [
            segment(0, 40, 60, 0),
            segment(1, 0, 100, 60),
            segment(2, 0, 70, 160),
        ]
    }

    fn judge(order: &[usize], change: fn(&mut [HandleFields; 3])) -> Together {
        let mut fields = fields();
        change(&mut fields);
        let handles: Vec<_> = order
            .iter()
            .map(|at| GpuIpcMemHandle::new(&fields[*at]).expect("the fields keep the rules"))
            .collect();
        Together::of(&handles).expect("a range of several segments")
    }

    #[test]
    fn a_whole_range_is_whole_in_any_order() {
        let whole = judge(&[0, 1, 2], |_| {});
        assert!(whole.is_whole() && whole.in_order, "{whole:?}");
        let turned = judge(&[2, 0, 1], |_| {});
        assert!(turned.is_whole() && !turned.in_order, "{turned:?}");
    }

    #[test]
    fn all_that_is_missing_or_doubled_is_named() {
        let judged = judge(&[1, 1, 1], |_| {});
        assert_eq!(judged.missing, [(0, 0), (2, 2)]);
        assert_eq!(judged.doubled, [(1, 1), (1, 2)]);
        let text = judged.text();
        assert!(text.contains("missing: segment 0, 2"), "{text}");
        assert!(
            text.contains("doubled: segment 1, again at position 2"),
            "{text}"
        );
        assert_eq!(judge(&[0], |_| {}).missing, [(1, 2)]);
    }

    #[test]
    fn a_handle_of_another_range_is_named_by_its_field() {
        let judged = judge(&[0, 1, 2], |fields| fields[1].range.id = 10);
        assert_eq!(judged.foreign, [(1, "range_id")]);
        assert_eq!(judged.missing, [(1, 1)]);
    }

    #[test]
    fn what_an_import_refuses_is_not_called_whole() {
        let judged = judge(&[0, 1, 2], |fields| {
            fields[1].ticket = Some(Ticket {
                endpoint: Endpoint([1; 16]),
                token: Token::new([2; 16]),
                fd: None,
                table: None,
            });
        });
        assert_eq!(judged.foreign, [(1, "ticket.endpoint")]);
        assert!(!judged.is_whole(), "{judged:?}");
    }

    #[test]
    fn segments_that_do_not_lie_side_by_side_are_named() {
        type Change = fn(&mut [HandleFields; 3]);
        let changes: [(u32, Change); 4] = [
            (0, |fields| fields[0].base_size = 101),
            (1, |fields| fields[1].range.offset = 61),
            (2, |fields| fields[2].offset_from_base = 1),
            (2, |fields| fields[2].length = 69),
        ];
        for (index, change) in changes {
            assert_eq!(judge(&[0, 1, 2], change).gap, Some(index));
        }
    }

    #[test]
    fn a_made_up_number_of_segments_costs_nothing() {
        let judged = judge(&[1], |fields| {
            fields[1].range.segment_count = 100;
        });
        assert_eq!(judged.missing, [(0, 0), (2, 99)]);
    }
}
