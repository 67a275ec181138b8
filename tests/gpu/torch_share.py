#!/usr/bin/env python3
"""Two Python processes share PyTorch tensors through gpuipc.py and libgpuipc.so.

The owner's tensors come from PyTorch's default allocator. The importer views the
imported memory as a tensor (__cuda_array_interface__), compares it with what the
owner wrote, writes its own values, and the owner compares those. One tensor
fills its allocation; others start inside a larger one.

    GPUIPC_LIBRARY=path/to/libgpuipc.so python3 torch_share.py [IMPORTER_DEVICE]

Exit 0 and a last line "ok" if all were equal both ways. Without a GPU, PyTorch or
the library it prints SKIP and the reason, and exits 0.
"""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "ffi", "python"))
import gpuipc  # noqa: E402


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
            with ipc.import_(bytes.fromhex(task["handle"])) as mem:
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


def owner(device):
    import torch

    torch.cuda.set_device(0)
    ipc = gpuipc.Ipc()
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
        offer = ipc.export(tensor.data_ptr(), count * 8)
        handle = offer.handles
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
        offer.close()
        print(f"{name}: {count * 8} bytes at +{offset} of an allocation of {base_size}, by {answer['used']}, "
              f"importer saw the owner's values: {answer['equal']}, owner saw the importer's: {back}")
        good = good and answer["equal"] and back
    child.stdin.close()
    good = child.wait(60) == 0 and good
    ipc.close()
    print("ok" if good else "FAILED")
    return 0 if good else 1


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
    if device >= torch.cuda.device_count():
        skip(f"there is no GPU {device}")
    try:
        gpuipc.version()
    except OSError as error:
        skip(f"libgpuipc.so cannot be loaded: {error}")
    return owner(device)


if __name__ == "__main__":
    sys.exit(main())
