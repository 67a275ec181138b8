/* What calls.c leaves out: memory of several allocations and of every kind, places,
 * access devices, the CPU's access, feasibilities, registered memory. On two GPUs, which are
 * peers.
 *
 * usage: grown [without-peers] */
#define _GNU_SOURCE
#include "check.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define GRANULARITY ((size_t)2 << 20)
#define SIZE (2 * GRANULARITY)
#define HANDLES (2 * GPUIPC_HANDLE_BYTES)
/* A header, one transport and two handles. */
#define FORM (128 + 72 + HANDLES)

static char untouched_place;
#define UNTOUCHED ((void *)&untouched_place)

/* What the exporter tells: of segments, of host memory, of cuMemAlloc memory. */
typedef struct {
    uint8_t segments[HANDLES], form[FORM], host[GPUIPC_HANDLE_BYTES], legacy[GPUIPC_HANDLE_BYTES];
    uint64_t ptr;
} told;

/* ---- the exporter ------------------------------------------------------------------- */

static gpuipc_exported *export_new(gpuipc *ipc, uint32_t memory, size_t size, gpuipc_buffer **buffer) {
    gpuipc_export_options options;
    gpuipc_exported *exported;
    uint64_t ptr;
    OK(gpuipc_export_options_init(&options, sizeof options));
    options.fd_on_demand = 1;
    OK(gpuipc_buffer_new(ipc, 0, memory, size, buffer));
    OK(gpuipc_buffer_write(*buffer, size - 5, (const uint8_t *)"last", 5));
    OK(gpuipc_buffer_ptr(*buffer, &ptr));
    OK(gpuipc_export_with(ipc, ptr, size, &options, &exported));
    return exported;
}

static void registering(gpuipc *ipc, uint64_t ptr, gpuipc_registered **registered) {
    gpuipc_transport transports[GPUIPC_TRANSPORTS + 1], read[2];
    gpuipc_registered *none = UNTOUCHED;
    gpuipc_error error;
    const gpuipc_mem *mapping = UNTOUCHED;
    uint64_t number = 77;
    size_t count = 77;
    char text[512];
    memset(transports, 0, sizeof transports);
    for (uint32_t i = 0; i <= GPUIPC_TRANSPORTS; i++) {
        transports[i].kind = i + 7;
        transports[i].len = 4;
        memcpy(transports[i].bytes, "rkey", 4);
    }
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_register(NULL, ptr, SIZE, transports, 1, NULL, &none));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_register(ipc, ptr, SIZE, NULL, 1, NULL, &none));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_register(ipc, ptr, SIZE, transports, 1, NULL, NULL));
    EXPECT(GPUIPC_REGISTERED_MEMORY, gpuipc_register(ipc, ptr, SIZE, transports, SIZE_MAX, NULL, &none));
    EXPECT(GPUIPC_REGISTERED_MEMORY,
           gpuipc_register(ipc, ptr, SIZE, transports, GPUIPC_TRANSPORTS + 1, NULL, &none));
    transports[1].kind = 7;
    EXPECT(GPUIPC_REGISTERED_MEMORY, gpuipc_register(ipc, ptr, SIZE, transports, 2, NULL, &none));
    transports[1].kind = 8;
    transports[1].len = 65;
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_register(ipc, ptr, SIZE, transports, 2, NULL, &none));
    TEXT_HAS("transports[1]");
    transports[0].len = 3;
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_register(ipc, ptr, SIZE, transports, 1, NULL, &none));
    TEXT_HAS("go on after len");
    transports[0].len = 4;
    EXPECT(GPUIPC_NOT_EXPORTABLE, gpuipc_register(ipc, 4096, SIZE, NULL, 0, NULL, &none));
    CHECK(none == UNTOUCHED);

    /* Memory that has no handle is there for the transport. */
    OK(gpuipc_register(ipc, 4096, SIZE, transports, 1, NULL, &none));
    OK(gpuipc_registered_gpu_error(none, &error));
    CHECK(error.status == GPUIPC_NOT_EXPORTABLE && error.memory_kind == GPUIPC_KIND_NOT_CUDA);
    OK(gpuipc_registered_gpu_error_text(none, text, sizeof text, NULL));
    CHECK(strstr(text, "does not know this pointer") != NULL);
    OK(gpuipc_registered_gpu_error_attempts(none, NULL, 0, &count));
    CHECK(count == 0);
    OK(gpuipc_registered_handles(none, NULL, 0, &count));
    CHECK(count == 0);
    OK(gpuipc_registered_handles(none, (uint8_t *)text, sizeof text, NULL));
    gpuipc_registered_free(none);
    gpuipc_registered_free(NULL);

    OK(gpuipc_register(ipc, ptr, SIZE, transports, 1, NULL, registered));
    OK(gpuipc_registered_data(*registered, &number));
    CHECK(number == ptr);
    OK(gpuipc_registered_original_ptr(*registered, &number));
    CHECK(number == ptr);
    OK(gpuipc_registered_len(*registered, &number));
    CHECK(number == SIZE);
    OK(gpuipc_registered_mapping(*registered, &mapping));
    CHECK(mapping == NULL);
    OK(gpuipc_registered_gpu_error(*registered, &error));
    CHECK(error.status == GPUIPC_OK);
    OK(gpuipc_registered_transports(*registered, read, 2, &count));
    CHECK(count == 1 && memcmp(&read[0], &transports[0], sizeof read[0]) == 0);
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_registered_data(NULL, &number));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_registered_data(*registered, NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_registered_len(NULL, &number));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_registered_original_ptr(NULL, &number));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_registered_owner(*registered, NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_registered_mapping(*registered, NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_registered_gpu_error(NULL, &error));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_registered_transports(*registered, NULL, 2, &count));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_registered_bytes(*registered, NULL, 0, NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_registered_bytes(*registered, NULL, 9, &count));
    EXPECT(GPUIPC_BUFFER_TOO_SMALL, gpuipc_registered_bytes(*registered, (uint8_t *)text, 9, &count));
    CHECK(count == FORM);
}

