/* Every function of gpuipc.h and gpuipc_multicast.h, called once with arguments that are right: for what must
 * hold of all of them. A test sees to it that none is missing. */
#ifndef EVERY_H
#define EVERY_H

#include "check.h"
#include "cuda_mini.h"
#include "gpuipc_multicast.h"

/* One of each object, of this process. */
typedef struct {
    gpuipc *ipc;
    gpuipc_buffer *buffer;
    uint64_t ptr;
    CUdeviceptr vmm;
    gpuipc_exported *exported, *left;
    gpuipc_mem *mem, *unmapped;
    gpuipc_reservation *reservation, *of_caller;
    gpuipc_feasibility *feasibility;
    gpuipc_registered *registered;
    gpuipc_cancel *cancel;
    gpuipc_multicast_object *object;
    gpuipc_multicast *multicast;
    gpuipc_multicast_buffer *bound;
    uint8_t handle[GPUIPC_HANDLE_BYTES], group[GPUIPC_HANDLE_BYTES], form[1024];
    size_t form_length;
} every_object;

/* The only member of its team. */
static void alone(void *context, const uint8_t *message, uint8_t *all, uint8_t *heard,
                  uint32_t timeout_ms) {
    (void)context, (void)message, (void)all, (void)heard, (void)timeout_ms;
}

static inline gpuipc_multicast_team team_of_one(void) {
    gpuipc_multicast_team team = {sizeof team, 0, 1, 20000, 0, alone, NULL};
    return team;
}

static inline void every_object_make(every_object *made, cuda_mini *cu) {
    gpuipc_multicast_team team = team_of_one();
    cuda_start(cu);
    made->vmm = cuda_vmm_alloc(cu, GRANULARITY);
    OK(gpuipc_open(&made->ipc));
    OK(gpuipc_buffer_new(made->ipc, 0, GPUIPC_MEMORY_VMM_FD, GRANULARITY, &made->buffer));
    OK(gpuipc_buffer_ptr(made->buffer, &made->ptr));
    OK(gpuipc_export(made->ipc, made->ptr, GRANULARITY, &made->exported));
    OK(gpuipc_export(made->ipc, made->ptr, GRANULARITY, &made->left));
    OK(gpuipc_exported_handle_bytes(made->exported, 0, made->handle, sizeof made->handle));
    OK(gpuipc_import(made->ipc, made->handle, sizeof made->handle, NULL, &made->mem));
    OK(gpuipc_import(made->ipc, made->handle, sizeof made->handle, NULL, &made->unmapped));
    OK(gpuipc_reservation_new(made->ipc, GRANULARITY, &made->reservation));
    OK(gpuipc_reservation_of_caller(made->ipc, GRANULARITY, GRANULARITY, &made->of_caller));
    OK(gpuipc_can_import(made->ipc, made->handle, sizeof made->handle, NULL, &made->feasibility));
    OK(gpuipc_register(made->ipc, made->ptr, GRANULARITY, NULL, 0, NULL, &made->registered));
    OK(gpuipc_registered_bytes(made->registered, made->form, sizeof made->form, &made->form_length));
    OK(gpuipc_cancel_new(&made->cancel));
    OK(gpuipc_multicast_create(made->ipc, GRANULARITY, 1, &made->object));
    OK(gpuipc_multicast_object_handle(made->object, made->group, sizeof made->group));
    OK(gpuipc_multicast_join(made->ipc, made->group, sizeof made->group, 0, &team, &made->multicast));
    OK(gpuipc_multicast_bind(made->multicast, made->vmm, GRANULARITY, &made->bound));
}

/* What a call returned, by its name. */
typedef void every_check(const char *name, gpuipc_status status);

#define CALL(function, ...) check(#function, function(__VA_ARGS__))

