//! The calls themselves: each [`Op`] as one call through the driver table. With
//! its two children the only file of this program with unsafe code.
#![allow(unsafe_code)]

use crate::call::{Ask, Got, MISSING, Message, Op, Reply, int, place_of};
use core::ffi::{CStr, c_void};
use gpuipc::sys::{
    self, CuContext, CuIpcMemHandle, CuMemAccessDesc, CuMemAllocationProp, CuMemLocation, CuResult,
    CuUuid, DriverTable, handle_type,
};
use rustix::process::Pid;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A driver, real or emulated, as its table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    table: &'static DriverTable,
}

/// Calls a table entry and turns its code into a `Got`.
macro_rules! call {
    ($raw:expr, $field:ident($($arg:expr),* $(,)?)) => {
        match $raw.table.$field {
            None => Err(MISSING),
            Some(function) => {
                // SAFETY: the table is that of a CUDA driver or of the emulated
                // one, so the entry has CUDA's contract. Every out-parameter is
                // a local that outlives the call and holds at least what the
                // call writes. Addresses that the call may write to, free or
                // unmap were given to this process by the driver, or are ones
                // that no Rust reference covers: `Ask`'s users pass no others.
                // Handles are the driver's own, of this process, and not yet
                // released.
                match unsafe { function($($arg),*) } {
                    CuResult::SUCCESS => Ok(()),
                    code => Err(code),
                }
            }
        }
    };
}

// After the macro, which they use.
mod cpu;
mod pools;

impl Raw {
    /// The real driver, or the library that `GPUIPC_LIBCUDA` names.
    pub(crate) fn cuda() -> Result<Self, sys::LoadError> {
        let name = std::env::var_os(sys::LIBRARY_VARIABLE)
            .unwrap_or_else(|| OsString::from(sys::DEFAULT_LIBRARY));
        // SAFETY: the name is libcuda's own, or one that the user gave for a
        // CUDA driver.
        let table = unsafe { sys::load(&name) }?;
        Ok(Self {
            table: Box::leak(Box::new(table)),
        })
    }

    /// The emulated driver.
    pub(crate) fn emulated() -> Self {
        Self {
            table: gpuipc_emulated::table(),
        }
    }

    /// `cuGetErrorName` or `cuGetErrorString`; the flag says which.
    pub(crate) fn error_text(self, code: CuResult, is_name: bool) -> Got<String> {
        let mut text: sys::CuStr = core::ptr::null();
        if is_name {
            call!(self, get_error_name(code, &mut text))?;
        } else {
            call!(self, get_error_string(code, &mut text))?;
        }
        if text.is_null() {
            return Ok("(null)".to_owned());
        }
        // SAFETY: on success the driver stores the address of a NUL-terminated
        // constant string of its own, or null, which was excluded.
        let text = unsafe { CStr::from_ptr(text) };
        Ok(text.to_string_lossy().into_owned())
    }

