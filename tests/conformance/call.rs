//! A driver call as plain numbers, so that the same question can be put to this
//! process, to one of its threads, to a forked child or to another process.

use core::fmt;
use gpuipc::sys::{CuMemAllocationProp, CuMemLocation, CuResult, handle_type, location};
use std::os::fd::{BorrowedFd, OwnedFd};

/// What a call gives: its value, or its code.
pub(crate) type Got<T = ()> = Result<T, CuResult>;

/// The driver lacks the call.
pub(crate) const MISSING: CuResult = CuResult(u32::MAX);
/// Nobody answers any more.
pub(crate) const GONE: CuResult = CuResult(u32::MAX - 1);
/// The process has no memory there that its CPU may use so.
pub(crate) const NOT_FOR_CPU: CuResult = CuResult(u32::MAX - 2);

macro_rules! ops {
    ($($op:ident),* $(,)?) => {
        /// Which call.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Op { $($op),* }

        impl Op {
            /// Every one, in the order of their numbers.
            const ALL: &[Self] = &[$(Self::$op),*];
        }
    };
}

ops! {
    Init, Version, ErrorName, ErrorString,
    DeviceCount, DeviceGet, DeviceName, DeviceUuid, DeviceAttribute, CanAccessPeer,
    PrimaryRetain, PrimaryRelease, PrimaryState,
    Current, SetCurrent, Push, Pop, CurrentDevice, Synchronize,
    MemInfo, Alloc, Free, ManagedAlloc, HostAlloc, FreeHost, Write, Read, Fill,
    Attribute, Range,
    LegacyHandle, Open, Close,
    Granularity, Create, Release, Retain, Properties,
    Export, ImportFd, ImportNumber, ImportFabric,
    Reserve, AddressFree, Map, Unmap, SetAccess, SetAccessOfTwo, GetAccess,
    CpuRead, CpuWrite,
    StreamCreate, StreamSynchronize, StreamDestroy, WriteOn, ReadOn, CaptureBegin, CaptureEnd, CaptureMode, IsCapturing,
    PoolDefault, PoolCreate, PoolDestroy, PoolSetAccess, PoolGetAccess,
    PoolExport, PoolImport, PoolExportPointer, PoolImportPointer,
    PoolAlloc, AllocAsync, FreeAsync,
}

/// A call or its answer as it travels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    /// Which call, or the code of its answer.
    pub(crate) number: u32,
    /// Arguments, or what came out.
    pub(crate) values: [u64; 6],
    /// A handle that travels as bytes.
    pub(crate) bytes: [u8; 64],
}

impl Message {
    /// Bytes on the socket.
    pub(crate) const LEN: usize = 4 + 6 * 8 + 64;

    /// No value set.
    pub(crate) const fn new(number: u32) -> Self {
        Self {
            number,
            values: [0; 6],
            bytes: [0; 64],
        }
    }

    /// A call with these arguments.
    pub(crate) fn call(op: Op, values: &[u64]) -> Self {
        let mut message = Self::new(op as u32);
        for (to, from) in message.values.iter_mut().zip(values) {
            *to = *from;
        }
        message
    }

    /// The call that this is.
    pub(crate) fn op(&self) -> Option<Op> {
        let number = usize::try_from(self.number).ok()?;
        Op::ALL.get(number).copied()
    }

    /// As bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = self.number.to_le_bytes().to_vec();
        for value in self.values {
            to.extend_from_slice(&value.to_le_bytes());
        }
        to.extend_from_slice(&self.bytes);
        to
    }

    /// From bytes; `None` if they are too few.
    pub(crate) fn decode(from: &[u8]) -> Option<Self> {
        let (number, mut rest) = from.split_first_chunk()?;
        let mut message = Self::new(u32::from_le_bytes(*number));
        for value in &mut message.values {
            let bytes;
            (bytes, rest) = rest.split_first_chunk()?;
            *value = u64::from_le_bytes(*bytes);
        }
        message.bytes = *rest.first_chunk()?;
        Some(message)
    }
}

/// An answer and the descriptor that came with it.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The code, what came out, and bytes.
    pub(crate) message: Message,
    /// An exported descriptor.
    pub(crate) fd: Option<OwnedFd>,
}

