//! What a C program holds, and the calls that it makes.

use super::Op;
use super::grown::Extra;
use super::hold::Hold;
use crate::checker::{HANDLE as BYTES, seal};
use core::ffi::{CStr, c_char};
use gpuipc::{Driver, IpcOptions, Trust};
use gpuipc_c::attempts::{CAttempt, CError};
use gpuipc_c::calls::{buffer, cancel, error, export, handle, import, library, mem};
use gpuipc_c::objects::{Buffer, Cancel, Exported, Library, Mem, Registered, Reservation};
use gpuipc_c::options::{ExportOptions, ImportOptions, OpenOptions};
use gpuipc_emulated::faults;
use std::mem::MaybeUninit;
use std::ptr;

/// Calls that a fault may hit: none by which something is given back.
const FALLIBLE: [&str; 10] = [
    "cuMemAlloc_v2",
    "cuMemCreate",
    "cuMemAddressReserve",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemExportToShareableHandle",
    "cuMemImportFromShareableHandle",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuPointerGetAttribute",
];

/// Everything that there is. Given back in an order that the fields' do not decide: any is right.
#[derive(Debug)]
pub(super) struct World {
    driver: Driver,
    pub(super) libraries: Hold<Library>,
    pub(super) buffers: Hold<Buffer>,
    pub(super) exports: Hold<Exported>,
    pub(super) mems: Hold<Mem>,
    cancels: Hold<Cancel>,
    pub(super) reservations: Hold<Reservation>,
    pub(super) registered: Hold<Registered>,
    /// The last handles that were told.
    pub(super) handle: [u8; HANDLES],
    /// Bytes of them.
    pub(super) told: usize,
    /// The last registered memory that was told, and its bytes.
    pub(super) form: [u8; FORM],
    pub(super) form_len: usize,
    /// What later imports have.
    extra: Extra,
    /// Where C wants bytes.
    pub(super) room: Vec<u8>,
}

/// The handles of the largest buffer, which has less than 4 MiB.
pub(super) const HANDLES: usize = 2 * BYTES;
/// A registered memory of that, with two transports.
pub(super) const FORM: usize = 128 + 2 * 72 + HANDLES;

/// Room for every text, and for options of any size that is taken.
const ROOM: usize = 16 << 10;

impl World {
    pub(super) fn new() -> Self {
        Self {
            // SAFETY: the emulated driver keeps CUDA's contract for each call.
            driver: unsafe { Driver::from_table(gpuipc_emulated::table()) },
            libraries: Hold::new(),
            buffers: Hold::new(),
            exports: Hold::new(),
            mems: Hold::new(),
            cancels: Hold::new(),
            reservations: Hold::new(),
            registered: Hold::new(),
            handle: [0; HANDLES],
            told: BYTES,
            form: [0; FORM],
            form_len: FORM,
            extra: Extra::NONE,
            room: vec![0; ROOM],
        }
    }

    /// Makes one call and looks at what it says.
    pub(super) fn call(&mut self, op: Op) {
        let status = match op.call % 28 {
            0 => self.open(op),
            1 => {
                library::gpuipc_close(self.libraries.take(op.object));
                return;
            }
            2 => self.buffer_new(op),
            3 => {
                buffer::gpuipc_buffer_free(self.buffers.take(op.object));
                return;
            }
            4 => self.buffer_copy(op),
            5 => self.export(op),
            6 => {
                export::gpuipc_exported_free(self.exports.take(op.object));
                return;
            }
            7 => self.exported_bytes(op),
            8 => self.import(op),
            9 => {
                mem::gpuipc_mem_free(self.mems.take(op.object));
                return;
            }
            10 => self.mem_copy(op),
            11 => self.mem_says(op),
            12 => self.attempts(op),
            13 => self.cancel(op),
            14 => self.handle(op),
            15 => self.options_init(op),
            16 => self.open_with_options(op),
            17 => {
                let call = FALLIBLE[usize::from(op.object) % FALLIBLE.len()];
                let code = [1, 2, 201, 217, 400, 711, 800, 801, 999][usize::from(op.other) % 9];
                faults::fail(call, 1 + op.number % 4, gpuipc::sys::CuResult(code), 1);
                return;
            }
            18 => {
                faults::clear();
                return;
            }
            19 => {
                self.questions(op);
                return;
            }
            20 => self.reservation(op),
            21 => self.mem_unmap(op),
            22 => self.can_import(op),
            23 => self.register(op),
            24 => self.deserialize(op),
            25 => self.registered_says(op),
            26 => self.all_handles(op),
            _ => {
                self.extra = Extra::of(op);
                self.give_back(op)
            }
        };
        self.look_at(status, op);
    }