    fn perform(self, op: Op, call: &Message, fd: Option<BorrowedFd<'_>>, reply: &mut Reply) -> Got {
        let [a, b, c, d, e, _] = call.values;
        let out = &mut reply.message;
        match op {
            Op::Init => call!(self, init(short(a))),
            Op::Version => {
                let mut version = 0;
                call!(self, driver_get_version(&mut version))?;
                out.values[0] = version.into_u64();
                Ok(())
            }
            // Texts do not fit in a message: they are asked where they are printed.
            Op::ErrorName => self.error_text(CuResult(short(a)), true).map(drop),
            Op::ErrorString => self.error_text(CuResult(short(a)), false).map(drop),
            Op::DeviceCount => {
                let mut count = 0;
                call!(self, device_get_count(&mut count))?;
                out.values[0] = count.into_u64();
                Ok(())
            }
            Op::DeviceGet => {
                let mut device = 0;
                call!(self, device_get(&mut device, int(a)))?;
                out.values[0] = device.into_u64();
                Ok(())
            }
            Op::DeviceName => {
                let (name, room) = (out.bytes.as_mut_ptr().cast(), 64);
                call!(self, device_get_name(name, room, int(a)))
            }
            Op::DeviceUuid => {
                let mut uuid = CuUuid::default();
                if b == 2 {
                    call!(self, device_get_uuid_v2(&mut uuid, int(a)))?;
                } else {
                    call!(self, device_get_uuid(&mut uuid, int(a)))?;
                }
                out.bytes[..16].copy_from_slice(&uuid.bytes);
                Ok(())
            }
            Op::DeviceAttribute => {
                let mut value = 0;
                call!(self, device_get_attribute(&mut value, short(a), int(b)))?;
                out.values[0] = value.into_u64();
                Ok(())
            }
            Op::CanAccessPeer => {
                let mut can = 0;
                call!(self, device_can_access_peer(&mut can, int(a), int(b)))?;
                out.values[0] = can.into_u64();
                Ok(())
            }
            Op::PrimaryRetain => {
                let mut context = CuContext::NULL;
                call!(self, primary_ctx_retain(&mut context, int(a)))?;
                out.values[0] = context.into_u64();
                Ok(())
            }
            Op::PrimaryRelease => call!(self, primary_ctx_release(int(a))),
            Op::PrimaryState => {
                let (mut flags, mut active) = (0, 0);
                call!(self, primary_ctx_get_state(int(a), &mut flags, &mut active))?;
                out.values[0] = active.into_u64();
                Ok(())
            }
            Op::Current => {
                let mut context = CuContext::NULL;
                call!(self, ctx_get_current(&mut context))?;
                out.values[0] = context.into_u64();
                Ok(())
            }
            Op::SetCurrent => call!(self, ctx_set_current(context(a))),
            Op::Push => call!(self, ctx_push_current(context(a))),
            Op::Pop => {
                let mut context = CuContext::NULL;
                call!(self, ctx_pop_current(&mut context))?;
                out.values[0] = context.into_u64();
                Ok(())
            }
            Op::CurrentDevice => {
                let mut device = 0;
                call!(self, ctx_get_device(&mut device))?;
                out.values[0] = device.into_u64();
                Ok(())
            }
            Op::Synchronize => call!(self, ctx_synchronize()),
            Op::MemInfo => {
                let (mut free, mut total) = (0, 0);
                call!(self, mem_get_info(&mut free, &mut total))?;
                out.values[..2].copy_from_slice(&[free as u64, total as u64]);
                Ok(())
            }
            Op::Alloc => call!(self, mem_alloc(&mut out.values[0], size(a))),
            Op::Free => call!(self, mem_free(a)),
            Op::ManagedAlloc => {
                let flags = sys::MEM_ATTACH_GLOBAL;
                call!(self, mem_alloc_managed(&mut out.values[0], size(a), flags))
            }
            Op::HostAlloc => {
                let mut ptr: *mut c_void = core::ptr::null_mut();
                call!(
                    self,
                    mem_host_alloc(&mut ptr, size(a), sys::MEMHOSTALLOC_PORTABLE)
                )?;
                out.values[0] = ptr.addr() as u64;
                Ok(())
            }
            Op::FreeHost => call!(self, mem_free_host(pointer(a))),
            Op::Write => {
                let from = core::ptr::from_ref(&b).cast();
                call!(self, memcpy_htod(a, from, size_of::<u64>()))
            }
            Op::Read => {
                let to = core::ptr::from_mut(&mut out.values[0]).cast();
                call!(self, memcpy_dtoh(to, a, size_of::<u64>()))
            }
            Op::Fill => call!(
                self,
                memset_d8(a, u8::try_from(b).unwrap_or(u8::MAX), size(c))
            ),
            Op::Attribute => {
                // No attribute is longer than this.
                let mut answer = [0_u64; 8];
                let to = core::ptr::from_mut(&mut answer).cast();
                call!(self, pointer_get_attribute(to, short(a), b))?;
                out.values[0] = answer[0];
                Ok(())
            }
            Op::Range => {
                let (mut base, mut length) = (0, 0);
                call!(self, mem_get_address_range(&mut base, &mut length, a))?;
                out.values[..2].copy_from_slice(&[base, length as u64]);
                Ok(())
            }
            Op::LegacyHandle => {
                let mut handle = CuIpcMemHandle { reserved: [0; 64] };
                call!(self, ipc_get_mem_handle(&mut handle, a))?;
                out.bytes = handle.reserved;
                Ok(())
            }
            Op::Open => {
                let reserved = call.bytes;
                let handle = CuIpcMemHandle { reserved };
                call!(
                    self,
                    ipc_open_mem_handle(&mut out.values[0], handle, short(a))
                )
            }
            Op::Close => call!(self, ipc_close_mem_handle(a)),
            Op::Granularity => {
                let mut bytes = 0;
                let prop = property(a, b, c, d);
                call!(
                    self,
                    mem_get_allocation_granularity(&mut bytes, &prop, short(e))
                )?;
                out.values[0] = bytes as u64;
                Ok(())
            }
            Op::Create => {
                let prop = property(a, b, c, d);
                call!(self, mem_create(&mut out.values[0], size(e), &prop, 0))
            }
            Op::Release => call!(self, mem_release(a)),
            Op::Retain => call!(
                self,
                mem_retain_allocation_handle(&mut out.values[0], pointer(a))
            ),
            Op::Properties => {
                let mut prop = CuMemAllocationProp::default();
                call!(self, mem_get_allocation_properties(&mut prop, a))?;
                out.values[..4].copy_from_slice(&[
                    prop.kind.into(),
                    prop.requested_handle_types.into(),
                    prop.location.kind.into(),
                    prop.location.id.into_u64(),
                ]);
                Ok(())
            }
            Op::Export => self.export(a, short(b), c, reply),
            Op::ImportFd => {
                let number = fd.map_or(u64::MAX, |fd| u64::from(fd.as_raw_fd().cast_unsigned()));
                let kind = handle_type::POSIX_FILE_DESCRIPTOR;
                call!(
                    self,
                    mem_import_from_shareable_handle(&mut out.values[0], pointer(number), kind)
                )
            }
            Op::ImportNumber => call!(
                self,
                mem_import_from_shareable_handle(&mut out.values[0], pointer(a), short(b))
            ),
            Op::ImportFabric => {
                let mut bytes = call.bytes;
                let from = core::ptr::from_mut(&mut bytes).cast();
                call!(
                    self,
                    mem_import_from_shareable_handle(&mut out.values[0], from, handle_type::FABRIC)
                )
            }
            Op::Reserve => call!(
                self,
                mem_address_reserve(&mut out.values[0], size(a), size(b), 0, 0)
            ),
            Op::AddressFree => call!(self, mem_address_free(a, size(b))),
            Op::Map => call!(self, mem_map(a, size(b), size(c), d, 0)),
            Op::Unmap => call!(self, mem_unmap(a, size(b))),
            Op::SetAccess => {
                let rights = [rights(c, d, e)];
                call!(self, mem_set_access(a, size(b), rights.as_ptr(), 1))
            }
            Op::SetAccessOfTwo => {
                let rights = [c, d].map(|place| CuMemAccessDesc {
                    location: place_of(place),
                    flags: short(e),
                });
                call!(self, mem_set_access(a, size(b), rights.as_ptr(), 2))
            }
            Op::GetAccess => {
                let place = CuMemLocation {
                    kind: short(b),
                    id: int(c),
                };
                call!(self, mem_get_access(&mut out.values[0], &place, a))
            }
            Op::CpuRead => {
                out.values[0] = cpu::read(a)?;
                Ok(())
            }
            Op::CpuWrite => cpu::write(a, b),
            Op::StreamCreate
            | Op::StreamSynchronize
            | Op::StreamDestroy
            | Op::WriteOn
            | Op::ReadOn
            | Op::CaptureBegin
            | Op::CaptureEnd
            | Op::CaptureMode
            | Op::IsCapturing
            | Op::PoolDefault
            | Op::PoolCreate
            | Op::PoolDestroy
            | Op::PoolSetAccess
            | Op::PoolGetAccess
            | Op::PoolExport
            | Op::PoolImport
            | Op::PoolExportPointer
            | Op::PoolImportPointer
            | Op::PoolAlloc
            | Op::AllocAsync
            | Op::FreeAsync => self.perform_pool(op, call, fd, reply),
        }
    }

