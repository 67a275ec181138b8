/* Two copies of the library in one process, as two plugins bring them: memory
 * that one exports the other imports, by its original address.
 *
 * usage: two_copies cuda-malloc|vmm-fd LIBRARY COPY */
#define _GNU_SOURCE
#include "check.h"
#include "cuda_mini.h"
#include "gpuipc.h"

#include <string.h>

typedef struct copy {
    gpuipc_status (*open)(gpuipc **);
    void (*close)(gpuipc *);
    gpuipc_status (*export_memory)(gpuipc *, uint64_t, size_t, gpuipc_exported **);
    gpuipc_status (*handle_bytes)(const gpuipc_exported *, size_t, uint8_t *, size_t);
    void (*exported_free)(gpuipc_exported *);
    gpuipc_status (*import_memory)(gpuipc *, const uint8_t *, size_t, const gpuipc_import_options *,
                                   gpuipc_mem **);
    gpuipc_status (*mem_ptr)(const gpuipc_mem *, uint64_t *);
    gpuipc_status (*type_used)(const gpuipc_mem *, uint32_t *);
    void (*mem_free)(gpuipc_mem *);
} copy;

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
    symbol(library, "gpuipc_mem_ptr", &to->mem_ptr);
    symbol(library, "gpuipc_mem_type_used", &to->type_used);
    symbol(library, "gpuipc_mem_free", &to->mem_free);
}

int main(int argc, char **argv) {
    uint8_t bytes[GPUIPC_HANDLE_BYTES];
    gpuipc *first = NULL, *second = NULL;
    gpuipc_exported *exported = NULL;
    gpuipc_mem *mem = NULL;
    uint64_t ptr = 0;
    uint32_t used = 99;
    copy one, other;
    cuda_mini cu;
    CHECK(argc == 4);
    load(argv[2], &one);
    load(argv[3], &other);
    CHECK(one.open != other.open);

    cuda_start(&cu);
    CUdeviceptr memory;
    if (strcmp(argv[1], "vmm-fd") == 0) {
        memory = cuda_vmm_alloc(&cu, 4 << 20);
    } else {
        CU(cu.mem_alloc(&memory, 4 << 20));
    }
    CHECK(one.open(&first) == GPUIPC_OK);
    CHECK(other.open(&second) == GPUIPC_OK);
    CHECK(one.export_memory(first, memory + 4096, 100, &exported) == GPUIPC_OK);
    CHECK(one.handle_bytes(exported, 0, bytes, sizeof bytes) == GPUIPC_OK);

    CHECK(other.import_memory(second, bytes, sizeof bytes, NULL, &mem) == GPUIPC_OK);
    CHECK(other.mem_ptr(mem, &ptr) == GPUIPC_OK);
    CHECK(other.type_used(mem, &used) == GPUIPC_OK);
    CHECK(ptr == memory + 4096);
    CHECK(used == GPUIPC_TYPE_SAME_PROCESS);
    other.mem_free(mem);

    one.exported_free(exported);
    CHECK(other.import_memory(second, bytes, sizeof bytes, NULL, &mem) == GPUIPC_EXPORT_REVOKED);
    one.close(first);
    other.close(second);
    puts("both");
    return 0;
}
