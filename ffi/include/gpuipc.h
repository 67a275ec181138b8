/*
 * gpuipc: share GPU memory between processes.
 *
 * Made by cbindgen from the sources of gpuipc-ffi, which are what to change.
 *
 * The exporter turns a device pointer into handles: plain bytes, sent by any
 * means. The importer turns the bytes into a device pointer of its own.
 *
 *     gpuipc *ipc;
 *     gpuipc_exported *exported;
 *     uint8_t bytes[GPUIPC_HANDLE_BYTES];
 *     if (gpuipc_open(&ipc) || gpuipc_export(ipc, ptr, len, &exported) ||
 *         gpuipc_exported_handle_bytes(exported, 0, bytes, sizeof bytes))
 *         ...                             // gpuipc_last_error says why
 *
 *     gpuipc_mem *mem;                    // in the other process
 *     uint64_t ptr;
 *     if (gpuipc_open(&ipc) || gpuipc_import(ipc, bytes, sizeof bytes, NULL, &mem) ||
 *         gpuipc_mem_ptr(mem, &ptr))
 *         ...
 *
 * gpuipc.hpp is the same for C++, gpuipc.py for Python.
 *
 * What holds for all functions:
 *
 * Who owns what. Objects (gpuipc, gpuipc_exported, gpuipc_mem, gpuipc_buffer,
 * gpuipc_cancel) are made by the library and given back, once, to gpuipc_close and
 * the gpuipc_..._free of their name, in any order. Buffers, arrays and structs are
 * the caller's; the library keeps no pointer to them. Strings that are returned
 * belong to the library for ever.
 *
 * Status. GPUIPC_OK is 0. Numbers keep their meaning for ever; a newer library
 * may return new ones. NULL where a pointer is needed is GPUIPC_NULL_ARGUMENT.
 * gpuipc_last_error has the cause in full, gpuipc_last_error_read and
 * gpuipc_last_error_attempts have it in numbers.
 *
 * Outputs are written only when the call returns GPUIPC_OK. Only text functions
 * and array functions do more, and gpuipc_..._read when the driver's copy fails.
 *
 * Text functions (gpuipc_exported_attempts, gpuipc_mem_attempts,
 * gpuipc_last_error) write UTF-8 with a NUL at its end into `buffer` of `size`
 * bytes, and the bytes that the whole text needs, NUL included, into `*needed`.
 * Without enough room they write the part that fits, with its NUL, and return
 * GPUIPC_BUFFER_TOO_SMALL. With size 0 they only write `*needed`, and the buffer
 * may be NULL. With a buffer, `needed` may be NULL.
 *
 * Array functions (gpuipc_exported_attempt_list, gpuipc_mem_attempt_list,
 * gpuipc_last_error_attempts) do the same with structs: they write the first
 * `capacity` of them into `attempts` and the number that there is into `*count`.
 * Without enough room they return GPUIPC_BUFFER_TOO_SMALL. With capacity 0 they
 * only write `*count`, and the array may be NULL.
 *
 * Options are structs that begin with their size and are filled with defaults by
 * gpuipc_..._options_init(&options, sizeof options). They grow at their end. The
 * library takes the size of every header that was published up to its own
 * version, and gives fields that an older header lacks their defaults. Options of
 * a newer header it takes, too, if nothing is set in what it does not know; else
 * GPUIPC_INVALID_ARGUMENT. Where options may be NULL, that means the defaults.
 *
 * Threads. All functions may be called from any thread, on the same object from
 * several at once, and an object may be freed on another thread than it was made
 * on. An object must not be freed while another thread uses it. The last error
 * is each thread's own.
 *
 * What cannot be found out is undefined, as with free(): a pointer that is not
 * NULL and not valid, an object of another type, an object that was freed before,
 * memory that is shorter than said. Compilers refuse an object of another type.
 *
 * fork. A child forked after gpuipc_open cannot use CUDA, so calls that need it
 * return GPUIPC_FORKED there. It may free the objects that it inherited, which
 * does nothing to the driver and to the parent, or leave them. fork followed by
 * exec is allowed at any time.
 *
 * Panics. No Rust panic gets to the caller: GPUIPC_PANIC instead.
 *
 * In the process. Loading the library runs no code of it, but for Rust's run time
 * noting argc and argv. It installs no signal handler, writes nothing to stdout,
 * and to stderr only where GPUIPC_LOG asks for it, and a panic's words. gpuipc_open
 * loads the driver, which stays loaded. The first export starts one thread an open library, with
 * all signals blocked; it ends with the last of the library and its offers. From
 * that first export on, the shared object or program that has this library in it
 * stays loaded until the process ends: dlclose has no effect any more. Before, it
 * unloads it, once the threads that called it have ended, if no object is left.
 * Several copies in one process, as of several plugins, do not disturb each other:
 * memory that one exports the other imports, by its original address.
 *
 * Versions. GPUIPC_VERSION is the header's, gpuipc_version() the library's. Within
 * one GPUIPC_ABI_VERSION nothing is removed or changed: numbers, functions,
 * places and sizes in structs (options grow at their end). So a program runs with
 * every library of the same ABI version that is not older than its header.
 * The handle's format has a version of its own: see CHANGELOG.md.
 *
 * Environment, read by gpuipc_open:
 *   GPUIPC_LIBCUDA      the driver's library; default libcuda.so.1
 *   GPUIPC_TYPES        types that an import tries, in order: RuntimeIpc, PosixFd,
 *                       Fabric, with commas; default PosixFd,Fabric,RuntimeIpc
 *   GPUIPC_TIMEOUT_MS   how long an import may wait for the exporter; default 5000
 *   GPUIPC_SOCKET_DIR   folder in which importers find exporters; default
 *                       /dev/shm/gpuipc-UID
 *   GPUIPC_TRUST        whose processes are trusted: same-user (the default),
 *                       token (who holds the handle), or uids with commas
 *   GPUIPC_LOG          log lines on stderr: error, warn, info, debug, trace or
 *                       off, the default; gpuipc_log_set goes before it
 *
 * Linking: libgpuipc.a -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc, or -lgpuipc for
 * the shared library. Neither needs CUDA: the driver is loaded by gpuipc_open. A
 * plugin that has libgpuipc.a in it adds -Wl,--exclude-libs,ALL, so that it exports
 * nothing of the library.
 *
 * For Linux on 64-bit little-endian machines.
 */

