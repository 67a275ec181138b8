"""A Python exporter with a log callback ends while peers import: never by a signal."""

import subprocess
import sys

EXPORTER = """
import gpuipc, logging, threading
enough = threading.Event()
lines = []

def tell(level, target, text):
    logging.getLogger(target).debug(text)
    lines.append(text)
    if len(lines) > 200:
        enough.set()

gpuipc.set_log(tell, gpuipc.LogLevel.TRACE)
ipc = gpuipc.Ipc()
buffer = ipc.allocate(1 << 20, gpuipc.Memory.CUDA_MALLOC)
exported = ipc.export(buffer.ptr, 1 << 20)
print(exported.handles.hex(), flush=True)
assert enough.wait(60)
"""

IMPORTER = """
import gpuipc, sys
handle = bytes.fromhex(sys.argv[1])
ipc = gpuipc.Ipc()
try:
    while True:
        ipc.import_(handle, require_live=True).close()
except gpuipc.Error:
    pass
"""


def python(code, *arguments, **options):
    return subprocess.Popen([sys.executable, "-B", "-c", code, *arguments], **options)


for _turn in range(4):
    exporter = python(EXPORTER, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    handle = exporter.stdout.readline().strip()
    importers = [python(IMPORTER, handle) for _ in range(2)]
    _out, words = exporter.communicate(timeout=100)
    assert exporter.returncode == 0 and not words, (exporter.returncode, words)
    assert all(importer.wait(timeout=100) == 0 for importer in importers)
print("ended")