static void exporter(int to_parent) {
    told all;
    gpuipc *ipc;
    gpuipc_buffer *buffers[3];
    gpuipc_exported *exported[3];
    gpuipc_registered *registered;
    size_t count;
    char go;
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    memset(&all, 0, sizeof all);
    OK(gpuipc_open(&ipc));
    exported[0] = export_new(ipc, GPUIPC_MEMORY_SEGMENTS, SIZE, &buffers[0]);
    exported[1] = export_new(ipc, GPUIPC_MEMORY_HOST_NUMA, GRANULARITY, &buffers[1]);
    exported[2] = export_new(ipc, GPUIPC_MEMORY_CUDA_MALLOC, GRANULARITY, &buffers[2]);
    OK(gpuipc_exported_handle_count(exported[0], &count));
    CHECK(count == 2);
    OK(gpuipc_buffer_ptr(buffers[0], &all.ptr));
    registering(ipc, all.ptr, &registered);
    OK(gpuipc_exported_bytes(exported[0], all.segments, sizeof all.segments, NULL));
    OK(gpuipc_exported_bytes(exported[1], all.host, sizeof all.host, NULL));
    OK(gpuipc_exported_bytes(exported[2], all.legacy, sizeof all.legacy, NULL));
    OK(gpuipc_registered_bytes(registered, all.form, sizeof all.form, &count));
    CHECK(count == sizeof all.form);
    send_all(to_parent, &all, sizeof all);
    receive_all(to_parent, &go, 1);
    gpuipc_registered_free(registered);
    for (int i = 0; i < 3; i++) {
        gpuipc_exported_free(exported[i]);
        gpuipc_buffer_free(buffers[i]);
    }
    gpuipc_close(ipc);
}

/* ---- the importer ------------------------------------------------------------------- */

static void reads_last(const gpuipc_mem *mem, size_t size) {
    char text[5];
    size_t len;
    OK(gpuipc_mem_len(mem, &len));
    CHECK(len == size);
    OK(gpuipc_mem_read(mem, size - 5, (uint8_t *)text, 5));
    CHECK(strcmp(text, "last") == 0);
}