#ifndef GPUIPC_H
#define GPUIPC_H

#include <stddef.h>
#include <stdint.h>

// The version that the header belongs to: major part.
#define GPUIPC_VERSION_MAJOR 0

// The version that the header belongs to: minor part.
#define GPUIPC_VERSION_MINOR 1

// The version that the header belongs to: patch part.
#define GPUIPC_VERSION_PATCH 0

// The version that the header belongs to, as `gpuipc_version` gives the
// library's: 1002003 for 1.2.3.
#define GPUIPC_VERSION (((GPUIPC_VERSION_MAJOR * 1000000) + (GPUIPC_VERSION_MINOR * 1000)) + GPUIPC_VERSION_PATCH)

// The number of the binary interface, which is the number in the shared library's
// SONAME (`libgpuipc.so.1`). Raised only when something is removed or changed: see
// above.
#define GPUIPC_ABI_VERSION 1

// The call did what it says.
#define GPUIPC_OK 0

// A pointer that must not be NULL is NULL.
#define GPUIPC_NULL_ARGUMENT 1

// An argument has a value that the call does not allow.
#define GPUIPC_INVALID_ARGUMENT 2

// The caller's buffer cannot hold the result.
#define GPUIPC_BUFFER_TOO_SMALL 3

// The library was used before a fork, and is used again in the child.
#define GPUIPC_FORKED 4

// An internal error was caught before it could reach the caller.
#define GPUIPC_PANIC 5

// An environment variable has a value that it cannot have.
#define GPUIPC_INVALID_SETTING 6

// A system call failed.
#define GPUIPC_SYSTEM_CALL 7

// The bytes are more or fewer than a handle's.
#define GPUIPC_HANDLE_LENGTH 20

// The bytes are no handle.
#define GPUIPC_HANDLE_MAGIC 21

// The handle is from a newer version that this one cannot read.
#define GPUIPC_HANDLE_NEWER 22

// The handle's bytes changed on their way.
#define GPUIPC_HANDLE_DAMAGED 23

// A field of the handle has a value that the format does not allow.
#define GPUIPC_HANDLE_FIELD 24

// The driver's library cannot be loaded.
#define GPUIPC_DRIVER_LIBRARY 40

// The driver's library lacks a call that is needed.
#define GPUIPC_DRIVER_SYMBOL 41

// A call of the driver failed.
#define GPUIPC_DRIVER_CALL 42

// There is no device, or not the one that was asked for.
#define GPUIPC_NO_DEVICE 43

// The memory cannot be shared.
#define GPUIPC_NOT_EXPORTABLE 60

// The server that answers importers cannot be started.
#define GPUIPC_BROKER_START 61

// The process that exported the memory is gone.
#define GPUIPC_EXPORTER_GONE 80

// The exporter has taken its offer back.
#define GPUIPC_OFFER_WITHDRAWN 81

// The deadline passed.
#define GPUIPC_TIMED_OUT 82

// Every type of sharing was tried, and none worked.
#define GPUIPC_NO_TYPE_WORKED 83

// The memory is another host's, and no type of the handle reaches it.
#define GPUIPC_OTHER_HOST 84

// The driver, the device or this version of the library lacks what this needs.
#define GPUIPC_UNSUPPORTED 85

// The caller's cancel flag was set.
#define GPUIPC_CANCELLED 86

// A multicast object cannot be had or used here.
#define GPUIPC_MULTICAST_UNAVAILABLE 100

// A member of a multicast team failed, is gone, or is out of step.
#define GPUIPC_MULTICAST_TEAM 101

// Bytes of a handle, which describes one segment of shared memory.
#define GPUIPC_HANDLE_BYTES 384

// Bytes of one slot of a handle.
#define GPUIPC_SLOT_BYTES 64

// The memory is this process's own: the original pointer, nothing was mapped.
// As an answer of `gpuipc_mem_type_used` only.
#define GPUIPC_TYPE_SAME_PROCESS 0

// Legacy IPC (`cuIpcOpenMemHandle`). One host only. Holds no reference: the
// exporter must keep the memory allocated.
#define GPUIPC_TYPE_RUNTIME_IPC 1

// A file descriptor, fetched from the exporter. One host only.
#define GPUIPC_TYPE_POSIX_FD 2

// A fabric handle (IMEX). Also between the hosts of one NVLink domain.
#define GPUIPC_TYPE_FABRIC 4

// The mapping may be read and written.
#define GPUIPC_ACCESS_READ_WRITE 0

// The mapping may be read only. A legacy mapping cannot be made so.
#define GPUIPC_ACCESS_READ_ONLY 1

// Nobody could be asked. A legacy handle of freed memory opens whatever lies
// at its address by then.
#define GPUIPC_LIVENESS_UNKNOWN 0

// The exporter said that it is still the memory that was offered. It must stay
// allocated: the mapping holds no reference.
#define GPUIPC_LIVENESS_MEMORY_UNCHANGED 1

// The mapping holds a reference: it is the memory that was offered, and stays
// so, whatever its owner does.
#define GPUIPC_LIVENESS_REFERENCED 2

// The exporter lives and still offers the memory, but could not be asked
// whether its owner has freed it meanwhile.
#define GPUIPC_LIVENESS_OFFER_LIVES 3

// Whose processes are trusted: as `GPUIPC_TRUST` says, else the own user and root.
#define GPUIPC_TRUST_DEFAULT 0

