"""gpuipc.py against gpuipc.h and the declared ABI, and its behaviour on the emulated driver.

    check_python.py gpuipc.h abi.txt
"""

import ctypes
import gc
import re
import subprocess
import sys
import threading

import gpuipc

SIZE = 1 << 20


def the_numbers_are_the_headers(header):
    numbers = {name: int(value) for name, value in re.findall(r"^#define GPUIPC_(\w+) (\d+)$", header, re.M)}
    named = {
        "TYPE_": gpuipc.HandleType, "ACCESS_": gpuipc.Access, "LIVENESS_": gpuipc.Liveness, "TRUST_": gpuipc.Trust,
        "MEMORY_": gpuipc.Memory, "CODE_": gpuipc.CodeKind, "LOG_": gpuipc.LogLevel, "FEASIBLE_": gpuipc.Feasible,
    }
    for prefix, kind in named.items():
        there = {name[len(prefix):]: value for name, value in numbers.items() if name.startswith(prefix)}
        assert there == {one.name: one.value for one in kind}, (prefix, there)
    # Statuses have no prefix: they stand between GPUIPC_OK and GPUIPC_HANDLE_BYTES.
    statuses = re.search(r"#define GPUIPC_OK 0.*?(?=#define GPUIPC_HANDLE_BYTES)", header, re.S).group(0)
    there = {name: int(value) for name, value in re.findall(r"#define GPUIPC_(\w+) (\d+)", statuses)}
    assert there == {one.name: one.value for one in gpuipc.Status}, there
    assert numbers["HANDLE_BYTES"] == gpuipc.HANDLE_BYTES and numbers["ABI_VERSION"] == gpuipc.ABI_VERSION


def the_structs_are_cs(abi):
    structs = {
        "gpuipc_attempt": gpuipc._CAttempt, "gpuipc_error": gpuipc._CError, "gpuipc_open_options": gpuipc._OpenOptions,
        "gpuipc_export_options": gpuipc._ExportOptions, "gpuipc_import_options": gpuipc._ImportOptions,
        "gpuipc_type_feasibility": gpuipc._CTypeFeasibility, "gpuipc_device": gpuipc._CDevice,
        "gpuipc_transport": gpuipc._CTransport, "gpuipc_owner": gpuipc._COwner,
    }
    for name, struct in structs.items():
        declared = re.findall(rf"^layout {name}\.(\w+) (\d+) (\d+)$", abi, re.M)
        ours = [(field, str(getattr(struct, field).offset), str(getattr(struct, field).size))
                for field, *_ in struct._fields_]
        assert declared == ours, (declared, ours)
        assert f"layout {name} {ctypes.sizeof(struct)}\n" in abi


def the_functions_are_cs(abi):
    widths = {"uint64_t": 8, "size_t": 8, "uint32_t": 4, "int32_t": 4}
    for name, (result, arguments) in gpuipc._FUNCTIONS.items():
        declared = re.search(rf"^(\S+) {name}\((.*)\);$", abi, re.M)
        assert declared, name
        assert (result is None) == (declared.group(1) == "void"), name
        given = [] if declared.group(2) == "void" else declared.group(2).split(", ")
        assert len(given) == len(arguments), name
        for text, kind in zip(given, arguments):
            is_pointer = "*" in text or text.startswith("gpuipc_log_callback")
            assert is_pointer == (kind is ctypes.c_void_p), (name, text)
            assert is_pointer or widths[text.split()[0]] == ctypes.sizeof(kind), (name, text)


def refused(status, call):
    try:
        call()
    except gpuipc.Error as error:
        assert error.status == status and str(error), (error.status, str(error))
        return error
    raise AssertionError("nothing was raised")


