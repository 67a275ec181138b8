/*
 * gpuipc: multicast objects (NVLS), which join the memory of several GPUs.
 *
 * Made by cbindgen from the sources of gpuipc-ffi, which are what to change.
 *
 * The ABI promise of gpuipc.h excludes this header: what is in it may change or go in
 * any version. It has run on gpuipc's emulated driver only, never on hardware.
 *
 * Only a library that was built with the feature has these functions:
 *
 *     cargo build --release -p gpuipc-ffi --features multicast
 *
 * What gpuipc.h says of all functions holds here, too. The objects gpuipc_multicast_object,
 * gpuipc_multicast and gpuipc_multicast_buffer are given back to gpuipc_multicast_object_free,
 * gpuipc_multicast_free and gpuipc_multicast_buffer_close.
 */

#ifndef GPUIPC_MULTICAST_H
#define GPUIPC_MULTICAST_H

#include "gpuipc.h"

// Bytes of every message between the members of a multicast team.
#define GPUIPC_MULTICAST_MESSAGE_BYTES 88

// For `heard` of `gpuipc_multicast_gather`: the member's message is in `all`.
#define GPUIPC_HEARD_MESSAGE 0

// For `heard` of `gpuipc_multicast_gather`: the member has left or died.
#define GPUIPC_HEARD_GONE 1

// For `heard` of `gpuipc_multicast_gather`: it said nothing until the deadline.
#define GPUIPC_HEARD_SILENT 2

// A member of a multicast object that has joined, as have all others.
typedef struct gpuipc_multicast gpuipc_multicast;

// Memory that every member has bound at the same place of a multicast object.
typedef struct gpuipc_multicast_buffer gpuipc_multicast_buffer;

// A multicast object that this process made and exports to the members.
typedef struct gpuipc_multicast_object gpuipc_multicast_object;

// An all-gather over any transport of the caller's. It sends the
// `GPUIPC_MULTICAST_MESSAGE_BYTES` at `message` to every other member, and, for
// each member i but itself, writes what came from it to `all` at i times that
// length and one of `GPUIPC_HEARD_...` to `heard[i]`. It returns within
// `timeout_ms`, whatever has come. It is called on the thread that joins or
// binds. A callback: see `gpuipc.h` for what it may do.
typedef void (*gpuipc_multicast_gather)(void *context,
                                        const uint8_t *message,
                                        uint8_t *all,
                                        uint8_t *heard,
                                        uint32_t timeout_ms);

// The members of a multicast object, as one of them sees the others.
typedef struct gpuipc_multicast_team {
    // `sizeof(gpuipc_multicast_team)` of the header that the caller was compiled with.
    size_t struct_size;
    // This member, from 0.
    uint32_t rank;
    // How many there are.
    uint32_t size;
    // How long each exchange may take, in milliseconds; an agreement has two.
    // 0: 30000.
    uint32_t timeout_ms;
    // 0.
    uint32_t reserved;
    // How the members exchange messages.
    gpuipc_multicast_gather gather;
    // Passed to `gather`. It must stay valid until the `gpuipc_multicast` is freed.
    void *context;
} gpuipc_multicast_team;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes a multicast object (NVLS) for `num_devices` members, one GPU each, with
// room for `size` bytes of each member's memory.
//
// On any driver but gpuipc's emulated one every `gpuipc_multicast_...` call that needs
// the driver returns `GPUIPC_MULTICAST_UNAVAILABLE` before it calls it.
//
// `*out` is to be given to `gpuipc_multicast_object_free` once this process's
// own member has joined: then all have.
//
// Fails with `GPUIPC_MULTICAST_UNAVAILABLE` (the error's text has the stage, the
// code and the cure), `GPUIPC_INVALID_ARGUMENT`, `GPUIPC_BROKER_START`,
// `GPUIPC_FORKED`.
gpuipc_status gpuipc_multicast_create(const gpuipc *ipc,
                                      size_t size,
                                      uint32_t num_devices,
                                      struct gpuipc_multicast_object **out);

// Writes the `GPUIPC_HANDLE_BYTES` of the object's handle into `buffer`, which
// has `size` bytes. Send them to every member, this process's own too.
//
// Fails with `GPUIPC_BUFFER_TOO_SMALL`.
gpuipc_status gpuipc_multicast_object_handle(const struct gpuipc_multicast_object *object,
                                             uint8_t *buffer,
                                             size_t size);

// Revokes the export. NULL is allowed. The object lives as long as a member has it.
void gpuipc_multicast_object_free(struct gpuipc_multicast_object *object);

// Imports the object behind the `len` bytes at `handle`, adds the GPU with the
// ordinal `device` to it, and waits until every member of `team` has done the
// same. A failure is told to the others, which then fail, too.
//
// `*out` is to be given to `gpuipc_multicast_free`.
//
// Fails with `GPUIPC_MULTICAST_UNAVAILABLE` for this member's own failure,
// `GPUIPC_MULTICAST_TEAM` for another one's (the error's text names the member
// and what is wrong with it), `GPUIPC_EXPORTER_GONE` and others as
// `gpuipc_import`, `GPUIPC_INVALID_ARGUMENT`, `GPUIPC_NO_DEVICE`.
gpuipc_status gpuipc_multicast_join(const gpuipc *ipc,
                                    const uint8_t *handle,
                                    size_t len,
                                    int32_t device,
                                    const struct gpuipc_multicast_team *team,
                                    struct gpuipc_multicast **out);

// Binds `len` bytes of this member's memory from `ptr` on to the first free
// range of the object, and waits until every member has done the same: all call
// it, and free their buffers, in the same order. The memory is `cuMemCreate`
// memory on the member's GPU, made with a handle type; it stays allocated until
// the buffer is closed.
//
// `*out` is to be given to `gpuipc_multicast_buffer_close`, before or after
// `multicast` is freed.
//
// Fails with `GPUIPC_INVALID_ARGUMENT` for `ptr` or `len` against the granularity or
// the allocation's size (the text has the numbers), `GPUIPC_MULTICAST_UNAVAILABLE`,
// `GPUIPC_MULTICAST_TEAM`. Where the members named something else than one another,
// or one of them was silent or died, every later call with `multicast` fails in the
// same way: free it, and join a new object.
gpuipc_status gpuipc_multicast_bind(const struct gpuipc_multicast *multicast,
                                    uint64_t ptr,
                                    size_t len,
                                    struct gpuipc_multicast_buffer **out);

// The multicast address (a `CUdeviceptr`) of what was bound.
gpuipc_status gpuipc_multicast_buffer_ptr(const struct gpuipc_multicast_buffer *buffer,
                                          uint64_t *out);

// Unbinds this member's memory; with the last buffer the object is unmapped
// before. NULL is allowed. All members must be done with the address. The buffer
// is freed in any case but `GPUIPC_IN_CALLBACK`.
//
// Fails with `GPUIPC_MULTICAST_UNAVAILABLE` where the driver does not unbind.
gpuipc_status gpuipc_multicast_buffer_close(struct gpuipc_multicast_buffer *buffer);

// Lets go of the member's side of the object, and of its team. NULL is allowed.
// Buffers that are there stay.
void gpuipc_multicast_free(struct gpuipc_multicast *multicast);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GPUIPC_MULTICAST_H */
