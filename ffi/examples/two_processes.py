#!/usr/bin/env python3
"""The same in Python: a worker started by "spawn" maps the parent's memory.

    PYTHONPATH=.../ffi/python GPUIPC_LIBRARY=.../libgpuipc.so python3 two_processes.py

On a GPU with PyTorch, `torch.as_tensor(mem.view("<f4"))` is the memory as a tensor.
"""

import multiprocessing

import gpuipc


def importer(channel):
    handles = channel.recv_bytes()
    with gpuipc.Ipc() as ipc, ipc.import_(handles, timeout=10) as mem:
        print(f"importer: {mem.read(0, 15)!r}, {mem.nbytes} bytes by {mem.type_used.name}", flush=True)
        interface = mem.view("<f4", (4, 8)).__cuda_array_interface__
        assert interface["data"] == (mem.ptr, False) and interface["shape"] == (4, 8)
        mem.write(b"hello, exporter")
    channel.send_bytes(b"done")


def main():
    # Not "fork": CUDA does not work in a forked child.
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    worker = context.Process(target=importer, args=(there,))
    worker.start()
    there.close()
    with gpuipc.Ipc() as ipc, ipc.allocate(1 << 20) as buffer:
        buffer.write(b"hello, importer")
        with ipc.export(buffer.ptr, buffer.nbytes) as exported:
            here.send_bytes(exported.handles)
            assert here.recv_bytes() == b"done"
        print(f"exporter: {buffer.read(0, 15)!r}")
        assert buffer.read(0, 15) == b"hello, exporter"
    worker.join()
    assert worker.exitcode == 0


if __name__ == "__main__":
    main()
