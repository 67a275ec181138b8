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
 * Who owns what. Objects (gpuipc, gpuipc_exported, gpuipc_mem, gpuipc_reservation,
 * gpuipc_feasibility, gpuipc_registered, gpuipc_buffer, gpuipc_cancel) are made by the
 * library and given back, once, to gpuipc_close and the gpuipc_..._free of their name
 * (a gpuipc_mem also to gpuipc_mem_unmap), in any order. Buffers, arrays and structs are
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
 * gpuipc_feasibility_problem_text, gpuipc_registered_gpu_error_text, gpuipc_last_error) write UTF-8 with a NUL at its end into `buffer` of `size`
 * bytes, and the bytes that the whole text needs, NUL included, into `*needed`.
 * Without enough room they write the part that fits, with its NUL, and return
 * GPUIPC_BUFFER_TOO_SMALL. With size 0 they only write `*needed`, and the buffer
 * may be NULL. With a buffer, `needed` may be NULL.
 *
 * Array functions (gpuipc_exported_attempt_list, gpuipc_mem_attempt_list,
 * gpuipc_feasibility_types, gpuipc_registered_transports,
 * gpuipc_registered_gpu_error_attempts, gpuipc_last_error_attempts) do the same with
 * structs: they write the first `capacity` of them into the array and the number that there is into `*count`.
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
 * Callbacks (of gpuipc_log_set, and of gpuipc_multicast.h) may call only
 * gpuipc_last_error, gpuipc_last_error_read, gpuipc_last_error_attempts,
 * gpuipc_status_text, gpuipc_status_name, gpuipc_version, gpuipc_abi_version and
 * gpuipc_is_forked: the library may hold locks meanwhile. On the callback's thread
 * every other call returns GPUIPC_IN_CALLBACK and does nothing; a gpuipc_..._free or
 * gpuipc_close does nothing, and the object stays. A callback must not wait for
 * another thread that is in a call of the library. It must return: no longjmp. A C++
 * exception that leaves it ends the process (abort). pthread_exit, as an interpreter
 * that shuts down calls it, stops the thread there for ever, with the locks that it holds.
 *
 * pthread_cancel. A thread that is cancelled while it is in a call goes on until the
 * call returns: the library disables cancellation meanwhile, in callbacks, too. With
 * PTHREAD_CANCEL_ASYNCHRONOUS, as with any function that POSIX does not name, do not
 * call it.
 *
 * Signals. A signal handler must not call the library, but for gpuipc_is_forked,
 * gpuipc_version and gpuipc_abi_version, and must not leave a call by longjmp. A
 * signal interrupts no call: what the kernel ended by EINTR is done again.
 *
 * Sizes and counts are checked before anything is touched: one beyond any sense is
 * GPUIPC_INVALID_ARGUMENT, or GPUIPC_HANDLE_LENGTH for the bytes of handles.
 *
 * Panics. No Rust panic gets to the caller: GPUIPC_PANIC instead.
 *
 * In the process. Loading the library runs no code of it, but for Rust's run time
 * noting argc and argv. It installs no signal handler, writes nothing to stdout,
 * and to stderr only where GPUIPC_LOG asks for it, and a panic's words. gpuipc_open
 * loads the driver, which stays loaded. The first export starts one thread an open library, with
 * all signals blocked; it ends with the last of the library and its exports. From
 * that first export on, the shared object or program that has this library in it
 * stays loaded until the process ends: dlclose has no effect any more. Before, it
 * unloads it, once the threads that called it have ended, if no object is left.
 * Several copies in one process, as of several plugins, do not disturb each other:
 * memory that one exports the other imports, by its original address.
 *
 * Versions. GPUIPC_VERSION is the header's, gpuipc_version() the library's. Within
 * one GPUIPC_ABI_VERSION nothing of this header is removed or changed: numbers, functions,
 * places and sizes in structs (options grow at their end). So a program runs with
 * every library of the same ABI version that is not older than its header.
 * The handle's format has a version of its own: see CHANGELOG.md.
 *
 * Environment, read by gpuipc_open; not by a program with more rights than its caller
 * (setuid, setgid, file capabilities: AT_SECURE):
 *   GPUIPC_LIBCUDA      the driver's library; default libcuda.so.1
 *   GPUIPC_TYPES        types that an import tries, in order: RuntimeIpc, PosixFd,
 *                       Fabric, with commas; default PosixFd,Fabric,RuntimeIpc
 *   GPUIPC_TIMEOUT_MS   how long an import may wait for the exporter; default 5000
 *   GPUIPC_SOCKET_DIR   folder in which importers find exporters; default
 *                       /dev/shm/gpuipc-UID
 *   GPUIPC_TRUST        whose processes are trusted: same-user (the default),
 *                       token (who holds the handle), or uids with commas
 *   GPUIPC_HOST_ID      which host this is, by 32 hex digits or any name, where the
 *                       kernel's boot id does not say it; the same on both sides
 *   GPUIPC_LOG          log lines on stderr: error, warn, info, debug, trace or
 *                       off, the default; gpuipc_log_set goes before it
 *
 * Linking: libgpuipc.a -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc, or -lgpuipc for
 * the shared library. Neither needs CUDA: the driver is loaded by gpuipc_open. A
 * plugin that has libgpuipc.a in it adds -Wl,--exclude-libs,libgpuipc.a, so that it
 * exports nothing of the library; gpuipc::static of the CMake package and pkg-config
 * --static gpuipc say so by themselves.
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
// SONAME (`libgpuipc.so.1`, of the library that `ffi/install` makes; cargo's has none). Raised only when something is removed or changed: see
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