static void options_that_cannot_be(gpuipc *ipc, const told *all) {
    gpuipc_device devices[2] = {{0, 0, {0}}, {-1, 0, {0}}};
    gpuipc_import_options good, options;
    gpuipc_export_options export;
    gpuipc_mem *mem = UNTOUCHED;
    gpuipc_exported *exported = UNTOUCHED;
    OK(gpuipc_import_options_init(&good, sizeof good));
#define WRONG(expected, change)                                                                    \
    options = good;                                                                                \
    change;                                                                                        \
    EXPECT(expected, gpuipc_import(ipc, all->segments, HANDLES, &options, &mem))
    WRONG(GPUIPC_INVALID_ARGUMENT, (options.device = 0, options.device_uuid[0] = 1));
    WRONG(GPUIPC_NO_DEVICE, options.device_uuid[15] = 1);
    WRONG(GPUIPC_INVALID_ARGUMENT, options.host_access = 2);
    WRONG(GPUIPC_INVALID_ARGUMENT, options.place_offset = 1);
    WRONG(GPUIPC_NULL_ARGUMENT, options.access_device_count = 1);
    WRONG(GPUIPC_INVALID_ARGUMENT, (options.access_device_count = 2, options.access_devices = devices));
    devices[1].uuid[0] = 1;
    WRONG(GPUIPC_NO_DEVICE, (options.access_device_count = 2, options.access_devices = devices));
    devices[0].reserved = 1;
    WRONG(GPUIPC_INVALID_ARGUMENT, (options.access_device_count = 1, options.access_devices = devices));
    devices[0].reserved = 0;
    devices[0].uuid[3] = 1;
    WRONG(GPUIPC_INVALID_ARGUMENT, (options.access_device_count = 1, options.access_devices = devices));
    CHECK(mem == UNTOUCHED);
    EXPECT(GPUIPC_NOT_ONE_RANGE, gpuipc_import(ipc, all->segments, GPUIPC_HANDLE_BYTES, NULL, &mem));
    OK(gpuipc_export_options_init(&export, sizeof export));
    export.fd_on_demand = 2;
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_export_with(ipc, 4096, 1, &export, &exported));
    export.fd_on_demand = 0;
    export.reserved = 1;
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_export_with(ipc, 4096, 1, &export, &exported));
    CHECK(mem == UNTOUCHED && exported == UNTOUCHED);
}

