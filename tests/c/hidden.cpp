// A shared library with gpuipc.hpp and libgpuipc.a in it, of which there are two in one
// process. NAME is its own name.
#include "gpuipc.hpp"

#include <cstdio>
#include <cstring>

#define JOINED(a, b) a##b
#define FUNCTION(name, end) JOINED(name, end)

// What an error of this library's own copy says. The text is its last error.
extern "C" std::size_t FUNCTION(NAME, _fails)(std::size_t length, char *text, std::size_t size) {
    const gpuipcxx::handle_bytes none{};
    try {
        gpuipcxx::handle_read(none.data(), length);
    } catch (const gpuipcxx::error &error) {
        std::snprintf(text, size, "%s", error.what());
        return error.status();
    }
    return 0;
}

// Objects that this copy made are given back by it.
extern "C" int FUNCTION(NAME, _shares)() {
    gpuipcxx::ipc ipc;
    gpuipcxx::buffer buffer = ipc.allocate(0, gpuipcxx::memory::cuda_malloc, 1 << 21);
    gpuipcxx::exported exported = ipc.export_memory(buffer.ptr(), gpuipcxx::whole_allocation);
    gpuipcxx::mem mem = ipc.import_memory(exported.handle());
    return mem.ptr() == buffer.ptr() && mem.size() == exported.size() ? 1 : 0;
}
