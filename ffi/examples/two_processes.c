/* Two processes share GPU memory: the parent exports a buffer, the child maps it,
 * reads it and writes an answer.
 *
 *     cc -std=c11 two_processes.c $(pkg-config --cflags --libs gpuipc)
 */
#define _POSIX_C_SOURCE 200809L
#include <gpuipc.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE ((size_t)1 << 20)

/* Ends the program with the library's words. */
static void check(gpuipc_status status, const char *what) {
    char text[4096] = "";
    if (status == GPUIPC_OK) {
        return;
    }
    gpuipc_last_error(text, sizeof text, NULL);
    fprintf(stderr, "%s: %s\n%s\n", what, gpuipc_status_name(status), text);
    exit(1);
}

static void need(int condition, const char *what) {
    if (!condition) {
        fprintf(stderr, "%s\n", what);
        exit(1);
    }
}

static void importer(int channel) {
    uint8_t handle[GPUIPC_HANDLE_BYTES];
    char text[32] = "";
    gpuipc *ipc;
    gpuipc_mem *mem;
    uint64_t ptr;
    uint32_t used;
    need(read(channel, handle, sizeof handle) == sizeof handle, "no handle came");
    check(gpuipc_open(&ipc), "open");
    check(gpuipc_import(ipc, handle, sizeof handle, NULL, &mem), "import");
    check(gpuipc_mem_ptr(mem, &ptr), "ptr"); /* for kernels and cuMemcpy */
    check(gpuipc_mem_type_used(mem, &used), "type");
    check(gpuipc_mem_read(mem, 0, (uint8_t *)text, sizeof text), "read");
    printf("importer: \"%s\" at %#llx, by type %u\n", text, (unsigned long long)ptr, used);
    check(gpuipc_mem_write(mem, 0, (const uint8_t *)"hello, exporter", 16), "write");
    gpuipc_mem_free(mem); /* unmaps */
    gpuipc_close(ipc);
    need(write(channel, "d", 1) == 1, "the exporter is gone");
}

static void exporter(int channel) {
    uint8_t handle[GPUIPC_HANDLE_BYTES];
    char text[32] = "hello, importer", done;
    gpuipc *ipc;
    gpuipc_buffer *buffer; /* or your own allocator's memory */
    gpuipc_exported *exported;
    uint64_t ptr;
    check(gpuipc_open(&ipc), "open");
    check(gpuipc_buffer_new(ipc, 0, GPUIPC_MEMORY_VMM_FD, SIZE, &buffer), "buffer");
    check(gpuipc_buffer_write(buffer, 0, (const uint8_t *)text, sizeof text), "write");
    check(gpuipc_buffer_ptr(buffer, &ptr), "ptr");
    check(gpuipc_export(ipc, ptr, SIZE, &exported), "export");
    check(gpuipc_exported_handle_bytes(exported, 0, handle, sizeof handle), "handle");
    need(write(channel, handle, sizeof handle) == sizeof handle, "the importer is gone");
    /* The export must live until all importers have imported. */
    need(read(channel, &done, 1) == 1, "the importer failed");
    check(gpuipc_buffer_read(buffer, 0, (uint8_t *)text, sizeof text), "read");
    printf("exporter: \"%s\"\n", text);
    need(strcmp(text, "hello, exporter") == 0, "that is not the answer");
    gpuipc_exported_free(exported);
    gpuipc_buffer_free(buffer);
    gpuipc_close(ipc);
}

int main(void) {
    int ends[2], status;
    pid_t child;
    setvbuf(stdout, NULL, _IOLBF, 0);
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "no socket");
    /* Before any use of CUDA: it does not work in a forked child. */
    child = fork();
    need(child >= 0, "no process");
    if (child == 0) {
        close(ends[0]);
        importer(ends[1]);
        return 0;
    }
    close(ends[1]);
    exporter(ends[0]);
    need(waitpid(child, &status, 0) == child && status == 0, "the importer failed");
    return 0;
}