    /// The status is one of the header's, and the last error is this call's.
    fn look_at(&mut self, status: u32, op: Op) {
        let name = gpuipc_core::Status(status).name();
        assert!(
            name != "UNKNOWN" && name != "PANIC",
            "{op:?} gave {status} {name}"
        );
        let mut said = MaybeUninit::<CError>::uninit();
        assert_eq!(error::gpuipc_last_error_read(Some(&mut said)), 0);
        // SAFETY: the call returned 0, so it has written it.
        let said = unsafe { said.assume_init() };
        assert_eq!(said.status, status, "{op:?}");
        let text = self.last_error();
        assert_eq!(text.is_empty(), status == 0, "{op:?}: {text}");
    }

    fn last_error(&mut self) -> String {
        let mut needed = MaybeUninit::new(0);
        let (to, size) = (self.room.as_mut_ptr().cast::<c_char>(), self.room.len());
        // SAFETY: `size` bytes of our own.
        let status = unsafe { error::gpuipc_last_error(to, size, Some(&mut needed)) };
        assert_eq!(status, 0);
        let text = CStr::from_bytes_until_nul(&self.room).expect("a text ends with NUL");
        // SAFETY: it was set when it was made.
        let needed = unsafe { needed.assume_init() };
        assert_eq!(text.count_bytes() + 1, needed);
        text.to_str().expect("a text is UTF-8").to_owned()
    }

    fn open(&mut self, op: Op) -> u32 {
        if op.object > 3 {
            return library::gpuipc_open(None);
        }
        // gpuipc_open would load a driver of this machine's.
        let trust = [Trust::SameUser, Trust::TokenAlone][usize::from(op.other % 2)].clone();
        let options = IpcOptions::default().trust(trust);
        let made = Library::with_driver(self.driver, &options).expect("the emulated driver opens");
        self.libraries.make(
            op.object,
            false,
            |out| {
                // As gpuipc_open ends: what it leaves as the last error is a success's.
                out.expect("it is there").write(Box::new(made));
                library_is_there()
            },
            library::gpuipc_close,
        )
    }

    /// Options that are refused before any driver is loaded, always.
    fn open_with_options(&mut self, op: Op) -> u32 {
        let mut options = MaybeUninit::<OpenOptions>::uninit();
        let size = size_of::<OpenOptions>();
        // SAFETY: `size` bytes of our own.
        let status = unsafe { library::gpuipc_open_options_init(options.as_mut_ptr(), size) };
        assert_eq!(status, 0);
        // SAFETY: the call returned 0, so it has filled it.
        let mut options = unsafe { options.assume_init() };
        options.trust = op.number.max(4);
        if op.has(2) {
            options.trusted_uid_count = u32::from(op.other);
        }
        self.libraries.make(
            op.object,
            op.has(4),
            // SAFETY: options of our own; a count without uids is NULL with a count.
            |out| unsafe { library::gpuipc_open_with(&raw const options, out) },
            library::gpuipc_close,
        )
    }

