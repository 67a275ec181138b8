/* What a callback may call: nothing but what asks for the last error and for constants.
 * Everything else is refused, whatever the library does when it calls back. */
#define _GNU_SOURCE
#include "every.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>

static const every_object *objects;
static _Thread_local int refused;
static int lines, gathered;

static void is_refused(const char *name, gpuipc_status status) {
    if (status != GPUIPC_IN_CALLBACK) {
        fprintf(stderr, "%s gave %s\n", name, gpuipc_status_name(status));
        exit(1);
    }
    TEXT_HAS(name);
    TEXT_HAS("call it after the callback has returned");
    refused++;
}

static void call_everything(void) {
    every_constant();
    every_call(objects, is_refused);
    every_end(objects, is_refused);
}

static void hear(void *user, uint32_t level, const char *target, const char *message) {
    (void)user, (void)level, (void)target, (void)message;
    __atomic_add_fetch(&lines, 1, __ATOMIC_RELAXED);
    call_everything();
}

static void gather(void *context, const uint8_t *message, uint8_t *all, uint8_t *heard,
                   uint32_t timeout_ms) {
    (void)context, (void)message, (void)all, (void)heard, (void)timeout_ms;
    gathered++;
    call_everything();
}

static void *change_it_again_and_again(void *end) {
    while (!__atomic_load_n((int *)end, __ATOMIC_RELAXED)) {
        OK(gpuipc_log_set(hear, NULL, GPUIPC_LOG_TRACE));
    }
    return NULL;
}

/* A pool of another process, whose import holds a lock over a driver call. */
static void other_exporter(int to_parent) {
    gpuipc *ipc;
    gpuipc_buffer *buffer;
    gpuipc_exported *exported;
    uint64_t ptr;
    uint8_t handle[GPUIPC_HANDLE_BYTES];
    char go;
    OK(gpuipc_open(&ipc));
    OK(gpuipc_buffer_new(ipc, 0, GPUIPC_MEMORY_POOL, GRANULARITY, &buffer));
    OK(gpuipc_buffer_ptr(buffer, &ptr));
    OK(gpuipc_export(ipc, ptr, GRANULARITY, &exported));
    OK(gpuipc_exported_handle_bytes(exported, 0, handle, sizeof handle));
    send_all(to_parent, handle, sizeof handle);
    CHECK(read(to_parent, &go, 1) == 0);
    gpuipc_exported_free(exported);
    gpuipc_buffer_free(buffer);
    gpuipc_close(ipc);
    exit(0);
}

int main(void) {
    every_object all;
    cuda_mini cu;
    gpuipc *ipc;
    gpuipc_mem *mem;
    gpuipc_exported *exported;
    gpuipc_multicast_object *object;
    gpuipc_multicast *multicast;
    gpuipc_multicast_team team = team_of_one();
    uint8_t handle[GPUIPC_HANDLE_BYTES];
    int ends[2], status, end = 0, before;
    pthread_t thread;
    pid_t other;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    other = fork();
    CHECK(other >= 0);
    if (other == 0) {
        close(ends[0]);
        other_exporter(ends[1]);
    }
    close(ends[1]);
    receive_all(ends[0], handle, sizeof handle);
    every_object_make(&all, &cu);
    objects = &all;

    /* Each driver call is a line, and so is the start of the broker, under its lock. */
    OK(gpuipc_log_set(hear, NULL, GPUIPC_LOG_TRACE));
    OK(gpuipc_open(&ipc));
    OK(gpuipc_export(ipc, all.ptr, GRANULARITY, &exported));
    OK(gpuipc_import(ipc, handle, sizeof handle, NULL, &mem));
    gpuipc_mem_free(mem);
    gpuipc_exported_free(exported);
    gpuipc_close(ipc);
    CHECK(lines > 10 && refused > 10 * 60);

    /* Another thread changes the callback meanwhile. */
    CHECK(pthread_create(&thread, NULL, change_it_again_and_again, &end) == 0);
    before = __atomic_load_n(&lines, __ATOMIC_RELAXED);
    while (__atomic_load_n(&lines, __ATOMIC_RELAXED) < before + 20) {
        OK(gpuipc_import(all.ipc, handle, sizeof handle, NULL, &mem));
        gpuipc_mem_free(mem);
    }
    __atomic_store_n(&end, 1, __ATOMIC_RELAXED);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(gpuipc_log_set(NULL, NULL, GPUIPC_LOG_OFF));

    /* The other callback. */
    team.gather = gather;
    OK(gpuipc_multicast_create(all.ipc, GRANULARITY, 1, &object));
    OK(gpuipc_multicast_object_handle(object, handle, sizeof handle));
    OK(gpuipc_multicast_join(all.ipc, handle, sizeof handle, 0, &team, &multicast));
    CHECK(gathered == 2);
    gpuipc_multicast_free(multicast);
    gpuipc_multicast_object_free(object);

    /* What the callbacks tried to give back is still there. */
    OK(gpuipc_mem_write(all.mem, 0, handle, sizeof handle));
    OK(gpuipc_exported_bytes(all.left, handle, sizeof handle, NULL));
    OK(gpuipc_mem_unmap(all.unmapped, NULL));
    OK(gpuipc_multicast_buffer_close(all.bound));
    gpuipc_multicast_free(all.multicast);
    gpuipc_multicast_object_free(all.object);
    gpuipc_cancel_free(all.cancel);
    gpuipc_registered_free(all.registered);
    gpuipc_feasibility_free(all.feasibility);
    gpuipc_reservation_free(all.reservation);
    gpuipc_reservation_free(all.of_caller);
    gpuipc_mem_free(all.mem);
    gpuipc_exported_free(all.left);
    gpuipc_exported_free(all.exported);
    gpuipc_buffer_free(all.buffer);
    gpuipc_close(all.ipc);
    close(ends[0]);
    CHECK(waitpid(other, &status, 0) == other && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    puts("refused");
    return 0;
}