impl Reply {
    /// An answer without anything but a code.
    pub(crate) const fn code(code: CuResult) -> Self {
        Self {
            message: Message::new(code.0),
            fd: None,
        }
    }

    /// The code as an error, if it is one.
    pub(crate) fn got(self) -> Got<Self> {
        match CuResult(self.message.number) {
            CuResult::SUCCESS => Ok(self),
            code => Err(code),
        }
    }
}

/// A signed number as an argument.
pub(crate) fn word(value: i32) -> u64 {
    i64::from(value).cast_unsigned()
}

/// An argument as a signed number.
pub(crate) fn int(value: u64) -> i32 {
    i32::try_from(value.cast_signed()).unwrap_or(i32::MIN)
}

/// A location as one argument.
fn place(kind: u32, id: i32) -> u64 {
    u64::from(kind) << 32 | u64::from(id.cast_unsigned())
}

/// What [`place`] was made of.
pub(crate) fn place_of(value: u64) -> CuMemLocation {
    let [a, b, c, d, rest @ ..] = value.to_le_bytes();
    CuMemLocation {
        kind: u32::from_le_bytes(rest),
        id: i32::from_le_bytes([a, b, c, d]),
    }
}

/// An exported descriptor.
#[derive(Debug)]
pub(crate) struct Exported {
    /// The descriptor, or this process's copy of it.
    pub(crate) fd: OwnedFd,
    /// Whether it was close-on-exec where it was exported.
    pub(crate) close_on_exec: bool,
}

/// Memory of a GPU, or on a host node, with these handle types.
pub(crate) fn property(kind: u32, id: i32, requested_handle_types: u32) -> CuMemAllocationProp {
    CuMemAllocationProp {
        kind: gpuipc::sys::ALLOCATION_TYPE_PINNED,
        requested_handle_types,
        location: CuMemLocation { kind, id },
        ..CuMemAllocationProp::default()
    }
}

/// Memory of this GPU that can travel as a descriptor.
pub(crate) fn shareable(device: i32) -> CuMemAllocationProp {
    property(location::DEVICE, device, handle_type::POSIX_FILE_DESCRIPTOR)
}

fn numbers(prop: &CuMemAllocationProp) -> [u64; 4] {
    [
        u64::from(prop.kind),
        u64::from(prop.requested_handle_types),
        u64::from(prop.location.kind),
        word(prop.location.id),
    ]
}

/// Whoever can be asked. Every method but the first is one driver call.
pub(crate) trait Ask {
    /// Puts one question.
    fn ask(&self, call: Message, fd: Option<BorrowedFd<'_>>) -> Reply;

    fn done(&self, op: Op, values: &[u64]) -> Got {
        self.ask(Message::call(op, values), None).got().map(drop)
    }

    fn value(&self, op: Op, values: &[u64]) -> Got<u64> {
        let reply = self.ask(Message::call(op, values), None).got()?;
        Ok(reply.message.values[0])
    }

    fn two(&self, op: Op, values: &[u64]) -> Got<(u64, u64)> {
        let reply = self.ask(Message::call(op, values), None).got()?;
        Ok((reply.message.values[0], reply.message.values[1]))
    }

    fn init(&self, flags: u32) -> Got {
        self.done(Op::Init, &[flags.into()])
    }
    fn version(&self) -> Got<u64> {
        self.value(Op::Version, &[])
    }
    fn device_count(&self) -> Got<u64> {
        self.value(Op::DeviceCount, &[])
    }
    fn device(&self, ordinal: i32) -> Got<u64> {
        self.value(Op::DeviceGet, &[word(ordinal)])
    }
    fn uuid(&self, device: i32, version: u64) -> Got<[u8; 16]> {
        let call = Message::call(Op::DeviceUuid, &[word(device), version]);
        let reply = self.ask(call, None).got()?;
        reply.message.bytes.first_chunk().copied().ok_or(GONE)
    }
    fn device_name(&self, device: i32) -> Got<String> {
        let call = Message::call(Op::DeviceName, &[word(device)]);
        let bytes = self.ask(call, None).got()?.message.bytes;
        let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(name).into_owned())
    }
    fn device_attribute(&self, attribute: u32, device: i32) -> Got<i32> {
        self.value(Op::DeviceAttribute, &[attribute.into(), word(device)])
            .map(int)
    }
    fn can_access_peer(&self, device: i32, peer: i32) -> Got<u64> {
        self.value(Op::CanAccessPeer, &[word(device), word(peer)])
    }

