#!/usr/bin/env python3
"""Two Python processes share PyTorch tensors through libgpuipc.so, by ctypes alone.

The owner's tensors come from PyTorch's default allocator. The importer views the
imported memory as a tensor (__cuda_array_interface__), compares it with what the
owner wrote, writes its own values, and the owner compares those. One tensor
fills its allocation; others start inside a larger one.

    GPUIPC_LIBRARY=path/to/libgpuipc.so python3 torch_share.py [IMPORTER_DEVICE]

Exit 0 and a last line "ok" if all were equal both ways. Without a GPU, PyTorch or
the library it prints SKIP and the reason, and exits 0.
"""

import ctypes
import json
import os
import subprocess
import sys

HANDLE_BYTES = 384
TYPES = {0: "SameProcess", 1: "RuntimeIpc", 2: "PosixFd", 4: "Fabric"}


def skip(why):
    print(f"SKIP torch_share: {why}")
    sys.exit(0)


class Gpuipc:
    """The calls of the C interface that this program needs."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        for name in ("gpuipc_close", "gpuipc_exported_free", "gpuipc_mem_free"):
            function = getattr(self.lib, name)
            function.argtypes, function.restype = [ctypes.c_void_p], None
        self.lib.gpuipc_export.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p]
        self.lib.gpuipc_exported_handle_bytes.argtypes = [
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t]
        self.lib.gpuipc_import.argtypes = [
            ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
        for name in ("gpuipc_mem_ptr", "gpuipc_mem_len", "gpuipc_mem_type_used"):
            getattr(self.lib, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.context = ctypes.c_void_p()
        self.check(self.lib.gpuipc_open(ctypes.byref(self.context)))

    def check(self, status):
        if status != 0:
            needed = ctypes.c_size_t()
            text = ctypes.create_string_buffer(8192)
            self.lib.gpuipc_last_error(text, ctypes.c_size_t(len(text)), ctypes.byref(needed))
            raise RuntimeError(f"gpuipc status {status}: {text.value.decode()}")

    def export(self, ptr, length):
        """The offer, to be kept, and the handle's bytes."""
        offer = ctypes.c_void_p()
        self.check(self.lib.gpuipc_export(self.context, ptr, length, ctypes.byref(offer)))
        handle = ctypes.create_string_buffer(HANDLE_BYTES)
        self.check(self.lib.gpuipc_exported_handle_bytes(offer, 0, handle, HANDLE_BYTES))
        return offer, handle.raw

    def import_(self, handle):
        """The mapping, its address, length and type."""
        mem = ctypes.c_void_p()
        self.check(self.lib.gpuipc_import(self.context, handle, len(handle), None, ctypes.byref(mem)))
        ptr, length, used = ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_uint32()
        self.check(self.lib.gpuipc_mem_ptr(mem, ctypes.byref(ptr)))
        self.check(self.lib.gpuipc_mem_len(mem, ctypes.byref(length)))
        self.check(self.lib.gpuipc_mem_type_used(mem, ctypes.byref(used)))
        return mem, ptr.value, length.value, TYPES[used.value]


class View:
    """Memory that PyTorch takes as a tensor of int64."""

    def __init__(self, ptr, count):
        self.__cuda_array_interface__ = {
            "shape": (count,), "typestr": "<i8", "data": (ptr, False), "version": 3, "strides": None}


def importer(library, device):
    import torch

    torch.cuda.set_device(device)
    torch.zeros(1, device="cuda")  # PyTorch's context, as in any program that uses it
    gpuipc = Gpuipc(library)
    for line in sys.stdin:
        task = json.loads(line)
        handle = bytes.fromhex(task["handle"])
        mem, ptr, length, used = gpuipc.import_(handle)
        # Without a device argument PyTorch takes the pointer's own, and so makes no copy.
        view = torch.as_tensor(View(ptr, task["count"]))
        if view.data_ptr() != ptr:
            raise RuntimeError("PyTorch copied the memory instead of viewing it")
        wanted = torch.arange(task["count"], dtype=torch.int64) * 3 + task["seed"]
        equal = bool(torch.equal(view.cpu(), wanted)) and length == task["count"] * 8
        view.copy_(torch.arange(task["count"], dtype=torch.int64) * 5 - task["seed"])
        torch.cuda.synchronize()
        del view
        gpuipc.lib.gpuipc_mem_free(mem)
        print(json.dumps({"equal": equal, "used": used, "length": length}), flush=True)
    gpuipc.lib.gpuipc_close(gpuipc.context)


def owner(library, device):
    import torch

    torch.cuda.set_device(0)
    gpuipc = Gpuipc(library)
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name(0)}, owner on GPU 0, importer on GPU {device}")
    child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--importer", str(device)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    big = torch.empty(1 << 20, dtype=torch.int64, device="cuda")
    cases = {
        "8 MiB tensor": big,
        "small tensor inside PyTorch's 2 MiB block": torch.empty(1000, dtype=torch.int64, device="cuda"),
        "second small tensor of the same block": torch.empty(1111, dtype=torch.int64, device="cuda"),
        "slice of the 8 MiB tensor": big[12345:12345 + 54321],
        "200 MB tensor": torch.empty(25_000_000, dtype=torch.int64, device="cuda"),
    }
    good = True
    for seed, (name, tensor) in enumerate(cases.items(), start=1):
        count = tensor.numel()
        tensor.copy_(torch.arange(count, dtype=torch.int64) * 3 + seed)
        torch.cuda.synchronize()
        offer, handle = gpuipc.export(tensor.data_ptr(), count * 8)
        offset = int.from_bytes(handle[24:32], "little")
        base_size = int.from_bytes(handle[16:24], "little")
        child.stdin.write(json.dumps({"handle": handle.hex(), "count": count, "seed": seed}) + "\n")
        child.stdin.flush()
        line = child.stdout.readline()
        if not line:
            print(f"{name}: the importer ended")
            return 1
        answer = json.loads(line)
        back = bool(torch.equal(tensor.cpu(), torch.arange(count, dtype=torch.int64) * 5 - seed))
        gpuipc.lib.gpuipc_exported_free(offer)
        print(f"{name}: {count * 8} bytes at +{offset} of an allocation of {base_size}, by {answer['used']}, "
              f"importer saw the owner's values: {answer['equal']}, owner saw the importer's: {back}")
        good = good and answer["equal"] and back
    child.stdin.close()
    good = child.wait(60) == 0 and good
    gpuipc.lib.gpuipc_close(gpuipc.context)
    print("ok" if good else "FAILED")
    return 0 if good else 1


def main():
    library = os.environ.get("GPUIPC_LIBRARY", "libgpuipc.so")
    if sys.argv[1:2] == ["--importer"]:
        importer(library, int(sys.argv[2]))
        return 0
    try:
        import torch
    except ImportError:
        skip("PyTorch is not installed")
    if not torch.cuda.is_available():
        skip("PyTorch sees no GPU")
    device = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    if device >= torch.cuda.device_count():
        skip(f"there is no GPU {device}")
    try:
        ctypes.CDLL(library)
    except OSError as error:
        skip(f"{library} cannot be loaded: {error}")
    return owner(library, device)


if __name__ == "__main__":
    sys.exit(main())
