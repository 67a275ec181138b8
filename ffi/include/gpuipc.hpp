// gpuipc for C++17: owners that give back what they hold, over the C interface of
// gpuipc.h, which has the full description of every call. The namespace is
// gpuipcxx, since gpuipc is a type of C.
//
//     gpuipcxx::ipc ipc;                                     // in the exporter
//     gpuipcxx::exported exported = ipc.export_memory(ptr, len);
//     std::vector<std::uint8_t> bytes = exported.bytes();     // send them by any means
//
//     gpuipcxx::mem mem = ipc.import_memory(bytes);          // in the importer
//     use(mem.ptr(), mem.size());                          // unmapped at the end
//
// Owners are move-only; an empty one (default-made, or moved from) may be destroyed
// and assigned to, and is false. Every call that can fail throws gpuipcxx::error, or,
// given a std::error_code as its last argument, sets that one and gives an empty
// result. std::bad_alloc aside, nothing else is thrown. Threads, forks and
// lifetimes are as gpuipc.h says.
#ifndef GPUIPC_HPP
#define GPUIPC_HPP

#include "gpuipc.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

// Hidden: of several shared libraries in one process that have this in them, each uses its own.
namespace __attribute__((visibility("hidden"))) gpuipcxx {

enum class type : std::uint8_t {
    same_process = GPUIPC_TYPE_SAME_PROCESS,
    runtime_ipc = GPUIPC_TYPE_RUNTIME_IPC,
    posix_fd = GPUIPC_TYPE_POSIX_FD,
    fabric = GPUIPC_TYPE_FABRIC,
};
enum class access : std::uint32_t {
    read_write = GPUIPC_ACCESS_READ_WRITE,
    read_only = GPUIPC_ACCESS_READ_ONLY,
};
enum class liveness : std::uint32_t {
    unknown = GPUIPC_LIVENESS_UNKNOWN,
    memory_unchanged = GPUIPC_LIVENESS_MEMORY_UNCHANGED,
    referenced = GPUIPC_LIVENESS_REFERENCED,
    export_lives = GPUIPC_LIVENESS_EXPORT_LIVES,
};
enum class trust : std::uint32_t {
    from_environment = GPUIPC_TRUST_DEFAULT,
    same_user = GPUIPC_TRUST_SAME_USER,
    users = GPUIPC_TRUST_USERS,
    token_alone = GPUIPC_TRUST_TOKEN_ALONE,
};
enum class memory : std::uint32_t {
    cuda_malloc = GPUIPC_MEMORY_CUDA_MALLOC,
    vmm_fd = GPUIPC_MEMORY_VMM_FD,
    vmm_fabric = GPUIPC_MEMORY_VMM_FABRIC,
    segments = GPUIPC_MEMORY_SEGMENTS,
    pool = GPUIPC_MEMORY_POOL,
    host_numa = GPUIPC_MEMORY_HOST_NUMA,
};
enum class feasible : std::uint32_t {
    other = GPUIPC_FEASIBLE_OTHER,
    yes = GPUIPC_FEASIBLE_YES,
    unknown = GPUIPC_FEASIBLE_UNKNOWN,
    no = GPUIPC_FEASIBLE_NO,
};
enum class log_level : std::uint32_t {
    off = GPUIPC_LOG_OFF,
    error = GPUIPC_LOG_ERROR,
    warn = GPUIPC_LOG_WARN,
    info = GPUIPC_LOG_INFO,
    debug = GPUIPC_LOG_DEBUG,
    trace = GPUIPC_LOG_TRACE,
};
// A GPU's UUID, the same in all processes.
using uuid = std::array<std::uint8_t, 16>;
// The bytes of one handle.
using handle_bytes = std::array<std::uint8_t, GPUIPC_HANDLE_BYTES>;
// As a length: to the end of the allocation, by one handle.
inline constexpr std::size_t whole_allocation = GPUIPC_WHOLE_ALLOCATION;

// The category of GPUIPC_... statuses.
inline const std::error_category &category() noexcept {
    struct statuses final : std::error_category {
        const char *name() const noexcept override { return "gpuipc"; }
        std::string message(int value) const override {
            return gpuipc_status_text(static_cast<gpuipc_status>(value));
        }
    };
    static const statuses instance;
    return instance;
}

inline std::error_code make_code(gpuipc_status status) noexcept {
    return {static_cast<int>(status), category()};
}

// What this thread's last call said, in full; empty after success.
inline std::string last_error() {
    std::size_t needed = 0;
    if (gpuipc_last_error(nullptr, 0, &needed) != GPUIPC_OK || needed == 0) {
        return {};
    }
    std::string text(needed, '\0');
    gpuipc_last_error(text.data(), needed, nullptr);
    text.resize(needed - 1);
    return text;
}

// What was tried in this thread's last call, and how each failed.
inline std::vector<gpuipc_attempt> last_error_attempts() {
    std::size_t count = 0;
    gpuipc_last_error_attempts(nullptr, 0, &count);
    std::vector<gpuipc_attempt> attempts(count);
    if (count > 0) {
        gpuipc_last_error_attempts(attempts.data(), count, nullptr);
    }
    return attempts;
}

// what() is the text in full; code() compares with make_code(GPUIPC_...).
class error : public std::system_error {
  public:
    explicit error(gpuipc_status status)
        : std::system_error(make_code(status)), text_(last_error()), attempts_(last_error_attempts()) {
        gpuipc_last_error_read(&numbers_);
    }
    const char *what() const noexcept override { return text_.c_str(); }
    gpuipc_status status() const noexcept { return static_cast<gpuipc_status>(code().value()); }
    const std::vector<gpuipc_attempt> &attempts() const noexcept { return attempts_; }
    // The kind of memory, and the code of the driver or the kernel.
    const gpuipc_error &numbers() const noexcept { return numbers_; }

