/* Two processes are the members of a multicast object, on the emulated driver: a
 * write of one reaches the memory of both. */
#define _GNU_SOURCE
#include "check.h"
#include "cuda_mini.h"
#include "gpuipc_multicast.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

_Static_assert(sizeof(gpuipc_multicast_team) == 40, "the size of the first header");

/* One socket to the only other member. */
typedef struct {
    int socket;
    uint32_t rank;
    int calls;
} transport;

static void gather(void *context, const uint8_t *message, uint8_t *all, uint8_t *heard,
                   uint32_t timeout_ms) {
    transport *own = context;
    uint32_t other = 1 - own->rank;
    uint8_t *to = all + other * GPUIPC_MULTICAST_MESSAGE_BYTES;
    size_t done = 0;
    own->calls++;
    if (send(own->socket, message, GPUIPC_MULTICAST_MESSAGE_BYTES, MSG_NOSIGNAL) < 0) {
        /* Who is gone shows below. */
    }
    while (done < GPUIPC_MULTICAST_MESSAGE_BYTES) {
        struct pollfd one = {own->socket, POLLIN, 0};
        ssize_t got;
        if (poll(&one, 1, (int)timeout_ms) <= 0) {
            heard[other] = GPUIPC_HEARD_SILENT;
            return;
        }
        got = read(own->socket, to + done, GPUIPC_MULTICAST_MESSAGE_BYTES - done);
        if (got <= 0) {
            heard[other] = GPUIPC_HEARD_GONE;
            return;
        }
        done += (size_t)got;
    }
    heard[other] = GPUIPC_HEARD_MESSAGE;
}

static void member(uint32_t rank, int handles, int messages, int turns) {
    transport own = {messages, rank, 0};
    gpuipc_multicast_team team = {sizeof team, rank, 2, 120000, 0, gather, &own};
    uint8_t handle[GPUIPC_HANDLE_BYTES];
    gpuipc_multicast_object *object = NULL;
    gpuipc_multicast *multicast;
    gpuipc_multicast_buffer *buffer, *none;
    gpuipc *ipc;
    CUdeviceptr memory;
    uint64_t ptr;
    uint32_t value = 0;
    char turn = 't';
    cuda_mini cu;

    CHECK(setenv("GPUIPC_EMULATED_VISIBLE", rank == 0 ? "0" : "1", 1) == 0);
    cuda_start(&cu);
    memory = cuda_vmm_alloc(&cu, GRANULARITY);
    OK(gpuipc_open(&ipc));
    if (rank == 0) {
        EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_multicast_create(ipc, 0, 2, &object));
        EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_multicast_create(ipc, 1, 65536, &object));
        OK(gpuipc_multicast_create(ipc, GRANULARITY, 2, &object));
        EXPECT(GPUIPC_BUFFER_TOO_SMALL,
               gpuipc_multicast_object_handle(object, handle, sizeof handle - 1));
        OK(gpuipc_multicast_object_handle(object, handle, sizeof handle));
        send_all(handles, handle, sizeof handle);
    } else {
        receive_all(handles, handle, sizeof handle);
    }
    team.reserved = 1;
    EXPECT(GPUIPC_INVALID_ARGUMENT,
           gpuipc_multicast_join(ipc, handle, sizeof handle, 0, &team, &multicast));
    team.reserved = 0;
    team.gather = NULL;
    EXPECT(GPUIPC_NULL_ARGUMENT,
           gpuipc_multicast_join(ipc, handle, sizeof handle, 0, &team, &multicast));
    team.gather = gather;
    for (int i = 0; i < 3; i++) {
        team.size = i == 0 ? UINT32_MAX : i == 1 ? 100000 : 3;
        EXPECT(GPUIPC_INVALID_ARGUMENT,
               gpuipc_multicast_join(ipc, handle, sizeof handle, 0, &team, &multicast));
        TEXT_HAS("of a multicast object for 2 devices");
    }
    CHECK(own.calls == 0);
    team.size = 2;
    OK(gpuipc_multicast_join(ipc, handle, sizeof handle, 0, &team, &multicast));
    CHECK(own.calls == 2);
    gpuipc_multicast_object_free(object);
    gpuipc_close(ipc);
    OK(gpuipc_multicast_bind(multicast, memory, GRANULARITY, &buffer));
    OK(gpuipc_multicast_buffer_ptr(buffer, &ptr));
    /* There is no more room, on either member. */
    EXPECT(GPUIPC_MULTICAST_UNAVAILABLE,
           gpuipc_multicast_bind(multicast, memory, GRANULARITY, &none));
    TEXT_HAS("no free range");
    if (rank == 0) {
        value = 77;
        CU(cu.copy_in(ptr + 64, &value, sizeof value));
        send_all(turns, &turn, 1);
    } else {
        receive_all(turns, &turn, 1);
    }
    value = 0;
    CU(cu.copy_out(&value, memory + 64, sizeof value));
    CHECK(value == 77);
    if (rank == 0) {
        receive_all(turns, &turn, 1);
        OK(gpuipc_multicast_buffer_close(buffer));
        gpuipc_multicast_free(multicast);
    } else {
        send_all(turns, &turn, 1);
        gpuipc_multicast_free(multicast);
        OK(gpuipc_multicast_buffer_close(buffer));
    }
    OK(gpuipc_multicast_buffer_close(NULL));
    gpuipc_multicast_free(NULL);
    gpuipc_multicast_object_free(NULL);
    cuda_vmm_free(&cu, memory, GRANULARITY);
    CU(cu.set_current(NULL));
    CU(cu.primary_release(cu.device));
}

int main(void) {
    int handles[2], messages[2], turns[2], status;
    pid_t child;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, handles) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, messages) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, turns) == 0);
    /* Before any use of CUDA: it does not work in a forked child. */
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(handles[0]), close(messages[0]), close(turns[0]);
        member(1, handles[1], messages[1], turns[1]);
        return 0;
    }
    close(handles[1]), close(messages[1]), close(turns[1]);
    member(0, handles[0], messages[0], turns[0]);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    puts("shared");
    return 0;
}
