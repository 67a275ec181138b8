"""Share GPU memory between processes, from Python: gpuipc.h by ctypes alone.

    with gpuipc.Ipc() as ipc:                             # in the exporter
        with ipc.export(tensor.data_ptr(), tensor.nbytes) as exported:
            send(exported.handles)                           # bytes, by any means
            wait_until_imported()

    with gpuipc.Ipc() as ipc:                             # in the importer
        with ipc.import_(handles) as mem:
            view = torch.as_tensor(mem.view("<f4"))       # or cupy.asarray(mem)
            # PyTorch uses memory on the GPU that holds it: with `device` another one, name
            # that one, too: access_devices=[handles[80:96]], its UUID.
            ...
            del view                                      # before the memory goes

Each object gives back what it holds at the end of its `with`, by `close`, or when it
is collected; what it needs it holds by itself, so the order does not matter. Threads
may share objects. Nothing waits for the GPU: work that uses imported memory must have
ended before that is closed. A failed call raises Error, with the status, the full text
and every attempt. A process forked from one that used CUDA cannot use it: start
workers with multiprocessing's "spawn".

The library is libgpuipc.so where the loader finds it, or what the environment
variable GPUIPC_LIBRARY names.
"""

from __future__ import annotations

import atexit
import collections
import ctypes
import enum
import os
import threading
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, Union

__all__ = [
    "ABI_VERSION", "Access", "Attempt", "Buffer", "Cancel", "CodeKind", "Error", "Exported", "HANDLE_BYTES",
    "HandleType", "Ipc", "Liveness", "LogLevel", "Mem", "Memory", "Feasibility", "Owner", "Registered", "Reservation",
    "Status", "Transport", "Trust", "TypeFeasibility", "Feasible", "View", "WHOLE_ALLOCATION", "handle_check", "is_forked", "set_log", "version",
]

HANDLE_BYTES = 384
WHOLE_ALLOCATION = 0xFFFFFFFFFFFFFFFF
ABI_VERSION = 1


class HandleType(enum.IntEnum):
    SAME_PROCESS = 0
    RUNTIME_IPC = 1
    POSIX_FD = 2
    FABRIC = 4


class Access(enum.IntEnum):
    READ_WRITE = 0
    READ_ONLY = 1


class Liveness(enum.IntEnum):
    UNKNOWN = 0
    MEMORY_UNCHANGED = 1
    REFERENCED = 2
    EXPORT_LIVES = 3


class Trust(enum.IntEnum):
    DEFAULT = 0
    SAME_USER = 1
    USERS = 2
    TOKEN_ALONE = 3


class Memory(enum.IntEnum):
    CUDA_MALLOC = 1
    VMM_FD = 2
    VMM_FABRIC = 3
    SEGMENTS = 4
    POOL = 5
    HOST_NUMA = 6


class Feasible(enum.IntEnum):
    OTHER = 0
    YES = 1
    UNKNOWN = 2
    NO = 3


class CodeKind(enum.IntEnum):
    NONE = 0
    DRIVER = 1
    MISSING = 2
    OS = 3


class LogLevel(enum.IntEnum):
    OFF = 0
    ERROR = 1
    WARN = 2
    INFO = 3
    DEBUG = 4
    TRACE = 5


class Status(enum.IntEnum):
    OK = 0
    NULL_ARGUMENT = 1
    INVALID_ARGUMENT = 2
    BUFFER_TOO_SMALL = 3
    FORKED = 4
    PANIC = 5
    INVALID_SETTING = 6
    SYSTEM_CALL = 7
    IN_CALLBACK = 8
    HANDLE_LENGTH = 20
    HANDLE_MAGIC = 21
    HANDLE_NEWER = 22
    HANDLE_DAMAGED = 23
    HANDLE_FIELD = 24
    REGISTERED_MEMORY = 25
    DRIVER_LIBRARY = 40
    DRIVER_SYMBOL = 41
    DRIVER_CALL = 42
    NO_DEVICE = 43
    NOT_EXPORTABLE = 60
    BROKER_START = 61
    EXPORTER_GONE = 80
    EXPORT_REVOKED = 81
    TIMED_OUT = 82
    NO_TYPE_WORKED = 83
    OTHER_HOST = 84
    UNSUPPORTED = 85
    CANCELLED = 86
    NOT_ONE_RANGE = 87
    MULTICAST_UNAVAILABLE = 100
    MULTICAST_TEAM = 101


class Attempt(NamedTuple):
    """One type that was tried and did not work. `step` and `reason` are numbers of gpuipc.h.

    `segment` is the one of several at which it ended, else None; `gpu_pair` are the UUIDs of the importing GPU
    and the memory's where there is no way between those, else None.
    """

    handle_type: int
    step: int
    reason: int
    code_kind: CodeKind
    code: int
    elapsed_ns: int
    step_text: str
    reason_text: str
    hint_text: str
    segment: Optional[int] = None
    gpu_pair: Optional[Tuple[bytes, bytes]] = None


