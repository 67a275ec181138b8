/* Two processes share GPU memory: one writes a pattern and exports a range of
 * its allocation; the other imports the range, reads it and writes back.
 *
 * usage: share cuda-malloc|vmm-fd */
#define _GNU_SOURCE
#include "check.h"
#include "cuda_mini.h"

#include <sys/socket.h>
#include <sys/wait.h>

#define ALLOCATION (2 * GRANULARITY)
#define RANGE_START ((size_t)4096)
#define RANGE ((size_t)1 << 20)

static unsigned char pattern(size_t at) { return (unsigned char)(at * 7 + at / 251); }

static unsigned char answer(size_t at) { return (unsigned char)~pattern(at); }

static void importer(int to_exporter, int is_vmm) {
    /* The handle lies at an address that is no multiple of anything. */
    uint8_t room[GPUIPC_HANDLE_BYTES + 1];
    uint8_t *handle = room + 1;
    unsigned char *bytes = malloc(RANGE);
    gpuipc_import_options options;
    gpuipc *ipc;
    gpuipc_mem *mem;
    uint64_t ptr;
    size_t len, needed;
    uint32_t used, liveness;
    cuda_mini cu;

    receive_all(to_exporter, handle, GPUIPC_HANDLE_BYTES);
    OK(gpuipc_handle_check(handle, GPUIPC_HANDLE_BYTES));
    OK(gpuipc_open(&ipc));
    OK(gpuipc_import_options_init(&options, sizeof options));
    options.require_live = 1;
    OK(gpuipc_import(ipc, handle, GPUIPC_HANDLE_BYTES, &options, &mem));
    /* What was imported outlives what it was imported with. */
    gpuipc_close(ipc);

    OK(gpuipc_mem_ptr(mem, &ptr));
    OK(gpuipc_mem_len(mem, &len));
    OK(gpuipc_mem_type_used(mem, &used));
    OK(gpuipc_mem_liveness(mem, &liveness));
    OK(gpuipc_mem_attempts(mem, NULL, 0, &needed));
    CHECK(len == RANGE);
    CHECK(used == (is_vmm ? GPUIPC_TYPE_POSIX_FD : GPUIPC_TYPE_RUNTIME_IPC));
    CHECK(liveness == (is_vmm ? GPUIPC_LIVENESS_REFERENCED : GPUIPC_LIVENESS_MEMORY_UNCHANGED));
    CHECK(needed == 1);

    cuda_start(&cu);
    CHECK(bytes != NULL);
    CU(cu.copy_out(bytes, ptr, RANGE));
    for (size_t at = 0; at < RANGE; at++) {
        CHECK(bytes[at] == pattern(RANGE_START + at));
        bytes[at] = answer(RANGE_START + at);
    }
    CU(cu.copy_in(ptr, bytes, RANGE));
    gpuipc_mem_free(mem);
    CU(cu.set_current(NULL));
    CU(cu.primary_release(cu.device));
    free(bytes);
    send_all(to_exporter, "d", 1);
}

static void exporter(int to_importer, int is_vmm) {
    uint8_t handle[GPUIPC_HANDLE_BYTES];
    unsigned char *bytes = malloc(ALLOCATION);
    gpuipc *ipc;
    gpuipc_exported *exported;
    CUdeviceptr ptr;
    size_t count, needed;
    char done;
    cuda_mini cu;

    CHECK(bytes != NULL);
    cuda_start(&cu);
    if (is_vmm) {
        ptr = cuda_vmm_alloc(&cu, ALLOCATION);
    } else {
        CU(cu.mem_alloc(&ptr, ALLOCATION));
    }
    for (size_t at = 0; at < ALLOCATION; at++) {
        bytes[at] = pattern(at);
    }
    CU(cu.copy_in(ptr, bytes, ALLOCATION));

    OK(gpuipc_open(&ipc));
    OK(gpuipc_export(ipc, ptr + RANGE_START, RANGE, &exported));
    /* What is exported stays exported without what it was exported with. */
    gpuipc_close(ipc);
    OK(gpuipc_exported_handle_count(exported, &count));
    OK(gpuipc_exported_attempts(exported, NULL, 0, &needed));
    CHECK(count == 1 && needed == 1);
    OK(gpuipc_exported_handle_bytes(exported, 0, handle, sizeof handle));
    send_all(to_importer, handle, sizeof handle);

    receive_all(to_importer, &done, 1);
    CU(cu.copy_out(bytes, ptr, ALLOCATION));
    for (size_t at = 0; at < ALLOCATION; at++) {
        int shared = at >= RANGE_START && at < RANGE_START + RANGE;
        CHECK(bytes[at] == (shared ? answer(at) : pattern(at)));
    }
    gpuipc_exported_free(exported);
    if (is_vmm) {
        cuda_vmm_free(&cu, ptr, ALLOCATION);
    } else {
        CU(cu.mem_free(ptr));
    }
    CU(cu.set_current(NULL));
    CU(cu.primary_release(cu.device));
    free(bytes);
}

int main(int argc, char **argv) {
    int ends[2], status, is_vmm;
    pid_t child;
    CHECK(argc == 2);
    is_vmm = strcmp(argv[1], "vmm-fd") == 0;
    CHECK(is_vmm || strcmp(argv[1], "cuda-malloc") == 0);
    CHECK(gpuipc_version() == GPUIPC_VERSION);

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    /* Before any use of CUDA: it does not work in a forked child. */
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        importer(ends[1], is_vmm);
        return 0;
    }
    close(ends[1]);
    exporter(ends[0], is_vmm);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    puts("shared");
    return 0;
}