    fn export(self, handle: u64, kind: u32, flags: u64, reply: &mut Reply) -> Got {
        // A fabric handle is the longest; a descriptor is the first four bytes.
        let mut shareable = [0xff_u8; 64];
        let to = core::ptr::from_mut(&mut shareable).cast();
        call!(
            self,
            mem_export_to_shareable_handle(to, handle, kind, flags)
        )?;
        exported(shareable, kind, reply);
        Ok(())
    }
}

/// Puts what an export wrote into the answer.
fn exported(shareable: [u8; 64], kind: u32, reply: &mut Reply) {
    reply.message.bytes = shareable;
    let number = shareable
        .first_chunk()
        .map_or(-1, |bytes| i32::from_le_bytes(*bytes));
    if kind == handle_type::POSIX_FILE_DESCRIPTOR && number >= 0 {
        // SAFETY: the driver opened the descriptor for the call that led here
        // and said success; nobody else knows its number.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        let flags = rustix::io::fcntl_getfd(&fd);
        let close_on_exec = flags.is_ok_and(|flags| flags.contains(rustix::io::FdFlags::CLOEXEC));
        reply.message.values[0] = close_on_exec.into();
        reply.fd = Some(fd);
    }
}

impl Ask for Raw {
    fn ask(&self, call: Message, fd: Option<BorrowedFd<'_>>) -> Reply {
        let mut reply = Reply::code(CuResult::SUCCESS);
        let got = call
            .op()
            .ok_or(MISSING)
            .and_then(|op| self.perform(op, &call, fd, &mut reply));
        match got {
            Ok(()) => reply,
            Err(code) => Reply::code(code),
        }
    }
}

