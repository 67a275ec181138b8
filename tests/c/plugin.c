/* A plugin with libgpuipc.a in it, which exports these functions and nothing else. */
#include "gpuipc.h"

#include <stddef.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct plugin {
    gpuipc *ipc;
    gpuipc_buffer *buffer;
    gpuipc_exported *exported;
} plugin;

EXPORT plugin *plugin_open(void) {
    plugin *made = calloc(1, sizeof *made);
    if (made != NULL && gpuipc_open(&made->ipc) != GPUIPC_OK) {
        free(made);
        return NULL;
    }
    return made;
}

EXPORT int plugin_export(plugin *the, uint8_t handle[GPUIPC_HANDLE_BYTES], uint64_t *ptr) {
    return gpuipc_buffer_new(the->ipc, 0, GPUIPC_MEMORY_VMM_FD, 1 << 20, &the->buffer) == GPUIPC_OK &&
           gpuipc_buffer_write(the->buffer, 0, (const uint8_t *)"plugged", 8) == GPUIPC_OK &&
           gpuipc_buffer_ptr(the->buffer, ptr) == GPUIPC_OK &&
           gpuipc_export(the->ipc, *ptr, 1 << 20, &the->exported) == GPUIPC_OK &&
           gpuipc_exported_handle_bytes(the->exported, 0, handle, GPUIPC_HANDLE_BYTES) == GPUIPC_OK;
}

EXPORT int plugin_read(plugin *the, const uint8_t handle[GPUIPC_HANDLE_BYTES], uint64_t *ptr, uint32_t *used,
                       char text[8]) {
    gpuipc_mem *mem;
    int good;
    if (gpuipc_import(the->ipc, handle, GPUIPC_HANDLE_BYTES, NULL, &mem) != GPUIPC_OK) {
        return 0;
    }
    good = gpuipc_mem_ptr(mem, ptr) == GPUIPC_OK && gpuipc_mem_type_used(mem, used) == GPUIPC_OK &&
           /* Own memory is its owner's to copy. */
           (*used == GPUIPC_TYPE_SAME_PROCESS || gpuipc_mem_read(mem, 0, (uint8_t *)text, 8) == GPUIPC_OK);
    gpuipc_mem_free(mem);
    return good;
}

EXPORT void plugin_close(plugin *the) {
    gpuipc_exported_free(the->exported);
    gpuipc_buffer_free(the->buffer);
    gpuipc_close(the->ipc);
    free(the);
}
