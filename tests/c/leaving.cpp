// Callbacks that do not return: by pthread_exit, as Python's before 3.14 while it shuts down,
// and by an exception.
//
// usage: leaving exit|throw
#include "gpuipc.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);           \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

static std::atomic<bool> left{false};
static pthread_t main_thread;

static void leave_by_exit(void *, std::uint32_t, const char *, const char *) {
    if (!pthread_equal(pthread_self(), main_thread)) {
        left = true;
        pthread_exit(nullptr);
    }
}

static void leave_by_throw(void *, std::uint32_t, const char *, const char *) { throw 7; }

int main(int, char **arguments) {
    int ends[2], status;
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        gpuipcxx::handle_bytes handle;
        CHECK(read(ends[1], handle.data(), handle.size()) == static_cast<ssize_t>(handle.size()));
        gpuipcxx::import_options options;
        options.timeout = std::chrono::milliseconds(300);
        std::error_code code;
        gpuipcxx::ipc ipc;
        // Its broker is in the callback for ever.
        ipc.import_memory(handle.data(), handle.size(), options, code);
        return write(ends[1], "d", 1) == 1 ? 0 : 1;
    }
    close(ends[1]);
    main_thread = pthread_self();
    gpuipcxx::ipc ipc;
    gpuipcxx::buffer buffer = ipc.allocate(0, gpuipcxx::memory::cuda_malloc, 1 << 21);
    gpuipcxx::exported exported = ipc.export_memory(buffer.ptr(), buffer.size());
    const gpuipcxx::handle_bytes handle = exported.handle();
    if (std::strcmp(arguments[1], "throw") == 0) {
        const rlimit no_core{0, 0};
        CHECK(setrlimit(RLIMIT_CORE, &no_core) == 0);
        gpuipcxx::log_set(leave_by_throw, nullptr, gpuipcxx::log_level::trace);
        ipc.export_memory(buffer.ptr(), buffer.size());
        return 0;
    }
    gpuipcxx::log_set(leave_by_exit, nullptr, gpuipcxx::log_level::trace);
    CHECK(write(ends[0], handle.data(), handle.size()) == static_cast<ssize_t>(handle.size()));
    CHECK(read(ends[0], &byte, 1) == 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(left);
    // Not held by the thread that is in the callback.
    gpuipcxx::log_set(nullptr, nullptr, gpuipcxx::log_level::off);
    std::puts("left");
    return 0;
}