class TypeFeasibility(NamedTuple):
    """What is to be expected of one type of sharing; `attempt` says why not, with Feasible.NO."""

    handle_type: HandleType
    feasible: Feasible
    attempt: Optional[Attempt]


class Feasibility(NamedTuple):
    """What is to be expected of an import. `problem` is what no type could help, else None."""

    is_importable: bool
    is_own: bool
    types: Tuple[TypeFeasibility, ...]
    problem: Optional["Error"]


class Transport(NamedTuple):
    """Another way to a registered memory: a number and at most 64 bytes of the caller's."""

    kind: int
    data: bytes


class Owner(NamedTuple):
    """Who registered a memory. The pid is for messages, never an identity."""

    process_id: bytes
    host_id: bytes
    pid: int
    pid_namespace: int


class Error(Exception):
    """A call failed. Its text has everything; `memory_kind`, `code_kind` and `code` are gpuipc_error's."""

    def __init__(self, status: int, text: str, attempts: Sequence[Attempt] = (), memory_kind: int = 0,
                 code_kind: int = 0, code: int = 0) -> None:
        super().__init__(text)
        try:
            self.status: int = Status(status)
        except ValueError:  # of a newer library
            self.status = status
        self.attempts = tuple(attempts)
        self.memory_kind, self.code_kind, self.code = memory_kind, code_kind, code


# ---- the C interface ------------------------------------------------------------------------

_p, _size, _u32, _i32, _u64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_int32, ctypes.c_uint64


class _CAttempt(ctypes.Structure):
    _fields_ = [("handle_type", _u32), ("step", _u32), ("reason", _u32), ("code_kind", _u32), ("code", _i32),
                ("segment", _u32), ("elapsed_ns", _u64), ("step_text", ctypes.c_char_p),
                ("reason_text", ctypes.c_char_p), ("hint_text", ctypes.c_char_p), ("reserved_long", _u64),
                ("pair_from", ctypes.c_uint8 * 16), ("pair_to", ctypes.c_uint8 * 16)]


class _CTypeFeasibility(ctypes.Structure):
    _fields_ = [("handle_type", _u32), ("feasible", _u32), ("attempt", _CAttempt)]


class _CDevice(ctypes.Structure):
    _fields_ = [("ordinal", _i32), ("reserved", _u32), ("uuid", ctypes.c_uint8 * 16)]


class _CTransport(ctypes.Structure):
    _fields_ = [("kind", _u32), ("len", _u32), ("bytes", ctypes.c_uint8 * 64)]


class _COwner(ctypes.Structure):
    _fields_ = [("process_id", ctypes.c_uint8 * 16), ("host_id", ctypes.c_uint8 * 16), ("pid", _u32),
                ("pid_namespace", _u32)]


class _CError(ctypes.Structure):
    _fields_ = [("status", _u32), ("memory_kind", _u32), ("code_kind", _u32), ("code", _i32),
                ("attempt_count", _u32), ("reserved", _u32), ("reserved_long", _u64)]


class _OpenOptions(ctypes.Structure):
    _fields_ = [("struct_size", _size), ("socket_dir", ctypes.c_char_p), ("trust", _u32),
                ("trusted_uid_count", _u32), ("trusted_uids", ctypes.POINTER(_u32)),
                ("keepalive_descriptor", _u32), ("reserved", _u32)]


class _ExportOptions(ctypes.Structure):
    _fields_ = [("struct_size", _size), ("type_count", ctypes.c_uint8), ("types", ctypes.c_uint8 * 7),
                ("fd_on_demand", _u32), ("reserved", _u32)]


class _ImportOptions(ctypes.Structure):
    _fields_ = [("struct_size", _size), ("device", _i32), ("access", _u32), ("require_live", _u32),
                ("timeout_ms", _u32), ("type_count", ctypes.c_uint8), ("types", ctypes.c_uint8 * 7), ("cancel", _p),
                ("device_uuid", ctypes.c_uint8 * 16), ("host_access", _u32), ("access_device_count", _u32),
                ("access_devices", ctypes.POINTER(_CDevice)), ("place", _p), ("place_offset", _size)]


_LOG_CALLBACK = ctypes.CFUNCTYPE(None, _p, _u32, ctypes.c_char_p, ctypes.c_char_p)