def objects_give_back(ipc):
    buffer = ipc.allocate(SIZE, gpuipc.Memory.CUDA_MALLOC)
    buffer.write(b"twelve bytes", 1000)
    assert buffer.read(1000, 12) == b"twelve bytes" and len(buffer) == SIZE and len(buffer.read()) == SIZE
    refused(gpuipc.Status.INVALID_ARGUMENT, lambda: buffer.read(SIZE, 1))
    exported = ipc.export(buffer.ptr, buffer.nbytes)
    handles = exported.handles
    gpuipc.handle_check(handles)
    mem = ipc.import_(handles, access=gpuipc.Access.READ_ONLY, device=0, cancel=gpuipc.Cancel())
    assert mem.type_used == gpuipc.HandleType.SAME_PROCESS and mem.ptr == buffer.ptr and mem.attempts == []
    view = mem.view("<f8", (2, 3), 64)
    assert view.owner is mem and view.__cuda_array_interface__["data"] == (buffer.ptr + 64, True)
    assert mem.__cuda_array_interface__["shape"] == (SIZE,)
    for wrong in [("<f8", (SIZE,), 0), ("<f4", None, SIZE + 4), ("|u1", (1,), -1)]:
        try:
            mem.view(*wrong)
            raise SystemExit(f"{wrong} was viewed")
        except ValueError:
            pass
    exported.close()
    exported.close()
    assert exported.closed
    try:
        exported.handles
        raise SystemExit("a closed exported gave handles")
    except ValueError:
        pass
    refused(gpuipc.Status.EXPORT_REVOKED, lambda: ipc.import_(handles))
    mem.close()
    # Without `close`, collection does it.
    handles = ipc.export(buffer.ptr, buffer.nbytes).handles
    gc.collect()
    refused(gpuipc.Status.EXPORT_REVOKED, lambda: ipc.import_(handles))
    buffer.close()


def views_are_what_the_interface_says(ipc):
    with ipc.allocate(SIZE) as buffer:
        for shape in [(-1, -4), (-1,), (4, -1), (0, -1)]:
            try:
                buffer.view("<f4", shape)
                raise SystemExit(f"{shape} was viewed")
            except ValueError as error:
                assert "negative" in str(error)
        for shape, offset in [((0,), 0), ((3, 0, 2), 64), (None, SIZE)]:
            assert buffer.view("<f4", shape, offset).__cuda_array_interface__["data"] == (0, False)
        assert "PyTorch refuses" in gpuipc.View.__doc__
        for wrong in [(0, b"hello"), (3, b"")]:
            try:
                buffer.write(*wrong)
                raise SystemExit("the offset was taken for the data")
            except TypeError as error:
                assert "write(data, offset)" in str(error)
        buffer.write(bytearray(b"hello"), 5)
        assert buffer.read(5, 5) == b"hello"


def exports_are_whole_and_left(ipc):
    buffer = ipc.allocate(SIZE, gpuipc.Memory.CUDA_MALLOC)
    with ipc.export(buffer.ptr + 512) as exported:
        assert exported.nbytes == SIZE - 512 and len(exported.handles) == gpuipc.HANDLE_BYTES
    exported = ipc.export(buffer.ptr, SIZE)
    handles = exported.handles
    exported.leave()
    assert exported.closed and ipc.import_(handles).ptr == buffer.ptr
    buffer.close()
    with ipc.register_transports(4096, 100, [(1, b""), (2, bytes(64))]) as registered:
        assert registered.owner == ipc.owner and registered.handles == b"" and registered.data == 4096
        assert ipc.deserialize(registered.serialize()).transports == [(1, b""), (2, bytes(64))]
    with ipc.register_transports(4096, 100) as registered:
        assert registered.transports == []


