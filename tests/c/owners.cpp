// gpuipc.hpp: two processes share memory; owners move and give back; errors are
// exceptions or codes.
#include "gpuipc.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <type_traits>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);           \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

template <class Owner> constexpr bool move_only() {
    return !std::is_copy_constructible_v<Owner> && !std::is_copy_assignable_v<Owner> &&
           std::is_nothrow_move_constructible_v<Owner> && std::is_nothrow_move_assignable_v<Owner>;
}
static_assert(move_only<gpuipcxx::ipc>() && move_only<gpuipcxx::exported>() && move_only<gpuipcxx::mem>());
static_assert(move_only<gpuipcxx::buffer>() && move_only<gpuipcxx::cancel>());
static_assert(std::is_base_of_v<std::system_error, gpuipcxx::error>);

static constexpr std::size_t size = 1 << 20;

template <class Call> gpuipcxx::error thrown(Call call) {
    try {
        call();
    } catch (const gpuipcxx::error &error) {
        return error;
    }
    std::fprintf(stderr, "nothing was thrown\n");
    std::exit(1);
}

static void importer(int from) {
    std::vector<std::uint8_t> bytes(GPUIPC_HANDLE_BYTES);
    CHECK(read(from, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    gpuipcxx::mem mem;
    CHECK(!mem);
    {
        gpuipcxx::ipc ipc;
        gpuipcxx::import_options options;
        options.types = {gpuipcxx::type::posix_fd};
        options.require_live = true;
        options.timeout = std::chrono::seconds(10);
        options.device = 0;
        mem = ipc.import_memory(bytes, options);
    }
    gpuipcxx::mem moved = std::move(mem);
    CHECK(moved && !mem);
    CHECK(moved.size() == size && moved.ptr() != 0 && moved.device() == 0);
    CHECK(moved.type_used() == gpuipcxx::type::posix_fd);
    CHECK(moved.liveness() == gpuipcxx::liveness::referenced && moved.attempts().empty());
    char text[16] = "";
    moved.read(4096, text, sizeof text);
    CHECK(std::strcmp(text, "from C++") == 0);
    moved.write(4096, "and back", 9);
    CHECK(thrown([&] { mem.ptr(); }).status() == GPUIPC_NULL_ARGUMENT);
    moved.reset();
    CHECK(!moved && write(from, "d", 1) == 1);
}

static void errors(const gpuipcxx::ipc &ipc, const std::vector<std::uint8_t> &bytes, std::uint64_t ptr) {
    const gpuipcxx::error no_handle = thrown([&] { ipc.import_memory(std::vector<std::uint8_t>()); });
    CHECK(no_handle.status() == GPUIPC_NULL_ARGUMENT || no_handle.status() == GPUIPC_HANDLE_LENGTH);
    std::error_code code;
    gpuipcxx::mem mem = ipc.import_memory(bytes.data(), 5, {}, code);
    CHECK(!mem && code == gpuipcxx::make_code(GPUIPC_HANDLE_LENGTH));
    CHECK(std::strcmp(code.category().name(), "gpuipc") == 0 && !code.message().empty());
    mem = ipc.import_memory(bytes.data(), bytes.size(), {}, code);
    CHECK(mem && !code && mem.ptr() == ptr && mem.type_used() == gpuipcxx::type::same_process);

    gpuipcxx::export_options options;
    options.types = {gpuipcxx::type::fabric};
    const gpuipcxx::error not_exportable = thrown([&] { ipc.export_memory(ptr, size, options); });
    CHECK(not_exportable.numbers().memory_kind == GPUIPC_KIND_VMM);
    CHECK(std::strstr(not_exportable.what(), "cannot be shared") != nullptr);
    const gpuipcxx::error bad_type = thrown([&] {
        options.types.assign(9, gpuipcxx::type::fabric);
        ipc.export_memory(ptr, size, options);
    });
    CHECK(bad_type.status() == GPUIPC_INVALID_ARGUMENT);
    const gpuipcxx::exported none = ipc.export_memory(0, 1, {}, code);
    CHECK(!none && code == gpuipcxx::make_code(GPUIPC_NOT_EXPORTABLE));

    gpuipcxx::open_options nobody;
    nobody.trusted_uids = {7};
    const gpuipcxx::ipc closed(nobody, code);
    CHECK(!closed && code == gpuipcxx::make_code(GPUIPC_INVALID_ARGUMENT));

    gpuipcxx::cancel cancel;
    cancel.set();
    cancel.set(false);
    gpuipcxx::import_options cancellable;
    cancellable.cancel = &cancel;
    CHECK(ipc.import_memory(bytes, cancellable).ptr() == ptr);
}

int main() {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        importer(ends[1]);
        return 0;
    }
    close(ends[1]);

    gpuipcxx::open_options options;
    options.trust = gpuipcxx::trust::users;
    options.trusted_uids = {0};
    gpuipcxx::ipc ipc(options);
    gpuipcxx::buffer buffer = ipc.allocate(0, gpuipcxx::memory::vmm_fd, size);
    CHECK(buffer.size() == size);
    buffer.write(4096, "from C++", 9);
    gpuipcxx::exported offer = ipc.export_memory(buffer.ptr(), buffer.size());
    CHECK(offer.handle_count() == 1 && offer.attempts().empty());
    const std::vector<std::uint8_t> bytes = offer.bytes();
    CHECK(bytes.size() == GPUIPC_HANDLE_BYTES);
    CHECK(write(ends[0], bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    char done, text[16] = "";
    CHECK(read(ends[0], &done, 1) == 1);
    buffer.read(4096, text, sizeof text);
    CHECK(std::strcmp(text, "and back") == 0);
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    errors(ipc, bytes, buffer.ptr());
    std::thread([moved = std::move(offer)]() mutable { moved.reset(); }).join();
    CHECK(thrown([&] { ipc.import_memory(bytes); }).status() == GPUIPC_OFFER_WITHDRAWN);
    std::puts("owned");
    return 0;
}