# name: (result, arguments); every pointer is a plain address.
_FUNCTIONS = {
    "gpuipc_open_with": (_u32, [_p, _p]),
    "gpuipc_open_options_init": (_u32, [_p, _size]),
    "gpuipc_close": (None, [_p]),
    "gpuipc_close_idle_connections": (_u32, [_p]),
    "gpuipc_version": (_u32, []),
    "gpuipc_abi_version": (_u32, []),
    "gpuipc_is_forked": (_u32, []),
    "gpuipc_log_set": (_u32, [_p, _p, _u32]),
    "gpuipc_export_with": (_u32, [_p, _u64, _size, _p, _p]),
    "gpuipc_export_options_init": (_u32, [_p, _size]),
    "gpuipc_exported_len": (_u32, [_p, _p]),
    "gpuipc_exported_leave": (_u32, [_p]),
    "gpuipc_exported_bytes": (_u32, [_p, _p, _size, _p]),
    "gpuipc_exported_attempt_list": (_u32, [_p, _p, _size, _p]),
    "gpuipc_exported_free": (None, [_p]),
    "gpuipc_import_options_init": (_u32, [_p, _size]),
    "gpuipc_import": (_u32, [_p, _p, _size, _p, _p]),
    "gpuipc_mem_ptr": (_u32, [_p, _p]),
    "gpuipc_mem_len": (_u32, [_p, _p]),
    "gpuipc_mem_device": (_u32, [_p, _p]),
    "gpuipc_mem_type_used": (_u32, [_p, _p]),
    "gpuipc_mem_liveness": (_u32, [_p, _p]),
    "gpuipc_mem_attempt_list": (_u32, [_p, _p, _size, _p]),
    "gpuipc_mem_read": (_u32, [_p, _size, _p, _size]),
    "gpuipc_mem_write": (_u32, [_p, _size, _p, _size]),
    "gpuipc_mem_unmap": (_u32, [_p, _p]),
    "gpuipc_mem_free": (None, [_p]),
    "gpuipc_reservation_new": (_u32, [_p, _size, _p]),
    "gpuipc_reservation_of_caller": (_u32, [_p, _u64, _size, _p]),
    "gpuipc_reservation_base": (_u32, [_p, _p]),
    "gpuipc_reservation_size": (_u32, [_p, _p]),
    "gpuipc_reservation_free": (None, [_p]),
    "gpuipc_can_import": (_u32, [_p, _p, _size, _p, _p]),
    "gpuipc_feasibility_is_importable": (_u32, [_p, _p]),
    "gpuipc_feasibility_is_own": (_u32, [_p, _p]),
    "gpuipc_feasibility_types": (_u32, [_p, _p, _size, _p]),
    "gpuipc_feasibility_problem": (_u32, [_p, _p]),
    "gpuipc_feasibility_problem_text": (_u32, [_p, _p, _size, _p]),
    "gpuipc_feasibility_free": (None, [_p]),
    "gpuipc_register": (_u32, [_p, _u64, _size, _p, _size, _p, _p]),
    "gpuipc_register_transports": (_u32, [_p, _u64, _size, _p, _size, _p]),
    "gpuipc_self": (_u32, [_p, _p]),
    "gpuipc_deserialize": (_u32, [_p, _p, _size, _p, _p]),
    "gpuipc_registered_bytes": (_u32, [_p, _p, _size, _p]),
    "gpuipc_registered_handles": (_u32, [_p, _p, _size, _p]),
    "gpuipc_registered_data": (_u32, [_p, _p]),
    "gpuipc_registered_len": (_u32, [_p, _p]),
    "gpuipc_registered_original_ptr": (_u32, [_p, _p]),
    "gpuipc_registered_owner": (_u32, [_p, _p]),
    "gpuipc_registered_transports": (_u32, [_p, _p, _size, _p]),
    "gpuipc_registered_mapping": (_u32, [_p, _p]),
    "gpuipc_registered_gpu_error": (_u32, [_p, _p]),
    "gpuipc_registered_gpu_error_text": (_u32, [_p, _p, _size, _p]),
    "gpuipc_registered_gpu_error_attempts": (_u32, [_p, _p, _size, _p]),
    "gpuipc_registered_free": (None, [_p]),
    "gpuipc_buffer_new": (_u32, [_p, _i32, _u32, _size, _p]),
    "gpuipc_buffer_ptr": (_u32, [_p, _p]),
    "gpuipc_buffer_len": (_u32, [_p, _p]),
    "gpuipc_buffer_read": (_u32, [_p, _size, _p, _size]),
    "gpuipc_buffer_write": (_u32, [_p, _size, _p, _size]),
    "gpuipc_buffer_free": (None, [_p]),
    "gpuipc_cancel_new": (_u32, [_p]),
    "gpuipc_cancel_set": (_u32, [_p, _u32]),
    "gpuipc_cancel_free": (None, [_p]),
    "gpuipc_handle_check": (_u32, [_p, _size]),
    "gpuipc_last_error": (_u32, [_p, _size, _p]),
    "gpuipc_last_error_read": (_u32, [_p]),
    "gpuipc_last_error_attempts": (_u32, [_p, _size, _p]),
}