/* Those that take no object away. What they make is given back where one succeeds. */
static inline void every_call(const every_object *all, every_check *check) {
    gpuipc *ipc = NULL;
    gpuipc_exported *exported = NULL;
    gpuipc_mem *mem = NULL;
    gpuipc_reservation *reservation = NULL, *of_caller = NULL;
    gpuipc_feasibility *feasibility = NULL;
    gpuipc_registered *registered = NULL, *transports = NULL, *deserialized = NULL;
    gpuipc_buffer *buffer = NULL;
    gpuipc_cancel *cancel = NULL;
    gpuipc_multicast_object *object = NULL;
    gpuipc_multicast *multicast = NULL;
    gpuipc_multicast_buffer *bound = NULL;
    gpuipc_multicast_team team = team_of_one();
    gpuipc_open_options open_options;
    gpuipc_export_options export_options;
    gpuipc_import_options import_options;
    gpuipc_mem_handle said;
    gpuipc_error error;
    gpuipc_attempt attempts[2];
    gpuipc_type_feasibility types[3];
    gpuipc_transport read[2];
    gpuipc_owner owner;
    const gpuipc_mem *mapping;
    uint8_t bytes[1024];
    char text[64];
    size_t size;
    uint64_t ptr;
    uint32_t number;
    int32_t device;

    CALL(gpuipc_open, &ipc);
    gpuipc_close(ipc), ipc = NULL;
    CALL(gpuipc_open_with, NULL, &ipc);
    gpuipc_close(ipc);
    CALL(gpuipc_open_options_init, &open_options, sizeof open_options);
    CALL(gpuipc_close_idle_connections, all->ipc);
    CALL(gpuipc_log_set, NULL, NULL, GPUIPC_LOG_OFF);
    CALL(gpuipc_self, all->ipc, &owner);

    CALL(gpuipc_export, all->ipc, all->ptr, GRANULARITY, &exported);
    gpuipc_exported_free(exported), exported = NULL;
    CALL(gpuipc_export_with, all->ipc, all->ptr, GRANULARITY, NULL, &exported);
    gpuipc_exported_free(exported);
    CALL(gpuipc_export_options_init, &export_options, sizeof export_options);
    CALL(gpuipc_exported_len, all->exported, &size);
    CALL(gpuipc_exported_handle_count, all->exported, &size);
    CALL(gpuipc_exported_handle_bytes, all->exported, 0, bytes, sizeof bytes);
    CALL(gpuipc_exported_bytes, all->exported, bytes, sizeof bytes, &size);
    CALL(gpuipc_exported_attempts, all->exported, text, sizeof text, &size);
    CALL(gpuipc_exported_attempt_list, all->exported, attempts, 2, &size);

    CALL(gpuipc_import_options_init, &import_options, sizeof import_options);
    CALL(gpuipc_import, all->ipc, all->handle, sizeof all->handle, NULL, &mem);
    gpuipc_mem_free(mem);
    CALL(gpuipc_mem_ptr, all->mem, &ptr);
    CALL(gpuipc_mem_len, all->mem, &size);
    CALL(gpuipc_mem_type_used, all->mem, &number);
    CALL(gpuipc_mem_liveness, all->mem, &number);
    CALL(gpuipc_mem_device, all->mem, &device);
    CALL(gpuipc_mem_attempts, all->mem, text, sizeof text, &size);
    CALL(gpuipc_mem_attempt_list, all->mem, attempts, 2, &size);
    CALL(gpuipc_mem_read, all->mem, 0, bytes, 1);
    CALL(gpuipc_mem_write, all->mem, 0, bytes, 1);

    CALL(gpuipc_reservation_new, all->ipc, GRANULARITY, &reservation);
    gpuipc_reservation_free(reservation);
    CALL(gpuipc_reservation_of_caller, all->ipc, GRANULARITY, GRANULARITY, &of_caller);
    gpuipc_reservation_free(of_caller);
    CALL(gpuipc_reservation_base, all->reservation, &ptr);
    CALL(gpuipc_reservation_size, all->reservation, &size);

    CALL(gpuipc_can_import, all->ipc, all->handle, sizeof all->handle, NULL, &feasibility);
    gpuipc_feasibility_free(feasibility);
    CALL(gpuipc_feasibility_is_importable, all->feasibility, &number);
    CALL(gpuipc_feasibility_is_own, all->feasibility, &number);
    CALL(gpuipc_feasibility_types, all->feasibility, types, 3, &size);
    CALL(gpuipc_feasibility_problem, all->feasibility, &number);
    CALL(gpuipc_feasibility_problem_text, all->feasibility, text, sizeof text, &size);

    CALL(gpuipc_register, all->ipc, all->ptr, GRANULARITY, NULL, 0, NULL, &registered);
    gpuipc_registered_free(registered);
    CALL(gpuipc_register_transports, all->ipc, all->ptr, GRANULARITY, NULL, 0, &transports);
    gpuipc_registered_free(transports);
    CALL(gpuipc_deserialize, all->ipc, all->form, all->form_length, NULL, &deserialized);
    gpuipc_registered_free(deserialized);
    CALL(gpuipc_registered_bytes, all->registered, bytes, sizeof bytes, &size);
    CALL(gpuipc_registered_handles, all->registered, bytes, sizeof bytes, &size);
    CALL(gpuipc_registered_data, all->registered, &ptr);
    CALL(gpuipc_registered_len, all->registered, &ptr);
    CALL(gpuipc_registered_original_ptr, all->registered, &ptr);
    CALL(gpuipc_registered_owner, all->registered, &owner);
    CALL(gpuipc_registered_transports, all->registered, read, 2, &size);
    CALL(gpuipc_registered_mapping, all->registered, &mapping);
    CALL(gpuipc_registered_gpu_error, all->registered, &error);
    CALL(gpuipc_registered_gpu_error_text, all->registered, text, sizeof text, &size);
    CALL(gpuipc_registered_gpu_error_attempts, all->registered, attempts, 2, &size);

    CALL(gpuipc_handle_check, all->handle, sizeof all->handle);
    CALL(gpuipc_handle_read, all->handle, sizeof all->handle, &said);
    CALL(gpuipc_cancel_new, &cancel);
    gpuipc_cancel_free(cancel);
    CALL(gpuipc_cancel_set, all->cancel, 1);

    CALL(gpuipc_buffer_new, all->ipc, 0, GPUIPC_MEMORY_VMM_FD, GRANULARITY, &buffer);
    gpuipc_buffer_free(buffer);
    CALL(gpuipc_buffer_ptr, all->buffer, &ptr);
    CALL(gpuipc_buffer_len, all->buffer, &size);
    CALL(gpuipc_buffer_read, all->buffer, 0, bytes, 1);
    CALL(gpuipc_buffer_write, all->buffer, 0, bytes, 1);

    CALL(gpuipc_multicast_create, all->ipc, GRANULARITY, 1, &object);
    gpuipc_multicast_object_free(object);
    CALL(gpuipc_multicast_object_handle, all->object, bytes, sizeof bytes);
    CALL(gpuipc_multicast_join, all->ipc, all->group, sizeof all->group, 0, &team, &multicast);
    gpuipc_multicast_free(multicast);
    CALL(gpuipc_multicast_bind, all->multicast, all->vmm, GRANULARITY, &bound);
    CALL(gpuipc_multicast_buffer_ptr, all->bound, &ptr);
}

