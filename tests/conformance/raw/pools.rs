//! The calls of streams and memory pools.
#![allow(unsafe_code)]

use super::{IntoU64, Raw, exported, pointer, rights, short, size};
use crate::call::{Got, MISSING, Message, Op, Reply, int};
use gpuipc::sys::{
    ALLOCATION_TYPE_PINNED, CuGraph, CuMemLocation, CuMemPool, CuMemPoolProps,
    CuMemPoolPtrExportData, CuResult, CuStream,
};
use std::os::fd::{AsRawFd, BorrowedFd};

impl IntoU64 for CuMemPool {
    fn into_u64(self) -> u64 {
        self.0 as u64
    }
}

fn pool(value: u64) -> CuMemPool {
    CuMemPool(size(value))
}

fn stream(value: u64) -> CuStream {
    CuStream(size(value))
}

impl Raw {
    /// One of the calls of this file.
    pub(super) fn perform_pool(
        self,
        op: Op,
        call: &Message,
        fd: Option<BorrowedFd<'_>>,
        reply: &mut Reply,
    ) -> Got {
        let [a, b, c, d, ..] = call.values;
        let out = &mut reply.message;
        match op {
            Op::StreamCreate => {
                let mut stream = CuStream(0);
                call!(self, stream_create(&mut stream, short(a)))?;
                out.values[0] = stream.0 as u64;
                Ok(())
            }
            Op::StreamSynchronize => call!(self, stream_synchronize(stream(a))),
            Op::StreamDestroy => call!(self, stream_destroy(stream(a))),
            Op::WriteOn => {
                let from = core::ptr::from_ref(&b).addr() as u64;
                call!(self, memcpy_async(a, from, size_of::<u64>(), stream(c)))?;
                call!(self, stream_synchronize(stream(c)))
            }
            Op::ReadOn => {
                let to = core::ptr::from_mut(&mut out.values[0]).addr() as u64;
                call!(self, memcpy_async(to, a, size_of::<u64>(), stream(b)))?;
                call!(self, stream_synchronize(stream(b)))
            }
            Op::CaptureBegin => call!(self, stream_begin_capture(stream(a), short(b))),
            Op::CaptureEnd => {
                let mut graph = CuGraph(0);
                call!(self, stream_end_capture(stream(a), &mut graph))?;
                call!(self, graph_destroy(graph))
            }
            Op::IsCapturing => {
                let mut status = 0;
                call!(self, stream_is_capturing(stream(a), &mut status))?;
                out.values[0] = status.into();
                Ok(())
            }
            Op::CaptureMode => {
                let mut mode = short(a);
                call!(self, thread_exchange_stream_capture_mode(&mut mode))?;
                out.values[0] = mode.into();
                Ok(())
            }
            Op::PoolDefault => {
                let mut found = CuMemPool::NULL;
                call!(self, device_get_default_mem_pool(&mut found, int(a)))?;
                out.values[0] = found.into_u64();
                Ok(())
            }
            Op::PoolCreate => {
                let props = CuMemPoolProps {
                    kind: ALLOCATION_TYPE_PINNED,
                    handle_types: short(a),
                    location: CuMemLocation {
                        kind: short(b),
                        id: int(c),
                    },
                    ..CuMemPoolProps::default()
                };
                let mut made = CuMemPool::NULL;
                call!(self, mem_pool_create(&mut made, &props))?;
                out.values[0] = made.into_u64();
                Ok(())
            }
            Op::PoolDestroy => call!(self, mem_pool_destroy(pool(a))),
            Op::PoolSetAccess => {
                let rights = [rights(b, c, d)];
                call!(self, mem_pool_set_access(pool(a), rights.as_ptr(), 1))
            }
            Op::PoolGetAccess => {
                let mut place = CuMemLocation {
                    kind: short(b),
                    id: int(c),
                };
                let mut flags = 0;
                call!(self, mem_pool_get_access(&mut flags, pool(a), &mut place))?;
                out.values[0] = flags.into();
                Ok(())
            }
            Op::PoolExport => self.export_pool(a, short(b), c, reply),
            Op::PoolImport => {
                let number = fd.map_or(u64::MAX, |fd| u64::from(fd.as_raw_fd().cast_unsigned()));
                let from = pointer(number);
                let mut made = CuMemPool::NULL;
                call!(
                    self,
                    mem_pool_import_from_shareable_handle(&mut made, from, short(a), b)
                )?;
                out.values[0] = made.into_u64();
                Ok(())
            }
            Op::PoolExportPointer => {
                let mut data = CuMemPoolPtrExportData { reserved: [0; 64] };
                call!(self, mem_pool_export_pointer(&mut data, a))?;
                out.bytes = data.reserved;
                Ok(())
            }
            Op::PoolImportPointer => {
                let reserved = call.bytes;
                let mut data = CuMemPoolPtrExportData { reserved };
                let to = &mut out.values[0];
                call!(self, mem_pool_import_pointer(to, pool(a), &mut data))
            }
            Op::PoolAlloc => call!(
                self,
                mem_alloc_from_pool_async(&mut out.values[0], size(a), pool(b), stream(c))
            ),
            Op::AllocAsync => call!(
                self,
                mem_alloc_async(&mut out.values[0], size(a), stream(b))
            ),
            Op::FreeAsync => call!(self, mem_free_async(a, stream(b))),
            _ => Err(MISSING),
        }
    }

    fn export_pool(self, handle: u64, kind: u32, flags: u64, reply: &mut Reply) -> Got {
        // As in `Raw::export`.
        let mut shareable = [0xff_u8; 64];
        let to = core::ptr::from_mut(&mut shareable).cast();
        call!(
            self,
            mem_pool_export_to_shareable_handle(to, pool(handle), kind, flags)
        )?;
        exported(shareable, kind, reply);
        Ok(())
    }
}
