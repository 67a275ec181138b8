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
 * What holds for all functions:
 *
 * Who owns what. gpuipc, gpuipc_exported and gpuipc_mem are made by the library
 * and given back, once, to gpuipc_close, gpuipc_exported_free and
 * gpuipc_mem_free, in any order. Buffers are the caller's; the library keeps no
 * pointer to them. Strings that are returned belong to the library for ever.
 *
 * Status. GPUIPC_OK is 0. Numbers keep their meaning for ever; a newer library
 * may return new ones. NULL where a pointer is needed is GPUIPC_NULL_ARGUMENT.
 * gpuipc_last_error has the cause in full.
 *
 * Outputs are written only when the call returns GPUIPC_OK. Text functions alone
 * do more.
 *
 * Text functions (gpuipc_exported_attempts, gpuipc_mem_attempts,
 * gpuipc_last_error) write UTF-8 with a NUL at its end into `buffer` of `size`
 * bytes, and the bytes that the whole text needs, NUL included, into `*needed`.
 * Without enough room they write the part that fits, with its NUL, and return
 * GPUIPC_BUFFER_TOO_SMALL. With size 0 they only write `*needed`, and the buffer
 * may be NULL. With a buffer, `needed` may be NULL.
 *
 * Threads. All functions may be called from any thread, on the same object from
 * several at once, and an object may be freed on another thread than it was made
 * on. An object must not be freed while another thread uses it. The last error
 * is each thread's own.
 *
 * fork. A child forked after gpuipc_open cannot use CUDA, so calls that need it
 * return GPUIPC_FORKED there. It may free the objects that it inherited, which
 * does nothing to the driver and to the parent, or leave them. fork followed by
 * exec is allowed at any time.
 *
 * Panics. No Rust panic gets to the caller: GPUIPC_PANIC instead.
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
 *                       off, the default
 *
 * Linking: libgpuipc.a -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc, or -lgpuipc for
 * the shared library. Neither needs CUDA: the driver is loaded by gpuipc_open.
 *
 * For Linux on 64-bit little-endian machines.
 */

#ifndef GPUIPC_H
#define GPUIPC_H

#include <stddef.h>
#include <stdint.h>

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

// The caller's cancel flag was set (not from calls of this version's C interface).
#define GPUIPC_CANCELLED 86

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

// In `attributes` of a handle: `slot_1` is a ticket.
#define GPUIPC_ATTRIBUTE_TICKET 1

// In `attributes` of a handle: the memory is from a pool, `slot_0` is its pointer.
#define GPUIPC_ATTRIBUTE_MEM_POOL 2

// In `attributes` of a handle: pinned host memory on one NUMA node.
#define GPUIPC_ATTRIBUTE_HOST_NUMA 4

// In `attributes` of a handle: a multicast object.
#define GPUIPC_ATTRIBUTE_MULTICAST 8

// The version that the header belongs to: major part.
#define GPUIPC_VERSION_MAJOR 0

// The version that the header belongs to: minor part.
#define GPUIPC_VERSION_MINOR 1

// The version that the header belongs to: patch part.
#define GPUIPC_VERSION_PATCH 0

// The version that the header belongs to, as `gpuipc_version` gives the
// library's: 1002003 for 1.2.3.
#define GPUIPC_VERSION (((GPUIPC_VERSION_MAJOR * 1000000) + (GPUIPC_VERSION_MINOR * 1000)) + GPUIPC_VERSION_PATCH)

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

// How memory is imported. Filled by `gpuipc_import_options_init`; then change
// what is to be different.
//
// It may grow at its end. The library takes the size of every header that was
// published up to its own version, and gives fields that an older header does
// not have their defaults.
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

// Gives the library back. NULL is allowed. What was exported and imported
// through it stays valid until it is freed itself.
void gpuipc_close(struct gpuipc *ipc);

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

// The types that the memory was made for but that could not be exported, and
// why: a line each, empty if there are none. A text function: see above.
gpuipc_status gpuipc_exported_attempts(const struct gpuipc_exported *exported,
                                       char *buffer,
                                       size_t size,
                                       size_t *needed);

// Ends the offer, unless the same allocation is exported elsewhere in this
// process, too. NULL is allowed. Importers that have mapped the memory keep
// their mappings; later ones find the offer withdrawn.
void gpuipc_exported_free(struct gpuipc_exported *exported);

// Fills `options` with the defaults. `struct_size` is
// `sizeof(gpuipc_import_options)` where the caller is compiled, so that a newer
// library never writes more than the caller has.
//
// Fails with `GPUIPC_INVALID_ARGUMENT` for a size that this library does not know.
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
// `GPUIPC_TIMED_OUT`, `GPUIPC_OTHER_HOST` or else `GPUIPC_NO_TYPE_WORKED` (the
// error's text has every attempt), `GPUIPC_HANDLE_...` for bytes that are no
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

// The types that were tried before the one that worked, and why each failed: a
// line each, empty if there are none. A text function: see above.
gpuipc_status gpuipc_mem_attempts(const struct gpuipc_mem *mem,
                                  char *buffer,
                                  size_t size,
                                  size_t *needed);

// Unmaps the memory. NULL is allowed. Does not wait for the GPU: work that uses
// the memory must have ended. Changes no thread's current context.
void gpuipc_mem_free(struct gpuipc_mem *mem);

// Says whether the `len` bytes at `handles` are handles, as `gpuipc_import`
// would, without a driver: not whether the memory can be reached.
//
// Fails with `GPUIPC_HANDLE_LENGTH`, `GPUIPC_HANDLE_MAGIC`,
// `GPUIPC_HANDLE_NEWER`, `GPUIPC_HANDLE_DAMAGED`, `GPUIPC_HANDLE_FIELD`.
gpuipc_status gpuipc_handle_check(const uint8_t *handles, size_t len);

// What this thread's last call said, in full: the function, the cause, every
// attempt with its step, code and hint. Empty if that call returned
// `GPUIPC_OK`. The calls that return no status, and this one, do not change it.
// A text function: see above.
gpuipc_status gpuipc_last_error(char *buffer, size_t size, size_t *needed);

// The status in one sentence. Never NULL, and never freed; also for numbers
// that this library does not know.
const char *gpuipc_status_text(gpuipc_status status);

// The status's name without `GPUIPC_`, such as `TIMED_OUT`; `UNKNOWN` for a
// number that this library does not know. Never NULL, and never freed.
const char *gpuipc_status_name(gpuipc_status status);

// The library's version, in the form of `GPUIPC_VERSION`.
uint32_t gpuipc_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GPUIPC_H */
