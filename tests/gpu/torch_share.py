#!/usr/bin/env python3
"""Two Python processes share PyTorch tensors through gpuipc.py and libgpuipc.so.

The importer views the imported memory as a tensor (__cuda_array_interface__),
compares it with what the owner wrote, writes its own values, and the owner
compares those. MODE is one of

    default      tensors of PyTorch's default allocator (cuMemAlloc): one that fills
                 its allocation, others that start inside a larger one
    expandable   the same under expandable_segments:True, where a large tensor
                 spans many allocations: each of its handles is one of them
    pool         memory of a pool that has a handle type, viewed as a tensor
    async        PyTorch's cudaMallocAsync backend, whose default pool cannot be
                 shared: the export must be refused with the cure
    cycles       64 times: allocate 1 GiB, share it, free it; the GPU's free memory
                 must be the same in the end

    GPUIPC_LIBRARY=path/to/libgpuipc.so python3 torch_share.py [IMPORTER_DEVICE [MODE]]

Exit 0 and a last line "ok" if all were equal both ways. Without a GPU, PyTorch or
the library it prints SKIP and the reason, and exits 0.
"""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "ffi", "python"))
import gpuipc  # noqa: E402


# What each mode asks of PyTorch's allocator.
CONF = {"expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}


def skip(why):
    print(f"SKIP torch_share: {why}")
    sys.exit(0)


NAMES = {gpuipc.HandleType.SAME_PROCESS: "SameProcess", gpuipc.HandleType.RUNTIME_IPC: "RuntimeIpc",
         gpuipc.HandleType.POSIX_FD: "PosixFd", gpuipc.HandleType.FABRIC: "Fabric"}


def importer(device):
    import torch

    torch.cuda.set_device(device)
    torch.zeros(1, device="cuda")  # PyTorch's context, as in any program that uses it
    with gpuipc.Ipc() as ipc:
        for line in sys.stdin:
            task = json.loads(line)
            handles = bytes.fromhex(task["handle"])
            # PyTorch uses memory on the GPU that holds it, whichever is current: that one
            # needs access, too. (A legacy mapping is for one GPU, and the driver finds its way.)
            is_legacy = handles[7] & 1
            more = [] if is_legacy or device == 0 else [handles[80:96]]
            with ipc.import_(handles, access_devices=more) as mem:
                # Without a device argument PyTorch takes the pointer's own, and so makes no copy.
                view = torch.as_tensor(mem.view("<i8"))
                if view.data_ptr() != mem.ptr:
                    raise RuntimeError("PyTorch copied the memory instead of viewing it")
                wanted = torch.arange(task["count"], dtype=torch.int64) * 3 + task["seed"]
                equal = bool(torch.equal(view.cpu(), wanted)) and mem.nbytes == task["count"] * 8
                view.copy_(torch.arange(task["count"], dtype=torch.int64) * 5 - task["seed"])
                torch.cuda.synchronize()
                del view
                answer = {"equal": equal, "used": NAMES[mem.type_used], "length": mem.nbytes}
            print(json.dumps(answer), flush=True)


def cases_of(mode, ipc):
    """The tensors to share, by name, and what they need to live."""
    import torch

    if mode == "pool":
        buffer = ipc.allocate(3 << 20, gpuipc.Memory.POOL)
        tensor = torch.as_tensor(buffer.view("<i8"))
        return {"memory of a pool": tensor, "slice of it": tensor[1001:1001 + 5555]}, buffer
    big = torch.empty(1 << 20, dtype=torch.int64, device="cuda")
    large = torch.empty(25_000_000, dtype=torch.int64, device="cuda")
    return {
        "8 MiB tensor": big,
        "small tensor inside PyTorch's 2 MiB block": torch.empty(1000, dtype=torch.int64, device="cuda"),
        "second small tensor of the same block": torch.empty(1111, dtype=torch.int64, device="cuda"),
        "slice of the 8 MiB tensor": big[12345:12345 + 54321],
        "200 MB tensor": large,
        "odd slice of the 200 MB tensor": large[1_234_567:1_234_567 + 17_654_321],
    }, None


def start(device):
    return subprocess.Popen([sys.executable, os.path.abspath(__file__), "--importer", str(device)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(child, handles, count, seed):
    """What the importer found; None if it has ended."""
    child.stdin.write(json.dumps({"handle": handles.hex(), "count": count, "seed": seed}) + "\n")
    child.stdin.flush()
    line = child.stdout.readline()
    return json.loads(line) if line else None


def owner(device, mode):
    import torch

    torch.cuda.set_device(0)
    ipc = gpuipc.Ipc()
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name(0)}, owner on GPU 0, importer on GPU {device}, "
          f"mode {mode}")
    if mode == "async":
        return refused(ipc)
    child = start(device)
    if mode == "cycles":
        good = cycles(ipc, child)
    else:
        good = True
        cases, _keep = cases_of(mode, ipc)
        for seed, (name, tensor) in enumerate(cases.items(), start=1):
            good = share(ipc, child, name, tensor, seed) and good
    child.stdin.close()
    good = child.wait(60) == 0 and good
    ipc.close()
    print("ok" if good else "FAILED")
    return 0 if good else 1


def share(ipc, child, name, tensor, seed):
    import torch

    count = tensor.numel()
    tensor.copy_(torch.arange(count, dtype=torch.int64) * 3 + seed)
    torch.cuda.synchronize()
    with ipc.export(tensor.data_ptr(), count * 8) as exported:
        handles = exported.handles
        offset = int.from_bytes(handles[24:32], "little")
        answer = ask(child, handles, count, seed)
    if answer is None:
        print(f"{name}: the importer ended")
        return False
    back = bool(torch.equal(tensor.cpu(), torch.arange(count, dtype=torch.int64) * 5 - seed))
    print(f"{name}: {count * 8} bytes at +{offset} of the first of {len(handles) // gpuipc.HANDLE_BYTES} "
          f"allocations, by {answer['used']}, importer saw the owner's values: {answer['equal']}, "
          f"owner saw the importer's: {back}")
    return answer["equal"] and back


def refused(ipc):
    """PyTorch's cudaMallocAsync backend."""
    import torch

    tensor = torch.empty(1 << 20, dtype=torch.int64, device="cuda")
    try:
        ipc.export(tensor.data_ptr(), tensor.numel() * 8)
    except gpuipc.Error as error:
        print(f"refused: {error}")
        good = error.status == gpuipc.Status.NOT_EXPORTABLE and "cuMemPoolCreate" in str(error)
    else:
        print("the default pool was exported")
        good = False
    ipc.close()
    print("ok" if good else "FAILED")
    return 0 if good else 1


def cycles(ipc, child):
    """Whether the GPU's free memory is flat."""
    import torch

    def round_(seed):
        with ipc.allocate(1 << 30, gpuipc.Memory.VMM_FD) as buffer:
            tensor = torch.as_tensor(buffer.view("<i8"))[:1 << 20]
            tensor.copy_(torch.arange(1 << 20, dtype=torch.int64) * 3 + seed)
            torch.cuda.synchronize()
            with ipc.export(buffer.ptr, 8 << 20) as exported:
                answer = ask(child, exported.handles, 1 << 20, seed)
            del tensor
        return answer is not None and answer["equal"]

    good = round_(0)
    before, _ = torch.cuda.mem_get_info()
    for seed in range(1, 65):
        good = round_(seed) and good
    after, _ = torch.cuda.mem_get_info()
    print(f"64 rounds of 1 GiB: free memory {before} before, {after} after")
    return good and before == after


def main():
    if sys.argv[1:2] == ["--importer"]:
        importer(int(sys.argv[2]))
        return 0
    try:
        import torch
    except ImportError:
        skip("PyTorch is not installed")
    if not torch.cuda.is_available():
        skip("PyTorch sees no GPU")
    device = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    mode = sys.argv[2] if len(sys.argv) > 2 else "default"
    conf = CONF.get(mode, "")
    if os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "") != conf:
        # Read by PyTorch when it starts.
        env = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=conf)
        os.execve(sys.executable, [sys.executable, os.path.abspath(__file__), str(device), mode], env)
    if device >= torch.cuda.device_count():
        skip(f"there is no GPU {device}")
    try:
        gpuipc.version()
    except OSError as error:
        skip(f"libgpuipc.so cannot be loaded: {error}")
    return owner(device, mode)


if __name__ == "__main__":
    sys.exit(main())
