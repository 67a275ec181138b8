//! The handles of one range: all of its segments, each once, in order.

use crate::error::{Error, RangeError};
use gpuipc_core::{Attributes, GpuIpcMemHandle, TypeFlags, TypeList};

/// The segments of a range in their order; at least one.
#[derive(Clone, Debug)]
pub(crate) struct RangeHandles<'a> {
    segments: Vec<&'a GpuIpcMemHandle>,
}

impl<'a> RangeHandles<'a> {
    /// Puts handles, in whatever order they came, into their order.
    ///
    /// # Errors
    /// [`Error::Argument`] for no handle, [`Error::Range`] for handles that are
    /// not all segments of one range, each once, and for segments that cannot lie
    /// side by side, [`Error::Unsupported`] for a multicast object.
    pub(crate) fn of(handles: &'a [GpuIpcMemHandle]) -> Result<Self, Error> {
        let Some(first) = handles.first() else {
            return Err(Error::Argument {
                name: "handles",
                rule: "there must be at least one handle",
            });
        };
        if first.attributes().contains(Attributes::MULTICAST) {
            return Err(Error::Unsupported {
                what: if cfg!(feature = "multicast") {
                    "a multicast object is not imported as memory, but with Ipc::import_multicast"
                } else {
                    "the handle is of a multicast object, and this build of the library lacks the feature multicast"
                },
            });
        }
        let count = first.range().segment_count;
        let mut places: Vec<Option<&GpuIpcMemHandle>> = vec![None; handles.len()];
        for (position, handle) in handles.iter().enumerate() {
            if let Some(field) = foreign_field(first, handle) {
                return Err(RangeError::Foreign { position, field }.into());
            }
            let index = handle.range().segment_index;
            // Beyond the end only where some segment is missing: that comes below.
            let place = usize::try_from(index)
                .ok()
                .and_then(|at| places.get_mut(at));
            if let Some(place) = place
                && place.replace(handle).is_some()
            {
                return Err(RangeError::Doubled { index, position }.into());
            }
        }
        let missing = (0..count).find(|index| {
            let place = usize::try_from(*index).ok().and_then(|at| places.get(at));
            !matches!(place, Some(Some(_)))
        });
        if let Some(index) = missing {
            return Err(RangeError::Missing { index, count }.into());
        }
        let segments: Vec<_> = places.into_iter().flatten().collect();
        let range = Self { segments };
        range.check_side_by_side()?;
        Ok(range)
    }

    /// In an importer the allocations lie side by side, and so do the segments
    /// only if each reaches the seams.
    fn check_side_by_side(&self) -> Result<(), RangeError> {
        let mut offset = 0_u64;
        let last = self.segments.len() - 1;
        for (at, segment) in self.segments.iter().enumerate() {
            let index = segment.range().segment_index;
            let gap = |field| Err(RangeError::Gap { index, field });
            if segment.range().offset != offset {
                return gap("range_offset");
            }
            // Inside the range, whose length is a u64: no overflow.
            offset += segment.length();
            if at > 0 && segment.offset_from_base() != 0 {
                return gap("offset_from_base");
            }
            let end = segment.offset_from_base() + segment.length();
            if at < last && end != segment.base_size() {
                return gap("base_size");
            }
        }
        if offset != self.first().range().length {
            return Err(RangeError::Gap {
                index: self.last().range().segment_index,
                field: "range_length",
            });
        }
        Ok(())
    }

    /// The segments, in the order of their addresses.
    pub(crate) fn segments(&self) -> &[&'a GpuIpcMemHandle] {
        &self.segments
    }

    /// The segment at which the range starts.
    pub(crate) fn first(&self) -> &'a GpuIpcMemHandle {
        self.segments[0]
    }

    fn last(&self) -> &'a GpuIpcMemHandle {
        self.segments[self.segments.len() - 1]
    }

    /// Whether the range lies in one allocation.
    pub(crate) fn is_whole(&self) -> bool {
        self.segments.len() == 1
    }

    /// Bytes of the range; `None` where they are more than there are addresses.
    pub(crate) fn len(&self) -> Option<usize> {
        usize::try_from(self.first().range().length).ok()
    }

    /// Bytes of all its allocations; `None` where they are more than there are
    /// addresses.
    pub(crate) fn mapped_size(&self) -> Option<usize> {
        self.segments.iter().try_fold(0_usize, |size, segment| {
            size.checked_add(usize::try_from(segment.base_size()).ok()?)
        })
    }

    /// The types that all segments have: a range is mapped by one type.
    pub(crate) fn types(&self) -> TypeList {
        let common = self
            .segments
            .iter()
            .map(|segment| segment.types())
            .fold(TypeFlags::all(), TypeFlags::intersection);
        common.types()
    }

    /// What a failure is told to be about: a segment of several.
    pub(crate) fn number_of(&self, at: usize) -> Option<u32> {
        let segment = self.segments.get(at)?;
        (!self.is_whole()).then_some(segment.range().segment_index)
    }
}

/// Whether these handles, in any order, are what [`Ipc::import`](crate::Ipc::import) takes:
/// all segments of one range, each once, which can lie side by side. Asks nobody.
///
/// # Errors
/// As that call's: [`Error::Range`], [`Error::Argument`], [`Error::Unsupported`].
pub fn check_range(handles: &[GpuIpcMemHandle]) -> Result<(), Error> {
    RangeHandles::of(handles).map(drop)
}

