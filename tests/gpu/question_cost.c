/* What single questions to the driver and to the kernel cost: those that an export and an
 * import ask beside the calls that do the work. Prints the median of ROUNDS rounds of EACH calls.
 *
 *   gcc -O2 -o question_cost question_cost.c -lcuda && ./question_cost
 */
#define _GNU_SOURCE
#include "probe.h"
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROUNDS 101
#define EACH 100

#define MEASURE(name, code)                                                               \
    do {                                                                                  \
        double times_[ROUNDS];                                                            \
        for (int round_ = 0; round_ < ROUNDS; round_++) {                                 \
            double start_ = now_us();                                                     \
            for (int each_ = 0; each_ < EACH; each_++) {                                  \
                code;                                                                     \
            }                                                                             \
            times_[round_] = 1e3 * (now_us() - start_) / EACH;                                  \
        }                                                                                 \
        printf("%-62s %8.0f ns\n", name, median(times_, ROUNDS));                         \
    } while (0)

int main(void) {
    use_first_gpu();
    size_t size = 64 << 20;
    CUmemGenericAllocationHandle handle = create(CU_MEM_LOCATION_TYPE_DEVICE, size);
    CUdeviceptr ptr;
    MUST(cuMemAddressReserve(&ptr, size, 0, 0, 0));
    MUST(cuMemMap(ptr, size, 0, handle, 0));
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemSetAccess(ptr, size, &access, 1));
    int fd = export_fd(handle);

    /* The answers that the library asks for. */
    static const struct {
        const char *name;
        CUpointer_attribute attribute;
    } questions[] = {
        {"BUFFER_ID", CU_POINTER_ATTRIBUTE_BUFFER_ID},
        {"MEMORY_TYPE", CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
        {"ALLOWED_HANDLE_TYPES", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES},
        {"MEMPOOL_HANDLE", CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE},
        {"DEVICE_ORDINAL", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
        {"MAPPING_BASE_ADDR", CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR},
        {"MAPPING_SIZE", CU_POINTER_ATTRIBUTE_MAPPING_SIZE},
    };
    enum { COUNT = sizeof questions / sizeof *questions };
    uint64_t answers[COUNT] = {0};
    void *places[COUNT];
    CUpointer_attribute attributes[COUNT];
    char name[80];
    for (int i = 0; i < COUNT; i++) {
        places[i] = &answers[i];
        attributes[i] = questions[i].attribute;
        snprintf(name, sizeof name, "cuPointerGetAttribute %s", questions[i].name);
        MEASURE(name, MUST(cuPointerGetAttribute(places[i], attributes[i], ptr)));
    }
    MEASURE("cuPointerGetAttributes, these seven",
            MUST(cuPointerGetAttributes(COUNT, attributes, places, ptr)));
    CUuuid uuid;
    MEASURE("cuDeviceGetUuid", MUST(cuDeviceGetUuid(&uuid, 0)));
    CUcontext current;
    MEASURE("cuCtxGetCurrent", MUST(cuCtxGetCurrent(&current)));
    CUdevice device;
    MEASURE("cuCtxGetDevice", MUST(cuCtxGetDevice(&device)));
    MEASURE("cuDeviceGet", MUST(cuDeviceGet(&device, 0)));
    CUmemGenericAllocationHandle again;
    MEASURE("cuMemRetainAllocationHandle, cuMemRelease",
            MUST(cuMemRetainAllocationHandle(&again, (void *)ptr));
            MUST(cuMemRelease(again)));

    /* The kernel's. */
    unsigned char random[16];
    MEASURE("getrandom, 16 bytes", if (getrandom(random, sizeof random, 0) != 16) exit(1));
    struct rlimit limit;
    MEASURE("getrlimit", if (getrlimit(RLIMIT_NOFILE, &limit) != 0) exit(1));
    int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    int memory = memfd_create("question", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (pidfd < 0 || memory < 0 || ftruncate(memory, 4096) != 0) exit(1);
    MEASURE("pidfd_open, close", close((int)syscall(SYS_pidfd_open, getpid(), 0)));
    MEASURE("pidfd_getfd of the driver's descriptor, close",
            close((int)syscall(SYS_pidfd_getfd, pidfd, fd, 0)));
    MEASURE("pidfd_getfd of a memfd, close", close((int)syscall(SYS_pidfd_getfd, pidfd, memory, 0)));
    MEASURE("fcntl F_GET_SEALS", if (fcntl(memory, F_GET_SEALS) < 0) exit(1));
    struct stat status;
    MEASURE("fstat", if (fstat(memory, &status) != 0) exit(1));
    MEASURE("pread, 32 bytes", if (pread(memory, answers, 32, 0) != 32) exit(1));
    return 0;
}