    fn buffer_new(&mut self, op: Op) -> u32 {
        let library = self.libraries.get(op.bits >> 6);
        let len = op.number as usize % (4 << 20);
        self.buffers.make(
            op.object,
            op.has(4),
            |out| {
                buffer::gpuipc_buffer_new(
                    library,
                    i32::from(op.bits >> 5 & 1),
                    op.other.into(),
                    len,
                    out,
                )
            },
            buffer::gpuipc_buffer_free,
        )
    }

    fn buffer_copy(&mut self, op: Op) -> u32 {
        let object = self.buffers.get(op.object);
        let size = usize::from(op.other) * 32;
        let (offset, to) = (op.number as usize, self.room.as_mut_ptr());
        if op.has(1) {
            // SAFETY: `size` is at most 8,160 bytes, which the room has.
            unsafe { buffer::gpuipc_buffer_write(object, offset, to, size) }
        } else {
            // SAFETY: as above.
            unsafe { buffer::gpuipc_buffer_read(object, offset, to, size) }
        }
    }

    fn export(&mut self, op: Op) -> u32 {
        let library = self.libraries.get(op.bits >> 6);
        let (mut start, mut whole) = (MaybeUninit::new(4096), MaybeUninit::new(64));
        let buffer = self.buffers.get(op.other % 8);
        buffer::gpuipc_buffer_ptr(buffer, Some(&mut start));
        buffer::gpuipc_buffer_len(buffer, Some(&mut whole));
        // SAFETY: set when it was made.
        let start = unsafe { start.assume_init() };
        // SAFETY: set when it was made.
        let whole = unsafe { whole.assume_init() };
        let offset = op.number as usize % 0x1_0000;
        let len = whole
            .wrapping_sub(offset)
            .wrapping_sub((op.number >> 16) as usize);
        let at = start + offset as u64;
        let options = ExportOptions {
            struct_size: size_of::<ExportOptions>(),
            type_count: op.other >> 4 & 3,
            types: [1, 2, 4, 0, 0, 0, 0],
            fd_on_demand: (op.other >> 6 & 1).into(),
            reserved: (op.other >> 7).into(),
        };
        self.exports.make(
            op.object,
            op.has(4),
            |out| {
                if op.has(2) {
                    // SAFETY: options of our own.
                    unsafe { export::gpuipc_export_with(library, at, len, &raw const options, out) }
                } else {
                    // SAFETY: any address: memory of our own that stays, or none.
                    unsafe { export::gpuipc_export(library, at, len, out) }
                }
            },
            export::gpuipc_exported_free,
        )
    }

    fn exported_bytes(&mut self, op: Op) -> u32 {
        let export = self.exports.get(op.object);
        let mut count = MaybeUninit::new(7);
        let size = if op.has(8) {
            op.number as usize % BYTES
        } else {
            BYTES
        };
        let to = if op.has(4) {
            ptr::null_mut()
        } else {
            self.handle.as_mut_ptr()
        };
        match op.other % 3 {
            0 => export::gpuipc_exported_handle_count(export, Some(&mut count)),
            1 => {
                let index = usize::from(op.other / 128);
                // SAFETY: NULL, or `size` bytes of our own.
                let status =
                    unsafe { export::gpuipc_exported_handle_bytes(export, index, to, size) };
                if status == 0 {
                    self.told = BYTES;
                }
                status
            }
            // SAFETY: as above.
            _ => unsafe { export::gpuipc_exported_bytes(export, to, size, Some(&mut count)) },
        }
    }

    /// The last handle, or one with a byte changed and the right checksum. Whose process it is
    /// and its descriptor stay: other processes of this machine are no part of this.
    pub(super) fn forged(&self, op: Op) -> [u8; HANDLES] {
        let mut bytes = self.handle;
        let (handles, _) = bytes.as_chunks_mut::<BYTES>();
        for handle in handles.iter_mut().take(if op.has(1) { 2 } else { 0 }) {
            let at = op.number as usize % BYTES;
            if !(128..132).contains(&at) && !(288..320).contains(&at) {
                handle[at] ^= op.other | 1;
            }
            seal(handle);
        }
        bytes
    }

