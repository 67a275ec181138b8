/* Ways that fail before one works, told by the export and by the import. Run with
 * GPUIPC_EMULATED_FAIL, which makes the second export's fabric handle and the first
 * import of a descriptor fail, and with a fabric. */
#define _GNU_SOURCE
#include "check.h"

#include <sys/socket.h>
#include <sys/wait.h>

#define SIZE ((size_t)1 << 20)

static gpuipc_exported *export_new(gpuipc *ipc, gpuipc_buffer **buffer) {
    gpuipc_exported *exported;
    uint64_t ptr;
    OK(gpuipc_buffer_new(ipc, 0, GPUIPC_MEMORY_VMM_FABRIC, SIZE, buffer));
    OK(gpuipc_buffer_ptr(*buffer, &ptr));
    OK(gpuipc_export(ipc, ptr, SIZE, &exported));
    return exported;
}

static void importer(int channel) {
    uint8_t handle[GPUIPC_HANDLE_BYTES];
    gpuipc_attempt attempts[2];
    gpuipc *ipc;
    gpuipc_mem *mem;
    uint32_t used;
    size_t count;
    char text[512];
    receive_all(channel, handle, sizeof handle);
    OK(gpuipc_open(&ipc));
    OK(gpuipc_import(ipc, handle, sizeof handle, NULL, &mem));
    OK(gpuipc_mem_type_used(mem, &used));
    OK(gpuipc_mem_attempt_list(mem, attempts, 2, &count));
    CHECK(used == GPUIPC_TYPE_FABRIC && count == 1);
    CHECK(attempts[0].handle_type == GPUIPC_TYPE_POSIX_FD && attempts[0].step == GPUIPC_STEP_IMPORT);
    CHECK(attempts[0].reason == GPUIPC_REASON_NOT_CUDA_DESCRIPTOR);
    CHECK(attempts[0].code_kind == GPUIPC_CODE_DRIVER && attempts[0].code == 999);
    CHECK(attempts[0].elapsed_ns > 0);
    OK(gpuipc_mem_attempts(mem, text, sizeof text, NULL));
    CHECK(strstr(text, attempts[0].reason_text) != NULL && strstr(text, attempts[0].hint_text) != NULL);
    gpuipc_mem_free(mem);
    gpuipc_close(ipc);
}

int main(void) {
    uint8_t handle[GPUIPC_HANDLE_BYTES];
    gpuipc_attempt attempts[2];
    gpuipc *ipc;
    gpuipc_buffer *good, *bad;
    gpuipc_exported *both, *one;
    gpuipc_mem_handle said;
    size_t count;
    int ends[2], status;
    pid_t child;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        importer(ends[1]);
        return 0;
    }
    close(ends[1]);
    OK(gpuipc_open(&ipc));
    both = export_new(ipc, &good);
    OK(gpuipc_exported_attempt_list(both, attempts, 2, &count));
    CHECK(count == 0);
    OK(gpuipc_exported_handle_bytes(both, 0, handle, sizeof handle));
    send_all(ends[0], handle, sizeof handle);

    one = export_new(ipc, &bad);
    OK(gpuipc_exported_attempt_list(one, attempts, 1, &count));
    CHECK(count == 1 && attempts[0].handle_type == GPUIPC_TYPE_FABRIC);
    CHECK(attempts[0].step == GPUIPC_STEP_EXPORT && attempts[0].code == 801);
    CHECK(attempts[0].reason == GPUIPC_REASON_NOT_SUPPORTED);
    OK(gpuipc_exported_handle_bytes(one, 0, handle, sizeof handle));
    OK(gpuipc_handle_read(handle, sizeof handle, &said));
    CHECK(said.type_flags == GPUIPC_TYPE_POSIX_FD);

    CHECK(waitpid(child, &status, 0) == child && status == 0);
    gpuipc_exported_free(both);
    gpuipc_exported_free(one);
    gpuipc_buffer_free(good);
    gpuipc_buffer_free(bad);
    gpuipc_close(ipc);
    puts("tried");
    return 0;
}
