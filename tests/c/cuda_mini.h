/* The few calls of the CUDA driver that the tests' programs make themselves, in
 * the types of cuda.h, loaded from the library that GPUIPC_LIBCUDA names. */
#ifndef CUDA_MINI_H
#define CUDA_MINI_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef uint64_t CUdeviceptr;
typedef uint64_t CUmemGenericAllocationHandle;

enum {
    CUDA_SUCCESS = 0,
    CU_MEM_ALLOCATION_TYPE_PINNED = 1,
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
    CU_MEM_LOCATION_TYPE_DEVICE = 1,
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3
};

typedef struct {
    int type;
    int id;
} CUmemLocation;

typedef struct {
    int type;
    int requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    unsigned char allocFlags[8];
} CUmemAllocationProp;

typedef struct {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;

typedef struct {
    CUresult (*init)(unsigned flags);
    CUresult (*device_get)(CUdevice *, int ordinal);
    CUresult (*primary_retain)(CUcontext *, CUdevice);
    CUresult (*primary_release)(CUdevice);
    CUresult (*set_current)(CUcontext);
    CUresult (*mem_alloc)(CUdeviceptr *, size_t);
    CUresult (*mem_free)(CUdeviceptr);
    CUresult (*copy_in)(CUdeviceptr, const void *, size_t);
    CUresult (*copy_out)(void *, CUdeviceptr, size_t);
    CUresult (*mem_create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                           unsigned long long flags);
    CUresult (*mem_release)(CUmemGenericAllocationHandle);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t alignment, CUdeviceptr wish,
                        unsigned long long flags);
    CUresult (*address_free)(CUdeviceptr, size_t);
    CUresult (*map)(CUdeviceptr, size_t, size_t offset, CUmemGenericAllocationHandle,
                    unsigned long long flags);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t count);
    CUdevice device;
} cuda_mini;

/* The granularity of an H200, and of the emulated driver. */
#define GRANULARITY ((size_t)2 << 20)

#define CU(call)                                                                                   \
    do {                                                                                           \
        CUresult cu_result = (call);                                                               \
        if (cu_result != CUDA_SUCCESS) {                                                           \
            fprintf(stderr, "%s:%d: %s answered %d\n", __FILE__, __LINE__, #call, cu_result);      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* ISO C has no cast from dlsym's result to a function. */
static inline void cuda_symbol(void *library, const char *name, void *function) {
    void *address = dlsym(library, name);
    if (address == NULL) {
        fprintf(stderr, "no %s: %s\n", name, dlerror());
        exit(1);
    }
    memcpy(function, &address, sizeof address);
}

/* Loads the driver and makes the first device's primary context current. */
static inline void cuda_start(cuda_mini *cu) {
    const char *path = getenv("GPUIPC_LIBCUDA");
    void *library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CUcontext context;
    if (library == NULL) {
        fprintf(stderr, "no driver: %s\n", dlerror());
        exit(1);
    }
    cuda_symbol(library, "cuInit", &cu->init);
    cuda_symbol(library, "cuDeviceGet", &cu->device_get);
    cuda_symbol(library, "cuDevicePrimaryCtxRetain", &cu->primary_retain);
    cuda_symbol(library, "cuDevicePrimaryCtxRelease_v2", &cu->primary_release);
    cuda_symbol(library, "cuCtxSetCurrent", &cu->set_current);
    cuda_symbol(library, "cuMemAlloc_v2", &cu->mem_alloc);
    cuda_symbol(library, "cuMemFree_v2", &cu->mem_free);
    cuda_symbol(library, "cuMemcpyHtoD_v2", &cu->copy_in);
    cuda_symbol(library, "cuMemcpyDtoH_v2", &cu->copy_out);
    cuda_symbol(library, "cuMemCreate", &cu->mem_create);
    cuda_symbol(library, "cuMemRelease", &cu->mem_release);
    cuda_symbol(library, "cuMemAddressReserve", &cu->reserve);
    cuda_symbol(library, "cuMemAddressFree", &cu->address_free);
    cuda_symbol(library, "cuMemMap", &cu->map);
    cuda_symbol(library, "cuMemUnmap", &cu->unmap);
    cuda_symbol(library, "cuMemSetAccess", &cu->set_access);
    CU(cu->init(0));
    CU(cu->device_get(&cu->device, 0));
    CU(cu->primary_retain(&context, cu->device));
    CU(cu->set_current(context));
}

/* Allocates memory of cuMemCreate that can be shared by a file descriptor. */
static inline CUdeviceptr cuda_vmm_alloc(const cuda_mini *cu, size_t size) {
    CUmemAllocationProp prop;
    CUmemAccessDesc access;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr ptr;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = cu->device;
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CU(cu->mem_create(&handle, size, &prop, 0));
    CU(cu->reserve(&ptr, size, 0, 0, 0));
    CU(cu->map(ptr, size, 0, handle, 0));
    CU(cu->set_access(ptr, size, &access, 1));
    /* The mapping keeps the memory. */
    CU(cu->mem_release(handle));
    return ptr;
}

static inline void cuda_vmm_free(const cuda_mini *cu, CUdeviceptr ptr, size_t size) {
    CU(cu->unmap(ptr, size));
    CU(cu->address_free(ptr, size));
}

#endif