def errors_say_everything(ipc):
    refused(gpuipc.Status.HANDLE_LENGTH, lambda: gpuipc.handle_check(b"x"))
    error = refused(gpuipc.Status.NOT_EXPORTABLE, lambda: ipc.export(4096, 1))
    assert error.memory_kind == 1 and "does not know this pointer" in str(error)
    refused(gpuipc.Status.NO_DEVICE, lambda: ipc.allocate(SIZE, device=99))
    refused(gpuipc.Status.INVALID_ARGUMENT, lambda: gpuipc.Ipc(trusted_uids=[1]))
    with ipc.allocate(SIZE) as buffer, ipc.export(buffer.ptr, SIZE) as exported:
        error = refused(gpuipc.Status.NOT_EXPORTABLE,
                        lambda: ipc.export(buffer.ptr, SIZE, types=[gpuipc.HandleType.FABRIC]))
        said = []
        # Errors belong to the thread that made the call.
        thread = threading.Thread(target=lambda: said.append(refused(
            gpuipc.Status.HANDLE_DAMAGED, lambda: ipc.import_(exported.handles[:-1] + b"\1"))))
        thread.start()
        thread.join()
        assert len(said) == 1


def every_kind_of_memory_has_its_handles(ipc):
    counts = {}
    for memory in gpuipc.Memory:
        if memory == gpuipc.Memory.VMM_FABRIC:
            continue  # needs a fabric
        with ipc.allocate(3 << 20, memory) as buffer, ipc.export(buffer.ptr, len(buffer), fd_on_demand=True) as exported:
            counts[memory] = len(exported.handles) // gpuipc.HANDLE_BYTES
            assert ipc.import_(exported.handles).ptr == buffer.ptr
    assert counts.pop(gpuipc.Memory.SEGMENTS) == 2 and set(counts.values()) == {1}, counts


EXPORTER = """
import sys, gpuipc
with gpuipc.Ipc() as ipc, ipc.allocate(4 << 20, gpuipc.Memory[sys.argv[1]]) as buffer:
    buffer.write(b"from Python", 3 << 20)
    with ipc.register(buffer.ptr, len(buffer), [(7, b"an rkey")]) as registered:
        sys.stdout.buffer.write(registered.serialize() + registered.handles)
        sys.stdout.flush()
        sys.stdin.read()
"""


