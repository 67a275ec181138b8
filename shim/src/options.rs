//! The options of the library's calls, and the environment variables that set them
//! without recompiling.

use crate::error::Error;
use crate::gpu::reservation::{Place, Reservation};
use core::sync::atomic::AtomicBool;
use gpuipc_core::{DeviceUuid, HandleType, TypeFlags, TypeList};
use gpuipc_sys::environment;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The environment variable with the allowed types in the order in which the
/// importer tries them, e.g. `PosixFd,RuntimeIpc`.
pub const TYPES_VARIABLE: &str = "GPUIPC_TYPES";
/// The environment variable with the importer's deadline in milliseconds.
pub const TIMEOUT_VARIABLE: &str = "GPUIPC_TIMEOUT_MS";
/// The environment variable with the folder for the broker's name.
pub const SOCKET_DIR_VARIABLE: &str = "GPUIPC_SOCKET_DIR";

/// The environment variable that says whom broker and importer trust:
/// `same-user`, `token`, or uids such as `1000,1001`.
pub const TRUST_VARIABLE: &str = "GPUIPC_TRUST";

/// How long an import may wait if nobody says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// The order on one host: memory that is reference-counted first, so that its
/// owner's `free` cannot pull it away from under the importer.
const DEFAULT_ORDER: [HandleType; 3] = [
    HandleType::PosixFd,
    HandleType::Fabric,
    HandleType::RuntimeIpc,
];

/// Whose processes are trusted at the other end of the broker's socket. Both
/// sides ask the kernel who is there: the broker before it serves, the importer
/// before it sends its token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trust {
    /// The own user, and root.
    #[default]
    SameUser,
    /// Also users with these uids, as this process's user namespace numbers them.
    Users(Vec<u32>),
    /// Everyone who holds the token, that is, the handle. For containers whose
    /// user namespaces have no common users: there the kernel cannot say who is
    /// at the other end.
    TokenAlone,
}

/// What the environment says, read once when an `Ipc` is made.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) types: TypeList,
    pub(crate) timeout: Duration,
    pub(crate) socket_dir: Option<PathBuf>,
    pub(crate) trust: Trust,
    /// Only an option says so, never the environment.
    #[cfg(feature = "multicast")]
    pub(crate) experimental_multicast: bool,
    /// The same.
    pub(crate) keepalive_descriptor: bool,
}

impl Settings {
    pub(crate) fn from_environment() -> Result<Self, Error> {
        Self::parse(environment::variable)
    }

    pub(crate) fn parse(value_of: impl Fn(&str) -> Option<OsString>) -> Result<Self, Error> {
        let bytes = |variable| value_of(variable).filter(|value| !value.is_empty());
        // What is no text is no value that any of these can have.
        let given = |variable| bytes(variable).map(|value| value.to_string_lossy().into_owned());
        let types = match given(TYPES_VARIABLE) {
            None => DEFAULT_ORDER.into_iter().collect(),
            Some(value) => parse_types(&value).ok_or(Error::Setting {
                variable: TYPES_VARIABLE,
                value,
                rule: "a comma-separated list of RuntimeIpc, PosixFd and Fabric, each at most once",
            })?,
        };
        let timeout = match given(TIMEOUT_VARIABLE) {
            None => DEFAULT_TIMEOUT,
            Some(value) => value
                .trim()
                .parse()
                .map(Duration::from_millis)
                .map_err(|_| Error::Setting {
                    variable: TIMEOUT_VARIABLE,
                    value,
                    rule: "a whole number of milliseconds",
                })?,
        };
        let trust = match given(TRUST_VARIABLE) {
            None => Trust::SameUser,
            Some(value) => parse_trust(&value).ok_or(Error::Setting {
                variable: TRUST_VARIABLE,
                value,
                rule: "same-user, token, or a comma-separated list of uids",
            })?,
        };
        Ok(Self {
            types,
            timeout,
            socket_dir: bytes(SOCKET_DIR_VARIABLE).map(PathBuf::from),
            trust,
            #[cfg(feature = "multicast")]
            experimental_multicast: false,
            keepalive_descriptor: false,
        })
    }
}