  private:
    std::string text_;
    std::vector<gpuipc_attempt> attempts_;
    gpuipc_error numbers_{};
};

namespace detail {

inline void check(gpuipc_status status) {
    if (status != GPUIPC_OK) {
        throw error(status);
    }
}

inline bool check(gpuipc_status status, std::error_code &code) noexcept {
    code = status == GPUIPC_OK ? std::error_code() : make_code(status);
    return status == GPUIPC_OK;
}

template <auto Free> struct deleter {
    template <class T> void operator()(T *object) const noexcept { Free(object); }
};
template <class T, auto Free> using owner = std::unique_ptr<T, deleter<Free>>;

// What a getter of C writes.
template <class T, class Object>
T get(gpuipc_status (*getter)(const Object *, T *), const Object *object) {
    T value{};
    check(getter(object, &value));
    return value;
}

// What an array function of C writes.
template <class T, class Object>
std::vector<T> array(gpuipc_status (*list)(const Object *, T *, std::size_t, std::size_t *), const Object *object) {
    std::size_t count = 0;
    check(list(object, nullptr, 0, &count));
    std::vector<T> all(count);
    if (count > 0) {
        check(list(object, all.data(), count, nullptr));
    }
    return all;
}

// What a text function of C writes.
template <class Object>
std::string text(gpuipc_status (*put)(const Object *, char *, std::size_t, std::size_t *), const Object *object) {
    std::size_t needed = 0;
    check(put(object, nullptr, 0, &needed));
    std::string text(needed, '\0');
    check(put(object, text.data(), needed, nullptr));
    text.resize(needed - 1);
    return text;
}

// The types for a struct of C; more than it has room for are refused by the library.
inline void put_types(const std::vector<type> &types, std::uint8_t &count, std::uint8_t (&places)[7]) noexcept {
    count = types.size() < 8 ? static_cast<std::uint8_t>(types.size()) : std::uint8_t{8};
    for (std::size_t i = 0; i < types.size() && i < 7; i++) {
        places[i] = static_cast<std::uint8_t>(types[i]);
    }
}

} // namespace detail

// How the library is opened: what goes before the environment.
struct open_options {
    std::string socket_dir; // empty: GPUIPC_SOCKET_DIR
    gpuipcxx::trust trust = gpuipcxx::trust::from_environment;
    std::vector<std::uint32_t> trusted_uids; // with trust::users
    bool keepalive_descriptor = false; // exports cost what they cost beside others: see gpuipc.h
};

struct export_options {
    std::vector<type> types;   // empty: all that the memory allows
    bool fd_on_demand = false; // no descriptor before an importer asks for one
};

namespace detail {

inline gpuipc_export_options as_c(const export_options &options) noexcept {
    gpuipc_export_options c;
    gpuipc_export_options_init(&c, sizeof c);
    put_types(options.types, c.type_count, c.types);
    c.fd_on_demand = options.fd_on_demand ? 1 : 0;
    return c;
}

} // namespace detail

// Ends other threads' imports.
class cancel {
  public:
    cancel() {
        gpuipc_cancel *made = nullptr;
        detail::check(gpuipc_cancel_new(&made));
        object_.reset(made);
    }
    void set(bool cancelled = true) noexcept { gpuipc_cancel_set(object_.get(), cancelled ? 1 : 0); }
    const gpuipc_cancel *get() const noexcept { return object_.get(); }

