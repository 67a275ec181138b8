//! Multicast objects and connections, as C holds them.

#![allow(unsafe_code)]

use super::{Library, decode};
use crate::failure::Failure;
use core::ffi::c_void;
use gpuipc::multicast::{BoundBuffer, Connection, Created, Heard, MESSAGE_BYTES, Team};
use gpuipc::{ExportOptions, HANDLE_BYTES, ImportOptions};
use std::time::{Duration, Instant};

/// Bytes of every message between the members of a multicast team.
pub const GPUIPC_MULTICAST_MESSAGE_BYTES: usize = 88;
const _: () = assert!(GPUIPC_MULTICAST_MESSAGE_BYTES == MESSAGE_BYTES);

/// For `heard` of `gpuipc_multicast_gather`: the member's message is in `all`.
pub const GPUIPC_HEARD_MESSAGE: u8 = 0;
/// For `heard` of `gpuipc_multicast_gather`: the member has left or died.
pub const GPUIPC_HEARD_GONE: u8 = 1;
/// For `heard` of `gpuipc_multicast_gather`: it said nothing until the deadline.
pub const GPUIPC_HEARD_SILENT: u8 = 2;

/// An all-gather over any transport of the caller's. It sends the
/// `GPUIPC_MULTICAST_MESSAGE_BYTES` at `message` to every other member, and, for
/// each member i but itself, writes what came from it to `all` at i times that
/// length and one of `GPUIPC_HEARD_...` to `heard[i]`. It returns within
/// `timeout_ms`, whatever has come. It is called on the thread that joins or
/// binds. A callback: see `gpuipc.h` for what it may do.
#[allow(non_camel_case_types)]
pub type gpuipc_multicast_gather = Option<
    unsafe extern "C-unwind" fn(
        context: *mut c_void,
        message: *const u8,
        all: *mut u8,
        heard: *mut u8,
        timeout_ms: u32,
    ),
>;

/// The members of a multicast object, as one of them sees the others.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gpuipc_multicast_team {
    /// `sizeof(gpuipc_multicast_team)` of the header that the caller was compiled with.
    pub struct_size: usize,
    /// This member, from 0.
    pub rank: u32,
    /// How many there are.
    pub size: u32,
    /// How long each exchange may take, in milliseconds; an agreement has two.
    /// 0: 30000.
    pub timeout_ms: u32,
    /// 0.
    pub reserved: u32,
    /// How the members exchange messages.
    pub gather: gpuipc_multicast_gather,
    /// Passed to `gather`. It must stay valid until the `gpuipc_multicast` is freed.
    pub context: *mut c_void,
}

const _: () = assert!(
    size_of::<gpuipc_multicast_team>() == 40 && align_of::<gpuipc_multicast_team>() == 8,
    "C callers were compiled with this size"
);

/// A multicast object that this process made and exports to the members.
#[allow(non_camel_case_types)]
#[derive(Debug)]
pub struct gpuipc_multicast_object {
    created: Created,
}

/// A member of a multicast object that has joined, as have all others.
#[allow(non_camel_case_types)]
#[derive(Debug)]
pub struct gpuipc_multicast {
    connection: Connection<'static>,
}

/// Memory that every member has bound at the same place of a multicast object.
#[allow(non_camel_case_types)]
#[derive(Debug)]
pub struct gpuipc_multicast_buffer {
    pub(crate) buffer: BoundBuffer,
}

const fn usable_from_any_thread<T: Send + Sync>() {}
const _: () = usable_from_any_thread::<gpuipc_multicast_object>();
const _: () = usable_from_any_thread::<gpuipc_multicast>();
const _: () = usable_from_any_thread::<gpuipc_multicast_buffer>();

impl Library {
    pub(crate) fn create_multicast(
        &self,
        size: usize,
        num_devices: u32,
    ) -> Result<gpuipc_multicast_object, Failure> {
        let num_devices = u16::try_from(num_devices).map_err(|_| {
            Failure::argument(format!("num_devices is {num_devices}, more than 65535"))
        })?;
        let options = ExportOptions::default();
        let created = self.ipc.create_multicast(size, num_devices, &options)?;
        Ok(gpuipc_multicast_object { created })
    }

    pub(crate) fn join_multicast(
        &self,
        handle: &[u8],
        device: i32,
        team: Team<'static>,
    ) -> Result<gpuipc_multicast, Failure> {
        let mut team = team;
        let handles = decode(handle)?;
        let [handle] = handles.as_slice() else {
            return Err(Failure::argument(
                "a multicast object has one handle".to_owned(),
            ));
        };
        // Before the team's function is called, which writes as much as the size says.
        if team.size() != usize::from(handle.num_devices()) {
            return Err(Failure::argument(format!(
                "size of the team is {}, but the handle is of a multicast object for {} devices",
                team.size(),
                handle.num_devices()
            )));
        }
        let imported = self
            .ipc
            .import_multicast(handle, &ImportOptions::default())
            .inspect_err(|error| team.give_up(error))?;
        let joined = imported.add_device(device, &mut team)?;
        Ok(gpuipc_multicast {
            connection: Connection::new(joined, team),
        })
    }
}

impl gpuipc_multicast_object {
    pub(crate) fn handle_bytes(&self) -> [u8; HANDLE_BYTES] {
        self.created.handle().encode()
    }
}

impl gpuipc_multicast {
    /// # Safety
    /// As for [`Connection::bind`].
    pub(crate) unsafe fn bind(
        &self,
        ptr: u64,
        len: usize,
    ) -> Result<gpuipc_multicast_buffer, Failure> {
        // SAFETY: as the caller says.
        let buffer = unsafe { self.connection.bind(ptr, len) }?;
        Ok(gpuipc_multicast_buffer { buffer })
    }
}

/// What a member exchanges messages with: fills the places for the others'
/// messages and for what was heard of each.
pub(crate) trait Exchange: Send + 'static {
    /// Until `timeout_ms` at most.
    fn run(&self, message: &[u8; MESSAGE_BYTES], all: &mut [u8], heard: &mut [u8], timeout_ms: u32);
}

/// The team that C describes.
pub(crate) fn team(
    given: &gpuipc_multicast_team,
    exchange: impl Exchange,
) -> Result<Team<'static>, Failure> {
    if given.struct_size != size_of::<gpuipc_multicast_team>() || given.reserved != 0 {
        return Err(Failure::argument(
            "struct_size or reserved of the team has a value that this library does not know"
                .to_owned(),
        ));
    }
    let (rank, size) = (given.rank as usize, given.size as usize);
    let gather = move |message: &[u8; MESSAGE_BYTES], deadline: Instant| {
        let mut all = vec![0; size * MESSAGE_BYTES];
        let mut heard = vec![GPUIPC_HEARD_SILENT; size];
        let left = deadline.saturating_duration_since(Instant::now());
        let left = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
        exchange.run(message, &mut all, &mut heard, left);
        let (messages, _) = all.as_chunks::<MESSAGE_BYTES>();
        let said = |(heard, message): (&u8, &[u8; MESSAGE_BYTES])| match *heard {
            GPUIPC_HEARD_MESSAGE => Heard::Message(*message),
            GPUIPC_HEARD_GONE => Heard::Gone,
            _ => Heard::Silent,
        };
        heard.iter().zip(messages).map(said).collect()
    };
    let team = Team::new(rank, size, gather)?;
    Ok(match given.timeout_ms {
        0 => team,
        timeout => team.timeout(Duration::from_millis(timeout.into())),
    })
}