/* Those that take the object that they are given. */
static inline void every_end(const every_object *all, every_check *check) {
    CALL(gpuipc_multicast_buffer_close, all->bound);
    CALL(gpuipc_exported_leave, all->left);
    CALL(gpuipc_mem_unmap, all->unmapped, NULL);
    gpuipc_multicast_free(all->multicast);
    gpuipc_multicast_object_free(all->object);
    gpuipc_cancel_free(all->cancel);
    gpuipc_registered_free(all->registered);
    gpuipc_feasibility_free(all->feasibility);
    gpuipc_reservation_free(all->reservation);
    gpuipc_reservation_free(all->of_caller);
    gpuipc_mem_free(all->mem);
    gpuipc_exported_free(all->exported);
    gpuipc_buffer_free(all->buffer);
    gpuipc_close(all->ipc);
}

/* Those that work always. */
static inline void every_constant(void) {
    gpuipc_error error;
    gpuipc_attempt attempts[2];
    char text[512];
    size_t size;
    OK(gpuipc_last_error(text, sizeof text, &size));
    OK(gpuipc_last_error_read(&error));
    OK(gpuipc_last_error_attempts(attempts, 2, &size));
    CHECK(strcmp(gpuipc_status_name(GPUIPC_OK), "OK") == 0);
    CHECK(strcmp(gpuipc_status_text(GPUIPC_OK), "success") == 0);
    CHECK(gpuipc_version() == GPUIPC_VERSION);
    CHECK(gpuipc_abi_version() == GPUIPC_ABI_VERSION);
    CHECK(gpuipc_is_forked() <= 1);
}

#endif
