/* What cuIpcOpenMemHandle answers when the memory of the handle was freed, by what lies at its
 * address now. The opener is this program in a second process.
 *
 *   gcc -O2 -o stale_legacy stale_legacy.c -lcuda && ./stale_legacy
 */
#include "probe.h"
#include <sys/wait.h>
#include <unistd.h>

/* The second process: opens the handle on its stdin. */
static int opener(void) {
    CUipcMemHandle handle;
    if (fread(&handle, sizeof handle, 1, stdin) != 1) return 1;
    use_first_gpu();
    CUdeviceptr ptr = 0;
    CUresult code = cuIpcOpenMemHandle(&ptr, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    const char *text = "?";
    cuGetErrorName(code, &text);
    size_t size = 0;
    if (code == CUDA_SUCCESS) MUST(cuMemGetAddressRange(NULL, &size, ptr));
    printf("%s%s", text, code == CUDA_SUCCESS ? ", " : "");
    if (code == CUDA_SUCCESS) printf("%zu bytes", size);
    printf("\n");
    return 0;
}

static void open_elsewhere(const char *self, const char *what, const CUipcMemHandle *handle) {
    printf("%-62s ", what);
    fflush(stdout);
    int ends[2];
    if (pipe(ends) != 0) exit(1);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[0], 0);
        execl(self, self, "open", (char *)NULL);
        _exit(1);
    }
    if (write(ends[1], handle, sizeof *handle) != sizeof *handle) exit(1);
    close(ends[0]);
    close(ends[1]);
    waitpid(child, NULL, 0);
}

/* Maps at the address, if it is to be had. */
static int map_at(CUdeviceptr at, size_t size, CUmemLocationType type) {
    CUdeviceptr got = 0;
    MUST(cuMemAddressReserve(&got, size, 0, at, 0));
    if (got != at) {
        MUST(cuMemAddressFree(got, size));
        return 0;
    }
    CUmemGenericAllocationHandle handle = create(type, size);
    MUST(cuMemMap(got, size, 0, handle, 0));
    MUST(cuMemRelease(handle));
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemSetAccess(got, size, &access, 1));
    return 1;
}

int main(int count, char **words) {
    if (count > 1) return opener();
    use_first_gpu();
    const size_t size = 4 << 20;
    CUipcMemHandle handle;
    CUdeviceptr ptr, other;

    MUST(cuMemAlloc(&ptr, size));
    MUST(cuIpcGetMemHandle(&handle, ptr));
    open_elsewhere(words[0], "nothing was freed", &handle);
    MUST(cuMemFree(ptr));
    open_elsewhere(words[0], "freed, nothing there", &handle);
    MUST(cuMemAlloc(&other, size));
    if (other == ptr) open_elsewhere(words[0], "cuMemAlloc of the same size there", &handle);
    MUST(cuMemFree(other));
    MUST(cuMemAlloc(&other, 2 * size));
    if (other == ptr) open_elsewhere(words[0], "cuMemAlloc of twice the size there", &handle);
    MUST(cuMemFree(other));
    if (map_at(ptr, size, CU_MEM_LOCATION_TYPE_DEVICE)) {
        open_elsewhere(words[0], "cuMemCreate memory mapped there", &handle);
        MUST(cuMemUnmap(ptr, size));
        MUST(cuMemAddressFree(ptr, size));
    } else {
        printf("cuMemCreate memory cannot be mapped there\n");
    }

    /* Small ones share a block of the driver's. */
    CUdeviceptr small[64];
    for (int i = 0; i < 64; i++) MUST(cuMemAlloc(&small[i], 64 << 10));
    MUST(cuIpcGetMemHandle(&handle, small[10]));
    open_elsewhere(words[0], "64 KiB, nothing was freed", &handle);
    MUST(cuMemFree(small[10]));
    open_elsewhere(words[0], "64 KiB, freed, its block still in use", &handle);
    for (int i = 0; i < 64; i++)
        if (i != 10) MUST(cuMemFree(small[i]));
    open_elsewhere(words[0], "64 KiB, its block free, too", &handle);

    /* Of 1 MiB: one that was freed, and others of a pool and of cuMemCreate come. */
    MUST(cuMemAlloc(&ptr, 1 << 20));
    MUST(cuIpcGetMemHandle(&handle, ptr));
    MUST(cuMemFree(ptr));
    CUmemoryPool pool;
    CUmemPoolProps props;
    memset(&props, 0, sizeof props);
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    MUST(cuMemPoolCreate(&pool, &props));
    MUST(cuMemAllocFromPoolAsync(&other, 1 << 20, pool, 0));
    MUST(cuCtxSynchronize());
    printf("1 MiB was at %llx, of a pool at %llx\n", (unsigned long long)ptr, (unsigned long long)other);
    open_elsewhere(words[0], "1 MiB freed, memory of a pool came", &handle);
    MUST(cuMemFree(other));
    MUST(cuMemPoolDestroy(pool));

    /* Many at once, of several sizes, then other kinds in their places. */
    CUipcMemHandle handles[32];
    CUdeviceptr many[32];
    for (int i = 0; i < 32; i++) {
        MUST(cuMemAlloc(&many[i], (size_t)(1 + i % 4) << 20));
        MUST(cuIpcGetMemHandle(&handles[i], many[i]));
    }
    for (int i = 0; i < 32; i++) MUST(cuMemFree(many[i]));
    CUdeviceptr fresh[32];
    for (int i = 0; i < 32; i++) MUST(cuMemAlloc(&fresh[i], (size_t)(1 + (i + 1) % 4) << 20));
    for (int i = 0; i < 8; i++) open_elsewhere(words[0], "one of 32 freed, 32 of other sizes came", &handles[i]);
    return 0;
}