// The own user, and root.
#define GPUIPC_TRUST_SAME_USER 1

// Also the users in `trusted_uids`.
#define GPUIPC_TRUST_USERS 2

// Everyone who holds the handle. For containers whose user namespaces have no
// common users.
#define GPUIPC_TRUST_TOKEN_ALONE 3

// No log lines.
#define GPUIPC_LOG_OFF 0

// What went wrong and cannot be told by a status.
#define GPUIPC_LOG_ERROR 1

// What failed to be undone.
#define GPUIPC_LOG_WARN 2

// Fallbacks that were taken.
#define GPUIPC_LOG_INFO 3

// Each step, and failures that were handled.
#define GPUIPC_LOG_DEBUG 4

// Each driver call with its time.
#define GPUIPC_LOG_TRACE 5

// In `attributes` of a handle: `slot_1` is a ticket.
#define GPUIPC_ATTRIBUTE_TICKET 1

// In `attributes` of a handle: the memory is from a pool, `slot_0` is its pointer.
#define GPUIPC_ATTRIBUTE_MEM_POOL 2

// In `attributes` of a handle: pinned host memory on one NUMA node.
#define GPUIPC_ATTRIBUTE_HOST_NUMA 4

// In `attributes` of a handle: a multicast object.
#define GPUIPC_ATTRIBUTE_MULTICAST 8

// No memory was refused, or a kind that has no number in this header.
#define GPUIPC_KIND_OTHER 0

// CUDA does not know the pointer.
#define GPUIPC_KIND_NOT_CUDA 1

// `cuMemAllocManaged`.
#define GPUIPC_KIND_MANAGED 2

// `cuMemHostAlloc` or registered host memory.
#define GPUIPC_KIND_PINNED_HOST 3

// VMM memory on a host NUMA node.
#define GPUIPC_KIND_HOST_NUMA 4

// A device's default memory pool, or a pool without a handle type.
#define GPUIPC_KIND_POOL_WITHOUT_HANDLE_TYPE 5

// A memory pool with a handle type.
#define GPUIPC_KIND_POOL 6

// VMM memory that was created without a handle type.
#define GPUIPC_KIND_VMM_WITHOUT_HANDLE_TYPE 7

// VMM memory with a handle type, all of whose exports failed.
#define GPUIPC_KIND_VMM 8

// `cuMemAlloc` memory.
#define GPUIPC_KIND_CUDA_MALLOC 9

// Memory that this process imported itself.
#define GPUIPC_KIND_IMPORTED 10

// More bytes than the allocation has behind the pointer.
#define GPUIPC_KIND_BEYOND_ALLOCATION 11

// For `gpuipc_buffer_new`: `cuMemAlloc`, shared by legacy IPC.
#define GPUIPC_MEMORY_CUDA_MALLOC 1

// For `gpuipc_buffer_new`: `cuMemCreate`, shared by file descriptor.
#define GPUIPC_MEMORY_VMM_FD 2

// For `gpuipc_buffer_new`: `cuMemCreate`, shared by fabric handle and by file
// descriptor.
#define GPUIPC_MEMORY_VMM_FABRIC 3

// A step that has no number in this header: see the text.
#define GPUIPC_STEP_OTHER 0

// Settings, and what the handle itself says.
#define GPUIPC_STEP_SELECT 1

// Finding and reaching the exporter's broker.
#define GPUIPC_STEP_BROKER_CONNECT 2

// Asking it and reading its answer.
#define GPUIPC_STEP_BROKER_REQUEST 3

// Fetching the descriptor by its number: `pidfd_open`, `pidfd_getfd`.
#define GPUIPC_STEP_FETCH_BY_NUMBER 4

// Getting a context: `cuDevicePrimaryCtxRetain`, `cuCtxPushCurrent`.
#define GPUIPC_STEP_CONTEXT 5

// `cuMemRetainAllocationHandle`.
#define GPUIPC_STEP_RETAIN 6

// `cuIpcGetMemHandle` or `cuMemExportToShareableHandle`.
#define GPUIPC_STEP_EXPORT 7

// `cuMemImportFromShareableHandle`.
#define GPUIPC_STEP_IMPORT 8

// `cuMemAddressReserve`.
#define GPUIPC_STEP_RESERVE 9

// `cuMemMap`.
#define GPUIPC_STEP_MAP 10

// `cuMemSetAccess`.
#define GPUIPC_STEP_SET_ACCESS 11

// `cuIpcOpenMemHandle`.
#define GPUIPC_STEP_OPEN 12

// Comparing what was mapped with what the handle says.
#define GPUIPC_STEP_COMPARE 13

// Asking the broker whether the memory is still the one that was offered.
#define GPUIPC_STEP_LIVENESS 14

// A reason that has no number in this header: see the text.
#define GPUIPC_REASON_OTHER 0

// Options or `GPUIPC_TYPES` exclude the type.
#define GPUIPC_REASON_NOT_ALLOWED 1

// The handle comes from another host.
#define GPUIPC_REASON_OTHER_HOST 2

// The exporting process has ended, or shut its broker down.
#define GPUIPC_REASON_EXPORTER_GONE 3

// The exporter runs, but no longer offers this memory (or never did, if the handle is
// forged).
#define GPUIPC_REASON_OFFER_WITHDRAWN 4

// No name of the broker leads to it.
#define GPUIPC_REASON_BROKER_UNREACHABLE 5

// Another user's process is at the other end.
#define GPUIPC_REASON_NOT_TRUSTED 6

// The broker does not serve this user.
#define GPUIPC_REASON_USER_REFUSED 7

// The broker closed the connection without an answer, and its process lives.
#define GPUIPC_REASON_BROKER_HUNG_UP 8

// The broker had no room in time.
#define GPUIPC_REASON_BROKER_BUSY 9

// The answer was no valid reply to the request.
#define GPUIPC_REASON_BROKER_BAD_REPLY 10

