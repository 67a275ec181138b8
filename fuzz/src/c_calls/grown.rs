//! Calls about places, feasibilities and registered memory.

use super::Op;
use super::world::{FORM, HANDLES, World};
use crate::checker::HANDLE as BYTES;
use gpuipc_c::attempts::{CAttempt, CError};
use gpuipc_c::calls::{buffer, export, feasibility, library, mem, registered, reservation};
use gpuipc_c::objects::Reservation;
use gpuipc_c::objects::feasibility::TypeFeasibility;
use gpuipc_c::objects::registered::{COwner, CTransport};
use gpuipc_c::options::{CDevice, ExportOptions, ImportOptions};
use std::mem::MaybeUninit;
use std::ptr;

/// The unit of the emulated driver's address space.
const UNIT: usize = 2 << 20;

/// What the imports to come have beside [`Op`]'s: set by a call of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extra {
    devices: [CDevice; 2],
    count: u32,
    uuid: [u8; 16],
    host_access: u32,
    place: u8,
    place_offset: usize,
}

impl Extra {
    pub(super) const NONE: Self = Self::of(Op {
        call: 0,
        object: 4,
        other: 0,
        bits: 0,
        number: 0,
    });

    pub(super) const fn of(op: Op) -> Self {
        Self {
            devices: [
                CDevice {
                    ordinal: (op.other & 3) as i32 - 1,
                    reserved: 0,
                    uuid: [(op.other >> 2 & 1) * 7; 16],
                },
                CDevice {
                    ordinal: 1,
                    reserved: (op.other >> 7) as u32,
                    uuid: [0; 16],
                },
            ],
            count: (op.bits & 3) as u32 % 3,
            uuid: [(op.other >> 4 & 1) * 9; 16],
            host_access: (op.other >> 5 & 3) as u32,
            place: op.object,
            place_offset: op.number as usize % 8 * UNIT / 2,
        }
    }

    /// Puts it into the options. What they point to is the world's.
    pub(super) fn put(&self, options: &mut ImportOptions, place: Option<&Reservation>) {
        options.device_uuid = self.uuid;
        options.host_access = self.host_access;
        options.access_devices = self.devices.as_ptr();
        options.access_device_count = self.count;
        options.place = place.map_or(ptr::null(), ptr::from_ref);
        options.place_offset = self.place_offset;
    }

    pub(super) const fn place(&self) -> u8 {
        self.place
    }
}

impl World {
    pub(super) fn reservation(&mut self, op: Op) -> u32 {
        let library = self.libraries.get(op.bits >> 6);
        let object = self.reservations.get(op.object);
        let (mut base, mut size) = (MaybeUninit::new(0), MaybeUninit::new(0));
        match op.other % 5 {
            0 => {
                let size = (op.number as usize % 16) * UNIT / 2;
                let make = |out: Option<&mut MaybeUninit<Box<Reservation>>>| {
                    reservation::gpuipc_reservation_new(library, size, out)
                };
                let free = reservation::gpuipc_reservation_free;
                self.reservations.make(op.object, op.has(4), make, free)
            }
            1 => reservation::gpuipc_reservation_base(object, (!op.has(4)).then_some(&mut base)),
            2 => reservation::gpuipc_reservation_size(object, (!op.has(4)).then_some(&mut size)),
            3 => {
                reservation::gpuipc_reservation_free(self.reservations.take(op.object));
                reservation::gpuipc_reservation_base(None, Some(&mut base))
            }
            _ => {
                reservation::gpuipc_reservation_base(object, Some(&mut base));
                reservation::gpuipc_reservation_size(object, Some(&mut size));
                // SAFETY: set when it was made.
                let base = unsafe { base.assume_init() };
                // SAFETY: set when it was made.
                let size = unsafe { size.assume_init() };
                let mut out = MaybeUninit::<Box<Reservation>>::uninit();
                // SAFETY: a whole reservation, or numbers that are refused; nothing is
                // mapped in it before it goes, below.
                let status = unsafe {
                    reservation::gpuipc_reservation_of_caller(
                        library,
                        base,
                        size,
                        (!op.has(4)).then_some(&mut out),
                    )
                };
                if status == 0 {
                    // SAFETY: the call returned 0, so it has written it.
                    let object = unsafe { out.assume_init() };
                    reservation::gpuipc_reservation_free(Some(object));
                    // What is looked at is the last error, which stays.
                }
                status
            }
        }
    }