// The call was made from inside a callback, on its thread. Nothing was done.
#define GPUIPC_IN_CALLBACK 8

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

// The bytes are no registered memory, or what is to be registered breaks a rule of its form.
#define GPUIPC_REGISTERED_MEMORY 25

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

// The exporter has revoked the export.
#define GPUIPC_EXPORT_REVOKED 81

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

// The handles are not the segments of one range.
#define GPUIPC_NOT_ONE_RANGE 87

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

// The exporter said that it is still the memory that was exported. It must stay
// allocated: the mapping holds no reference.
#define GPUIPC_LIVENESS_MEMORY_UNCHANGED 1

// The mapping holds a reference: it is the memory that was exported, and stays
// so, whatever its owner does.
#define GPUIPC_LIVENESS_REFERENCED 2

// The exporter lives and still exports the memory, but could not be asked
// whether its owner has freed it meanwhile.
#define GPUIPC_LIVENESS_EXPORT_LIVES 3

// As the length of an export: from the pointer to the end of the allocation around it.
#define GPUIPC_WHOLE_ALLOCATION 18446744073709551615ull

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

// VMM memory on the host, but on no certain NUMA node.
#define GPUIPC_KIND_HOST 12

// For `gpuipc_buffer_new`: `cuMemAlloc`, shared by legacy IPC.
#define GPUIPC_MEMORY_CUDA_MALLOC 1

// For `gpuipc_buffer_new`: `cuMemCreate`, shared by file descriptor.
#define GPUIPC_MEMORY_VMM_FD 2

// For `gpuipc_buffer_new`: `cuMemCreate`, shared by fabric handle and by file
// descriptor.
#define GPUIPC_MEMORY_VMM_FABRIC 3

// For `gpuipc_buffer_new`: many pieces of `cuMemCreate` side by side, as PyTorch's
// expandable segments, shared by file descriptor.
#define GPUIPC_MEMORY_SEGMENTS 4

// For `gpuipc_buffer_new`: from a pool, shared by file descriptor.
#define GPUIPC_MEMORY_POOL 5

// For `gpuipc_buffer_new`: `cuMemCreate` on host NUMA node 0, shared by file
// descriptor.
#define GPUIPC_MEMORY_HOST_NUMA 6

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

// Asking the broker whether the memory is still the one that was exported.
#define GPUIPC_STEP_LIVENESS 14

// `cuMemPoolImportFromShareableHandle`.
#define GPUIPC_STEP_IMPORT_POOL 15

// `cuMemPoolSetAccess`.
#define GPUIPC_STEP_SET_POOL_ACCESS 16

// `cuMemPoolImportPointer`.
#define GPUIPC_STEP_IMPORT_POINTER 17

// A reason that has no number in this header: see the text.
#define GPUIPC_REASON_OTHER 0

// Options or `GPUIPC_TYPES` exclude the type.
#define GPUIPC_REASON_NOT_ALLOWED 1

// The handle comes from another host.
#define GPUIPC_REASON_OTHER_HOST 2

// The exporting process has ended, or shut its broker down.
#define GPUIPC_REASON_EXPORTER_GONE 3

// The exporter runs, but no longer exports this memory (or never did, if the handle is
// forged).
#define GPUIPC_REASON_EXPORT_REVOKED 4

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

// The export has no descriptor.
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

// The exporter's driver did not make the descriptor.
#define GPUIPC_REASON_EXPORT_FAILED 34

// The memory's GPU is not visible in this process, and the driver does not map its memory
// here.
#define GPUIPC_REASON_DEVICE_NOT_VISIBLE 35

// A type that gives access to one device only.
#define GPUIPC_REASON_ONE_DEVICE_ONLY 36

// A type that chooses its address itself.
#define GPUIPC_REASON_CANNOT_BE_PLACED 37

// A type that cannot map several allocations side by side.
#define GPUIPC_REASON_CANNOT_BE_SEGMENTED 38

// The place has no room.
#define GPUIPC_REASON_PLACE_TOO_SMALL 39

// Something is mapped at the place already, or it is not aligned.
#define GPUIPC_REASON_PLACE_TAKEN 40

// A GPU's memory is not for the CPU.
#define GPUIPC_REASON_NOT_HOST_MEMORY 41

// The legacy handle is open in this process, by another user of the driver, and the
// driver does not open it once more.
#define GPUIPC_REASON_ALREADY_MAPPED 42

// A limit of open files is reached in this process, or on this machine.
#define GPUIPC_REASON_TOO_MANY_FILES 43

// No call failed: the library itself refused. The code is 0.
#define GPUIPC_CODE_NONE 0

// The code is the driver's: a `CUresult`.
#define GPUIPC_CODE_DRIVER 1

// The driver lacks the call; the code is the CUDA version that brought it, such
// as 12030 for 12.3.
#define GPUIPC_CODE_MISSING 2

// The code is the kernel's: an errno.
#define GPUIPC_CODE_OS 3

// For `segment` of an attempt: the memory has only one, or it was not about one of
// them.
#define GPUIPC_SEGMENT_NONE UINT32_MAX

// An answer that has no number in this header.
#define GPUIPC_FEASIBLE_OTHER 0

// Everything but the mapping was tried, and worked; or another range of the allocation is
// mapped already, which an import would share.
#define GPUIPC_FEASIBLE_YES 1

// Nothing speaks against it, but only an import can tell.
#define GPUIPC_FEASIBLE_UNKNOWN 2

// It would fail: see the attempt.
#define GPUIPC_FEASIBLE_NO 3

