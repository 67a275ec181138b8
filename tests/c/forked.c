/* A forked child: every call that needs CUDA says GPUIPC_FORKED, the others work, and what
 * it frees stays its parent's. */
#define _GNU_SOURCE
#include "every.h"

#include <sys/wait.h>

/* What needs no CUDA: the bytes and numbers that are there, and the feasibility, which has
 * GPUIPC_FORKED as its problem. */
static const char *const WORKS[] = {
    "_init", "_bytes", "_count", "_len", "_attempts", "_attempt_list", "_ptr", "_type_used",
    "_liveness", "_device", "_base", "_size", "_feasibility_", "can_import", "registered_", "_handle",
    "handle_check", "handle_read", "cancel_", "_mem_unmap", "_buffer_close", "of_caller",
};
static int forked, worked;

static void is_forked(const char *name, gpuipc_status status) {
    int may_work = 0;
    if (status == GPUIPC_FORKED) {
        forked++;
        return;
    }
    for (size_t i = 0; i < sizeof WORKS / sizeof *WORKS; i++) {
        may_work |= strstr(name, WORKS[i]) != NULL;
    }
    if (status != GPUIPC_OK || !may_work) {
        fprintf(stderr, "%s gave %s\n", name, gpuipc_status_name(status));
        exit(1);
    }
    worked++;
}

int main(void) {
    every_object all;
    cuda_mini cu;
    gpuipc_mem *mem;
    gpuipc_status problem = GPUIPC_OK;
    gpuipc_feasibility *feasibility;
    uint8_t byte = 7, back = 0;
    int status;
    pid_t child;
    every_object_make(&all, &cu);
    OK(gpuipc_mem_write(all.mem, 0, &byte, 1));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        OK(gpuipc_can_import(all.ipc, all.handle, sizeof all.handle, NULL, &feasibility));
        OK(gpuipc_feasibility_problem(feasibility, &problem));
        CHECK(problem == GPUIPC_FORKED);
        gpuipc_feasibility_free(feasibility);
        every_constant();
        every_call(&all, is_forked);
        every_end(&all, is_forked);
        CHECK(forked == 22 && worked > 35);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* The parent has all that it had. */
    OK(gpuipc_mem_read(all.mem, 0, &back, 1));
    CHECK(back == byte);
    OK(gpuipc_import(all.ipc, all.handle, sizeof all.handle, NULL, &mem));
    gpuipc_mem_free(mem);
    OK(gpuipc_multicast_buffer_close(all.bound));
    OK(gpuipc_mem_unmap(all.unmapped, NULL));
    OK(gpuipc_exported_leave(all.left));
    gpuipc_multicast_free(all.multicast);
    gpuipc_multicast_object_free(all.object);
    gpuipc_cancel_free(all.cancel);
    gpuipc_registered_free(all.registered);
    gpuipc_feasibility_free(all.feasibility);
    gpuipc_reservation_free(all.reservation);
    gpuipc_reservation_free(all.of_caller);
    gpuipc_mem_free(all.mem);
    gpuipc_exported_free(all.exported);
    gpuipc_buffer_free(all.buffer);
    gpuipc_close(all.ipc);
    puts("parted");
    return 0;
}