/// The field by which a handle shows to be of another range.
fn foreign_field(first: &GpuIpcMemHandle, other: &GpuIpcMemHandle) -> Option<&'static str> {
    let (range, other_range) = (first.range(), other.range());
    let endpoint = |handle: &GpuIpcMemHandle| handle.ticket().map(|ticket| ticket.endpoint);
    let kind = |handle: &GpuIpcMemHandle| {
        handle.attributes() & (Attributes::MEM_POOL | Attributes::MULTICAST)
    };
    let differs = [
        (first.process_id() != other.process_id(), "process_id"),
        (first.host_id() != other.host_id(), "host_id"),
        (range.id != other_range.id, "range_id"),
        (range.length != other_range.length, "range_length"),
        (
            range.segment_count != other_range.segment_count,
            "segment_count",
        ),
        (endpoint(first) != endpoint(other), "ticket.endpoint"),
        (kind(first) != kind(other), "attributes"),
    ];
    differs
        .into_iter()
        .find(|(differs, _)| *differs)
        .map(|(_, field)| field)
}

impl From<RangeError> for Error {
    fn from(error: RangeError) -> Self {
        Self::Range(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuipc_core::{HandleFields, SharedRange as Place};

    /// A range of three allocations of 100 bytes: from byte 40 of the first to
    /// byte 70 of the last.
    fn fields() -> [HandleFields; 3] {
        let segment = |index, offset_from_base, length, offset| HandleFields {
            base_size: 100,
            offset_from_base,
            length,
            allocation_id: 1 + u64::from(index),
            range: Place {
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

    fn handles(fields: &[HandleFields]) -> Vec<GpuIpcMemHandle> {
        fields
            .iter()
            .map(|fields| GpuIpcMemHandle::new(fields).expect("a valid handle"))
            .collect()
    }

    fn error(handles: &[GpuIpcMemHandle]) -> RangeError {
        match RangeHandles::of(handles) {
            Err(Error::Range(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn segments_come_in_any_order() {
        let [a, b, c] = fields();
        for order in [[&a, &b, &c], [&c, &a, &b], [&b, &c, &a]] {
            let order = handles(&order.map(Clone::clone));
            let range = RangeHandles::of(&order).expect("all of one range");
            let ids: Vec<_> = range
                .segments()
                .iter()
                .map(|segment| segment.allocation_id())
                .collect();
            assert_eq!(ids, [1, 2, 3]);
            assert_eq!(range.mapped_size(), Some(300));
            assert_eq!(range.len(), Some(230));
        }
    }

    #[test]
    fn a_missing_segment_is_named() {
        let [a, b, c] = fields();
        for (given, index) in [
            (vec![&b, &c], 0),
            (vec![&a, &c], 1),
            (vec![&a, &b], 2),
            (vec![&c], 0),
        ] {
            let given: Vec<_> = given.into_iter().cloned().collect();
            assert_eq!(
                error(&handles(&given)),
                RangeError::Missing { index, count: 3 }
            );
        }
    }

    #[test]
    fn a_doubled_segment_is_named() {
        let [a, b, c] = fields();
        assert_eq!(
            error(&handles(&[a, b.clone(), b, c])),
            RangeError::Doubled {
                index: 1,
                position: 2
            }
        );
    }

    #[test]
    fn a_foreign_segment_is_named_by_its_field() {
        type Change = fn(&mut HandleFields);
        let changes: [(&str, Change); 4] = [
            ("range_id", |fields| fields.range.id = 10),
            ("process_id", |fields| fields.process_id.0 = [5; 16]),
            ("host_id", |fields| fields.host_id.0 = [5; 16]),
            ("segment_count", |fields| fields.range.segment_count = 4),
        ];
        for (field, change) in changes {
            let mut fields = fields();
            change(&mut fields[1]);
            assert_eq!(
                error(&handles(&fields)),
                RangeError::Foreign { position: 1, field }
            );
        }
    }

    #[test]
    fn segments_with_a_gap_are_refused() {
        type Change = fn(&mut [HandleFields; 3]);
        let changes: [(u32, &str, Change); 4] = [
            (0, "base_size", |fields| fields[0].base_size = 101),
            (1, "base_size", |fields| fields[1].base_size = 101),
            (1, "range_offset", |fields| fields[1].range.offset = 61),
            (2, "offset_from_base", |fields| {
                fields[2].offset_from_base = 1;
            }),
        ];
        for (index, field, change) in changes {
            let mut fields = fields();
            change(&mut fields);
            assert_eq!(
                error(&handles(&fields)),
                RangeError::Gap { index, field },
                "{field}"
            );
        }
    }

    #[test]
    fn a_multicast_object_is_no_memory_and_a_build_without_multicast_says_so() {
        let object = HandleFields {
            multicast: true,
            num_devices: 2,
            range: Place {
                length: 100,
                segment_count: 1,
                segment_index: 0,
                ..fields()[0].range
            },
            length: 100,
            offset_from_base: 0,
            ..fields()[0].clone()
        };
        let Err(Error::Unsupported { what }) = RangeHandles::of(&handles(&[object])) else {
            panic!("a multicast object is taken as memory");
        };
        let lacks = "lacks the feature multicast";
        assert_eq!(what.contains(lacks), !cfg!(feature = "multicast"), "{what}");
    }

    #[test]
    fn a_range_longer_than_its_segments_is_refused() {
        let mut fields = fields();
        for segment in &mut fields {
            segment.range.length = 231;
        }
        assert_eq!(
            error(&handles(&fields)),
            RangeError::Gap {
                index: 2,
                field: "range_length"
            }
        );
    }
}