  private:
    detail::owner<gpuipc_cancel, gpuipc_cancel_free> object_;
};

// Address space for imports; what is mapped in it keeps it. Made by ipc::reserve and
// mem::unmap.
class reservation {
  public:
    reservation() noexcept = default;
    explicit reservation(gpuipc_reservation *object) noexcept : object_(object) {}
    explicit operator bool() const noexcept { return object_ != nullptr; }
    const gpuipc_reservation *get() const noexcept { return object_.get(); }
    void reset() noexcept { object_.reset(); }

    std::uint64_t base() const { return detail::get(gpuipc_reservation_base, get()); }
    std::size_t size() const { return detail::get(gpuipc_reservation_size, get()); }

  private:
    detail::owner<gpuipc_reservation, gpuipc_reservation_free> object_;
};

// A GPU, by this process's ordinal or by its UUID.
using device_id = std::variant<int, uuid>;

struct import_options {
    std::optional<device_id> device;     // none: the current context's
    std::vector<device_id> access_devices; // others that get access
    bool host_access = false;            // the CPU, too, to host memory
    const reservation *place = nullptr;  // where to map; none: a new address
    std::size_t place_offset = 0;        // bytes from its base
    gpuipcxx::access access = gpuipcxx::access::read_write;
    bool require_live = false;
    std::chrono::milliseconds timeout{0}; // 0: GPUIPC_TIMEOUT_MS, else five seconds
    std::vector<type> types;              // empty: GPUIPC_TYPES, else all
    const gpuipcxx::cancel *cancel = nullptr;
};

namespace detail {

inline gpuipc_device as_c(const device_id &device) noexcept {
    gpuipc_device c{};
    if (const uuid *by_uuid = std::get_if<uuid>(&device)) {
        c.ordinal = -1;
        std::memcpy(c.uuid, by_uuid->data(), by_uuid->size());
    } else {
        c.ordinal = *std::get_if<int>(&device);
    }
    return c;
}

// C's options, with what they point to.
class c_import_options {
  public:
    explicit c_import_options(const import_options &options) {
        gpuipc_import_options_init(&c_, sizeof c_);
        if (options.device) {
            const gpuipc_device device = as_c(*options.device);
            c_.device = device.ordinal;
            std::memcpy(c_.device_uuid, device.uuid, sizeof device.uuid);
        }
        for (const device_id &device : options.access_devices) {
            more_.push_back(as_c(device));
        }
        c_.access_devices = more_.data();
        c_.access_device_count = static_cast<std::uint32_t>(more_.size());
        c_.host_access = options.host_access ? 1 : 0;
        c_.place = options.place != nullptr ? options.place->get() : nullptr;
        c_.place_offset = options.place_offset;
        c_.access = static_cast<std::uint32_t>(options.access);
        c_.require_live = options.require_live ? 1 : 0;
        // C's 0 is the default, so no less than 1 ms can be asked for.
        const auto ms = options.timeout.count();
        c_.timeout_ms = ms > UINT32_MAX ? UINT32_MAX : ms < 0 ? 1 : static_cast<std::uint32_t>(ms);
        put_types(options.types, c_.type_count, c_.types);
        c_.cancel = options.cancel != nullptr ? options.cancel->get() : nullptr;
    }
    c_import_options(const c_import_options &) = delete;
    c_import_options &operator=(const c_import_options &) = delete;
    const gpuipc_import_options *get() const noexcept { return &c_; }

  private:
    std::vector<gpuipc_device> more_;
    gpuipc_import_options c_;
};

} // namespace detail

// Exported memory; its end revokes the export.
class exported {
  public:
    exported() noexcept = default;
    explicit exported(gpuipc_exported *object) noexcept : object_(object) {}
    explicit operator bool() const noexcept { return object_ != nullptr; }
    const gpuipc_exported *get() const noexcept { return object_.get(); }
    void reset() noexcept { object_.reset(); }