fn parse_trust(value: &str) -> Option<Trust> {
    match value.trim() {
        "same-user" => Some(Trust::SameUser),
        "token" => Some(Trust::TokenAlone),
        list => list
            .split(',')
            .map(|uid| uid.trim().parse().ok())
            .collect::<Option<_>>()
            .map(Trust::Users),
    }
}

fn parse_types(value: &str) -> Option<TypeList> {
    let mut types = TypeList::new();
    for name in value.split(',') {
        let handle_type = HandleType::from_name(name.trim())?;
        if types.contains(&handle_type) {
            return None;
        }
        types.push(handle_type).ok()?;
    }
    Some(types)
}

/// What an `Ipc` is to do differently from what the environment says.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct IpcOptions {
    socket_dir: Option<PathBuf>,
    trust: Option<Trust>,
    #[cfg(feature = "multicast")]
    experimental_multicast: bool,
    keepalive_descriptor: bool,
}

impl IpcOptions {
    /// The folder for the broker's name, on both sides (`GPUIPC_SOCKET_DIR`). A
    /// socket's whole path holds 107 bytes, of which the name takes 43.
    #[must_use]
    pub fn socket_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.socket_dir = Some(folder.into());
        self
    }

    /// Whom to trust at the other end of the broker's socket (`GPUIPC_TRUST`).
    #[must_use]
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = Some(trust);
        self
    }

    /// Allows [`multicast`](crate::multicast) on a real driver. **It has never run
    /// on hardware**: all that is known of it comes from CUDA's documentation and
    /// the emulated driver, which needs no permission.
    #[cfg(feature = "multicast")]
    #[must_use]
    pub const fn experimental_multicast(mut self, allow: bool) -> Self {
        self.experimental_multicast = allow;
        self
    }

    /// Keeps a descriptor open that is of none of the application's memory, as long
    /// as the `Ipc` lives, so that no export is the process's first one and no
    /// revocation its last: on an H200 an export then costs 23 us instead of 580,
    /// and its end 9 us instead of 545 (`tests/gpu/records`, export-cost).
    ///
    /// It costs about a millisecond when the `Ipc` is made, 2 MiB of host memory on
    /// NUMA node 0, no GPU memory, and a place in the table. Where the driver has no
    /// host VMM memory (before CUDA 12.2) the option does nothing, and says so in
    /// the log. A process that has other exported descriptors open all the time gains
    /// nothing.
    #[must_use]
    pub const fn keepalive_descriptor(mut self, keep: bool) -> Self {
        self.keepalive_descriptor = keep;
        self
    }

    /// The settings with these options put over them.
    pub(crate) fn over(&self, settings: Settings) -> Settings {
        Settings {
            socket_dir: self.socket_dir.clone().or(settings.socket_dir),
            trust: self.trust.clone().unwrap_or(settings.trust),
            #[cfg(feature = "multicast")]
            experimental_multicast: self.experimental_multicast,
            keepalive_descriptor: self.keepalive_descriptor,
            ..settings
        }
    }
}

/// How memory is exported.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ExportOptions {
    types: Option<TypeList>,
    fd_on_demand: bool,
}

impl ExportOptions {
    /// Exports no more than these types; by default, every type that the memory
    /// allows. Others are not made at all: without PosixFd there is no descriptor
    /// that anyone could ask for.
    #[must_use]
    pub fn types(mut self, types: &[HandleType]) -> Self {
        self.types = Some(distinct(types));
        self
    }

    /// Makes no file descriptor at the export, but one for each importer when it
    /// asks the broker. Saves `cuMemExportToShareableHandle` and a place in the
    /// process's table where perhaps nobody imports; costs the importer that call,
    /// and the way without the broker (`pidfd_getfd`), for which a descriptor must
    /// be open. Memory that is exported already stays as it is.
    ///
    /// Without this option a process keeps descriptors open for its exports up to a
    /// quarter of its limit of open files (RLIMIT_NOFILE), at most 256; the
    /// others are made on demand.
    #[must_use]
    pub const fn fd_on_demand(mut self, on_demand: bool) -> Self {
        self.fd_on_demand = on_demand;
        self
    }