    /// How many bytes of handles are given.
    pub(super) fn handle_len(&self, op: Op) -> usize {
        if op.has(8) {
            op.number as usize % BYTES
        } else {
            self.told
        }
    }

    pub(super) fn import_options(&self, op: Op) -> ImportOptions {
        let cancel = self.cancels.get(op.bits >> 5 & 1);
        let mut options = ImportOptions {
            struct_size: size_of::<ImportOptions>(),
            device: i32::from(op.other & 3) - 1,
            access: (op.other >> 2 & 1).into(),
            require_live: (op.other >> 3 & 1).into(),
            timeout_ms: 20,
            type_count: if op.has(2) {
                1 + (op.other >> 4 & 1)
            } else {
                0
            },
            types: match (op.has(2), op.other >> 4) {
                (false, _) => [0; 7],
                (true, kind) if kind & 1 == 0 => [1 << (kind >> 1 & 3), 0, 0, 0, 0, 0, 0],
                (true, kind) => [4, 1 << (kind >> 1 & 1), 0, 0, 0, 0, 0],
            },
            cancel: cancel.map_or(ptr::null(), ptr::from_ref),
            device_uuid: [0; 16],
            host_access: 0,
            access_device_count: 0,
            access_devices: ptr::null(),
            place: ptr::null(),
            place_offset: 0,
        };
        let place = self.reservations.get(self.extra.place());
        self.extra.put(&mut options, place);
        options
    }

    fn import(&mut self, op: Op) -> u32 {
        let handle = self.forged(op);
        let library = self.libraries.get(op.bits >> 6);
        let len = self.handle_len(op);
        let options = self.import_options(op);
        self.mems.make(
            op.object,
            op.has(4),
            |out| {
                // SAFETY: at most as many bytes as the handle has, options of our own, and an
                // object that lives.
                unsafe {
                    import::gpuipc_import(library, handle.as_ptr(), len, &raw const options, out)
                }
            },
            mem::gpuipc_mem_free,
        )
    }

    fn mem_copy(&mut self, op: Op) -> u32 {
        let object = self.mems.get(op.object);
        let size = usize::from(op.other) * 32;
        let (offset, to) = (op.number as usize, self.room.as_mut_ptr());
        if op.has(1) {
            // SAFETY: `size` is at most 8,160 bytes, which the room has.
            unsafe { mem::gpuipc_mem_write(object, offset, to, size) }
        } else {
            // SAFETY: as above.
            unsafe { mem::gpuipc_mem_read(object, offset, to, size) }
        }
    }

    fn mem_says(&mut self, op: Op) -> u32 {
        let object = self.mems.get(op.object);
        let (mut long, mut size) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let (mut number, mut device) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        match op.other % 5 {
            0 => mem::gpuipc_mem_ptr(object, (!op.has(4)).then_some(&mut long)),
            1 => mem::gpuipc_mem_len(object, (!op.has(4)).then_some(&mut size)),
            2 => mem::gpuipc_mem_type_used(object, (!op.has(4)).then_some(&mut number)),
            3 => mem::gpuipc_mem_liveness(object, (!op.has(4)).then_some(&mut number)),
            _ => mem::gpuipc_mem_device(object, (!op.has(4)).then_some(&mut device)),
        }
    }

    fn attempts(&mut self, op: Op) -> u32 {
        let mut list = [const { MaybeUninit::<CAttempt>::uninit() }; 4];
        let mut count = MaybeUninit::new(0);
        let capacity = op.number as usize % 5;
        let to = if op.has(4) {
            ptr::null_mut()
        } else {
            list.as_mut_ptr().cast()
        };
        let out = (!op.has(8)).then_some(&mut count);
        if op.has(1) {
            // SAFETY: NULL, or at most the four attempts that there is room for.
            unsafe { mem::gpuipc_mem_attempt_list(self.mems.get(op.object), to, capacity, out) }
        } else {
            // SAFETY: as above.
            unsafe {
                export::gpuipc_exported_attempt_list(self.exports.get(op.object), to, capacity, out)
            }
        }
    }