/// Forks; the child runs `work` and ends.
pub(crate) fn fork(work: impl FnOnce()) -> Option<Pid> {
    // SAFETY: `fork` asks nothing of its caller. Of what it forbids in the child
    // of a process with threads, only this is done: allocating, which glibc
    // makes fit for use again in the child, and the driver calls that are the question.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        work();
        // SAFETY: ends the child at once, without what the parent set up to run at exit.
        unsafe { libc::_exit(0) };
    }
    Pid::from_raw(pid)
}

/// An answer of a driver as an unsigned number.
trait IntoU64 {
    fn into_u64(self) -> u64;
}

impl IntoU64 for i32 {
    fn into_u64(self) -> u64 {
        crate::call::word(self)
    }
}

impl IntoU64 for CuContext {
    fn into_u64(self) -> u64 {
        self.0 as u64
    }
}

fn context(value: u64) -> CuContext {
    CuContext(size(value))
}

fn short(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A number as the pointer that a C prototype wants; nobody on this side
/// dereferences it.
fn pointer(value: u64) -> *mut c_void {
    core::ptr::without_provenance_mut(size(value))
}

fn property(kind: u64, types: u64, place: u64, id: u64) -> CuMemAllocationProp {
    CuMemAllocationProp {
        kind: short(kind),
        ..crate::call::property(short(place), int(id), short(types))
    }
}

fn rights(kind: u64, id: u64, flags: u64) -> CuMemAccessDesc {
    CuMemAccessDesc {
        location: CuMemLocation {
            kind: short(kind),
            id: int(id),
        },
        flags: short(flags),
    }
}