    fn primary_retain(&self, device: i32) -> Got<u64> {
        self.value(Op::PrimaryRetain, &[word(device)])
    }
    fn primary_release(&self, device: i32) -> Got {
        self.done(Op::PrimaryRelease, &[word(device)])
    }
    fn primary_active(&self, device: i32) -> Got<bool> {
        self.value(Op::PrimaryState, &[word(device)])
            .map(|active| active != 0)
    }
    fn current(&self) -> Got<u64> {
        self.value(Op::Current, &[])
    }
    fn set_current(&self, context: u64) -> Got {
        self.done(Op::SetCurrent, &[context])
    }
    fn push(&self, context: u64) -> Got {
        self.done(Op::Push, &[context])
    }
    fn pop(&self) -> Got<u64> {
        self.value(Op::Pop, &[])
    }
    fn current_device(&self) -> Got<i32> {
        self.value(Op::CurrentDevice, &[]).map(int)
    }
    fn synchronize(&self) -> Got {
        self.done(Op::Synchronize, &[])
    }

    fn mem_info(&self) -> Got<(u64, u64)> {
        self.two(Op::MemInfo, &[])
    }
    fn alloc(&self, bytes: u64) -> Got<u64> {
        self.value(Op::Alloc, &[bytes])
    }
    fn free(&self, ptr: u64) -> Got {
        self.done(Op::Free, &[ptr])
    }
    fn managed_alloc(&self, bytes: u64) -> Got<u64> {
        self.value(Op::ManagedAlloc, &[bytes])
    }
    fn host_alloc(&self, bytes: u64) -> Got<u64> {
        self.value(Op::HostAlloc, &[bytes])
    }
    fn free_host(&self, ptr: u64) -> Got {
        self.done(Op::FreeHost, &[ptr])
    }
    /// Eight bytes to the GPU.
    fn write(&self, ptr: u64, value: u64) -> Got {
        self.done(Op::Write, &[ptr, value])
    }
    /// Eight bytes to the GPU, and a wait until they are there.
    fn put(&self, ptr: u64, value: u64) -> Got {
        self.write(ptr, value)?;
        self.synchronize()
    }
    /// Eight bytes from the GPU.
    fn read(&self, ptr: u64) -> Got<u64> {
        self.value(Op::Read, &[ptr])
    }
    fn fill(&self, ptr: u64, byte: u8, count: u64) -> Got {
        self.done(Op::Fill, &[ptr, byte.into(), count])
    }
    fn attribute(&self, attribute: u32, ptr: u64) -> Got<u64> {
        self.value(Op::Attribute, &[attribute.into(), ptr])
    }
    fn range(&self, ptr: u64) -> Got<(u64, u64)> {
        self.two(Op::Range, &[ptr])
    }

    fn legacy_handle(&self, ptr: u64) -> Got<[u8; 64]> {
        let reply = self.ask(Message::call(Op::LegacyHandle, &[ptr]), None);
        Ok(reply.got()?.message.bytes)
    }
    fn open(&self, handle: &[u8; 64], flags: u32) -> Got<u64> {
        let mut call = Message::call(Op::Open, &[flags.into()]);
        call.bytes = *handle;
        Ok(self.ask(call, None).got()?.message.values[0])
    }
    fn close(&self, ptr: u64) -> Got {
        self.done(Op::Close, &[ptr])
    }