    fn cancel(&mut self, op: Op) -> u32 {
        match op.other % 3 {
            0 => self.cancels.make(
                op.object % 2,
                op.has(4),
                |out| cancel::gpuipc_cancel_new(out),
                cancel::gpuipc_cancel_free,
            ),
            1 => cancel::gpuipc_cancel_set(self.cancels.get(op.object), op.number),
            _ => {
                cancel::gpuipc_cancel_free(self.cancels.take(op.object));
                cancel::gpuipc_cancel_set(None, 0)
            }
        }
    }

    fn handle(&mut self, op: Op) -> u32 {
        let handle = self.forged(op);
        let len = if op.has(8) {
            op.number as usize % BYTES
        } else {
            BYTES
        };
        let from = if op.has(4) {
            ptr::null()
        } else {
            handle.as_ptr()
        };
        if op.other.is_multiple_of(2) {
            // SAFETY: NULL, or at most as many bytes as there are.
            return unsafe { handle::gpuipc_handle_check(from, len) };
        }
        let mut out = MaybeUninit::uninit();
        // SAFETY: as above.
        unsafe { handle::gpuipc_handle_read(from, len, Some(&mut out)) }
    }

    fn options_init(&mut self, op: Op) -> u32 {
        let size = op.number as usize % (ROOM / 2);
        // Aligned as options are, and as large as is said.
        let mut room = vec![0x5a5a_5a5a_5a5a_5a5a_u64; ROOM / 8];
        let to = room.as_mut_ptr();
        let status = match op.other % 3 {
            // SAFETY: `size` bytes of our own, aligned to 8.
            0 => unsafe { import::gpuipc_import_options_init(to.cast(), size) },
            // SAFETY: as above.
            1 => unsafe { export::gpuipc_export_options_init(to.cast(), size) },
            // SAFETY: as above.
            _ => unsafe { library::gpuipc_open_options_init(to.cast(), size) },
        };
        let first = room[size.div_ceil(8)];
        assert_eq!(
            first, 0x5a5a_5a5a_5a5a_5a5a,
            "{op:?} wrote beyond the options"
        );
        status
    }

    /// What changes nothing and returns no status of its own.
    fn questions(&mut self, op: Op) {
        for text in [
            error::gpuipc_status_text(op.number),
            error::gpuipc_status_name(op.number),
        ] {
            // SAFETY: never NULL, and text of the library's, as the header says.
            assert!(!unsafe { CStr::from_ptr(text) }.is_empty());
        }
        let before = self.last_error();
        let size = usize::from(op.other);
        self.room.fill(0x5a);
        let to = self.room.as_mut_ptr().cast::<c_char>();
        let mut needed = MaybeUninit::new(0);
        // SAFETY: `size` bytes of our own.
        unsafe { error::gpuipc_last_error(to, size, Some(&mut needed)) };
        assert!(
            self.room[size..].iter().all(|byte| *byte == 0x5a),
            "{op:?} wrote beyond the room"
        );
        let mut list = [const { MaybeUninit::<CAttempt>::uninit() }; 4];
        let capacity = op.number as usize % 5;
        // SAFETY: at most the four attempts that there is room for.
        unsafe {
            error::gpuipc_last_error_attempts(list.as_mut_ptr().cast(), capacity, Some(&mut needed))
        };
        assert_eq!(
            self.last_error(),
            before,
            "a question changed the last error"
        );
        assert_eq!(library::gpuipc_is_forked(), 0);
    }
}

/// A call that succeeds and clears the last error, as an opening does.
fn library_is_there() -> u32 {
    let mut options = MaybeUninit::<OpenOptions>::uninit();
    // SAFETY: as many bytes as are said, of our own.
    unsafe { library::gpuipc_open_options_init(options.as_mut_ptr(), size_of::<OpenOptions>()) }
}