    // All handles, one after the other: what the importer needs.
    std::vector<std::uint8_t> bytes() const {
        return detail::array(gpuipc_exported_bytes, get());
    }
    std::size_t handle_count() const { return detail::get(gpuipc_exported_handle_count, get()); }
    // One of them, without an allocation.
    handle_bytes handle(std::size_t index = 0) const {
        handle_bytes bytes;
        detail::check(gpuipc_exported_handle_bytes(get(), index, bytes.data(), bytes.size()));
        return bytes;
    }
    // Bytes that are shared.
    std::size_t size() const { return detail::get(gpuipc_exported_len, get()); }
    // Lets the export live without this object: see gpuipc_exported_leave.
    void leave() { detail::check(gpuipc_exported_leave(object_.release())); }
    std::vector<gpuipc_attempt> attempts() const { return detail::array(gpuipc_exported_attempt_list, get()); }

  private:
    detail::owner<gpuipc_exported, gpuipc_exported_free> object_;
};

// Another process's memory, mapped here; its end unmaps.
class mem {
  public:
    mem() noexcept = default;
    explicit mem(gpuipc_mem *object) noexcept : object_(object) {}
    explicit operator bool() const noexcept { return object_ != nullptr; }
    const gpuipc_mem *get() const noexcept { return object_.get(); }
    void reset() noexcept { object_.reset(); }
    // Unmaps, and gives the addresses for another import's place; an empty one where
    // there are none to give.
    reservation unmap() {
        gpuipc_reservation *made = nullptr;
        detail::check(gpuipc_mem_unmap(object_.release(), &made));
        return reservation(made);
    }

    std::uint64_t ptr() const { return detail::get(gpuipc_mem_ptr, get()); }
    std::size_t size() const { return detail::get(gpuipc_mem_len, get()); }
    int device() const { return detail::get(gpuipc_mem_device, get()); }
    type type_used() const { return static_cast<type>(detail::get(gpuipc_mem_type_used, get())); }
    gpuipcxx::liveness liveness() const {
        return static_cast<gpuipcxx::liveness>(detail::get(gpuipc_mem_liveness, get()));
    }
    std::vector<gpuipc_attempt> attempts() const { return detail::array(gpuipc_mem_attempt_list, get()); }
    void read(std::size_t offset, void *to, std::size_t len) const {
        detail::check(gpuipc_mem_read(get(), offset, static_cast<std::uint8_t *>(to), len));
    }
    void write(std::size_t offset, const void *from, std::size_t len) const {
        detail::check(gpuipc_mem_write(get(), offset, static_cast<const std::uint8_t *>(from), len));
    }

  private:
    detail::owner<gpuipc_mem, gpuipc_mem_free> object_;
};

// GPU memory of this process that can be shared, for programs without an allocator.
class buffer {
  public:
    buffer() noexcept = default;
    explicit buffer(gpuipc_buffer *object) noexcept : object_(object) {}
    explicit operator bool() const noexcept { return object_ != nullptr; }
    const gpuipc_buffer *get() const noexcept { return object_.get(); }
    void reset() noexcept { object_.reset(); }

    std::uint64_t ptr() const { return detail::get(gpuipc_buffer_ptr, get()); }
    std::size_t size() const { return detail::get(gpuipc_buffer_len, get()); }
    void read(std::size_t offset, void *to, std::size_t len) const {
        detail::check(gpuipc_buffer_read(get(), offset, static_cast<std::uint8_t *>(to), len));
    }
    void write(std::size_t offset, const void *from, std::size_t len) const {
        detail::check(gpuipc_buffer_write(get(), offset, static_cast<const std::uint8_t *>(from), len));
    }

  private:
    detail::owner<gpuipc_buffer, gpuipc_buffer_free> object_;
};

// What is to be expected of an import.
struct feasibility {
    bool is_importable = false;              // an import is worth trying
    bool is_own = false;                     // this process's own memory
    std::vector<gpuipc_type_feasibility> types;  // in the order in which they would be tried
    gpuipc_status problem = GPUIPC_OK;       // what no type could help
    std::string problem_text;
};

// A buffer with every way to reach it: registered here, or described by another process. Its
// end revokes the export, or unmaps.
class registered {
  public:
    registered() noexcept = default;
    explicit registered(gpuipc_registered *object) noexcept : object_(object) {}
    explicit operator bool() const noexcept { return object_ != nullptr; }
    const gpuipc_registered *get() const noexcept { return object_.get(); }
    void reset() noexcept { object_.reset(); }