// The most bytes of a transport.
#define GPUIPC_TRANSPORT_BYTES 64

// The most transports of a registered memory.
#define GPUIPC_TRANSPORTS 16

// GPU memory of this process that can be shared.
typedef struct gpuipc_buffer gpuipc_buffer;

// What one thread ends another thread's import with.
typedef struct gpuipc_cancel gpuipc_cancel;

// Memory exported to other processes. While it lives, importers can map the
// memory.
typedef struct gpuipc_exported gpuipc_exported;

// What `gpuipc_can_import` found out.
typedef struct gpuipc_feasibility gpuipc_feasibility;

// The library, opened: what exports and imports are made with.
typedef struct gpuipc gpuipc;

// Memory of another process, mapped here.
typedef struct gpuipc_mem gpuipc_mem;

// A buffer that this process registered, or that another process has described.
typedef struct gpuipc_registered gpuipc_registered;

// Address space without memory, for imports at an address of the caller's choice.
typedef struct gpuipc_reservation gpuipc_reservation;

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
    // 1: keeps a descriptor of 2 MiB of host memory open, so that no export is the
    // process's first one and no end of an export its last: on an H200 23 us instead
    // of 580, and 9 us instead of 545. Takes a millisecond now, and no GPU memory. 0:
    // does not.
    uint32_t keepalive_descriptor;
    // 0.
    uint32_t reserved;
} gpuipc_open_options;

// Takes a log line: what the caller gave to `gpuipc_log_set`, the line's
// `GPUIPC_LOG_...`, its target (`gpuipc::gpu`, `gpuipc::broker`, `gpuipc::ffi`)
// and its words, all valid during the call only. No token is ever in them. Called
// from any thread that uses the library and from the library's own, also from
// several at once. A callback: see above for what it may do.
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
    // The types that may be exported (`GPUIPC_TYPE_RUNTIME_IPC`, `_POSIX_FD`,
    // `_FABRIC`), each at most once; 0 from `type_count` on. Others are not made
    // at all: without `GPUIPC_TYPE_POSIX_FD` there is no descriptor that anyone
    // could ask for.
    uint8_t types[7];
    // 1: make no file descriptor at the export, but one for each importer when it asks.
    // Saves a call of the driver and a place in the process's table where perhaps
    // nobody imports; costs the importer that call, and the way without the broker
    // (`pidfd_getfd`), for which a descriptor must be open. Else 0: a process keeps
    // descriptors open for its exports up to a quarter of its limit of open files, at
    // most 256, and makes the others on demand. Memory that is exported already stays
    // as it is.
    uint32_t fd_on_demand;
    // 0.
    uint32_t reserved;
} gpuipc_export_options;

// One type that was tried and did not work. Of 96 bytes for ever; what comes
// takes reserved ones.
typedef struct gpuipc_attempt {
    // The type that was tried: `GPUIPC_TYPE_...`.
    uint32_t handle_type;
    // Where it ended: `GPUIPC_STEP_...`.
    uint32_t step;
    // Why: `GPUIPC_REASON_...`.
    uint32_t reason;
    // What `code` is: `GPUIPC_CODE_...`.
    uint32_t code_kind;
    // What the driver or the kernel answered.
    int32_t code;
    // The segment of the memory at which it ended, from 0, or `GPUIPC_SEGMENT_NONE`.
    uint32_t segment;
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
    // Where there was no way between two GPUs, the UUID of the importing one; else
    // zeros.
    uint8_t pair_from[16];
    // The UUID of the GPU that holds the memory; else zeros.
    uint8_t pair_to[16];
} gpuipc_attempt;

// A device, by its place in this process's order or by its UUID. Of 24 bytes for
// ever.
typedef struct gpuipc_device {
    // This process's ordinal, from 0; -1: by its UUID.
    int32_t ordinal;
    // 0.
    uint32_t reserved;
    // With `ordinal` -1 the UUID (`cuDeviceGetUuid`), the same in all processes;
    // else zeros.
    uint8_t uuid[16];
} gpuipc_device;

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
    // that was exported. Else 0. Matters for `GPUIPC_TYPE_RUNTIME_IPC` only.
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
    // The device that maps the memory by its UUID (`cuDeviceGetUuid`), the same in all
    // processes: then `device` is -1. Zeros: `device` says it.
    uint8_t device_uuid[16];
    // 1: the CPU gets access, too. Of host memory only, whose address is then one for
    // the CPU, too. Else 0, and reading it there crashes the process.
    uint32_t host_access;
    // How many `access_devices`.
    uint32_t access_device_count;
    // Further devices that get access (`cuMemSetAccess`), each of which must be a peer of
    // the memory's GPU. A legacy mapping cannot: it is for one device. Read during the
    // call only.
    const struct gpuipc_device *access_devices;
    // Where to map, instead of at an address that the driver chooses, or NULL. It must
    // have room for the sum of the handles' `base_size` from `place_offset` on. Only
    // descriptors and fabric handles can, and memory of a pool cannot. The mapping
    // keeps the addresses; the object may be freed.
    const struct gpuipc_reservation *place;
    // Bytes from the base of `place`, a multiple of the granularity; without `place` 0.
    size_t place_offset;
} gpuipc_import_options;

// What is to be expected of one type of sharing. Of 104 bytes for ever.
typedef struct gpuipc_type_feasibility {
    // The type: `GPUIPC_TYPE_...`.
    uint32_t handle_type;
    // `GPUIPC_FEASIBLE_...`.
    uint32_t feasible;
    // With `GPUIPC_FEASIBLE_NO`, how it would fail; else zeros and empty texts.
    struct gpuipc_attempt attempt;
} gpuipc_type_feasibility;