def what_another_process_has(ipc, memory, handle_count):
    """Everything that only an import of another process's memory can."""
    with subprocess.Popen([sys.executable, "-B", "-c", EXPORTER, memory.name], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as exporter:
        handle_bytes = handle_count * gpuipc.HANDLE_BYTES
        form = 128 + 72 + handle_bytes
        data = exporter.stdout.read(form + handle_bytes)
        serialized, handles = data[:form], data[form:]
        uuid = handles[80:96]

        feasibility = ipc.can_import(handles, device=uuid)
        assert feasibility.is_importable and not feasibility.is_own and feasibility.problem is None
        assert feasibility.types == ((gpuipc.HandleType.POSIX_FD, gpuipc.Feasible.YES, None),), feasibility
        feasibility = ipc.can_import(handles, types=[gpuipc.HandleType.FABRIC])
        assert not feasibility.is_importable and feasibility.types[0].feasible == gpuipc.Feasible.NO
        assert feasibility.types[0].attempt.segment is None and feasibility.types[0].attempt.gpu_pair is None
        assert ipc.can_import(handles, device=bytes(15) + b"x").problem.status == gpuipc.Status.NO_DEVICE

        with ipc.reserve(8 << 20) as reservation:
            assert reservation.size == 8 << 20
            base = reservation.base
            mem = ipc.import_(handles, place=reservation, place_offset=4 << 20, access_devices=[0, uuid])
        assert mem.ptr == base + (4 << 20) and mem.read(3 << 20, 11) == b"from Python"
        again = mem.unmap()
        assert mem.closed and again.base == base
        with again, ipc.import_(handles, place=again) as mem:
            assert mem.ptr == base
            assert ipc.reservation_of_caller(base, 8 << 20).base == base

        error = refused(gpuipc.Status.NO_TYPE_WORKED, lambda: ipc.import_(handles, host_access=True))
        assert "NotHostMemory" in str(error) or "the CPU cannot" in str(error)
        if handle_count > 1:
            refused(gpuipc.Status.NOT_ONE_RANGE, lambda: ipc.import_(handles[gpuipc.HANDLE_BYTES:]))
            backwards = b"".join(handles[at:at + gpuipc.HANDLE_BYTES]
                                 for at in reversed(range(0, handle_bytes, gpuipc.HANDLE_BYTES)))
            assert ipc.import_(backwards).read(3 << 20, 11) == b"from Python"

        with ipc.deserialize(serialized) as registered:
            mapping = registered.mapping
            assert mapping.ptr == registered.data and mapping.type_used == gpuipc.HandleType.POSIX_FD
            assert mapping.read(3 << 20, 11) == b"from Python" and registered.gpu_error is None
            assert registered.transports == [(7, b"an rkey")] and registered.size == 4 << 20
            assert registered.serialize() == serialized and registered.handles == handles
            assert registered.owner.pid == exporter.pid and registered.owner.process_id == handles[96:112]
        try:
            mapping.ptr
            raise SystemExit("a closed registered memory has a mapping")
        except ValueError:
            pass
        with ipc.deserialize(serialized, types=[gpuipc.HandleType.FABRIC]) as registered:
            assert registered.data is None and registered.mapping is None and registered.original_ptr != 0
            assert registered.gpu_error.status == gpuipc.Status.NO_TYPE_WORKED and registered.gpu_error.attempts
        refused(gpuipc.Status.REGISTERED_MEMORY, lambda: ipc.deserialize(serialized[:-1]))
        ipc.close_idle_connections()
        exporter.stdin.close()


def calls_from_the_callback(ipc):
    """They are refused; what ends there is given back later."""
    buffer = ipc.allocate(SIZE)
    exported, handles, ended, said = ipc.export(buffer.ptr, SIZE), [], [], []
    handles.append(exported.handles)
    ended.append(exported)
    del exported

    def tell(*_line):
        while ended:
            ended.pop()  # the last reference
        for call in (lambda: ipc.owner, buffer.read, buffer.view):
            try:
                call()
            except gpuipc.Error as error:
                said.append(error.status)

    gpuipc.set_log(tell, gpuipc.LogLevel.TRACE)
    ipc.import_(handles[0]).close()
    gpuipc.set_log(None)
    assert not ended and said and set(said) == {gpuipc.Status.IN_CALLBACK}, said
    refused(gpuipc.Status.EXPORT_REVOKED, lambda: ipc.import_(handles[0]))
    buffer.close()


def log_lines_come(ipc):
    lines = []
    gpuipc.set_log(lambda *line: lines.append(line), gpuipc.LogLevel.DEBUG)
    with ipc.allocate(SIZE) as buffer:
        ipc.export(buffer.ptr, SIZE).close()
    gpuipc.set_log(None)
    count = len(lines)
    calls_from_the_callback(ipc)
    assert any(target == "gpuipc::gpu" and text.startswith("exported ") for _, target, text in lines), lines
    with ipc.allocate(SIZE) as buffer:
        ipc.export(buffer.ptr, SIZE).close()
    assert len(lines) == count


def main():
    header, abi = (open(path, encoding="utf-8").read() for path in sys.argv[1:3])
    the_numbers_are_the_headers(header)
    the_structs_are_cs(abi)
    the_functions_are_cs(abi)
    assert not gpuipc.is_forked() and len(gpuipc.version()) == 3
    with gpuipc.Ipc(trust=gpuipc.Trust.USERS, trusted_uids=[0, 1]) as ipc:
        objects_give_back(ipc)
        views_are_what_the_interface_says(ipc)
        exports_are_whole_and_left(ipc)
        errors_say_everything(ipc)
        every_kind_of_memory_has_its_handles(ipc)
        what_another_process_has(ipc, gpuipc.Memory.VMM_FD, 1)
        what_another_process_has(ipc, gpuipc.Memory.SEGMENTS, 2)
        log_lines_come(ipc)
    print("checked")


main()