    // The bytes for importers.
    std::vector<std::uint8_t> bytes() const { return detail::array(gpuipc_registered_bytes, get()); }
    std::vector<std::uint8_t> handles() const { return detail::array(gpuipc_registered_handles, get()); }
    // The address here; none where only a transport leads to the memory.
    std::optional<std::uint64_t> data() const {
        const std::uint64_t data = detail::get(gpuipc_registered_data, get());
        return data != 0 ? std::optional<std::uint64_t>(data) : std::nullopt;
    }
    std::uint64_t size() const { return detail::get(gpuipc_registered_len, get()); }
    std::uint64_t original_ptr() const { return detail::get(gpuipc_registered_original_ptr, get()); }
    gpuipc_owner owner() const { return detail::get(gpuipc_registered_owner, get()); }
    std::vector<gpuipc_transport> transports() const { return detail::array(gpuipc_registered_transports, get()); }
    // For gpuipc_mem_type_used and its like, as long as this lives; NULL in the owner.
    const gpuipc_mem *mapping() const { return detail::get(gpuipc_registered_mapping, get()); }
    // Why there is no way by the GPU; its status is GPUIPC_OK if nothing failed.
    gpuipc_error gpu_error() const { return detail::get(gpuipc_registered_gpu_error, get()); }
    std::string gpu_error_text() const { return detail::text(gpuipc_registered_gpu_error_text, get()); }
    std::vector<gpuipc_attempt> gpu_error_attempts() const {
        return detail::array(gpuipc_registered_gpu_error_attempts, get());
    }

  private:
    detail::owner<gpuipc_registered, gpuipc_registered_free> object_;
};

// A transport of a registered memory; more bytes than there is room for are refused by
// the library.
inline gpuipc_transport make_transport(std::uint32_t kind, const void *bytes, std::size_t len) noexcept {
    gpuipc_transport made{};
    made.kind = kind;
    made.len = len < UINT32_MAX ? static_cast<std::uint32_t>(len) : UINT32_MAX;
    if (len > 0) {
        std::memcpy(made.bytes, bytes, len <= sizeof made.bytes ? len : 0);
    }
    return made;
}

// What a handle says; checked first.
inline gpuipc_mem_handle handle_read(const std::uint8_t *handle, std::size_t len) {
    gpuipc_mem_handle said{};
    detail::check(gpuipc_handle_read(handle, len, &said));
    return said;
}
inline gpuipc_mem_handle handle_read(const handle_bytes &handle) { return handle_read(handle.data(), handle.size()); }

// Gives log lines to `callback`, a function of gpuipc_log_callback's form that must not throw;
// nullptr ends that. For all users of this copy of the library.
inline void log_set(gpuipc_log_callback callback, void *user, log_level level) {
    detail::check(gpuipc_log_set(callback, user, static_cast<std::uint32_t>(level)));
}

// The library, opened.
class ipc {
  public:
    explicit ipc(const open_options &options = {}) { detail::check(open(options)); }
    ipc(const open_options &options, std::error_code &code) { detail::check(open(options), code); }
    explicit operator bool() const noexcept { return object_ != nullptr; }
    const ::gpuipc *get() const noexcept { return object_.get(); }