    pub(crate) const fn is_fd_on_demand(&self) -> bool {
        self.fd_on_demand
    }

    pub(crate) fn flags(&self) -> TypeFlags {
        match &self.types {
            None => TypeFlags::all(),
            Some(types) => types.iter().map(|handle_type| handle_type.flag()).collect(),
        }
    }
}

/// A device, as a caller names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceId {
    /// By its place in this process's order, from 0. Another process may have
    /// another order (`CUDA_VISIBLE_DEVICES`).
    Ordinal(i32),
    /// By its UUID (`cuDeviceGetUuid`), the same in all processes.
    Uuid(DeviceUuid),
}

impl From<i32> for DeviceId {
    fn from(ordinal: i32) -> Self {
        Self::Ordinal(ordinal)
    }
}

impl From<DeviceUuid> for DeviceId {
    fn from(uuid: DeviceUuid) -> Self {
        Self::Uuid(uuid)
    }
}

/// What the importer may do with the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reading only (`CU_MEM_ACCESS_FLAGS_PROT_READ`). A legacy mapping cannot, and
    /// memory of a pool cannot: its access is that of the whole pool.
    ReadOnly,
    /// Reading and writing.
    #[default]
    ReadWrite,
}

/// How memory is imported.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ImportOptions {
    pub(crate) device: Option<DeviceId>,
    pub(crate) access_devices: Vec<DeviceId>,
    pub(crate) host_access: bool,
    pub(crate) place: Option<Place>,
    pub(crate) access: Access,
    pub(crate) types: Option<TypeList>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) cancel: Option<Arc<AtomicBool>>,
    pub(crate) require_live: bool,
}

impl ImportOptions {
    /// The device that maps the memory, by this process's ordinal or by its UUID.
    /// By default the current context's; without a context the memory's own GPU
    /// if it is visible here, else device 0.
    #[must_use]
    pub fn device(mut self, device: impl Into<DeviceId>) -> Self {
        self.device = Some(device.into());
        self
    }

    /// Further devices that get access (`cuMemSetAccess`, `cuMemPoolSetAccess`), each
    /// of which must be a peer of the memory's GPU. A legacy mapping cannot: it is
    /// for one device.
    #[must_use]
    pub fn access_devices(mut self, devices: &[DeviceId]) -> Self {
        self.access_devices = devices.to_vec();
        self
    }

    /// Whether the CPU gets access, too: of host-NUMA memory only, whose
    /// [`device_ptr`](crate::GpuIpcMem::device_ptr) is then an address for the CPU,
    /// too. By default it does not: reading it there crashes the process.
    #[must_use]
    pub const fn host_access(mut self, host_access: bool) -> Self {
        self.host_access = host_access;
        self
    }

    /// Maps `offset` bytes behind the base of a reservation that is there
    /// already, instead of reserving. It must have room for the sum of the
    /// handles' `base_size` there; `offset` is a multiple of the granularity.
    /// Only PosixFd and Fabric can, and memory of a pool cannot.
    ///
    /// To unmap and map again at the same address, see
    /// [`GpuIpcMem::unmap`](crate::GpuIpcMem::unmap).
    #[must_use]
    pub fn place(mut self, reservation: &Arc<Reservation>, offset: usize) -> Self {
        self.place = Some(Place {
            reservation: Arc::clone(reservation),
            offset,
        });
        self
    }

    /// What may be done with the mapping; by default, reading and writing.
    #[must_use]
    pub const fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// The types that may be tried, in order. By default `GPUIPC_TYPES`, else
    /// PosixFd, Fabric, RuntimeIpc.
    #[must_use]
    pub fn types(mut self, types: &[HandleType]) -> Self {
        self.types = Some(distinct(types));
        self
    }

