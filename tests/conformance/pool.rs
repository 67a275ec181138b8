//! Calls of streams and memory pools, and memory of a pool that was made.

use crate::call::{Ask, Exported, GONE, Got, Message, Op, word};
use crate::memory::{INSIDE, MARK};
use core::fmt;
use gpuipc::sys::{STREAM_NON_BLOCKING, handle_type, location};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Whoever can be asked, about memory pools. Every method is one driver call.
pub(crate) trait AskPools: Ask {
    fn stream_with(&self, flags: u32) -> Got<u64> {
        self.value(Op::StreamCreate, &[flags.into()])
    }
    fn stream(&self) -> Got<u64> {
        self.stream_with(STREAM_NON_BLOCKING)
    }
    /// Eight bytes to the GPU on a stream, and a wait for that stream.
    fn write_on(&self, stream: u64, ptr: u64, value: u64) -> Got {
        self.done(Op::WriteOn, &[ptr, value, stream])
    }
    /// Eight bytes from the GPU on a stream, and a wait for that stream.
    fn read_on(&self, stream: u64, ptr: u64) -> Got<u64> {
        self.value(Op::ReadOn, &[ptr, stream])
    }
    fn stream_synchronize(&self, stream: u64) -> Got {
        self.done(Op::StreamSynchronize, &[stream])
    }
    fn stream_destroy(&self, stream: u64) -> Got {
        self.done(Op::StreamDestroy, &[stream])
    }

    /// Ends well only if the capture was not invalidated.
    fn capture_end(&self, stream: u64) -> Got {
        self.done(Op::CaptureEnd, &[stream])
    }
    fn capture_begin(&self, stream: u64, mode: u32) -> Got {
        self.done(Op::CaptureBegin, &[stream, mode.into()])
    }
    fn is_capturing(&self, stream: u64) -> Got<u64> {
        self.value(Op::IsCapturing, &[stream])
    }
    /// The thread's mode from now on; gives the one before.
    fn capture_mode(&self, mode: u32) -> Got<u64> {
        self.value(Op::CaptureMode, &[mode.into()])
    }

    fn default_pool(&self, device: i32) -> Got<u64> {
        self.value(Op::PoolDefault, &[word(device)])
    }
    fn pool_at(&self, types: u32, kind: u32, id: i32) -> Got<u64> {
        self.value(Op::PoolCreate, &[types.into(), kind.into(), word(id)])
    }
    /// A pool of a GPU with these handle types.
    fn pool(&self, types: u32, device: i32) -> Got<u64> {
        self.pool_at(types, location::DEVICE, device)
    }
    fn pool_destroy(&self, pool: u64) -> Got {
        self.done(Op::PoolDestroy, &[pool])
    }
    fn pool_set_access(&self, pool: u64, device: i32, flags: u32) -> Got {
        let kind = location::DEVICE.into();
        self.done(Op::PoolSetAccess, &[pool, kind, word(device), flags.into()])
    }
    fn pool_get_access(&self, pool: u64, device: i32) -> Got<u64> {
        let kind = location::DEVICE.into();
        self.value(Op::PoolGetAccess, &[pool, kind, word(device)])
    }

    fn pool_export(&self, pool: u64, kind: u32, flags: u64) -> Got {
        self.done(Op::PoolExport, &[pool, kind.into(), flags])
    }
    fn pool_export_fd(&self, pool: u64) -> Got<Exported> {
        let kind = handle_type::POSIX_FILE_DESCRIPTOR.into();
        let call = Message::call(Op::PoolExport, &[pool, kind, 0]);
        let reply = self.ask(call, None).got()?;
        Ok(Exported {
            close_on_exec: reply.message.values[0] != 0,
            fd: reply.fd.ok_or(GONE)?,
        })
    }
    fn pool_import_as(&self, fd: BorrowedFd<'_>, kind: u32, flags: u64) -> Got<u64> {
        let call = Message::call(Op::PoolImport, &[kind.into(), flags]);
        Ok(self.ask(call, Some(fd)).got()?.message.values[0])
    }
    fn pool_import(&self, fd: BorrowedFd<'_>) -> Got<u64> {
        self.pool_import_as(fd, handle_type::POSIX_FILE_DESCRIPTOR, 0)
    }
    fn export_pointer(&self, ptr: u64) -> Got<[u8; 64]> {
        let reply = self.ask(Message::call(Op::PoolExportPointer, &[ptr]), None);
        Ok(reply.got()?.message.bytes)
    }
    fn import_pointer(&self, pool: u64, data: &[u8; 64]) -> Got<u64> {
        let mut call = Message::call(Op::PoolImportPointer, &[pool]);
        call.bytes = *data;
        Ok(self.ask(call, None).got()?.message.values[0])
    }

    fn pool_alloc(&self, bytes: u64, pool: u64, stream: u64) -> Got<u64> {
        self.value(Op::PoolAlloc, &[bytes, pool, stream])
    }
    fn alloc_async(&self, bytes: u64, stream: u64) -> Got<u64> {
        self.value(Op::AllocAsync, &[bytes, stream])
    }
    fn free_async(&self, ptr: u64, stream: u64) -> Got {
        self.done(Op::FreeAsync, &[ptr, stream])
    }
}

impl<T: Ask + ?Sized> AskPools for T {}

/// Memory of a pool, and all that an importer needs.
pub(crate) struct Pooled {
    /// The pool.
    pub(crate) pool: u64,
    /// The memory's first byte.
    pub(crate) base: u64,
    /// The pool's descriptor.
    pub(crate) fd: OwnedFd,
    /// The pointer's bytes.
    pub(crate) data: [u8; 64],
}

impl fmt::Debug for Pooled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pooled").finish_non_exhaustive()
    }
}

/// Memory of a pool, marked at its base and at [`INSIDE`].
pub(crate) fn pooled(who: &dyn Ask, pool: u64, bytes: u64) -> Got<u64> {
    let base = who.pool_alloc(bytes, pool, 0)?;
    who.synchronize()?;
    who.put(base, MARK)?;
    who.put(base + INSIDE, MARK + INSIDE)?;
    Ok(base)
}

/// A pool of a GPU, memory of it, and both exported.
pub(crate) fn make_pooled(who: &dyn Ask, device: i32, bytes: u64) -> Got<Pooled> {
    let pool = who.pool(handle_type::POSIX_FILE_DESCRIPTOR, device)?;
    let base = pooled(who, pool, bytes)?;
    let fd = who.pool_export_fd(pool)?.fd;
    let data = who.export_pointer(base)?;
    Ok(Pooled {
        pool,
        base,
        fd,
        data,
    })
}

/// Imports a pool and a pointer of it.
pub(crate) fn import_pooled(who: &dyn Ask, made: &Pooled) -> Got<(u64, u64)> {
    let pool = who.pool_import(made.fd.as_fd())?;
    Ok((pool, who.import_pointer(pool, &made.data)?))
}
