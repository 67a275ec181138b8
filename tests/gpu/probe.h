/* What the programs here have in common: a driver call that must succeed, a clock, a median, and
 * memory that can be shared by descriptor. */
#ifndef GPUIPC_TESTS_GPU_PROBE_H
#define GPUIPC_TESTS_GPU_PROBE_H

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MUST(call)                                                                        \
    do {                                                                                  \
        CUresult code_ = (call);                                                          \
        if (code_ != CUDA_SUCCESS) {                                                      \
            const char *text_ = "?";                                                      \
            cuGetErrorName(code_, &text_);                                                \
            printf("%s: %s\n", #call, text_);                                             \
            fflush(stdout);                                                               \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

static inline double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static inline int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

/* The first GPU's primary context becomes this thread's. */
static inline void use_first_gpu(void) {
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
}

static inline CUmemGenericAllocationHandle create(CUmemLocationType type, size_t size) {
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop.location.type = type;
    CUmemGenericAllocationHandle handle;
    MUST(cuMemCreate(&handle, size, &prop, 0));
    return handle;
}

static inline int export_fd(CUmemGenericAllocationHandle handle) {
    int fd = -1;
    MUST(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return fd;
}

#endif