    exported export_memory(std::uint64_t ptr, std::size_t len, const export_options &options = {}) const {
        gpuipc_exported *made = nullptr;
        detail::check(do_export(ptr, len, options, &made));
        return exported(made);
    }
    exported export_memory(std::uint64_t ptr, std::size_t len, const export_options &options,
                           std::error_code &code) const noexcept {
        gpuipc_exported *made = nullptr;
        detail::check(do_export(ptr, len, options, &made), code);
        return exported(made);
    }
    mem import_memory(const std::uint8_t *handles, std::size_t len, const import_options &options = {}) const {
        gpuipc_mem *made = nullptr;
        detail::check(do_import(handles, len, options, &made));
        return mem(made);
    }
    mem import_memory(const std::uint8_t *handles, std::size_t len, const import_options &options,
                      std::error_code &code) const {
        gpuipc_mem *made = nullptr;
        detail::check(do_import(handles, len, options, &made), code);
        return mem(made);
    }
    mem import_memory(const std::vector<std::uint8_t> &handles, const import_options &options = {}) const {
        return import_memory(handles.data(), handles.size(), options);
    }
    mem import_memory(const handle_bytes &handle, const import_options &options = {}) const {
        return import_memory(handle.data(), handle.size(), options);
    }
    // Whether an import would work, by type and with reasons. Maps nothing.
    feasibility can_import(const std::uint8_t *handles, std::size_t len, const import_options &options = {}) const {
        const detail::c_import_options c(options);
        gpuipc_feasibility *made = nullptr;
        detail::check(gpuipc_can_import(get(), handles, len, c.get(), &made));
        const detail::owner<gpuipc_feasibility, gpuipc_feasibility_free> object(made);
        feasibility said;
        said.is_importable = detail::get(gpuipc_feasibility_is_importable, made) == 1;
        said.is_own = detail::get(gpuipc_feasibility_is_own, made) == 1;
        said.types = detail::array(gpuipc_feasibility_types, made);
        said.problem = detail::get(gpuipc_feasibility_problem, made);
        said.problem_text = detail::text(gpuipc_feasibility_problem_text, made);
        return said;
    }
    feasibility can_import(const std::vector<std::uint8_t> &handles, const import_options &options = {}) const {
        return can_import(handles.data(), handles.size(), options);
    }
    // Address space, a multiple of the granularity, for import_options::place.
    reservation reserve(std::size_t size) const {
        gpuipc_reservation *made = nullptr;
        detail::check(gpuipc_reservation_new(get(), size, &made));
        return reservation(made);
    }
    // A whole reservation of the caller's, who frees it after all that uses it.
    reservation reservation_of_caller(std::uint64_t base, std::size_t size) const {
        gpuipc_reservation *made = nullptr;
        detail::check(gpuipc_reservation_of_caller(get(), base, size, &made));
        return reservation(made);
    }
    registered register_memory(std::uint64_t ptr, std::size_t len,
                               const std::vector<gpuipc_transport> &transports = {},
                               const export_options &options = {}) const {
        const gpuipc_export_options c = detail::as_c(options);
        gpuipc_registered *made = nullptr;
        detail::check(gpuipc_register(get(), ptr, len, transports.data(), transports.size(), &c, &made));
        return registered(made);
    }
    // For the transports alone; there may be none.
    registered register_transports(std::uint64_t ptr, std::size_t len,
                                   const std::vector<gpuipc_transport> &transports = {}) const {
        gpuipc_registered *made = nullptr;
        detail::check(gpuipc_register_transports(get(), ptr, len, transports.data(), transports.size(), &made));
        return registered(made);
    }
    // This process and its host, as gpuipcxx::registered::owner names them.
    gpuipc_owner self() const { return detail::get(gpuipc_self, get()); }
    registered deserialize(const std::vector<std::uint8_t> &bytes, const import_options &options = {}) const {
        const detail::c_import_options c(options);
        gpuipc_registered *made = nullptr;
        detail::check(gpuipc_deserialize(get(), bytes.data(), bytes.size(), c.get(), &made));
        return registered(made);
    }
    // Closes connections to other processes that are kept for the next import.
    void close_idle_connections() const { detail::check(gpuipc_close_idle_connections(get())); }
    buffer allocate(int device, gpuipcxx::memory memory, std::size_t len) const {
        gpuipc_buffer *made = nullptr;
        detail::check(gpuipc_buffer_new(get(), device, static_cast<std::uint32_t>(memory), len, &made));
        return buffer(made);
    }

  private:
    gpuipc_status open(const open_options &options) noexcept {
        gpuipc_open_options c;
        gpuipc_open_options_init(&c, sizeof c);
        c.socket_dir = options.socket_dir.empty() ? nullptr : options.socket_dir.c_str();
        c.trust = static_cast<std::uint32_t>(options.trust);
        c.trusted_uid_count = static_cast<std::uint32_t>(options.trusted_uids.size());
        c.trusted_uids = options.trusted_uids.data();
        c.keepalive_descriptor = options.keepalive_descriptor ? 1 : 0;
        ::gpuipc *made = nullptr;
        const gpuipc_status status = gpuipc_open_with(&c, &made);
        object_.reset(made);
        return status;
    }
    gpuipc_status do_export(std::uint64_t ptr, std::size_t len, const export_options &options,
                            gpuipc_exported **made) const noexcept {
        const gpuipc_export_options c = detail::as_c(options);
        return gpuipc_export_with(get(), ptr, len, &c, made);
    }
    gpuipc_status do_import(const std::uint8_t *handles, std::size_t len, const import_options &options,
                            gpuipc_mem **made) const {
        const detail::c_import_options c(options);
        return gpuipc_import(get(), handles, len, c.get(), made);
    }

    detail::owner<::gpuipc, gpuipc_close> object_;
};

} // namespace gpuipcxx

#endif