// The library itself is at the other end.
#define GPUIPC_REASON_OWN_BROKER 11

// The deadline came first.
#define GPUIPC_REASON_TIMED_OUT 12

// `pidfd_getfd` was refused: EPERM.
#define GPUIPC_REASON_PTRACE_REFUSED 13

// `pidfd_getfd` does not exist: ENOSYS.
#define GPUIPC_REASON_NO_PIDFD 14

// The caller's cancel flag was set.
#define GPUIPC_REASON_CANCELLED 15

// The offer has no descriptor.
#define GPUIPC_REASON_NO_DESCRIPTOR 16

// The driver does not take the descriptor.
#define GPUIPC_REASON_NOT_CUDA_DESCRIPTOR 17

// The driver does not take the fabric handle.
#define GPUIPC_REASON_FABRIC_UNAVAILABLE 18

// What is mapped is not as long as the handle says.
#define GPUIPC_REASON_SIZE_MISMATCH 19

// The memory behind a legacy handle was freed.
#define GPUIPC_REASON_STALE_MEMORY 20

// Nobody could be asked whether the memory is still the same.
#define GPUIPC_REASON_LIVENESS_UNKNOWN 21

// A legacy mapping cannot be read-only.
#define GPUIPC_REASON_CANNOT_BE_READ_ONLY 22

// The two GPUs are not peers.
#define GPUIPC_REASON_PEER_UNSUPPORTED 23

// All peer mappings are taken.
#define GPUIPC_REASON_TOO_MANY_PEERS 24

// The driver wants another context.
#define GPUIPC_REASON_CONTEXT_REFUSED 25

// The exporter has the same pid, in another pid namespace.
#define GPUIPC_REASON_SAME_PID 26

// Out of GPU memory or address space.
#define GPUIPC_REASON_OUT_OF_MEMORY 27

// The machine does not allow it.
#define GPUIPC_REASON_NOT_PERMITTED 28

// The driver or device cannot do this.
#define GPUIPC_REASON_NOT_SUPPORTED 29

// The memory was not made for this type.
#define GPUIPC_REASON_NOT_CREATED_FOR 30

// The driver has shut down in this process.
#define GPUIPC_REASON_DRIVER_SHUT_DOWN 31

// A system call failed otherwise.
#define GPUIPC_REASON_SYSTEM 32

// The driver failed otherwise.
#define GPUIPC_REASON_DRIVER 33

// No call failed: the library itself refused. The code is 0.
#define GPUIPC_CODE_NONE 0

// The code is the driver's: a `CUresult`.
#define GPUIPC_CODE_DRIVER 1

// The driver lacks the call; the code is the CUDA version that brought it, such
// as 12030 for 12.3.
#define GPUIPC_CODE_MISSING 2

// The code is the kernel's: an errno.
#define GPUIPC_CODE_OS 3

// GPU memory of this process that can be shared.
typedef struct gpuipc_buffer gpuipc_buffer;

// What one thread ends another thread's import with.
typedef struct gpuipc_cancel gpuipc_cancel;

// Memory on offer to other processes. While it lives, importers can map the
// memory.
typedef struct gpuipc_exported gpuipc_exported;

// The library, opened: what exports and imports are made with.
typedef struct gpuipc gpuipc;

// Memory of another process, mapped here.
typedef struct gpuipc_mem gpuipc_mem;

// The outcome of a call: `GPUIPC_OK`, or one number a cause. A newer library may
// return numbers that are not here.
typedef uint32_t gpuipc_status;

// How the library is opened: what goes before the environment. Filled by
// `gpuipc_open_options_init`; then change what is to be different. What it
// points to is read during the call only.
typedef struct gpuipc_open_options {
    // `sizeof(gpuipc_open_options)` of the header that the caller was compiled with.
    size_t struct_size;
    // The folder for the broker's name, the same on both sides; at most 64
    // bytes. NULL: `GPUIPC_SOCKET_DIR`, else `/dev/shm/gpuipc-UID`.
    const char *socket_dir;
    // `GPUIPC_TRUST_...`: whose processes are trusted at the other end of the
    // broker's socket.
    uint32_t trust;
    // With `GPUIPC_TRUST_USERS`, how many `trusted_uids`; else 0.
    uint32_t trusted_uid_count;
    // Users beside the own one and root, as this process's user namespace
    // numbers them.
    const uint32_t *trusted_uids;
} gpuipc_open_options;

// Takes a log line: what the caller gave to `gpuipc_log_set`, the line's
// `GPUIPC_LOG_...`, its target (`gpuipc::gpu`, `gpuipc::broker`, `gpuipc::ffi`)
// and its words, all valid during the call only. No token is ever in them. Called
// from any thread that uses the library and from the library's own, also from
// several at once. It must return: no `longjmp`, no C++ exception. It may call
// functions of the library but `gpuipc_log_set`; what those log is lost.
typedef void (*gpuipc_log_callback)(void *user,
                                    uint32_t level,
                                    const char *target,
                                    const char *message);

// How memory is exported. Filled by `gpuipc_export_options_init`; then change
// what is to be different.
typedef struct gpuipc_export_options {
    // `sizeof(gpuipc_export_options)` of the header that the caller was compiled with.
    size_t struct_size;
    // How many of `types` are given. 0: every type that the memory allows.
    uint8_t type_count;
    // The types that may be offered (`GPUIPC_TYPE_RUNTIME_IPC`, `_POSIX_FD`,
    // `_FABRIC`), each at most once; 0 from `type_count` on. Others are not made
    // at all: without `GPUIPC_TYPE_POSIX_FD` there is no descriptor that anyone
    // could ask for.
    uint8_t types[7];
} gpuipc_export_options;