static void places(gpuipc *ipc, const told *all) {
    gpuipc_import_options options;
    gpuipc_reservation *reservation = UNTOUCHED, *again = UNTOUCHED;
    gpuipc_attempt attempt;
    gpuipc_mem *mem, *none = UNTOUCHED;
    gpuipc_device devices[2];
    uint64_t base, ptr;
    size_t size;
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_reservation_new(NULL, SIZE, &reservation));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_reservation_new(ipc, SIZE, NULL));
    EXPECT(GPUIPC_DRIVER_CALL, gpuipc_reservation_new(ipc, 4711, &reservation));
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_reservation_of_caller(ipc, 0, SIZE, &reservation));
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_reservation_of_caller(ipc, UINT64_MAX, SIZE, &reservation));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_reservation_of_caller(NULL, SIZE, SIZE, &reservation));
    CHECK(reservation == UNTOUCHED);
    OK(gpuipc_reservation_new(ipc, 3 * GRANULARITY, &reservation));
    OK(gpuipc_reservation_base(reservation, &base));
    OK(gpuipc_reservation_size(reservation, &size));
    CHECK(base != 0 && size == 3 * GRANULARITY);
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_reservation_base(NULL, &base));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_reservation_size(reservation, NULL));

    OK(gpuipc_import_options_init(&options, sizeof options));
    options.place = reservation;
    options.place_offset = 2 * GRANULARITY;
    EXPECT(GPUIPC_NO_TYPE_WORKED, gpuipc_import(ipc, all->segments, HANDLES, &options, &none));
    OK(gpuipc_last_error_attempts(&attempt, 1, NULL));
    CHECK(attempt.reason == GPUIPC_REASON_PLACE_TOO_SMALL);
    options.place_offset = GRANULARITY;
    EXPECT(GPUIPC_NO_TYPE_WORKED, gpuipc_import(ipc, all->legacy, GPUIPC_HANDLE_BYTES, &options, &none));
    OK(gpuipc_last_error_attempts(&attempt, 1, NULL));
    CHECK(attempt.reason == GPUIPC_REASON_CANNOT_BE_PLACED);
    memset(devices, 0, sizeof devices);
    devices[0].ordinal = 1;
    devices[1].ordinal = -1;
    memcpy(devices[1].uuid, all->segments + offsetof(gpuipc_mem_handle, device_uuid), 16);
    memcpy(options.device_uuid, devices[1].uuid, 16);
    options.access_devices = devices;
    options.access_device_count = 2;
    OK(gpuipc_import(ipc, all->segments, HANDLES, &options, &mem));
    OK(gpuipc_mem_ptr(mem, &ptr));
    CHECK(ptr == base + GRANULARITY);
    reads_last(mem, SIZE);
    EXPECT(GPUIPC_NO_TYPE_WORKED, gpuipc_import(ipc, all->segments, HANDLES, &options, &none));
    OK(gpuipc_last_error_attempts(&attempt, 1, NULL));
    CHECK(attempt.reason == GPUIPC_REASON_PLACE_TAKEN && attempt.segment == 0);
    CHECK(none == UNTOUCHED);

    /* The mapping keeps the addresses, and gives them back. */
    gpuipc_reservation_free(reservation);
    gpuipc_reservation_free(NULL);
    OK(gpuipc_mem_unmap(mem, &again));
    OK(gpuipc_reservation_base(again, &ptr));
    CHECK(ptr == base);
    options.place = again;
    OK(gpuipc_import(ipc, all->segments, HANDLES, &options, &mem));
    OK(gpuipc_mem_ptr(mem, &ptr));
    CHECK(ptr == base + GRANULARITY);
    OK(gpuipc_mem_unmap(mem, NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_unmap(NULL, &reservation));

    /* As the caller's own, while the library's is there. */
    OK(gpuipc_reservation_of_caller(ipc, base, 3 * GRANULARITY, &reservation));
    options.place = reservation;
    options.place_offset = 0;
    OK(gpuipc_import(ipc, all->segments, HANDLES, &options, &mem));
    OK(gpuipc_mem_ptr(mem, &ptr));
    CHECK(ptr == base);
    gpuipc_mem_free(mem);
    gpuipc_reservation_free(reservation);
    gpuipc_reservation_free(again);

    /* A legacy mapping has no addresses to give; its device may be another one. */
    OK(gpuipc_import_options_init(&options, sizeof options));
    options.device = 1;
    OK(gpuipc_import(ipc, all->legacy, GPUIPC_HANDLE_BYTES, &options, &mem));
    reads_last(mem, GRANULARITY);
    again = UNTOUCHED;
    OK(gpuipc_mem_unmap(mem, &again));
    CHECK(again == NULL);
}

static void the_cpu(gpuipc *ipc, const told *all) {
    gpuipc_import_options options;
    gpuipc_attempt attempt;
    gpuipc_mem *mem = UNTOUCHED;
    uint64_t ptr;
    OK(gpuipc_import_options_init(&options, sizeof options));
    options.host_access = 1;
    EXPECT(GPUIPC_NO_TYPE_WORKED, gpuipc_import(ipc, all->segments, HANDLES, &options, &mem));
    OK(gpuipc_last_error_attempts(&attempt, 1, NULL));
    CHECK(attempt.reason == GPUIPC_REASON_NOT_HOST_MEMORY && attempt.segment == GPUIPC_SEGMENT_NONE);
    OK(gpuipc_import(ipc, all->host, GPUIPC_HANDLE_BYTES, &options, &mem));
    OK(gpuipc_mem_ptr(mem, &ptr));
    CHECK(strcmp((const char *)(uintptr_t)(ptr + GRANULARITY - 5), "last") == 0);
    gpuipc_mem_free(mem);
}

