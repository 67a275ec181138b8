// The same in C++: owners give back by themselves, errors are exceptions.
//
//     c++ -std=c++17 two_processes.cpp $(pkg-config --cflags --libs gpuipc)
#include <gpuipc.hpp>

#include <iostream>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void need(bool condition, const char *what) {
    if (!condition) {
        throw std::runtime_error(what);
    }
}

static void importer(int channel) {
    std::vector<std::uint8_t> handle(GPUIPC_HANDLE_BYTES);
    need(read(channel, handle.data(), handle.size()) == static_cast<ssize_t>(handle.size()), "no handle came");
    gpuipcxx::import_options options;
    options.timeout = std::chrono::seconds(10);
    const gpuipcxx::mem mem = gpuipcxx::ipc().import_memory(handle, options);
    std::string text(15, '\0');
    mem.read(0, text.data(), text.size());
    std::cout << "importer: \"" << text << "\", " << mem.size() << " bytes" << std::endl;
    mem.write(0, "hello, exporter", 15);
    need(write(channel, "d", 1) == 1, "the exporter is gone");
}

static void exporter(int channel) {
    const gpuipcxx::ipc ipc;
    const gpuipcxx::buffer buffer = ipc.allocate(0, gpuipcxx::memory::cuda_malloc, 1 << 20);
    buffer.write(0, "hello, importer", 15);
    const gpuipcxx::exported exported = ipc.export_memory(buffer.ptr(), buffer.size());
    const std::vector<std::uint8_t> handle = exported.bytes();
    need(write(channel, handle.data(), handle.size()) == static_cast<ssize_t>(handle.size()), "the importer is gone");
    char done;
    need(read(channel, &done, 1) == 1, "the importer failed");
    std::string text(15, '\0');
    buffer.read(0, text.data(), text.size());
    std::cout << "exporter: \"" << text << "\"" << std::endl;
    need(text == "hello, exporter", "that is not the answer");
}

int main() try {
    int ends[2], status = 1;
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "no socket");
    // Before any use of CUDA: it does not work in a forked child.
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        importer(ends[1]);
        return 0;
    }
    close(ends[1]);
    exporter(ends[0]);
    need(waitpid(child, &status, 0) == child && status == 0, "the importer failed");
    return 0;
} catch (const std::exception &error) {
    // Of gpuipcxx::error, what() has every attempt.
    std::cerr << error.what() << std::endl;
    return 1;
}