    pub(super) fn mem_unmap(&mut self, op: Op) -> u32 {
        let mem = self.mems.take(op.object);
        let mut out = MaybeUninit::<Option<Box<Reservation>>>::uninit();
        let status = mem::gpuipc_mem_unmap(mem, (!op.has(4)).then_some(&mut out));
        if status == 0 && !op.has(4) {
            // SAFETY: the call returned 0, so it has written it.
            let object = unsafe { out.assume_init() };
            if let Some(object) = object {
                let before = self.reservations.put(op.other % 4, object);
                reservation::gpuipc_reservation_free(before);
            }
        }
        status
    }

    pub(super) fn can_import(&mut self, op: Op) -> u32 {
        let handles = self.forged(op);
        let library = self.libraries.get(op.bits >> 6);
        let len = self.handle_len(op);
        let options = self.import_options(op);
        let mut out = MaybeUninit::uninit();
        // SAFETY: at most as many bytes as the handles have, options of our own, and
        // objects that live.
        let status = unsafe {
            feasibility::gpuipc_can_import(
                library,
                handles.as_ptr(),
                len,
                &raw const options,
                (!op.has(4)).then_some(&mut out),
            )
        };
        if status != 0 {
            return status;
        }
        // SAFETY: the call returned 0, so it has written it.
        let object = unsafe { out.assume_init() };
        let mut said = MaybeUninit::uninit();
        let mut problem = MaybeUninit::uninit();
        let mut count = MaybeUninit::new(0);
        let mut types = [const { MaybeUninit::<TypeFeasibility>::uninit() }; 3];
        assert_eq!(
            feasibility::gpuipc_feasibility_is_own(Some(&object), Some(&mut said)),
            0
        );
        assert_eq!(
            feasibility::gpuipc_feasibility_is_importable(Some(&object), Some(&mut said)),
            0
        );
        assert_eq!(
            feasibility::gpuipc_feasibility_problem(Some(&object), Some(&mut problem)),
            0
        );
        // SAFETY: the three types that there is room for.
        let listed = unsafe {
            feasibility::gpuipc_feasibility_types(
                Some(&object),
                types.as_mut_ptr().cast(),
                3,
                Some(&mut count),
            )
        };
        assert_eq!(listed, 0, "there are no more than three types");
        // SAFETY: set when it was made.
        let count = unsafe { count.assume_init() };
        // SAFETY: the call returned 0, so it has written it.
        let problem = unsafe { problem.assume_init() };
        for one in &types[..count] {
            // SAFETY: the call has written as many as it says.
            let one = unsafe { one.assume_init_ref() };
            assert!((1..=3).contains(&one.feasible));
            assert_eq!(one.feasible == 3, one.attempt.handle_type != 0);
        }
        assert!(problem == 0 || count == 0);
        let (to, size) = (self.room.as_mut_ptr().cast(), self.room.len());
        // SAFETY: `size` bytes of our own.
        let told =
            unsafe { feasibility::gpuipc_feasibility_problem_text(Some(&object), to, size, None) };
        assert_eq!(told, 0);
        assert_eq!(self.room[0] == 0, problem == 0);
        feasibility::gpuipc_feasibility_free(Some(object));
        status
    }

    pub(super) fn register(&mut self, op: Op) -> u32 {
        let library = self.libraries.get(op.bits >> 6);
        let (mut start, mut len) = (MaybeUninit::new(4096), MaybeUninit::new(64));
        let buffer = self.buffers.get(op.other % 8);
        buffer::gpuipc_buffer_ptr(buffer, Some(&mut start));
        buffer::gpuipc_buffer_len(buffer, Some(&mut len));
        // SAFETY: set when it was made.
        let start = unsafe { start.assume_init() };
        // SAFETY: set when it was made.
        let len = unsafe { len.assume_init() };
        let mut bytes = [0; 64];
        bytes[..4].copy_from_slice(b"rkey");
        let mut transports = [CTransport {
            kind: 7,
            len: 4 + (op.number >> 8 & 3),
            bytes,
        }; 2];
        transports[1].kind += op.number & 1;
        transports[1].len = op.number >> 16 & 0xff;
        let count = usize::from(op.other >> 4) % 3;
        let options = ExportOptions {
            struct_size: size_of::<ExportOptions>(),
            type_count: 0,
            types: [0; 7],
            fd_on_demand: (op.other >> 3 & 1).into(),
            reserved: 0,
        };
        let from = if op.has(8) {
            ptr::null()
        } else {
            transports.as_ptr()
        };
        let options = if op.has(2) {
            &raw const options
        } else {
            ptr::null()
        };
        self.registered.make(
            op.object,
            op.has(4),
            // SAFETY: NULL, or two transports of our own, of which at most two are said.
            |out| unsafe {
                registered::gpuipc_register(library, start, len, from, count, options, out)
            },
            registered::gpuipc_registered_free,
        )
    }