static void feasibilities(gpuipc *ipc, const told *all) {
    gpuipc_import_options options;
    gpuipc_feasibility *feasibility = UNTOUCHED;
    gpuipc_type_feasibility types[3];
    gpuipc_status problem = 77;
    uint32_t said = 77;
    size_t count = 77;
    char text[512];
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_can_import(NULL, all->segments, HANDLES, NULL, &feasibility));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_can_import(ipc, NULL, HANDLES, NULL, &feasibility));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_can_import(ipc, all->segments, HANDLES, NULL, NULL));
    EXPECT(GPUIPC_HANDLE_LENGTH, gpuipc_can_import(ipc, all->segments, 7, NULL, &feasibility));
    OK(gpuipc_import_options_init(&options, sizeof options));
    options.access = 9;
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_can_import(ipc, all->segments, HANDLES, &options, &feasibility));
    CHECK(feasibility == UNTOUCHED);

    OK(gpuipc_can_import(ipc, all->segments, HANDLES, NULL, &feasibility));
    OK(gpuipc_feasibility_is_importable(feasibility, &said));
    CHECK(said == 1);
    OK(gpuipc_feasibility_is_own(feasibility, &said));
    CHECK(said == 0);
    OK(gpuipc_feasibility_problem(feasibility, &problem));
    CHECK(problem == GPUIPC_OK);
    OK(gpuipc_feasibility_problem_text(feasibility, text, sizeof text, &count));
    CHECK(count == 1 && text[0] == '\0');
    OK(gpuipc_feasibility_types(feasibility, types, 3, &count));
    CHECK(count == 1 && types[0].handle_type == GPUIPC_TYPE_POSIX_FD);
    CHECK(types[0].feasible == GPUIPC_FEASIBLE_YES && types[0].attempt.handle_type == 0);
    CHECK(types[0].attempt.hint_text[0] == '\0' && types[0].attempt.segment == GPUIPC_SEGMENT_NONE);
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_feasibility_types(feasibility, NULL, 3, &count));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_feasibility_is_own(NULL, &said));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_feasibility_is_importable(feasibility, NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_feasibility_problem(NULL, &problem));
    gpuipc_feasibility_free(feasibility);
    gpuipc_feasibility_free(NULL);

    OK(gpuipc_can_import(ipc, all->legacy, GPUIPC_HANDLE_BYTES, NULL, &feasibility));
    OK(gpuipc_feasibility_types(feasibility, types, 3, &count));
    CHECK(count == 1 && types[0].feasible == GPUIPC_FEASIBLE_UNKNOWN);
    gpuipc_feasibility_free(feasibility);

    /* What an import would say, without one. */
    options.access = GPUIPC_ACCESS_READ_WRITE;
    options.type_count = 1;
    options.types[0] = GPUIPC_TYPE_FABRIC;
    OK(gpuipc_can_import(ipc, all->segments, HANDLES, &options, &feasibility));
    OK(gpuipc_feasibility_is_importable(feasibility, &said));
    OK(gpuipc_feasibility_types(feasibility, types, 3, &count));
    CHECK(said == 0 && count == 1 && types[0].feasible == GPUIPC_FEASIBLE_NO);
    CHECK(types[0].attempt.reason == GPUIPC_REASON_NOT_ALLOWED);
    gpuipc_feasibility_free(feasibility);
    OK(gpuipc_can_import(ipc, all->segments, GPUIPC_HANDLE_BYTES, NULL, &feasibility));
    OK(gpuipc_feasibility_problem(feasibility, &problem));
    CHECK(problem == GPUIPC_NOT_ONE_RANGE);
    OK(gpuipc_feasibility_problem_text(feasibility, text, sizeof text, NULL));
    CHECK(strstr(text, "segment 1 of 2 is missing") != NULL);
    OK(gpuipc_feasibility_types(feasibility, NULL, 0, &count));
    CHECK(count == 0);
    gpuipc_feasibility_free(feasibility);
}