    fn granularity(&self, prop: &CuMemAllocationProp, option: u32) -> Got<u64> {
        let [kind, types, place, id] = numbers(prop);
        self.value(Op::Granularity, &[kind, types, place, id, option.into()])
    }
    fn create(&self, size: u64, prop: &CuMemAllocationProp) -> Got<u64> {
        let [kind, types, place, id] = numbers(prop);
        self.value(Op::Create, &[kind, types, place, id, size])
    }
    fn release(&self, handle: u64) -> Got {
        self.done(Op::Release, &[handle])
    }
    fn retain(&self, ptr: u64) -> Got<u64> {
        self.value(Op::Retain, &[ptr])
    }
    fn properties(&self, handle: u64) -> Got<CuMemAllocationProp> {
        let reply = self.ask(Message::call(Op::Properties, &[handle]), None);
        let [kind, types, place, id, ..] = reply.got()?.message.values;
        let short = |value| u32::try_from(value).unwrap_or(u32::MAX);
        Ok(CuMemAllocationProp {
            kind: short(kind),
            ..property(short(place), int(id), short(types))
        })
    }

    fn export(&self, handle: u64, kind: u32, flags: u64) -> Got {
        self.done(Op::Export, &[handle, kind.into(), flags])
    }
    fn export_fd(&self, handle: u64) -> Got<Exported> {
        let kind = u64::from(handle_type::POSIX_FILE_DESCRIPTOR);
        let call = Message::call(Op::Export, &[handle, kind, 0]);
        let reply = self.ask(call, None).got()?;
        Ok(Exported {
            close_on_exec: reply.message.values[0] != 0,
            fd: reply.fd.ok_or(GONE)?,
        })
    }
    fn import_fd(&self, fd: BorrowedFd<'_>) -> Got<u64> {
        let reply = self.ask(Message::call(Op::ImportFd, &[]), Some(fd)).got()?;
        Ok(reply.message.values[0])
    }
    /// A number in the place of a descriptor, whatever it is.
    fn import_number(&self, number: u64, kind: u32) -> Got<u64> {
        self.value(Op::ImportNumber, &[number, kind.into()])
    }
    fn import_fabric(&self, handle: &[u8; 64]) -> Got<u64> {
        let mut call = Message::call(Op::ImportFabric, &[]);
        call.bytes = *handle;
        Ok(self.ask(call, None).got()?.message.values[0])
    }

    fn reserve(&self, size: u64, alignment: u64) -> Got<u64> {
        self.value(Op::Reserve, &[size, alignment])
    }
    fn address_free(&self, ptr: u64, size: u64) -> Got {
        self.done(Op::AddressFree, &[ptr, size])
    }
    fn map(&self, ptr: u64, size: u64, offset: u64, handle: u64) -> Got {
        self.done(Op::Map, &[ptr, size, offset, handle])
    }
    fn unmap(&self, ptr: u64, size: u64) -> Got {
        self.done(Op::Unmap, &[ptr, size])
    }
    fn set_access(&self, ptr: u64, size: u64, device: i32, flags: u32) -> Got {
        self.set_access_at(ptr, size, location::DEVICE, device, flags)
    }
    fn set_access_at(&self, ptr: u64, size: u64, kind: u32, id: i32, flags: u32) -> Got {
        let values = [ptr, size, kind.into(), word(id), flags.into()];
        self.done(Op::SetAccess, &values)
    }
    /// Both GPUs in one call.
    fn set_access_of_two(&self, ptr: u64, size: u64, devices: [i32; 2], flags: u32) -> Got {
        let places = devices.map(|device| (location::DEVICE, device));
        self.set_access_of_places(ptr, size, places, flags)
    }
    /// Two locations, each a kind and an id, in one call.
    fn set_access_of_places(&self, ptr: u64, size: u64, of: [(u32, i32); 2], flags: u32) -> Got {
        let [one, other] = of.map(|(kind, id)| place(kind, id));
        let values = [ptr, size, one, other, flags.into()];
        self.done(Op::SetAccessOfTwo, &values)
    }
    fn get_access(&self, ptr: u64, kind: u32, id: i32) -> Got<u64> {
        self.value(Op::GetAccess, &[ptr, kind.into(), word(id)])
    }

    /// Eight bytes by the CPU, without the driver: only where the driver said
    /// that a location of the CPU's has rights.
    fn cpu_read(&self, ptr: u64) -> Got<u64> {
        self.value(Op::CpuRead, &[ptr])
    }
    /// See [`Ask::cpu_read`].
    fn cpu_write(&self, ptr: u64, value: u64) -> Got {
        self.done(Op::CpuWrite, &[ptr, value])
    }
}

impl fmt::Debug for dyn Ask + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ask")
    }
}