_loaded: Optional[ctypes.CDLL] = None
_loading = threading.Lock()


# Whether this thread is in a log callback, where the library gives nothing back.
_thread = threading.local()
# What was closed or collected there: function and object.
_deferred: "collections.deque[Tuple[str, int]]" = collections.deque()


def _lib() -> ctypes.CDLL:
    global _loaded
    if _deferred and _loaded is not None and not getattr(_thread, "is_in_callback", False):
        _free_deferred(_loaded)
    with _loading:
        if _loaded is None:
            lib = ctypes.CDLL(os.environ.get("GPUIPC_LIBRARY") or "libgpuipc.so")
            for name, (result, arguments) in _FUNCTIONS.items():
                function = getattr(lib, name)
                function.restype, function.argtypes = result, arguments
            if lib.gpuipc_abi_version() != ABI_VERSION:
                raise ImportError(f"libgpuipc.so has ABI {lib.gpuipc_abi_version()}, this module is for {ABI_VERSION}")
            _loaded = lib
        return _loaded


def _free_deferred(lib: ctypes.CDLL) -> None:
    while _deferred:
        try:
            free, address = _deferred.popleft()
        except IndexError:  # another thread took the last
            return
        getattr(lib, free)(address)


def _attempt(one: _CAttempt) -> Attempt:
    gpu_pair = (bytes(one.pair_from), bytes(one.pair_to))
    return Attempt(one.handle_type, one.step, one.reason, CodeKind(one.code_kind), one.code, one.elapsed_ns,
                   one.step_text.decode(), one.reason_text.decode(), one.hint_text.decode(),
                   None if one.segment == 0xFFFFFFFF else one.segment,
                   gpu_pair if any(gpu_pair[0]) or any(gpu_pair[1]) else None)


def _array(kind: Any, call: Callable[..., int], *arguments: Any) -> Any:
    """What an array function gives; none if it fails."""
    count = _size()
    if call(*arguments, None, 0, ctypes.byref(count)) != 0 or count.value == 0:
        return ()
    array = (kind * count.value)()
    call(*arguments, array, count.value, ctypes.byref(count))
    return array


def _attempts(call: Callable[..., int], *arguments: Any) -> List[Attempt]:
    return [_attempt(one) for one in _array(_CAttempt, call, *arguments)]


def _text(call: Callable[..., int], *arguments: Any) -> str:
    """What a text function gives."""
    needed = _size()
    call(*arguments, None, 0, ctypes.byref(needed))
    text = ctypes.create_string_buffer(max(needed.value, 1))
    call(*arguments, text, len(text), ctypes.byref(needed))
    return text.value.decode(errors="replace")


def _check(status: int) -> None:
    if status == 0:
        return
    lib, numbers = _lib(), _CError()
    text = _text(lib.gpuipc_last_error)
    lib.gpuipc_last_error_read(ctypes.byref(numbers))
    raise Error(status, text, _attempts(lib.gpuipc_last_error_attempts),
                numbers.memory_kind, numbers.code_kind, numbers.code)


def _put_types(options: Any, types: Optional[Sequence[int]]) -> None:
    if types is None:
        return
    if not 1 <= len(types) <= 7:
        raise ValueError("name at least one type, each once, or None for all")
    options.type_count = len(types)
    for index, one in enumerate(types):
        options.types[index] = one


def _milliseconds(seconds: Optional[float]) -> int:
    # 0 is the default in C.
    return 0 if seconds is None else min(max(int(seconds * 1000), 1), 0xFFFFFFFF)


class _Object:
    """Something of the library's, given back once."""

    _free = ""

    def __init__(self, address: int) -> None:
        self._address: Optional[int] = address

    @property
    def _object(self) -> int:
        if not self._address:
            raise ValueError(f"this {type(self).__name__} is closed")
        return self._address

    def _get(self, name: str, kind: Any) -> int:
        value = kind()
        _check(getattr(_lib(), name)(self._object, ctypes.byref(value)))
        return value.value

    def _bytes(self, name: str) -> bytes:
        call, needed = getattr(_lib(), name), _size()
        _check(call(self._object, None, 0, ctypes.byref(needed)))
        if needed.value == 0:
            return b""
        to = ctypes.create_string_buffer(needed.value)
        _check(call(self._object, to, len(to), None))
        return to.raw

    @property
    def closed(self) -> bool:
        return not self._address

    def close(self) -> None:
        """Gives it back; a second time does nothing."""
        address, self._address = self._address, None
        if address and getattr(_thread, "is_in_callback", False):
            _deferred.append((self._free, address))
        elif address:
            getattr(_lib(), self._free)(address)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_address", None) and _loaded is not None:
            self.close()