static void a_peers_memory(gpuipc *ipc, const told *all, pid_t other) {
    gpuipc_import_options options;
    gpuipc_registered *peer = UNTOUCHED;
    gpuipc_transport transport;
    gpuipc_attempt attempt;
    gpuipc_owner owner;
    gpuipc_error error;
    const gpuipc_mem *mapping;
    uint8_t form[FORM];
    uint64_t number, ptr;
    uint32_t used;
    size_t count;
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_deserialize(NULL, all->form, FORM, NULL, &peer));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_deserialize(ipc, NULL, FORM, NULL, &peer));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_deserialize(ipc, all->form, FORM, NULL, NULL));
    EXPECT(GPUIPC_REGISTERED_MEMORY, gpuipc_deserialize(ipc, all->form, FORM - 1, NULL, &peer));
    memcpy(form, all->form, sizeof form);
    form[FORM - 1] ^= 1;
    EXPECT(GPUIPC_HANDLE_DAMAGED, gpuipc_deserialize(ipc, form, FORM, NULL, &peer));
    CHECK(peer == UNTOUCHED);

    OK(gpuipc_deserialize(ipc, all->form, FORM, NULL, &peer));
    OK(gpuipc_registered_mapping(peer, &mapping));
    OK(gpuipc_registered_data(peer, &number));
    OK(gpuipc_mem_ptr(mapping, &ptr));
    OK(gpuipc_mem_type_used(mapping, &used));
    CHECK(ptr == number && used == GPUIPC_TYPE_POSIX_FD);
    reads_last(mapping, SIZE);
    OK(gpuipc_registered_original_ptr(peer, &number));
    CHECK(number == all->ptr);
    OK(gpuipc_registered_owner(peer, &owner));
    CHECK(owner.pid == (uint32_t)other);
    CHECK(memcmp(owner.process_id, all->segments + offsetof(gpuipc_mem_handle, process_id), 16) == 0);
    OK(gpuipc_registered_transports(peer, &transport, 1, &count));
    CHECK(count == 1 && transport.kind == 7 && transport.len == 4);
    CHECK(memcmp(transport.bytes, "rkey", 5) == 0);
    OK(gpuipc_registered_bytes(peer, form, sizeof form, NULL));
    CHECK(memcmp(form, all->form, sizeof form) == 0);
    OK(gpuipc_registered_handles(peer, form, sizeof form, &count));
    CHECK(count == HANDLES && memcmp(form, all->form + FORM - HANDLES, HANDLES) == 0);
    gpuipc_registered_free(peer);

    /* No way by the GPU: left to the transport, with the reason. */
    OK(gpuipc_import_options_init(&options, sizeof options));
    options.type_count = 1;
    options.types[0] = GPUIPC_TYPE_RUNTIME_IPC;
    OK(gpuipc_deserialize(ipc, all->form, FORM, &options, &peer));
    OK(gpuipc_registered_data(peer, &number));
    OK(gpuipc_registered_mapping(peer, &mapping));
    CHECK(number == 0 && mapping == NULL);
    OK(gpuipc_registered_gpu_error(peer, &error));
    CHECK(error.status == GPUIPC_NO_TYPE_WORKED && error.attempt_count == 1);
    OK(gpuipc_registered_gpu_error_attempts(peer, &attempt, 1, &count));
    CHECK(count == 1 && attempt.reason == GPUIPC_REASON_NOT_ALLOWED);
    gpuipc_registered_free(peer);
}

static void peers_are_named(const told *all) {
    gpuipc_import_options options;
    gpuipc_attempt attempt;
    gpuipc_mem *mem = UNTOUCHED;
    gpuipc *ipc;
    static const uint8_t zeros[16];
    const uint8_t *owner = all->segments + offsetof(gpuipc_mem_handle, device_uuid);
    OK(gpuipc_open(&ipc));
    OK(gpuipc_import_options_init(&options, sizeof options));
    options.device = 1;
    EXPECT(GPUIPC_NO_TYPE_WORKED, gpuipc_import(ipc, all->segments, HANDLES, &options, &mem));
    OK(gpuipc_last_error_attempts(&attempt, 1, NULL));
    CHECK(attempt.reason == GPUIPC_REASON_PEER_UNSUPPORTED);
    CHECK(memcmp(attempt.pair_to, owner, 16) == 0);
    CHECK(memcmp(attempt.pair_from, owner, 16) != 0 && memcmp(attempt.pair_from, zeros, 16) != 0);
    gpuipc_close(ipc);
}

static void importer(int from_exporter, int without_peers) {
    told all;
    gpuipc *ipc;
    receive_all(from_exporter, &all, sizeof all);
    if (without_peers) {
        peers_are_named(&all);
    }
    OK(gpuipc_open(&ipc));
    if (!without_peers) {
        options_that_cannot_be(ipc, &all);
        places(ipc, &all);
        the_cpu(ipc, &all);
        feasibilities(ipc, &all);
        a_peers_memory(ipc, &all, getppid());
    }
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_close_idle_connections(NULL));
    OK(gpuipc_close_idle_connections(ipc));
    gpuipc_close(ipc);
    send_all(from_exporter, "g", 1);
}

int main(int argc, char **argv) {
    int ends[2], status;
    pid_t child;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        importer(ends[1], argc > 1 && strcmp(argv[1], "without-peers") == 0);
        return 0;
    }
    close(ends[1]);
    exporter(ends[0]);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    puts("grown");
    return 0;
}