    /// How long the import may wait for the exporter, over all types. By
    /// default `GPUIPC_TIMEOUT_MS`, else five seconds. Driver calls cannot be
    /// interrupted and do not count.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// A flag that ends the import's waiting once it is true, within 20 ms. A
    /// driver call under way is not interrupted.
    #[must_use]
    pub fn cancel(mut self, flag: Arc<AtomicBool>) -> Self {
        self.cancel = Some(flag);
        self
    }

    /// Refuses a mapping of which nobody could say that it is still the memory
    /// that was exported. Matters for RuntimeIpc only: the other types hold a
    /// reference.
    #[must_use]
    pub const fn require_live(mut self, require: bool) -> Self {
        self.require_live = require;
        self
    }
}

/// The types in their order, each once; so there is room for all.
fn distinct(types: &[HandleType]) -> TypeList {
    let mut list = TypeList::new();
    for handle_type in types {
        if !list.contains(handle_type) && list.push(*handle_type).is_err() {
            break;
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn parse(pairs: &[(&str, &str)]) -> Result<Settings, Error> {
        let pairs: Vec<(String, String)> = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        Settings::parse(|variable| {
            pairs
                .iter()
                .find(|(key, _)| key == variable)
                .map(|(_, value)| value.into())
        })
    }

    #[test]
    fn a_folder_keeps_its_bytes() {
        let folder = OsString::from_vec(b"/tmp/\xff\xfe".to_vec());
        let value = |variable: &str| (variable == SOCKET_DIR_VARIABLE).then(|| folder.clone());
        let settings = Settings::parse(value).expect("a valid folder");
        assert_eq!(settings.socket_dir, Some(PathBuf::from(&folder)));
        // Nothing else takes such a value.
        let value = |variable: &str| (variable == TRUST_VARIABLE).then(|| folder.clone());
        assert!(Settings::parse(value).is_err());
    }

    #[test]
    fn nothing_set_gives_counted_memory_first_and_five_seconds() {
        let settings = parse(&[]).expect("no setting is wrong");
        assert_eq!(settings.types.as_slice(), DEFAULT_ORDER);
        assert_eq!(settings.timeout, Duration::from_secs(5));
        assert_eq!(settings.socket_dir, None);
    }

    #[test]
    fn types_keep_their_order() {
        let settings = parse(&[(TYPES_VARIABLE, "runtime-ipc, PosixFd")]).expect("a valid list");
        assert_eq!(
            settings.types.as_slice(),
            [HandleType::RuntimeIpc, HandleType::PosixFd]
        );
    }

    #[test]
    fn an_unknown_or_doubled_type_is_named_in_the_error() {
        for value in ["nvlink", "PosixFd,PosixFd", "PosixFd,,Fabric"] {
            let error = parse(&[(TYPES_VARIABLE, value)]).expect_err("not a valid list");
            assert!(
                error.to_string().contains("GPUIPC_TYPES") && error.to_string().contains(value),
                "{error}"
            );
        }
    }

    #[test]
    fn trust_is_a_word_or_a_list_of_uids() {
        let trust = |value| parse(&[(TRUST_VARIABLE, value)]).map(|settings| settings.trust);
        assert_eq!(trust("same-user").expect("valid"), Trust::SameUser);
        assert_eq!(trust("token").expect("valid"), Trust::TokenAlone);
        assert_eq!(
            trust("1000, 1001").expect("valid"),
            Trust::Users(vec![1000, 1001])
        );
        for value in ["everyone", "1000,", "-1"] {
            assert!(
                trust(value)
                    .expect_err("not valid")
                    .to_string()
                    .contains("GPUIPC_TRUST")
            );
        }
    }

    #[test]
    fn a_timeout_that_is_no_number_is_an_error() {
        for value in ["5s", "-1", "1.5"] {
            let error = parse(&[(TIMEOUT_VARIABLE, value)]).expect_err("not a valid timeout");
            assert!(error.to_string().contains("GPUIPC_TIMEOUT_MS"), "{error}");
        }
        assert_eq!(
            parse(&[(TIMEOUT_VARIABLE, "250")]).expect("valid").timeout,
            Duration::from_millis(250)
        );
    }
}