# ---- what users have -------------------------------------------------------------------------


class View:
    """Device memory for CuPy, Numba and PyTorch (`__cuda_array_interface__`). Keeps its memory's owner.

    PyTorch refuses memory that was imported read-only: it has no such tensors.
    """

    def __init__(self, owner: "_Memory", shape: Tuple[int, ...], typestr: str, offset: int, read_only: bool) -> None:
        self.owner = owner
        # By the interface, what has no elements has no address.
        ptr = 0 if 0 in shape else owner.ptr + offset
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (ptr, read_only), "version": 3,
            "strides": None, "stream": None,
        }


class _Memory(_Object):
    """An address with a length: a Buffer or a Mem."""

    _name = ""
    _read_only = False

    @property
    def ptr(self) -> int:
        """The address, a CUdeviceptr."""
        return self._get(f"gpuipc_{self._name}_ptr", _u64)

    @property
    def nbytes(self) -> int:
        return self._get(f"gpuipc_{self._name}_len", _size)

    def __len__(self) -> int:
        return self.nbytes

    def read(self, offset: int = 0, size: Optional[int] = None) -> bytes:
        """Copies out (cuMemcpyDtoH); to the end without a size."""
        size = self.nbytes - offset if size is None else size
        if size <= 0:
            return b""
        to = ctypes.create_string_buffer(size)
        _check(getattr(_lib(), f"gpuipc_{self._name}_read")(self._object, offset, to, size))
        return to.raw

    def write(self, data: bytes, offset: int = 0) -> None:
        """Copies in (cuMemcpyHtoD) and waits until the bytes are there. The data first, unlike `read`."""
        if isinstance(data, int):
            raise TypeError("write takes the data first: write(data, offset)")
        data = bytes(data)
        if data:
            _check(getattr(_lib(), f"gpuipc_{self._name}_write")(self._object, offset, data, len(data)))

    def view(self, typestr: str = "|u1", shape: Optional[Tuple[int, ...]] = None, offset: int = 0) -> View:
        """For cupy.asarray or torch.as_tensor: elements of `typestr` ("<f4"), one dimension without a shape."""
        item = int(typestr[2:])
        room = self.nbytes - offset
        if shape is None:
            shape = (max(room, 0) // item,)
        if any(length < 0 for length in shape):
            raise ValueError(f"shape {tuple(shape)} has a negative length")
        size = item
        for length in shape:
            size *= length
        if offset < 0 or room < 0 or size > room:
            raise ValueError(f"{size} bytes from {offset} on go beyond the {self.nbytes} that there are")
        return View(self, tuple(shape), typestr, offset, self._read_only)

    @property
    def __cuda_array_interface__(self) -> dict:
        return self.view().__cuda_array_interface__


class Buffer(_Memory):
    """GPU memory of this process that can be shared, for programs without an allocator."""

    _free, _name = "gpuipc_buffer_free", "buffer"


class Mem(_Memory):
    """Another process's memory, mapped here until it is closed."""

    _free, _name = "gpuipc_mem_free", "mem"

    def __init__(self, address: int, read_only: bool) -> None:
        super().__init__(address)
        self._read_only = read_only

    @property
    def device(self) -> int:
        return self._get("gpuipc_mem_device", _i32)

    @property
    def type_used(self) -> HandleType:
        return HandleType(self._get("gpuipc_mem_type_used", _u32))

    @property
    def liveness(self) -> Liveness:
        return Liveness(self._get("gpuipc_mem_liveness", _u32))

    @property
    def attempts(self) -> List[Attempt]:
        """The types that were tried before, and why each failed."""
        return _attempts(_lib().gpuipc_mem_attempt_list, self._object)

    def unmap(self) -> Optional["Reservation"]:
        """Closes it and gives its addresses, for `place` of another import; None where there are none to give."""
        made = _p()
        status = _lib().gpuipc_mem_unmap(self._object, ctypes.byref(made))
        if status != Status.IN_CALLBACK:
            self._address = None
        _check(status)
        return Reservation(made.value) if made.value else None


class _Mapping(Mem):
    """A Registered's mapping, which that one gives back."""

    def __init__(self, registered: "Registered", address: int, read_only: bool) -> None:
        super().__init__(address, read_only)
        self._registered = registered

    @property
    def _object(self) -> int:
        self._registered._object  # raises if that is closed
        return super()._object

    def close(self) -> None:
        self._address = None

    def unmap(self) -> None:
        raise ValueError("this mapping is a Registered's, which unmaps it")


class Reservation(_Object):
    """Address space for imports: see Ipc.reserve. What is mapped in it keeps it."""

    _free = "gpuipc_reservation_free"

    @property
    def base(self) -> int:
        return self._get("gpuipc_reservation_base", _u64)

    @property
    def size(self) -> int:
        return self._get("gpuipc_reservation_size", _size)


class Registered(_Object):
    """A buffer with every way to reach it: registered here, or described by another process."""

    _free = "gpuipc_registered_free"

    def __init__(self, address: int, read_only: bool = False) -> None:
        super().__init__(address)
        self._read_only = read_only

    def serialize(self) -> bytes:
        """The bytes for importers. Keep them like a password."""
        return self._bytes("gpuipc_registered_bytes")

    @property
    def handles(self) -> bytes:
        """Its GPU handles; none for memory that cannot be shared."""
        return self._bytes("gpuipc_registered_handles")

    @property
    def data(self) -> Optional[int]:
        """The address here; None where only a transport leads to the memory."""
        return self._get("gpuipc_registered_data", _u64) or None

    @property
    def size(self) -> int:
        return self._get("gpuipc_registered_len", _u64)

    @property
    def original_ptr(self) -> int:
        """The address in the owner, for transports; never to be touched elsewhere."""
        return self._get("gpuipc_registered_original_ptr", _u64)

    @property
    def owner(self) -> Owner:
        owner = _COwner()
        _check(_lib().gpuipc_registered_owner(self._object, ctypes.byref(owner)))
        return Owner(bytes(owner.process_id), bytes(owner.host_id), owner.pid, owner.pid_namespace)

    @property
    def transports(self) -> List[Transport]:
        array = _array(_CTransport, _lib().gpuipc_registered_transports, self._object)
        return [Transport(one.kind, bytes(one.bytes[:one.len])) for one in array]

    @property
    def mapping(self) -> Optional[Mem]:
        """The mapping of another process's memory, until this is closed; None in the owner."""
        address = self._get("gpuipc_registered_mapping", _p)
        return _Mapping(self, address, self._read_only) if address else None

    @property
    def gpu_error(self) -> Optional[Error]:
        """Why there is no way by the GPU, where that was left to a transport."""
        lib, numbers = _lib(), _CError()
        _check(lib.gpuipc_registered_gpu_error(self._object, ctypes.byref(numbers)))
        if numbers.status == Status.OK:
            return None
        return Error(numbers.status, _text(lib.gpuipc_registered_gpu_error_text, self._object),
                     _attempts(lib.gpuipc_registered_gpu_error_attempts, self._object),
                     numbers.memory_kind, numbers.code_kind, numbers.code)


class Exported(_Object):
    """Memory exported until it is closed."""

    _free = "gpuipc_exported_free"

    @property
    def handles(self) -> bytes:
        """All handles: what the importer needs. Keep them like a password."""
        return self._bytes("gpuipc_exported_bytes")

    @property
    def nbytes(self) -> int:
        return self._get("gpuipc_exported_len", _size)

    def leave(self) -> None:
        """Lets the export live without this object, until its memory is freed or the process ends."""
        status = _lib().gpuipc_exported_leave(self._object)
        if status != Status.IN_CALLBACK:
            self._address = None
        _check(status)

    @property
    def attempts(self) -> List[Attempt]:
        """The types that the memory was made for but that did not work, and why."""
        return _attempts(_lib().gpuipc_exported_attempt_list, self._object)


class Cancel(_Object):
    """Ends other threads' imports."""

    _free = "gpuipc_cancel_free"

    def __init__(self) -> None:
        made = _p()
        _check(_lib().gpuipc_cancel_new(ctypes.byref(made)))
        super().__init__(made.value or 0)

    def set(self, cancelled: bool = True) -> None:
        _check(_lib().gpuipc_cancel_set(self._object, int(cancelled)))


class _CFeasibility(_Object):
    _free = "gpuipc_feasibility_free"


def _export_options(types: Optional[Sequence[int]], fd_on_demand: bool) -> _ExportOptions:
    options = _ExportOptions()
    _check(_lib().gpuipc_export_options_init(ctypes.byref(options), ctypes.sizeof(options)))
    _put_types(options, types)
    options.fd_on_demand = int(fd_on_demand)
    return options


def _uuid(device: bytes) -> Any:
    if len(device) != 16:
        raise ValueError("a UUID has 16 bytes")
    return (ctypes.c_uint8 * 16)(*device)


def _import_options(*, device: Union[int, bytes, None] = None, access_devices: Sequence[Union[int, bytes]] = (),
                    host_access: bool = False, place: Optional[Reservation] = None, place_offset: int = 0,
                    access: Access = Access.READ_WRITE, types: Optional[Sequence[HandleType]] = None,
                    timeout: Optional[float] = None, require_live: bool = False,
                    cancel: Optional[Cancel] = None) -> _ImportOptions:
    options = _ImportOptions()
    _check(_lib().gpuipc_import_options_init(ctypes.byref(options), ctypes.sizeof(options)))
    if isinstance(device, bytes):
        options.device_uuid = _uuid(device)
    elif device is not None:
        options.device = device
    more = (_CDevice * max(len(access_devices), 1))()
    for one, said in zip(more, access_devices):
        if isinstance(said, bytes):
            one.ordinal, one.uuid = -1, _uuid(said)
        else:
            one.ordinal = said
    options.access_devices, options.access_device_count = more, len(access_devices)
    options.host_access = int(host_access)
    options.place, options.place_offset = None if place is None else place._object, place_offset
    options.access, options.require_live = access, int(require_live)
    options.timeout_ms = _milliseconds(timeout)
    _put_types(options, types)
    options.cancel = None if cancel is None else cancel._object
    return options


def _transports(transports: Sequence[Tuple[int, bytes]]) -> Any:
    array = (_CTransport * max(len(transports), 1))()
    for place, (kind, data) in zip(array, transports):
        if len(data) > len(place.bytes):
            raise ValueError(f"a transport has at most {len(place.bytes)} bytes")
        place.kind, place.len = kind, len(data)
        place.bytes[:len(data)] = data
    return array


class Ipc(_Object):
    """The library, opened. Options go before the environment.

    `keepalive_descriptor` makes exports cheap for a process that has no other exported memory: see gpuipc.h.
    """

    _free = "gpuipc_close"

    def __init__(self, *, socket_dir: Optional[str] = None, trust: Trust = Trust.DEFAULT,
                 trusted_uids: Sequence[int] = (), keepalive_descriptor: bool = False) -> None:
        options, made = _OpenOptions(), _p()
        _check(_lib().gpuipc_open_options_init(ctypes.byref(options), ctypes.sizeof(options)))
        options.socket_dir = None if socket_dir is None else os.fsencode(socket_dir)
        options.trust, options.trusted_uid_count = trust, len(trusted_uids)
        uids = (_u32 * max(len(trusted_uids), 1))(*trusted_uids)
        options.trusted_uids = uids
        options.keepalive_descriptor = keepalive_descriptor
        _check(_lib().gpuipc_open_with(ctypes.byref(options), ctypes.byref(made)))
        super().__init__(made.value or 0)

    @property
    def owner(self) -> Owner:
        """This process and its host, as Registered.owner names them."""
        owner = _COwner()
        _check(_lib().gpuipc_self(self._object, ctypes.byref(owner)))
        return Owner(bytes(owner.process_id), bytes(owner.host_id), owner.pid, owner.pid_namespace)

    def export(self, ptr: int, nbytes: int = WHOLE_ALLOCATION, *, types: Optional[Sequence[HandleType]] = None,
               fd_on_demand: bool = False) -> Exported:
        """Exports GPU memory of this process; keep the result until all importers have imported.

        Without `nbytes`: to the end of the allocation around `ptr`, by one handle. With `fd_on_demand` no descriptor is made before an importer asks for one.
        """
        options, made = _export_options(types, fd_on_demand), _p()
        _check(_lib().gpuipc_export_with(self._object, ptr, nbytes, ctypes.byref(options), ctypes.byref(made)))
        return Exported(made.value or 0)

    def import_(self, handles: bytes, **options: Any) -> Mem:
        """Maps another process's memory, from all of its handles in any order. The options, all by name:

        `device`: the GPU, by its ordinal or by the 16 bytes of its UUID; without, the current context's.
        `access_devices`: others that get access. `host_access`: the CPU, too, to host memory.
        `access`: Access.READ_ONLY for no writes. `types`: those that are tried, in order.
        `place`: a Reservation, and `place_offset` in it, instead of a new address.
        `timeout`: in seconds. `cancel`: a Cancel. `require_live`: refuse memory that may have been freed.
        """
        c_options, made = _import_options(**options), _p()
        _check(_lib().gpuipc_import(self._object, bytes(handles), len(handles), ctypes.byref(c_options),
                                    ctypes.byref(made)))
        return Mem(made.value or 0, c_options.access == Access.READ_ONLY)

    def can_import(self, handles: bytes, **options: Any) -> Feasibility:
        """Whether an import would work, by type and with reasons. Maps nothing; options as of `import_`."""
        lib, c_options, made = _lib(), _import_options(**options), _p()
        _check(lib.gpuipc_can_import(self._object, bytes(handles), len(handles), ctypes.byref(c_options),
                                     ctypes.byref(made)))
        with _CFeasibility(made.value or 0) as feasibility:
            types = _array(_CTypeFeasibility, lib.gpuipc_feasibility_types, feasibility._object)
            status = feasibility._get("gpuipc_feasibility_problem", _u32)
            problem = Error(status, _text(lib.gpuipc_feasibility_problem_text, feasibility._object)) if status else None
            return Feasibility(
                bool(feasibility._get("gpuipc_feasibility_is_importable", _u32)),
                bool(feasibility._get("gpuipc_feasibility_is_own", _u32)),
                tuple(TypeFeasibility(HandleType(one.handle_type), Feasible(one.feasible),
                                  _attempt(one.attempt) if one.feasible == Feasible.NO else None) for one in types),
                problem)

    def reserve(self, size: int) -> Reservation:
        """Address space, a multiple of the granularity (2 MiB on an H200), for `place` of imports."""
        made = _p()
        _check(_lib().gpuipc_reservation_new(self._object, size, ctypes.byref(made)))
        return Reservation(made.value or 0)

    def reservation_of_caller(self, base: int, size: int) -> Reservation:
        """A whole reservation that the caller made (cuMemAddressReserve), and frees after all that uses it."""
        made = _p()
        _check(_lib().gpuipc_reservation_of_caller(self._object, base, size, ctypes.byref(made)))
        return Reservation(made.value or 0)

    def register(self, ptr: int, nbytes: int, transports: Sequence[Tuple[int, bytes]] = (), *,
                 types: Optional[Sequence[HandleType]] = None, fd_on_demand: bool = False) -> Registered:
        """Exports memory and puts other transports (number, bytes) beside its handles."""
        array = _transports(transports)
        options, made = _export_options(types, fd_on_demand), _p()
        _check(_lib().gpuipc_register(self._object, ptr, nbytes, array, len(transports), ctypes.byref(options),
                                      ctypes.byref(made)))
        return Registered(made.value or 0)

    def register_transports(self, ptr: int, nbytes: int,
                            transports: Sequence[Tuple[int, bytes]] = ()) -> Registered:
        """Memory of any kind for the transports alone: nothing is exported."""
        made = _p()
        _check(_lib().gpuipc_register_transports(self._object, ptr, nbytes, _transports(transports), len(transports),
                                                 ctypes.byref(made)))
        return Registered(made.value or 0)

    def deserialize(self, data: bytes, **options: Any) -> Registered:
        """What another process registered, mapped where the GPU leads to it; options as of `import_`."""
        c_options, made = _import_options(**options), _p()
        _check(_lib().gpuipc_deserialize(self._object, bytes(data), len(data), ctypes.byref(c_options),
                                         ctypes.byref(made)))
        return Registered(made.value or 0, c_options.access == Access.READ_ONLY)

    def close_idle_connections(self) -> None:
        """Closes the connections to other processes that are kept for the next import."""
        _check(_lib().gpuipc_close_idle_connections(self._object))

    def allocate(self, nbytes: int, memory: Memory = Memory.VMM_FD, device: int = 0) -> Buffer:
        """GPU memory that can be shared as `memory` says."""
        made = _p()
        _check(_lib().gpuipc_buffer_new(self._object, device, memory, nbytes, ctypes.byref(made)))
        return Buffer(made.value or 0)


def handle_check(handles: bytes) -> None:
    """Raises Error if these bytes are no handles. Needs no driver."""
    _check(_lib().gpuipc_handle_check(bytes(handles), len(handles)))


def is_forked() -> bool:
    """Whether this process was forked from one that had opened the library: nothing works then."""
    return bool(_lib().gpuipc_is_forked())


def version() -> Tuple[int, int, int]:
    number = _lib().gpuipc_version()
    return number // 1000000, number // 1000 % 1000, number % 1000


_log_callback: Any = None


@atexit.register
def _end_log() -> None:
    # While Python shuts down, a thread that wants to run a callback is ended in the middle of it.
    if _log_callback is not None and _loaded is not None:
        _loaded.gpuipc_log_set(None, None, LogLevel.OFF)


def set_log(callback: Optional[Callable[[LogLevel, str, str], None]], level: LogLevel = LogLevel.INFO) -> None:
    """Gives log lines (level, target, message) to `callback`, from any thread, until Python ends; None ends that.

    The callback must not use this module: that raises Error with Status.IN_CALLBACK. An exception in it is printed
    by ctypes and goes no further. Objects that are closed or collected in it are given back after it.
    """
    global _log_callback
    if callback is None:
        _check(_lib().gpuipc_log_set(None, None, LogLevel.OFF))
        _log_callback = None
        return
    wanted = callback

    def tell(_user: Any, number: int, target: bytes, message: bytes) -> None:
        _thread.is_in_callback = True
        try:
            wanted(LogLevel(number), target.decode(), message.decode(errors="replace"))
        finally:
            _thread.is_in_callback = False

    c_callback = _LOG_CALLBACK(tell)
    # The library gives up the one before until this returns; so it is kept as long.
    _check(_lib().gpuipc_log_set(ctypes.cast(c_callback, _p), None, level))
    _log_callback = c_callback
