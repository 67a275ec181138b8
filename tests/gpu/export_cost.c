/* What cuMemExportToShareableHandle and the close of its descriptor cost, depending on what
 * other descriptors of the driver's the process has open. Prints medians of ROUNDS rounds.
 *
 *   gcc -O2 -o export_cost export_cost.c -lcuda && ./export_cost
 */
#include "probe.h"
#include <unistd.h>

#define ROUNDS 41

/* One export and close of `handle`, again and again. */
static void measure(const char *name, CUmemGenericAllocationHandle handle) {
    double exports[ROUNDS], closes[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        double start = now_us();
        int fd = export_fd(handle);
        double middle = now_us();
        close(fd);
        exports[i] = middle - start;
        closes[i] = now_us() - middle;
    }
    printf("%-58s export %7.1f us, close %7.1f us\n", name, median(exports, ROUNDS),
           median(closes, ROUNDS));
}

int main(void) {
    use_first_gpu();
    size_t free_before, free_after, total;
    CUmemGenericAllocationHandle memory = create(CU_MEM_LOCATION_TYPE_DEVICE, 64 << 20);
    measure("nothing else open", memory);

    MUST(cuMemGetInfo(&free_before, &total));
    double start = now_us();
    CUmemPoolProps props;
    memset(&props, 0, sizeof props);
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemoryPool pool;
    MUST(cuMemPoolCreate(&pool, &props));
    int pool_fd = -1;
    MUST(cuMemPoolExportToShareableHandle(&pool_fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    double made = now_us() - start;
    MUST(cuMemGetInfo(&free_after, &total));
    printf("an empty pool and its descriptor: made in %.1f us, %zu bytes of GPU memory\n", made,
           free_before - free_after);
    measure("the descriptor of an empty pool open", memory);
    MUST(cuMemPoolDestroy(pool));
    measure("the same, pool destroyed", memory);
    close(pool_fd);

    MUST(cuMemGetInfo(&free_before, &total));
    start = now_us();
    CUmemGenericAllocationHandle host = create(CU_MEM_LOCATION_TYPE_HOST_NUMA, 2 << 20);
    int host_fd = export_fd(host);
    made = now_us() - start;
    MUST(cuMemGetInfo(&free_after, &total));
    printf("2 MiB on host node 0 and its descriptor: made in %.1f us, %zu bytes of GPU memory\n", made,
           free_before - free_after);
    measure("a descriptor of 2 MiB on host node 0 open", memory);
    MUST(cuMemRelease(host));
    measure("the same, its handle released", memory);
    start = now_us();
    close(host_fd);
    printf("its close: %.1f us\n", now_us() - start);

    MUST(cuMemGetInfo(&free_before, &total));
    start = now_us();
    CUmemGenericAllocationHandle small = create(CU_MEM_LOCATION_TYPE_DEVICE, 2 << 20);
    int small_fd = export_fd(small);
    made = now_us() - start;
    MUST(cuMemGetInfo(&free_after, &total));
    printf("2 MiB of the GPU and its descriptor: made in %.1f us, %zu bytes of GPU memory\n", made,
           free_before - free_after);
    measure("a descriptor of 2 MiB of the GPU open", memory);
    MUST(cuMemRelease(small));
    measure("the same, its handle released", memory);
    MUST(cuMemGetInfo(&free_after, &total));
    printf("GPU memory that it pins without its handle: %zu bytes\n", free_before - free_after);
    start = now_us();
    close(small_fd);
    printf("its close: %.1f us\n", now_us() - start);

    start = now_us();
    int again = export_fd(memory);
    double first = now_us() - start;
    measure("a descriptor of the same memory open", memory);
    start = now_us();
    close(again);
    printf("that one: export %.1f us, close %.1f us\n", first, now_us() - start);
    measure("nothing else open, once more", memory);
    MUST(cuMemRelease(memory));
    printf("ok\n");
    return 0;
}