// One way that was tried and did not work. Of 64 bytes for ever; what comes
// takes reserved ones.
typedef struct gpuipc_attempt {
    // The way that was tried: `GPUIPC_TYPE_...`.
    uint32_t handle_type;
    // Where it ended: `GPUIPC_STEP_...`.
    uint32_t step;
    // Why: `GPUIPC_REASON_...`.
    uint32_t reason;
    // What `code` is: `GPUIPC_CODE_...`.
    uint32_t code_kind;
    // What the driver or the kernel answered.
    int32_t code;
    // 0.
    uint32_t reserved;
    // How long the attempt took, in nanoseconds.
    uint64_t elapsed_ns;
    // The step in words. The library's, for ever.
    const char *step_text;
    // The reason in words. The library's, for ever.
    const char *reason_text;
    // What to do about it. The library's, for ever.
    const char *hint_text;
    // 0.
    uint64_t reserved_long;
} gpuipc_attempt;

// How memory is imported. Filled by `gpuipc_import_options_init`; then change
// what is to be different.
typedef struct gpuipc_import_options {
    // `sizeof(gpuipc_import_options)` of the header that the caller was compiled with.
    size_t struct_size;
    // The device that maps the memory, by this process's ordinal. -1: the
    // current context's; without a context the memory's own GPU if it is
    // visible here, else device 0.
    int32_t device;
    // `GPUIPC_ACCESS_READ_WRITE` or `GPUIPC_ACCESS_READ_ONLY`.
    uint32_t access;
    // 1: refuse a mapping of which nobody could say that it is still the memory
    // that was offered. Else 0. Matters for `GPUIPC_TYPE_RUNTIME_IPC` only.
    uint32_t require_live;
    // How long the import may wait for the exporter, over all types, in
    // milliseconds. 0: `GPUIPC_TIMEOUT_MS`, else 5000. Driver calls cannot be
    // interrupted and do not count.
    uint32_t timeout_ms;
    // How many of `types` are given. 0: `GPUIPC_TYPES`, else descriptor,
    // fabric, legacy.
    uint8_t type_count;
    // The types that may be tried (`GPUIPC_TYPE_RUNTIME_IPC`, `_POSIX_FD`,
    // `_FABRIC`), in order, each at most once; 0 from `type_count` on.
    uint8_t types[7];
    // What another thread may end this import's waiting with, or NULL.
    const struct gpuipc_cancel *cancel;
} gpuipc_import_options;

// A ticket as C sees it inside a slot.
typedef struct gpuipc_ticket {
    uint8_t endpoint[16];
    uint8_t token[16];
    int32_t fd;
    int32_t ledger_fd;
    uint32_t ledger_slot;
    uint32_t reserved;
    uint64_t ledger_device;
    uint64_t ledger_inode;
} gpuipc_ticket;

// One slot of a handle. Which member is meant, the handle's type flags and attributes say.
typedef union gpuipc_slot {
    uint8_t bytes[GPUIPC_SLOT_BYTES];
    // `CUipcMemHandle`.
    uint8_t runtime_ipc[GPUIPC_SLOT_BYTES];
    // `CUmemPoolPtrExportData`.
    uint8_t pool_pointer[GPUIPC_SLOT_BYTES];
    struct gpuipc_ticket ticket;
    // `CUmemFabricHandle`.
    uint8_t fabric[GPUIPC_SLOT_BYTES];
} gpuipc_slot;

// One segment of shared GPU memory, with every way of sharing that it allows: 384 bytes,
// little-endian, without padding, to be shipped by any means.
//
// A handle that exists keeps all rules of the format. Made by `new` or
// `decode`, turned to bytes by `encode`. Whoever holds the bytes
// may ask for the memory, so they are to be kept like a password; the `Debug` text shows neither
// the token nor the driver's bytes.
//
// | at | field | type | meaning |
// |---|---|---|---|
// | 0 | magic | u32 | `GIPC` |
// | 4 | version, min_reader | u8, u8 | written by; the oldest reader that may use it |
// | 6 | platform | u8 | 1 CUDA (2 kept for HIP) |
// | 7 | type_flags | u8 | `TypeFlags` |
// | 8 | attributes | u16 | `Attributes` |
// | 10 | num_devices | u16 | multicast: members; else 0 |
// | 12 | numa_node | i16 | pinned host memory: its node; else -1 |
// | 14 | reserved | u16 | 0 |
// | 16 | base_size | u64 | bytes of the whole allocation: what must be mapped |
// | 24 | offset_from_base | u64 | bytes |
// | 32 | length | u64 | bytes of this segment, > 0; offset + length <= base_size |
// | 40 | allocation_id | u64 | the driver's BUFFER_ID |
// | 48 | window_id | u64 | same in all segments of one exported window |
// | 56 | window_length | u64 | bytes of the whole window |
// | 64 | window_offset | u64 | where this segment starts in the window |
// | 72 | segment_index, segment_count | u32, u32 | 0, 1 for a window inside one allocation |
// | 80 | device_uuid | 16 B | the GPU that holds the memory; 0 for host memory |
// | 96 | process_id | 16 B | random, one a process |
// | 112 | host_id | 16 B | the kernel's boot id |
// | 128 | pid, pid_namespace, net_namespace | 3 x u32 | for messages; never an identity |
// | 140 | fabric_clique | u32 | from NVML; 0 where unknown |
// | 144 | fabric_cluster | 16 B | zero where there is no domain |
// | 160 | pool_id | u64 | pool memory: the exporter's number of the pool; else 0 |
// | 168 | reserved | 20 B | 0 |
// | 188 | checksum | u32 | CRC-32C of the other 380 bytes |
// | 192 | slot 0 | 64 B | `CUipcMemHandle` (RuntimeIpc) or `CUmemPoolPtrExportData` (pool memory) |
// | 256 | slot 1 | 64 B | the `Ticket` (attribute Ticket) |
// | 320 | slot 2 | 64 B | `CUmemFabricHandle` (Fabric) |
//
// A slot that is not announced is all zeros. A reader takes a handle whose `min_reader` is at most
// its own version, and ignores (but keeps) the bits and reserved bytes that a newer writer set.
typedef struct gpuipc_mem_handle {
    uint32_t magic;
    uint8_t version;
    uint8_t min_reader;
    uint8_t platform;
    uint8_t type_flags;
    uint16_t attributes;
    uint16_t num_devices;
    int16_t numa_node;
    uint16_t reserved_short;
    uint64_t base_size;
    uint64_t offset_from_base;
    uint64_t length;
    uint64_t allocation_id;
    uint64_t window_id;
    uint64_t window_length;
    uint64_t window_offset;
    uint32_t segment_index;
    uint32_t segment_count;
    uint8_t device_uuid[16];
    uint8_t process_id[16];
    uint8_t host_id[16];
    uint32_t pid;
    uint32_t pid_namespace;
    uint32_t net_namespace;
    uint32_t fabric_clique;
    uint8_t fabric_cluster[16];
    uint64_t pool_id;
    uint8_t reserved[20];
    uint32_t checksum;
    union gpuipc_slot slot_0;
    union gpuipc_slot slot_1;
    union gpuipc_slot slot_2;
} gpuipc_mem_handle;

