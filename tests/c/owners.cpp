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
static_assert(move_only<gpuipcxx::reservation>() && move_only<gpuipcxx::registered>());
static_assert(std::is_base_of_v<std::system_error, gpuipcxx::error>);

static constexpr std::size_t size = 1 << 20;
static constexpr std::size_t granularity = 2 << 20;

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

// Memory of several allocations, of another process: every wrapper that an import has.
static void importer_of_segments(int from) {
    std::vector<std::uint8_t> bytes(2 * GPUIPC_HANDLE_BYTES), form(128 + 72 + bytes.size());
    CHECK(read(from, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    CHECK(read(from, form.data(), form.size()) == static_cast<ssize_t>(form.size()));
    const gpuipcxx::ipc ipc;
    gpuipcxx::uuid uuid;
    std::memcpy(uuid.data(), bytes.data() + offsetof(gpuipc_mem_handle, device_uuid), uuid.size());

    gpuipcxx::import_options options;
    options.device = uuid;
    options.access_devices = {0, uuid};
    const gpuipcxx::feasibility feasibility = ipc.can_import(bytes, options);
    CHECK(feasibility.is_importable && !feasibility.is_own && feasibility.problem == GPUIPC_OK && feasibility.problem_text.empty());
    CHECK(feasibility.types.size() == 1 && feasibility.types[0].feasible == GPUIPC_FEASIBLE_YES);
    CHECK(ipc.can_import(bytes.data(), GPUIPC_HANDLE_BYTES).problem == GPUIPC_NOT_ONE_RANGE);

    gpuipcxx::reservation place = ipc.reserve(4 * granularity);
    const std::uint64_t base = place.base();
    CHECK(place && place.size() == 4 * granularity && base != 0);
    options.place = &place;
    options.place_offset = granularity;
    gpuipcxx::mem mem = ipc.import_memory(bytes, options);
    place.reset();
    CHECK(mem.ptr() == base + granularity && mem.size() == 2 * granularity);
    char text[16] = "";
    mem.read(granularity - 4, text, 9);
    CHECK(std::strcmp(text, "from C++") == 0);
    place = mem.unmap();
    CHECK(!mem && place && place.base() == base);
    CHECK(ipc.reservation_of_caller(base, place.size()).base() == base);
    options.place_offset = 0;
    mem = ipc.import_memory(bytes, options);
    CHECK(mem.ptr() == base);

    const gpuipcxx::registered peer = ipc.deserialize(form);
    CHECK(peer && peer.data() && peer.size() == 2 * granularity && peer.bytes() == form);
    CHECK(peer.handles() == bytes && peer.gpu_error().status == GPUIPC_OK);
    CHECK(peer.gpu_error_text().empty() && peer.gpu_error_attempts().empty());
    CHECK(gpuipcxx::detail::get(gpuipc_mem_ptr, peer.mapping()) == *peer.data());
    CHECK(peer.transports().size() == 1 && peer.transports()[0].kind == 7);
    CHECK(peer.transports()[0].len == 4 && std::memcmp(peer.transports()[0].bytes, "rkey", 4) == 0);
    CHECK(peer.owner().pid == static_cast<std::uint32_t>(getppid()));
    gpuipcxx::import_options no_way;
    no_way.types = {gpuipcxx::type::runtime_ipc};
    const gpuipcxx::registered far = ipc.deserialize(form, no_way);
    CHECK(!far.data() && far.mapping() == nullptr && far.original_ptr() != 0);
    CHECK(far.gpu_error().status == GPUIPC_NO_TYPE_WORKED && !far.gpu_error_text().empty());
    CHECK(far.gpu_error_attempts().size() == 1);
    ipc.close_idle_connections();
    CHECK(write(from, "d", 1) == 1);
}

static void segments(const gpuipcxx::ipc &ipc, int to) {
    const gpuipcxx::buffer buffer = ipc.allocate(0, gpuipcxx::memory::segments, 2 * granularity);
    buffer.write(granularity - 4, "from C++", 9);
    gpuipcxx::export_options options;
    options.fd_on_demand = true;
    const gpuipcxx::registered registered =
        ipc.register_memory(buffer.ptr(), buffer.size(), {gpuipcxx::make_transport(7, "rkey", 4)}, options);
    CHECK(registered.data() == buffer.ptr() && registered.mapping() == nullptr);
    const std::vector<std::uint8_t> handles = registered.handles(), bytes = registered.bytes();
    CHECK(handles.size() == 2 * GPUIPC_HANDLE_BYTES);
    CHECK(write(to, handles.data(), handles.size()) == static_cast<ssize_t>(handles.size()));
    CHECK(write(to, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    CHECK(ipc.can_import(handles).is_own && ipc.import_memory(handles).ptr() == buffer.ptr());
    CHECK(thrown([&] { ipc.register_memory(buffer.ptr(), 1, {gpuipcxx::make_transport(1, "", 65)}); }).status() ==
          GPUIPC_INVALID_ARGUMENT);
    char done;
    CHECK(read(to, &done, 1) == 1);
    for (const gpuipcxx::memory kind : {gpuipcxx::memory::pool, gpuipcxx::memory::host_numa}) {
        const gpuipcxx::buffer other = ipc.allocate(0, kind, size);
        CHECK(ipc.export_memory(other.ptr(), size).handle_count() == 1);
    }
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

static void hear(void *lines, std::uint32_t, const char *, const char *) { ++*static_cast<int *>(lines); }

// What the C interface has beside objects' calls.
static void the_rest(const gpuipcxx::ipc &ipc) {
    const gpuipcxx::buffer buffer = ipc.allocate(0, gpuipcxx::memory::cuda_malloc, granularity);
    gpuipcxx::exported whole = ipc.export_memory(buffer.ptr() + 256, gpuipcxx::whole_allocation);
    const gpuipcxx::handle_bytes handle = whole.handle();
    const gpuipc_mem_handle said = gpuipcxx::handle_read(handle);
    CHECK(whole.size() == granularity - 256 && said.length == whole.size() && said.offset_from_base == 256);
    CHECK(thrown([&] { whole.handle(1); }).status() == GPUIPC_INVALID_ARGUMENT);
    CHECK(thrown([&] { gpuipcxx::handle_read(handle.data(), 5); }).status() == GPUIPC_HANDLE_LENGTH);
    CHECK(ipc.import_memory(handle).ptr() == buffer.ptr() + 256);
    whole.leave();
    CHECK(!whole && ipc.import_memory(handle).ptr() == buffer.ptr() + 256);
    CHECK(thrown([&] { whole.leave(); }).status() == GPUIPC_NULL_ARGUMENT);

    const gpuipcxx::registered alone = ipc.register_transports(4096, 1);
    const gpuipc_owner own = ipc.self(), of_it = alone.owner();
    CHECK(std::memcmp(&own, &of_it, sizeof own) == 0 && alone.transports().empty() && alone.data() == 4096);

    int lines = 0;
    gpuipcxx::log_set(hear, &lines, gpuipcxx::log_level::debug);
    CHECK(ipc.export_memory(buffer.ptr(), 1));
    gpuipcxx::log_set(nullptr, nullptr, gpuipcxx::log_level::off);
    CHECK(lines > 0);
}

int main() {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        importer(ends[1]);
        importer_of_segments(ends[1]);
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
    gpuipcxx::exported exported = ipc.export_memory(buffer.ptr(), buffer.size());
    CHECK(exported.handle_count() == 1 && exported.attempts().empty());
    const std::vector<std::uint8_t> bytes = exported.bytes();
    CHECK(bytes.size() == GPUIPC_HANDLE_BYTES);
    CHECK(write(ends[0], bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    char done, text[16] = "";
    CHECK(read(ends[0], &done, 1) == 1);
    buffer.read(4096, text, sizeof text);
    CHECK(std::strcmp(text, "and back") == 0);
    segments(ipc, ends[0]);
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    errors(ipc, bytes, buffer.ptr());
    the_rest(ipc);
    std::thread([moved = std::move(exported)]() mutable { moved.reset(); }).join();
    CHECK(thrown([&] { ipc.import_memory(bytes); }).status() == GPUIPC_EXPORT_REVOKED);
    std::puts("owned");
    return 0;
}