    pub(super) fn deserialize(&mut self, op: Op) -> u32 {
        let library = self.libraries.get(op.bits >> 6);
        let mut form = self.form;
        if op.has(1) {
            let at = op.number as usize % FORM;
            form[at] ^= op.other | 1;
        }
        let len = if op.has(8) {
            op.number as usize % FORM
        } else {
            self.form_len
        };
        let options = self.import_options(op);
        self.registered.make(
            op.object,
            op.has(4),
            // SAFETY: at most as many bytes as the form has, options of our own.
            |out| unsafe {
                registered::gpuipc_deserialize(library, form.as_ptr(), len, &raw const options, out)
            },
            registered::gpuipc_registered_free,
        )
    }

    pub(super) fn registered_says(&mut self, op: Op) -> u32 {
        let object = self.registered.get(op.object);
        let mut long = MaybeUninit::uninit();
        let mut count = MaybeUninit::new(0);
        let out = (!op.has(4)).then_some(&mut long);
        match op.other % 11 {
            0 => registered::gpuipc_registered_data(object, out),
            1 => registered::gpuipc_registered_len(object, out),
            2 => registered::gpuipc_registered_original_ptr(object, out),
            3 => {
                let mut owner = MaybeUninit::<COwner>::uninit();
                registered::gpuipc_registered_owner(object, (!op.has(4)).then_some(&mut owner))
            }
            4 => {
                let mut error = MaybeUninit::<CError>::uninit();
                registered::gpuipc_registered_gpu_error(object, (!op.has(4)).then_some(&mut error))
            }
            5 => {
                let mut mapping = MaybeUninit::uninit();
                let status = registered::gpuipc_registered_mapping(object, Some(&mut mapping));
                if status != 0 {
                    return status;
                }
                // SAFETY: the call returned 0, so it has written it.
                let mapping = unsafe { mapping.assume_init() };
                // SAFETY: NULL, or an object that lives as long as `object` does.
                let mapping = unsafe { mapping.as_ref() };
                mem::gpuipc_mem_ptr(mapping, Some(&mut long))
            }
            6 => {
                let mut list = [const { MaybeUninit::<CTransport>::uninit() }; 2];
                let (to, capacity) = (list.as_mut_ptr().cast(), op.number as usize % 3);
                let count = (!op.has(8)).then_some(&mut count);
                // SAFETY: at most the two that there is room for.
                unsafe { registered::gpuipc_registered_transports(object, to, capacity, count) }
            }
            7 => {
                let mut list = [const { MaybeUninit::<CAttempt>::uninit() }; 4];
                let (to, capacity) = (list.as_mut_ptr().cast(), op.number as usize % 5);
                let count = (!op.has(8)).then_some(&mut count);
                // SAFETY: at most the four that there is room for.
                unsafe {
                    registered::gpuipc_registered_gpu_error_attempts(object, to, capacity, count)
                }
            }
            8 => {
                let size = op.number as usize % 64;
                let to = self.room.as_mut_ptr().cast();
                // SAFETY: `size` bytes of our own.
                unsafe {
                    registered::gpuipc_registered_gpu_error_text(object, to, size, Some(&mut count))
                }
            }
            9 => {
                let size = if op.has(8) { BYTES } else { HANDLES };
                let to = self.handle.as_mut_ptr();
                // SAFETY: `size` bytes of our own, at most.
                unsafe { registered::gpuipc_registered_handles(object, to, size, Some(&mut count)) }
            }
            _ => {
                let size = if op.has(8) {
                    op.number as usize % FORM
                } else {
                    FORM
                };
                let to = self.form.as_mut_ptr();
                // SAFETY: `size` bytes of our own.
                let status = unsafe {
                    registered::gpuipc_registered_bytes(object, to, size, Some(&mut count))
                };
                if status == 0 && size > 0 {
                    // SAFETY: set when it was made.
                    self.form_len = unsafe { count.assume_init() };
                }
                status
            }
        }
    }

    /// What gives back, and what closes connections.
    pub(super) fn give_back(&mut self, op: Op) -> u32 {
        if op.other.is_multiple_of(2) {
            registered::gpuipc_registered_free(self.registered.take(op.object));
        }
        library::gpuipc_close_idle_connections(self.libraries.get(op.bits >> 6))
    }

    /// Writes all handles of an export, so that later imports are of all of them.
    pub(super) fn all_handles(&mut self, op: Op) -> u32 {
        let mut count = MaybeUninit::new(0);
        let to = self.handle.as_mut_ptr();
        let export = self.exports.get(op.object);
        // SAFETY: as many bytes of our own as are said.
        let status =
            unsafe { export::gpuipc_exported_bytes(export, to, HANDLES, Some(&mut count)) };
        if status == 0 {
            // SAFETY: set when it was made.
            self.told = unsafe { count.assume_init() };
        }
        status
    }
}
