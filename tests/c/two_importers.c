/* Two copies of the library in one process, as two plugins bring them, import the same
 * legacy handle of another process again and again, at the same time. Neither fails.
 *
 * usage: two_importers LIBRARY COPY */
#define _GNU_SOURCE
#include "check.h"
#include "cuda_mini.h"
#include "gpuipc.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 300

typedef struct copy {
    gpuipc *ipc;
    gpuipc_status (*open)(gpuipc **);
    void (*close)(gpuipc *);
    gpuipc_status (*export_memory)(gpuipc *, uint64_t, size_t, gpuipc_exported **);
    gpuipc_status (*handle_bytes)(const gpuipc_exported *, size_t, uint8_t *, size_t);
    void (*exported_free)(gpuipc_exported *);
    gpuipc_status (*import_memory)(gpuipc *, const uint8_t *, size_t, const gpuipc_import_options *,
                                   gpuipc_mem **);
    void (*mem_free)(gpuipc_mem *);
    gpuipc_status (*last_error)(char *, size_t, size_t *);
} copy;

static uint8_t bytes[GPUIPC_HANDLE_BYTES];
static pthread_barrier_t start;

static void symbol(void *library, const char *name, void *function) {
    void *address = dlsym(library, name);
    CHECK(address != NULL);
    memcpy(function, &address, sizeof address);
}

static void load(const char *path, copy *to) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    symbol(library, "gpuipc_open", &to->open);
    symbol(library, "gpuipc_close", &to->close);
    symbol(library, "gpuipc_export", &to->export_memory);
    symbol(library, "gpuipc_exported_handle_bytes", &to->handle_bytes);
    symbol(library, "gpuipc_exported_free", &to->exported_free);
    symbol(library, "gpuipc_import", &to->import_memory);
    symbol(library, "gpuipc_mem_free", &to->mem_free);
    symbol(library, "gpuipc_last_error", &to->last_error);
    CHECK(to->open(&to->ipc) == GPUIPC_OK);
}

static void *import_and_free(void *argument) {
    copy *one = argument;
    pthread_barrier_wait(&start);
    for (int round = 0; round < ROUNDS; round++) {
        gpuipc_mem *mem = NULL;
        if (one->import_memory(one->ipc, bytes, sizeof bytes, NULL, &mem) != GPUIPC_OK) {
            char text[2000] = "";
            one->last_error(text, sizeof text, NULL);
            fprintf(stderr, "round %d: %s\n", round, text);
            return argument;
        }
        one->mem_free(mem);
    }
    return NULL;
}

/* Exports memory until nobody holds the other end of `until`. */
static void exporter(const char *library, int to, int until) {
    copy one;
    cuda_mini cu;
    CUdeviceptr memory;
    gpuipc_exported *exported = NULL;
    char end;
    cuda_start(&cu);
    CU(cu.mem_alloc(&memory, 4 << 20));
    load(library, &one);
    CHECK(one.export_memory(one.ipc, memory, 4096, &exported) == GPUIPC_OK);
    CHECK(one.handle_bytes(exported, 0, bytes, sizeof bytes) == GPUIPC_OK);
    CHECK(write(to, bytes, sizeof bytes) == (ssize_t)sizeof bytes);
    CHECK(read(until, &end, 1) == 0);
    one.exported_free(exported);
    one.close(one.ipc);
}

int main(int argc, char **argv) {
    int handle[2], until[2], status = 1;
    cuda_mini cu;
    copy copies[2];
    pthread_t threads[2];
    CHECK(argc == 3);
    CHECK(pipe(handle) == 0 && pipe(until) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(until[1]);
        exporter(argv[1], handle[1], until[0]);
        return 0;
    }
    close(until[0]);
    CHECK(read(handle[0], bytes, sizeof bytes) == (ssize_t)sizeof bytes);

    cuda_start(&cu);
    load(argv[1], &copies[0]);
    load(argv[2], &copies[1]);
    CHECK(copies[0].open != copies[1].open);
    CHECK(pthread_barrier_init(&start, NULL, 2) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, import_and_free, &copies[i]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        void *failed = NULL;
        CHECK(pthread_join(threads[i], &failed) == 0);
        CHECK(failed == NULL);
        copies[i].close(copies[i].ipc);
    }
    close(until[1]);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    puts("both");
    return 0;
}