// What a call that failed said, in numbers. Of 32 bytes for ever; what comes
// takes reserved ones.
typedef struct gpuipc_error {
    // What the call returned; `GPUIPC_OK` if it succeeded.
    uint32_t status;
    // With `GPUIPC_NOT_EXPORTABLE`: what the memory is, `GPUIPC_KIND_...`. Else 0.
    uint32_t memory_kind;
    // What `code` is: `GPUIPC_CODE_...`.
    uint32_t code_kind;
    // The answer of the driver or the kernel, where one call decided. What
    // failed within attempts is told by those.
    int32_t code;
    // How many attempts `gpuipc_last_error_attempts` gives.
    uint32_t attempt_count;
    // 0.
    uint32_t reserved;
    // 0.
    uint64_t reserved_long;
} gpuipc_error;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Opens the library: loads the CUDA driver (`libcuda.so.1`, or what the
// environment variable `GPUIPC_LIBCUDA` names), initializes it (`cuInit`) and
// reads the environment. Creates no context and starts no thread.
//
// `*out` is to be given to `gpuipc_close`. Opening it several times is allowed.
//
// Fails with `GPUIPC_DRIVER_LIBRARY`, `GPUIPC_DRIVER_SYMBOL`,
// `GPUIPC_DRIVER_CALL`, `GPUIPC_NO_DEVICE`, `GPUIPC_INVALID_SETTING`,
// `GPUIPC_FORKED`, `GPUIPC_SYSTEM_CALL`.
gpuipc_status gpuipc_open(struct gpuipc **out);

// As `gpuipc_open`, with options that go before the environment. `options` may be
// NULL: the defaults.
//
// Fails as `gpuipc_open`, and with `GPUIPC_INVALID_ARGUMENT` for options that
// cannot be.
gpuipc_status gpuipc_open_with(const struct gpuipc_open_options *options, struct gpuipc **out);

// Fills `options` with the defaults. `struct_size` is
// `sizeof(gpuipc_open_options)` where the caller is compiled.
//
// Fails with `GPUIPC_INVALID_ARGUMENT` for a size that no header has.
gpuipc_status gpuipc_open_options_init(struct gpuipc_open_options *options, size_t struct_size);

// Gives the library back. NULL is allowed. What was exported and imported
// through it stays valid until it is freed itself.
void gpuipc_close(struct gpuipc *ipc);

// The library's version, in the form of `GPUIPC_VERSION`.
uint32_t gpuipc_version(void);

// The library's `GPUIPC_ABI_VERSION`. A program that loads the library by
// `dlopen` compares it with its header's.
uint32_t gpuipc_abi_version(void);

// 1 in a process that was forked from one that had opened the library, where
// calls fail with `GPUIPC_FORKED`; else 0. A few nanoseconds: no system call.
uint32_t gpuipc_is_forked(void);

// Gives the library's log lines up to `level` (`GPUIPC_LOG_...`) to `callback`,
// in place of stderr; `user` is given back with each. NULL ends that: no lines.
// For all users of this copy of the library in the process. Works before
// `gpuipc_open`, too. When it returns, the callback before is not being called any
// more, and what its `user` points to may go.
//
// Fails with `GPUIPC_INVALID_ARGUMENT` for a level that does not exist and from
// within the callback, `GPUIPC_FORKED`.
gpuipc_status gpuipc_log_set(gpuipc_log_callback callback, void *user, uint32_t level);

// Offers `len` bytes of GPU memory from `ptr` on (a `CUdeviceptr`) to other
// processes, by every type of sharing that the memory allows: `cuMemAlloc`
// memory by legacy IPC, `cuMemCreate` memory by the handle types that it was
// created for. Needs no current context and leaves the caller's as it was.
// The first export starts a thread that answers importers.
//
// `*out` is to be given to `gpuipc_exported_free`, which ends the offer. Until
// then `cuMemCreate` memory stays allocated, whatever its owner frees;
// `cuMemAlloc` memory its owner must keep.
//
// Fails with `GPUIPC_NOT_EXPORTABLE` (the error's text has the kind of memory
// and the cure), `GPUIPC_INVALID_ARGUMENT` for `len` 0, `GPUIPC_BROKER_START`,
// `GPUIPC_DRIVER_CALL`, `GPUIPC_FORKED`.
gpuipc_status gpuipc_export(const struct gpuipc *ipc,
                            uint64_t ptr,
                            size_t len,
                            struct gpuipc_exported **out);

// As `gpuipc_export`, with options. `options` may be NULL: the defaults.
//
// Fails as `gpuipc_export`, and with `GPUIPC_INVALID_ARGUMENT` for options that
// cannot be.
gpuipc_status gpuipc_export_with(const struct gpuipc *ipc,
                                 uint64_t ptr,
                                 size_t len,
                                 const struct gpuipc_export_options *options,
                                 struct gpuipc_exported **out);

// Fills `options` with the defaults. `struct_size` is
// `sizeof(gpuipc_export_options)` where the caller is compiled.
//
// Fails with `GPUIPC_INVALID_ARGUMENT` for a size that no header has.
gpuipc_status gpuipc_export_options_init(struct gpuipc_export_options *options, size_t struct_size);

// How many handles describe the memory: one for memory inside one allocation,
// which is all that this version exports.
gpuipc_status gpuipc_exported_handle_count(const struct gpuipc_exported *exported, size_t *out);

// Writes the bytes of handle `index`, `GPUIPC_HANDLE_BYTES` of them, into
// `buffer`, which has `size` bytes and needs no alignment. Send them to the
// importer by any means, unchanged; of several handles one after the other.
// Who holds the bytes may ask for the memory: keep them like a password.
//
// Fails with `GPUIPC_INVALID_ARGUMENT` for an index beyond the last,
// `GPUIPC_BUFFER_TOO_SMALL`.
gpuipc_status gpuipc_exported_handle_bytes(const struct gpuipc_exported *exported,
                                           size_t index,
                                           uint8_t *buffer,
                                           size_t size);

// Writes the bytes of all handles, one after the other, into `buffer` of `size`
// bytes, and how many there are into `*needed`: what `gpuipc_import` takes. With
// size 0 it only writes `*needed`, and the buffer may be NULL; with a buffer,
// `needed` may be NULL.
//
// Fails with `GPUIPC_BUFFER_TOO_SMALL`, and then writes `*needed` only.
gpuipc_status gpuipc_exported_bytes(const struct gpuipc_exported *exported,
                                    uint8_t *buffer,
                                    size_t size,
                                    size_t *needed);

// The types that the memory was made for but that could not be exported, and
// why: a line each, empty if there are none. A text function: see above.
gpuipc_status gpuipc_exported_attempts(const struct gpuipc_exported *exported,
                                       char *buffer,
                                       size_t size,
                                       size_t *needed);

// The same attempts as structs. An array function: see above.
gpuipc_status gpuipc_exported_attempt_list(const struct gpuipc_exported *exported,
                                           struct gpuipc_attempt *attempts,
                                           size_t capacity,
                                           size_t *count);

// Ends the offer, unless the same allocation is exported elsewhere in this
// process, too. NULL is allowed. Importers that have mapped the memory keep
// their mappings; later ones find the offer withdrawn.
void gpuipc_exported_free(struct gpuipc_exported *exported);

// Fills `options` with the defaults. `struct_size` is
// `sizeof(gpuipc_import_options)` where the caller is compiled.
//
// Fails with `GPUIPC_INVALID_ARGUMENT` for a size that no header has.
gpuipc_status gpuipc_import_options_init(struct gpuipc_import_options *options, size_t struct_size);

// Maps the memory behind the handles in the `len` bytes at `handles`, by the
// first type of sharing that works. The bytes need no alignment; `len` is
// `GPUIPC_HANDLE_BYTES` for each handle (this version imports memory of one).
// `options` may be NULL: the defaults. What a type that failed had done is
// undone before the next one is tried. The caller's current context stays.
//
// `*out` is to be given to `gpuipc_mem_free`, which unmaps. In the exporting
// process itself this gives the original pointer.
//
// Nothing here orders one process's GPU work after another's.
//
// Fails with `GPUIPC_EXPORTER_GONE`, `GPUIPC_OFFER_WITHDRAWN`,
// `GPUIPC_TIMED_OUT`, `GPUIPC_CANCELLED`, `GPUIPC_OTHER_HOST` or else `GPUIPC_NO_TYPE_WORKED` (the
// error has every attempt), `GPUIPC_HANDLE_...` for bytes that are no
// handles, `GPUIPC_INVALID_ARGUMENT`, `GPUIPC_UNSUPPORTED`,
// `GPUIPC_DRIVER_CALL`, `GPUIPC_NO_DEVICE`, `GPUIPC_FORKED`.
gpuipc_status gpuipc_import(const struct gpuipc *ipc,
                            const uint8_t *handles,
                            size_t len,
                            const struct gpuipc_import_options *options,
                            struct gpuipc_mem **out);

// The address (a `CUdeviceptr`) of the first byte that was exported.
gpuipc_status gpuipc_mem_ptr(const struct gpuipc_mem *mem, uint64_t *out);

// How many bytes were exported.
gpuipc_status gpuipc_mem_len(const struct gpuipc_mem *mem, size_t *out);

// How the memory was reached: one of `GPUIPC_TYPE_...`.
gpuipc_status gpuipc_mem_type_used(const struct gpuipc_mem *mem, uint32_t *out);

// What was known about the memory when it was imported: one of
// `GPUIPC_LIVENESS_...`.
gpuipc_status gpuipc_mem_liveness(const struct gpuipc_mem *mem, uint32_t *out);

// The device that maps the memory, by this process's ordinal.
gpuipc_status gpuipc_mem_device(const struct gpuipc_mem *mem, int32_t *out);

// The types that were tried before the one that worked, and why each failed: a
// line each, empty if there are none. A text function: see above.
gpuipc_status gpuipc_mem_attempts(const struct gpuipc_mem *mem,
                                  char *buffer,
                                  size_t size,
                                  size_t *needed);

// The same attempts as structs. An array function: see above.
gpuipc_status gpuipc_mem_attempt_list(const struct gpuipc_mem *mem,
                                      struct gpuipc_attempt *attempts,
                                      size_t capacity,
                                      size_t *count);

// Copies `size` bytes from `offset` on into `to`, on the CPU (`cuMemcpyDtoH`).
//
// Fails with `GPUIPC_INVALID_ARGUMENT` for a range beyond the memory, and with
// `GPUIPC_DRIVER_CALL`, after which `to` holds anything.
gpuipc_status gpuipc_mem_read(const struct gpuipc_mem *mem,
                              size_t offset,
                              uint8_t *to,
                              size_t size);

// Copies `size` bytes on the CPU at `from` to `offset` (`cuMemcpyHtoD`). When it
// returns the bytes are there, and so is all other work of that context done.
//
// Fails with `GPUIPC_INVALID_ARGUMENT` for a range beyond the memory,
// `GPUIPC_DRIVER_CALL` (also where the mapping may be read only).
gpuipc_status gpuipc_mem_write(const struct gpuipc_mem *mem,
                               size_t offset,
                               const uint8_t *from,
                               size_t size);

// Unmaps the memory. NULL is allowed. Does not wait for the GPU: work that uses
// the memory must have ended. Changes no thread's current context.
void gpuipc_mem_free(struct gpuipc_mem *mem);

// Says whether the `len` bytes at `handles` are handles, as `gpuipc_import`
// would, without a driver: not whether the memory can be reached.
//
// Fails with `GPUIPC_HANDLE_LENGTH`, `GPUIPC_HANDLE_MAGIC`,
// `GPUIPC_HANDLE_NEWER`, `GPUIPC_HANDLE_DAMAGED`, `GPUIPC_HANDLE_FIELD`.
gpuipc_status gpuipc_handle_check(const uint8_t *handles, size_t len);

// Checks the `len` bytes at `handle`, which are one handle, and tells what it
// says: `*out` is a copy, aligned as C wants it.
//
// Fails as `gpuipc_handle_check`.
gpuipc_status gpuipc_handle_read(const uint8_t *handle, size_t len, struct gpuipc_mem_handle *out);

// What this thread's last call said, in full: the function, the cause, every
// attempt with its step, code and hint. Empty if that call returned
// `GPUIPC_OK`. The calls that return no status, and those about the last error, do
// not change it. A text function: see above.
gpuipc_status gpuipc_last_error(char *buffer, size_t size, size_t *needed);

// The same in numbers: the status, the kind of memory that cannot be shared, the
// code of the driver or the kernel.
gpuipc_status gpuipc_last_error_read(struct gpuipc_error *out);

// The attempts behind this thread's last error, in order: what an export or an
// import tried, and how each failed. None for most errors. An array function: see
// above.
gpuipc_status gpuipc_last_error_attempts(struct gpuipc_attempt *attempts,
                                         size_t capacity,
                                         size_t *count);

// The status in one sentence. Never NULL, and never freed; also for numbers
// that this library does not know.
const char *gpuipc_status_text(gpuipc_status status);

// The status's name without `GPUIPC_`, such as `TIMED_OUT`; `UNKNOWN` for a
// number that this library does not know. Never NULL, and never freed.
const char *gpuipc_status_name(gpuipc_status status);

// Makes what an import's waiting can be ended with: `cancel` of
// `gpuipc_import_options`. `*out` is to be given to `gpuipc_cancel_free`. May
// serve any number of imports, also at the same time.
gpuipc_status gpuipc_cancel_new(struct gpuipc_cancel **out);

// With `cancelled` 1: imports that were given `cancel` end with
// `GPUIPC_CANCELLED` within 20 ms, and later ones at once. A driver call under
// way is not interrupted. With 0: later imports wait again.
gpuipc_status gpuipc_cancel_set(const struct gpuipc_cancel *cancel, uint32_t cancelled);

// Gives it back. NULL is allowed. Imports under way that were given it go on,
// and can be cancelled no more.
void gpuipc_cancel_free(struct gpuipc_cancel *cancel);

// Allocates `len` bytes on `device` (by this process's ordinal) that can be
// shared in the way that `memory` (`GPUIPC_MEMORY_...`) says. A runtime has an
// allocator of its own; this one shows what that must ask for, and serves small
// programs. In the current context if it is that device's, else in its primary
// one, which it keeps in use. The memory's contents are not set.
//
// `*out` is to be given to `gpuipc_buffer_free`.
//
// Fails with `GPUIPC_INVALID_ARGUMENT`, `GPUIPC_NO_DEVICE`, `GPUIPC_DRIVER_CALL`
// (out of memory; no fabric here), `GPUIPC_FORKED`.
gpuipc_status gpuipc_buffer_new(const struct gpuipc *ipc,
                                int32_t device,
                                uint32_t memory,
                                size_t len,
                                struct gpuipc_buffer **out);

// The address (a `CUdeviceptr`) of the first byte.
gpuipc_status gpuipc_buffer_ptr(const struct gpuipc_buffer *buffer, uint64_t *out);

// How many bytes were asked for.
gpuipc_status gpuipc_buffer_len(const struct gpuipc_buffer *buffer, size_t *out);

// Copies `size` bytes from `offset` on into `to`, on the CPU (`cuMemcpyDtoH`).
//
// Fails with `GPUIPC_INVALID_ARGUMENT` for a range beyond the buffer, and with
// `GPUIPC_DRIVER_CALL`, after which `to` holds anything.
gpuipc_status gpuipc_buffer_read(const struct gpuipc_buffer *buffer,
                                 size_t offset,
                                 uint8_t *to,
                                 size_t size);

// Copies `size` bytes on the CPU at `from` to `offset` (`cuMemcpyHtoD`). When it
// returns the bytes are there, and so is all other work of that context done.
//
// Fails with `GPUIPC_INVALID_ARGUMENT` for a range beyond the buffer,
// `GPUIPC_DRIVER_CALL`.
gpuipc_status gpuipc_buffer_write(const struct gpuipc_buffer *buffer,
                                  size_t offset,
                                  const uint8_t *from,
                                  size_t size);

// Frees the memory. NULL is allowed. Work that uses it must have ended; offers of
// it are to be freed before.
void gpuipc_buffer_free(struct gpuipc_buffer *buffer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GPUIPC_H */