// Another way to reach a registered memory than the GPU's, such as an InfiniBand
// address and its rkey. What it is and what its bytes mean is the caller's
// business. Of 72 bytes for ever.
typedef struct gpuipc_transport {
    // The caller's number of this kind of transport; one memory has it once.
    uint32_t kind;
    // How many of `bytes` are in use, 0 to `GPUIPC_TRANSPORT_BYTES`.
    uint32_t len;
    // The caller's bytes; 0 from `len` on.
    uint8_t bytes[GPUIPC_TRANSPORT_BYTES];
} gpuipc_transport;

// Who registered a memory, and where. Of 40 bytes for ever.
typedef struct gpuipc_owner {
    // The process, as the handles name it.
    uint8_t process_id[16];
    // Its host.
    uint8_t host_id[16];
    // Its pid in its own namespace. For messages, never an identity.
    uint32_t pid;
    // The inode of that namespace. For messages.
    uint32_t pid_namespace;
} gpuipc_owner;

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

// A ticket as C sees it inside a slot.
typedef struct gpuipc_ticket {
    // The broker's random name.
    uint8_t endpoint[16];
    // The secret of this export, which the broker asks for.
    uint8_t token[16];
    // The number of the memory's descriptor in the exporter; -1 where there is none: legacy memory, and descriptors that are made on demand. For messages and tests only: the exporter closes it with the export, and may have another file at that number then.
    int32_t fd;
    // The export table's descriptor; 0 without an export table, as the rest of it.
    int32_t table_fd;
    // Which of the export table's slots.
    uint32_t table_slot;
    // 0.
    uint32_t reserved;
    // The device of the export table's file.
    uint64_t table_device;
    // The inode of the export table's file, not 0 where there is an export table.
    uint64_t table_inode;
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

// One segment of shared GPU memory, with every type of sharing that it allows: 384 bytes,
// little-endian, without padding, to be shipped by any means.
//
// A handle that exists keeps all rules of the format. Made by `new` or
// `decode`, turned to bytes by `encode`. Whoever holds the bytes
// may ask for the memory, so they are to be kept like a password; the `Debug` text shows neither
// the token nor the driver's bytes.
//
// A slot that is not announced is all zeros. A reader takes a handle whose `min_reader` is at most
// its own version, and ignores (but keeps) the bits and reserved bytes that a newer writer set.
typedef struct gpuipc_mem_handle {
    // The letters `GIPC`.
    uint32_t magic;
    // The version of the format that the writer has.
    uint8_t version;
    // The oldest version that may read the handle.
    uint8_t min_reader;
    // 1 is CUDA; 2 is kept for HIP.
    uint8_t platform;
    // The types: RuntimeIpc 1, PosixFd 2, Fabric 4.
    uint8_t type_flags;
    // The memory's kind and extras: ticket 1, pool 2, host memory 4, multicast 8.
    uint16_t attributes;
    // Members of a multicast object; 0 for other memory.
    uint16_t num_devices;
    // The NUMA node of pinned host memory; else -1.
    int16_t numa_node;
    // 0.
    uint16_t reserved_short;
    // Bytes of the whole allocation: what an importer maps.
    uint64_t base_size;
    // Bytes of the allocation before this segment.
    uint64_t offset_from_base;
    // Bytes of this segment, at least 1; `offset_from_base + length` is at most `base_size`.
    uint64_t length;
    // The driver's `CU_POINTER_ATTRIBUTE_BUFFER_ID`; never used again in the exporter.
    uint64_t allocation_id;
    // The same in all segments of one exported range.
    uint64_t range_id;
    // Bytes of the whole range.
    uint64_t range_length;
    // Bytes of the range before this segment.
    uint64_t range_offset;
    // This segment's place in the range, from 0.
    uint32_t segment_index;
    // Segments of the range: 1 for one inside one allocation.
    uint32_t segment_count;
    // The GPU that holds the memory; zero for host memory.
    uint8_t device_uuid[16];
    // The exporter.
    uint8_t process_id[16];
    // The exporter's host: the kernel's boot id or what stands for it; zeros where unknown.
    uint8_t host_id[16];
    // The exporter's pid in its own namespace. For messages; it identifies nobody by itself.
    uint32_t pid;
    // The inode of the exporter's pid namespace.
    uint32_t pid_namespace;
    // The inode of the exporter's network namespace.
    uint32_t net_namespace;
    // NVML's fabric clique, 0 where unknown.
    uint32_t fabric_clique;
    // NVML's fabric cluster, zero where there is none.
    uint8_t fabric_cluster[16];
    // The exporter's number of the pool; 0 where the memory is from none.
    uint64_t pool_id;
    // 0.
    uint8_t reserved[20];
    // CRC-32C of the other 380 bytes.
    uint32_t checksum;
    // `CUipcMemHandle` (RuntimeIpc) or `CUmemPoolPtrExportData` (pool memory).
    union gpuipc_slot slot_0;
    // The ticket.
    union gpuipc_slot slot_1;
    // `CUmemFabricHandle` (Fabric).
    union gpuipc_slot slot_2;
} gpuipc_mem_handle;

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

// Closes the connections to other processes' brokers that are kept for the next
// import: at most eight, two descriptors each. The next import connects anew; imports
// under way on other threads go on.
//
// Fails with `GPUIPC_FORKED`.
gpuipc_status gpuipc_close_idle_connections(const struct gpuipc *ipc);

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
// Fails with `GPUIPC_INVALID_ARGUMENT` for a level that does not exist,
// `GPUIPC_UNSUPPORTED` in a Rust program that has a logger of its own, `GPUIPC_FORKED`.
gpuipc_status gpuipc_log_set(gpuipc_log_callback callback, void *user, uint32_t level);

// Exports `len` bytes of GPU memory from `ptr` on (a `CUdeviceptr`) to other
// processes, by every type of sharing that the memory allows: `cuMemAlloc`
// memory by legacy IPC, `cuMemCreate` memory (in a GPU or on a host NUMA node) by
// the handle types that it was created for, and memory of a pool by those of the
// pool. A range over several `cuMemCreate` allocations that are mapped side by side
// gives a handle for each of them; with `len` `GPUIPC_WHOLE_ALLOCATION` there is always
// one, for what the allocation around `ptr` has from there on. Needs no current context and leaves the caller's
// as it was. The first export starts a thread that answers importers.
//
// `*out` is to be given to `gpuipc_exported_free`, which revokes the export. Until
// then `cuMemCreate` memory stays allocated, whatever its owner frees;
// `cuMemAlloc` memory and memory of a pool its owner must keep.
//
// A handle gives the whole allocation, not only the range. A handle of pool memory gives
// the whole pool: also what was never exported, and what the pool allocates later, until
// the pool is destroyed. Ending the export does not take that back.
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

// How many bytes were exported: with `GPUIPC_WHOLE_ALLOCATION`, how many there are.
gpuipc_status gpuipc_exported_len(const struct gpuipc_exported *exported, size_t *out);

// How many handles describe the memory: one for memory inside one allocation, else one
// for each allocation. An importer needs all of them.
gpuipc_status gpuipc_exported_handle_count(const struct gpuipc_exported *exported, size_t *out);

// Writes the bytes of handle `index`, `GPUIPC_HANDLE_BYTES` of them, into
// `buffer`, which has `len` bytes and needs no alignment. Send them to the
// importer by any means, unchanged; of several handles one after the other.
// Who holds the bytes may ask for the memory: keep them like a password.
//
// Fails with `GPUIPC_INVALID_ARGUMENT` for an index beyond the last,
// `GPUIPC_BUFFER_TOO_SMALL`.
gpuipc_status gpuipc_exported_handle_bytes(const struct gpuipc_exported *exported,
                                           size_t index,
                                           uint8_t *buffer,
                                           size_t len);

// Writes the bytes of all handles, one after the other, into `buffer` of `len`
// bytes, and how many there are into `*needed`: what `gpuipc_import` takes. With
// length 0 it only writes `*needed`, and the buffer may be NULL; with a buffer,
// `needed` may be NULL.
//
// Fails with `GPUIPC_BUFFER_TOO_SMALL`, and then writes `*needed` only.
gpuipc_status gpuipc_exported_bytes(const struct gpuipc_exported *exported,
                                    uint8_t *buffer,
                                    size_t len,
                                    size_t *needed);

// The types that the memory was made for but that could not be exported, and
// why: a line each, empty if there are none. A text function: see above.
gpuipc_status gpuipc_exported_attempts(const struct gpuipc_exported *exported,
                                       char *buffer,
                                       size_t len,
                                       size_t *needed);

// The same attempts as structs. An array function: see above.
gpuipc_status gpuipc_exported_attempt_list(const struct gpuipc_exported *exported,
                                           struct gpuipc_attempt *attempts,
                                           size_t capacity,
                                           size_t *count);

// Revokes the export, unless the same allocation is exported elsewhere in this
// process, too. NULL is allowed. Importers that have mapped the memory keep
// their mappings; later ones find the export revoked. (A fabric handle leads to the
// memory as long as that is allocated: the driver asks nobody.)
//
// Waits for the library's thread, a second at most, if that is in a driver call about
// the memory, and releases the driver's reference itself. So the memory may be unmapped
// afterwards, or before, but not by another thread meanwhile: the real driver does not
// survive `cuMemRelease` and `cuMemUnmap` of one allocation at once (seen on an H200,
// driver 580).
void gpuipc_exported_free(struct gpuipc_exported *exported);

// Lets the export live without this object, until the memory is freed or the process
// ends: for owners who cannot say when every importer has imported. `exported` is given
// back in any case but `GPUIPC_IN_CALLBACK`, and must not be used any more.
//
// The driver tells nobody of a free: each later export and each call of this looks at a
// few of the exports that were left, and ends those whose memory is gone. `cuMemCreate`
// memory that its owner has unmapped and released stays allocated until then; it must not be
// unmapped by one thread while another one exports, or leaves an export. The library's thread
// runs on, after `gpuipc_close`, too.
//
// Fails with `GPUIPC_NULL_ARGUMENT`, `GPUIPC_FORKED`.
gpuipc_status gpuipc_exported_leave(struct gpuipc_exported *exported);

// Fills `options` with the defaults. `struct_size` is
// `sizeof(gpuipc_import_options)` where the caller is compiled.
//
// Fails with `GPUIPC_INVALID_ARGUMENT` for a size that no header has.
gpuipc_status gpuipc_import_options_init(struct gpuipc_import_options *options, size_t struct_size);

// Maps the memory behind the handles in the `len` bytes at `handles`, by the
// first type of sharing that works. The bytes need no alignment; `len` is
// `GPUIPC_HANDLE_BYTES` for each handle. They are all that the export gave, in any
// order: memory in several allocations comes to lie at one contiguous address, all of
// it or nothing. `options` may be NULL: the defaults. What a type that failed had done
// is undone before the next one is tried. The caller's current context stays.
//
// `*out` is to be given to `gpuipc_mem_free`, which unmaps. In the exporting
// process itself this gives the original pointer, and access for the importing device and
// `access_devices`; `cuMemAlloc` memory cannot be given to another GPU that these options
// name, which is an error (`cuCtxEnablePeerAccess` is its owner's), nor can own memory have
// a `place`. `gpuipc_deserialize` does the same. Ranges of one `cuMemCreate` allocation
// that are imported with the same device and access share one mapping; a legacy handle is
// opened once in a process, and its exporter asked at each import.
//
// Nothing here orders one process's GPU work after another's.
//
// Fails with `GPUIPC_EXPORTER_GONE`, `GPUIPC_EXPORT_REVOKED`,
// `GPUIPC_TIMED_OUT`, `GPUIPC_CANCELLED`, `GPUIPC_OTHER_HOST` or else `GPUIPC_NO_TYPE_WORKED` (the
// error has every attempt), `GPUIPC_HANDLE_...` for bytes that are no
// handles, `GPUIPC_NOT_ONE_RANGE` if some are missing, doubled or of other memory,
// `GPUIPC_INVALID_ARGUMENT`, `GPUIPC_UNSUPPORTED`,
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

// What was known about the memory at this very import: one of `GPUIPC_LIVENESS_...`.
// Of legacy memory and memory of a pool the exporter is asked each time, also where it is
// mapped here already.
gpuipc_status gpuipc_mem_liveness(const struct gpuipc_mem *mem, uint32_t *out);

// The device that maps the memory, by this process's ordinal.
gpuipc_status gpuipc_mem_device(const struct gpuipc_mem *mem, int32_t *out);

// The types that were tried before the one that worked, and why each failed: a
// line each, empty if there are none. A text function: see above.
gpuipc_status gpuipc_mem_attempts(const struct gpuipc_mem *mem,
                                  char *buffer,
                                  size_t len,
                                  size_t *needed);

// The same attempts as structs. An array function: see above.
gpuipc_status gpuipc_mem_attempt_list(const struct gpuipc_mem *mem,
                                      struct gpuipc_attempt *attempts,
                                      size_t capacity,
                                      size_t *count);

// Copies `len` bytes from `offset` on into `to`, on the CPU (`cuMemcpyDtoH`).
//
// This process's own memory (`GPUIPC_TYPE_SAME_PROCESS`) is mapped a second time for the
// copy, which only memory of `cuMemCreate` can be, and only while it is exported; else use
// the original pointer.
//
// Fails with `GPUIPC_INVALID_ARGUMENT` for a range beyond the memory, with
// `GPUIPC_UNSUPPORTED` for own memory as above, and with `GPUIPC_DRIVER_CALL`, after which
// `to` holds anything.
gpuipc_status gpuipc_mem_read(const struct gpuipc_mem *mem, size_t offset, uint8_t *to, size_t len);

// Copies `len` bytes on the CPU at `from` to `offset` (`cuMemcpyHtoD`). When it
// returns the bytes are there, and so is all other work of that context done.
//
// Fails as `gpuipc_mem_read`, and with `GPUIPC_DRIVER_CALL` also where the mapping may be
// read only.
gpuipc_status gpuipc_mem_write(const struct gpuipc_mem *mem,
                               size_t offset,
                               const uint8_t *from,
                               size_t len);

// Unmaps the memory, and gives back the address space that it took, where that is
// this import's own or a `place`: `*out` is then a reservation, to be given to
// `gpuipc_reservation_free`, and importing there again puts memory at the same address.
// `*out` is NULL for a legacy mapping, for memory of a pool and for this process's own;
// and where other ranges of the same allocation still use the mapping: then only this
// range ends. (A placed mapping is never shared.) Does not wait for the GPU: work that
// uses the memory must have ended.
//
// `mem` is given back in any case but `GPUIPC_IN_CALLBACK`. `out` may be NULL: as `gpuipc_mem_free`.
//
// Fails with `GPUIPC_NULL_ARGUMENT` without `mem`.
gpuipc_status gpuipc_mem_unmap(struct gpuipc_mem *mem,
                               struct gpuipc_reservation **out);

// Unmaps the memory, unless other ranges of the same allocation are in use in this
// process: they share one mapping, which the last of them undoes. NULL is allowed. Does not
// wait for the GPU: work that uses the memory must have ended. Changes no thread's current
// context.
void gpuipc_mem_free(struct gpuipc_mem *mem);

// Reserves `size` bytes of address space (`cuMemAddressReserve`), a multiple of the
// granularity (2 MiB on an H200), at an address that the driver chooses: for `place`
// of `gpuipc_import_options`.
//
// `*out` is to be given to `gpuipc_reservation_free`.
//
// Fails with `GPUIPC_DRIVER_CALL` (1 for another size, 2 without room),
// `GPUIPC_FORKED`.
gpuipc_status gpuipc_reservation_new(const struct gpuipc *ipc,
                                     size_t size,
                                     struct gpuipc_reservation **out);

// Wraps a reservation of the caller's own (`cuMemAddressReserve`), for imports into
// it. `base` and `size`, in bytes, are those of one whole reservation of this
// process. The caller frees it, after this object and all that is mapped in it. The
// driver itself maps past the end of a reservation, over whatever lies there, so
// that a size that is too large does harm.
//
// `*out` is to be given to `gpuipc_reservation_free`, which does not free the
// addresses.
//
// Fails with `GPUIPC_INVALID_ARGUMENT` for no addresses or more than there are,
// `GPUIPC_FORKED`.
gpuipc_status gpuipc_reservation_of_caller(const struct gpuipc *ipc,
                                           uint64_t base,
                                           size_t size,
                                           struct gpuipc_reservation **out);

// The first address (a `CUdeviceptr`).
gpuipc_status gpuipc_reservation_base(const struct gpuipc_reservation *reservation, uint64_t *out);

// Bytes of address space.
gpuipc_status gpuipc_reservation_size(const struct gpuipc_reservation *reservation, size_t *out);

// Lets go of it. NULL is allowed. The addresses are freed (`cuMemAddressFree`) when
// nothing that was imported into them is mapped any more; those of
// `gpuipc_reservation_of_caller` are not.
void gpuipc_reservation_free(struct gpuipc_reservation *reservation);

// Whether the handles in the `len` bytes at `handles` could be imported here with
// these options, answered by type with reasons. Maps nothing and changes nothing.
// `options` may be NULL: the defaults.
//
// What can be tried without mapping is tried: the descriptor is fetched and
// imported, the fabric handle imported, and both given back; the exporter is asked
// whether the memory is unchanged; P2P access is looked up. So it may wait as long as an
// import may, and be cancelled as one.
//
// `*out` is to be given to `gpuipc_feasibility_free`. That the memory cannot be imported
// is no failure of this call: see the feasibility.
//
// Fails with `GPUIPC_HANDLE_...` for bytes that are no handles and
// `GPUIPC_INVALID_ARGUMENT` for options that cannot be; with nothing else.
gpuipc_status gpuipc_can_import(const struct gpuipc *ipc,
                                const uint8_t *handles,
                                size_t len,
                                const struct gpuipc_import_options *options,
                                struct gpuipc_feasibility **out);

// 1 if an import is worth trying: for this process's own memory, and where an answer
// is `GPUIPC_FEASIBLE_YES` or `GPUIPC_FEASIBLE_UNKNOWN`. Else 0.
gpuipc_status gpuipc_feasibility_is_importable(const struct gpuipc_feasibility *feasibility,
                                               uint32_t *out);

// 1 if the memory is this process's own, so that an import gives the original
// pointer. Else 0.
gpuipc_status gpuipc_feasibility_is_own(const struct gpuipc_feasibility *feasibility,
                                        uint32_t *out);

// What is to be expected of each type, in the order in which an import would try
// them; those that it would not try come first. None where there is a problem. An
// array function: see above.
gpuipc_status gpuipc_feasibility_types(const struct gpuipc_feasibility *feasibility,
                                       struct gpuipc_type_feasibility *types,
                                       size_t capacity,
                                       size_t *count);

// Why no import could succeed, whatever the type, as the status that
// `gpuipc_import` would return: the handles are not one range, a device is not
// there, the process was forked. `GPUIPC_OK` if there is no such problem.
gpuipc_status gpuipc_feasibility_problem(const struct gpuipc_feasibility *feasibility,
                                         gpuipc_status *out);

// The problem in words, empty if there is none. A text function: see above.
gpuipc_status gpuipc_feasibility_problem_text(const struct gpuipc_feasibility *feasibility,
                                              char *buffer,
                                              size_t len,
                                              size_t *needed);

// Gives it back. NULL is allowed.
void gpuipc_feasibility_free(struct gpuipc_feasibility *feasibility);

// Registers `len` bytes of GPU memory from `ptr` on (a `CUdeviceptr`): exports them as
// `gpuipc_export_with` does (`GPUIPC_WHOLE_ALLOCATION` as there), and puts the `count`
// `transports` of the caller, at most `GPUIPC_TRANSPORTS`, beside the handles. `transports` may be NULL if `count` is 0,
// `options` may be NULL: the defaults.
//
// Memory that cannot be exported is registered for the transports alone, if there are
// some: `gpuipc_registered_gpu_error` says why.
//
// `*out` is to be given to `gpuipc_registered_free`, which revokes the export.
//
// Fails as `gpuipc_export_with`, with `GPUIPC_INVALID_ARGUMENT` for a transport
// with too many bytes, and with `GPUIPC_REGISTERED_MEMORY` for too many
// transports or two of one kind.
gpuipc_status gpuipc_register(const struct gpuipc *ipc,
                              uint64_t ptr,
                              size_t len,
                              const struct gpuipc_transport *transports,
                              size_t count,
                              const struct gpuipc_export_options *options,
                              struct gpuipc_registered **out);

// Registers `len` bytes from `ptr` on for the `transports` alone: nothing is exported, and
// the driver is not asked. The memory may be of any kind, and `count` may be 0.
//
// `*out` is to be given to `gpuipc_registered_free`.
//
// Fails with `GPUIPC_INVALID_ARGUMENT` and `GPUIPC_REGISTERED_MEMORY` as `gpuipc_register`,
// `GPUIPC_FORKED`.
gpuipc_status gpuipc_register_transports(const struct gpuipc *ipc,
                                         uint64_t ptr,
                                         size_t len,
                                         const struct gpuipc_transport *transports,
                                         size_t count,
                                         struct gpuipc_registered **out);

// Who this process is, and where: what `gpuipc_registered_owner` says of memory that it
// registers, to see whether another process's memory is this process's, or this host's.
//
// Fails with `GPUIPC_FORKED`.
gpuipc_status gpuipc_self(const struct gpuipc *ipc, struct gpuipc_owner *out);

// What another process registered, from the `len` bytes of its `gpuipc_registered_bytes`, which
// need no alignment. Its memory is mapped as `gpuipc_import` does; in the process that
// registered it this gives the original pointer, with the access or the error that
// `gpuipc_import` gives there. Where no type of sharing leads to the
// memory and there is a transport, it is left to that one: `gpuipc_registered_data` is
// 0, and `gpuipc_registered_gpu_error` says why. `options` may be NULL: the defaults.
//
// `*out` is to be given to `gpuipc_registered_free`, which unmaps.
//
// Fails with `GPUIPC_REGISTERED_MEMORY` for bytes that are no registered memory,
// `GPUIPC_HANDLE_...` for handles in them that are none, and without a transport as
// `gpuipc_import`.
gpuipc_status gpuipc_deserialize(const struct gpuipc *ipc,
                                 const uint8_t *bytes,
                                 size_t len,
                                 const struct gpuipc_import_options *options,
                                 struct gpuipc_registered **out);

// Writes the bytes to ship to importers into `buffer` of `len` bytes, and how many there
// are into `*needed`: what `gpuipc_deserialize` takes. With length 0 it only writes
// `*needed`, and the buffer may be NULL; with a buffer, `needed` may be NULL. Who holds
// the bytes may ask for the memory: keep them like a password.
//
// Fails with `GPUIPC_BUFFER_TOO_SMALL`, and then writes `*needed` only.
gpuipc_status gpuipc_registered_bytes(const struct gpuipc_registered *registered,
                                      uint8_t *buffer,
                                      size_t len,
                                      size_t *needed);

// The bytes of its GPU handles, as `gpuipc_exported_bytes` writes them; none for memory
// that cannot be shared.
//
// Fails with `GPUIPC_BUFFER_TOO_SMALL`, and then writes `*needed` only.
gpuipc_status gpuipc_registered_handles(const struct gpuipc_registered *registered,
                                        uint8_t *buffer,
                                        size_t len,
                                        size_t *needed);

// The buffer's first byte in this process (a `CUdeviceptr`): the original pointer in its
// owner, the mapping's elsewhere. 0 where no type of sharing leads to it, so that only a
// transport does.
gpuipc_status gpuipc_registered_data(const struct gpuipc_registered *registered, uint64_t *out);

// Bytes of the buffer.
gpuipc_status gpuipc_registered_len(const struct gpuipc_registered *registered, uint64_t *out);

// The buffer's address in its owner, as the owner says: for transports that name remote
// memory by it. Never to be touched elsewhere.
gpuipc_status gpuipc_registered_original_ptr(const struct gpuipc_registered *registered,
                                             uint64_t *out);

// Who registered it, and where.
gpuipc_status gpuipc_registered_owner(const struct gpuipc_registered *registered,
                                      struct gpuipc_owner *out);

// Its transports, in the order in which they were registered. An array function: see
// above.
gpuipc_status gpuipc_registered_transports(const struct gpuipc_registered *registered,
                                           struct gpuipc_transport *transports,
                                           size_t capacity,
                                           size_t *count);

// The mapping of another process's memory, for `gpuipc_mem_type_used` and its like; NULL
// in the owner, and where nothing is mapped. It is `registered`'s: never to be given to
// `gpuipc_mem_free` or `gpuipc_mem_unmap`, and gone with `gpuipc_registered_free`.
gpuipc_status gpuipc_registered_mapping(const struct gpuipc_registered *registered,
                                        const struct gpuipc_mem **out);

// Why the memory could not be exported, or not be mapped, where that was left to a
// transport: as `gpuipc_last_error_read` would say of the call that failed. Its status
// is `GPUIPC_OK` if nothing failed.
gpuipc_status gpuipc_registered_gpu_error(const struct gpuipc_registered *registered,
                                          struct gpuipc_error *out);

// The same in words, empty if nothing failed. A text function: see above.
gpuipc_status gpuipc_registered_gpu_error_text(const struct gpuipc_registered *registered,
                                               char *buffer,
                                               size_t len,
                                               size_t *needed);

// The attempts behind it. An array function: see above.
gpuipc_status gpuipc_registered_gpu_error_attempts(const struct gpuipc_registered *registered,
                                                   struct gpuipc_attempt *attempts,
                                                   size_t capacity,
                                                   size_t *count);

// Revokes the export, or unmaps. NULL is allowed. In the owner the memory stays, as do
// importers' mappings; elsewhere work that uses the memory must have ended, as with
// `gpuipc_mem_free`. The transports are the caller's business.
void gpuipc_registered_free(struct gpuipc_registered *registered);

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
gpuipc_status gpuipc_last_error(char *buffer, size_t len, size_t *needed);

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

// Copies `len` bytes from `offset` on into `to`, on the CPU (`cuMemcpyDtoH`).
//
// Fails with `GPUIPC_INVALID_ARGUMENT` for a range beyond the buffer, and with
// `GPUIPC_DRIVER_CALL`, after which `to` holds anything.
gpuipc_status gpuipc_buffer_read(const struct gpuipc_buffer *buffer,
                                 size_t offset,
                                 uint8_t *to,
                                 size_t len);

// Copies `len` bytes on the CPU at `from` to `offset` (`cuMemcpyHtoD`). When it
// returns the bytes are there, and so is all other work of that context done.
//
// Fails with `GPUIPC_INVALID_ARGUMENT` for a range beyond the buffer,
// `GPUIPC_DRIVER_CALL`.
gpuipc_status gpuipc_buffer_write(const struct gpuipc_buffer *buffer,
                                  size_t offset,
                                  const uint8_t *from,
                                  size_t len);

// Frees the memory. NULL is allowed. Work that uses it must have ended; exports of
// it are to be freed before.
void gpuipc_buffer_free(struct gpuipc_buffer *buffer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GPUIPC_H */
