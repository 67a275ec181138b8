/* What the driver makes of two calls at once about one allocation, in two threads of a process.
 *
 *   same_allocation SECONDS [the pair]...
 *
 * Every pair of calls runs SECONDS in a process of its own, for memory of the device and of the host. Each
 * round makes the allocation anew; between the two calls lie up to 20 microseconds. Says how many rounds there
 * were and, if the process died, by which signal. Exits 1 if one did. */
#include "probe.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE ((size_t)2 << 20)

/* What a round has: its allocation, mapped once or twice, with a handle left or not. */
static struct round {
    CUmemGenericAllocationHandle first, second;
    CUdeviceptr at, beside;
    int fd;
} memory;

static CUmemLocationType kind;
static double end;
/* Rounds, and calls that an error ended, in a process that may die. */
static struct counted {
    atomic_ulong rounds, errors;
} *counted;

static CUdeviceptr map(CUmemGenericAllocationHandle handle) {
    CUdeviceptr at;
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    MUST(cuMemAddressReserve(&at, SIZE, 0, 0, 0));
    MUST(cuMemMap(at, SIZE, 0, handle, 0));
    MUST(cuMemSetAccess(at, SIZE, &access, 1));
    return at;
}

static void checked(CUresult code) {
    if (code != CUDA_SUCCESS)
        atomic_fetch_add(&counted->errors, 1);
}

static CUmemGenericAllocationHandle import(int fd) {
    CUmemGenericAllocationHandle handle;
    MUST(cuMemImportFromShareableHandle(&handle, (void *)(size_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    return handle;
}

/* Mapped, and without a handle. */
static CUdeviceptr map_only(CUmemGenericAllocationHandle handle) {
    CUdeviceptr at = map(handle);
    MUST(cuMemRelease(handle));
    return at;
}

/* What there is before the two calls. */
static void mapped_and_held(struct round *of) {
    of->first = create(kind, SIZE);
    of->at = map(of->first);
}

static void mapped(struct round *of) { of->at = map_only(create(kind, SIZE)); }

static void mapped_twice(struct round *of) {
    mapped_and_held(of);
    of->beside = map_only(of->first);
}

static void held_twice(struct round *of) {
    mapped_and_held(of);
    MUST(cuMemRetainAllocationHandle(&of->second, (void *)of->at));
    MUST(cuMemUnmap(of->at, SIZE));
}

static void mapped_and_exported(struct round *of) {
    mapped_and_held(of);
    of->fd = export_fd(of->first);
    MUST(cuMemRelease(of->first));
}

static void mapped_and_imported(struct round *of) {
    mapped_and_exported(of);
    of->beside = map_only(import(of->fd));
}

static void imported_twice(struct round *of) {
    mapped_and_imported(of);
    MUST(cuMemUnmap(of->at, SIZE));
    MUST(cuMemAddressFree(of->at, SIZE));
    of->at = map_only(import(of->fd));
}

static void two_allocations(struct round *of) {
    mapped(of);
    of->beside = map_only(create(kind, SIZE));
}

/* The calls. */
static void unmap_first(struct round *of) { checked(cuMemUnmap(of->at, SIZE)); }
static void unmap_second(struct round *of) { checked(cuMemUnmap(of->beside, SIZE)); }
static void release_first(struct round *of) { checked(cuMemRelease(of->first)); }
static void release_second(struct round *of) { checked(cuMemRelease(of->second)); }
static void export_first(struct round *of) { close(export_fd(of->first)); }
static void import_more(struct round *of) {
    /* The descriptor keeps the memory, whatever the other call does. */
    MUST(cuMemRelease(import(of->fd)));
}
static void retain(struct round *of) {
    if (cuMemRetainAllocationHandle(&of->second, (void *)of->at) != CUDA_SUCCESS)
        of->second = 0;
}
static void release_retained(struct round *of) {
    if (of->second != 0)
        release_second(of);
}
static void question(struct round *of) {
    unsigned long long id;
    (void)cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, of->at);
}

static const struct pair {
    const char *name;
    void (*before)(struct round *), (*one)(struct round *), (*other)(struct round *);
    /* What is left of the handle. */
    void (*after)(struct round *);
} pairs[] = {
    {"unmap, release", mapped_and_held, unmap_first, release_first, NULL},
    {"unmap, unmap", mapped_twice, unmap_first, unmap_second, NULL},
    {"release, release", held_twice, release_first, release_second, NULL},
    {"unmap, unmap imported", mapped_and_imported, unmap_first, unmap_second, NULL},
    {"unmap imported, unmap imported", imported_twice, unmap_first, unmap_second, NULL},
    {"unmap, export", mapped_and_held, unmap_first, export_first, release_first},
    {"unmap, import", mapped_and_exported, unmap_first, import_more, NULL},
    {"unmap, retain", mapped, unmap_first, retain, release_retained},
    {"unmap, question", mapped, unmap_first, question, NULL},
    {"unmap, unmap another", two_allocations, unmap_first, unmap_second, NULL},
};
#define PAIRS (sizeof pairs / sizeof *pairs)

static const struct pair *pair;
static atomic_uint ready, done;
static atomic_int over;

static void wait_a_little(unsigned long *dice) {
    *dice = *dice * 6364136223846793005UL + 1442695040888963407UL;
    unsigned long steps = (*dice >> 40) % 8000;
    for (volatile unsigned long i = 0; i < steps; i++) {
    }
}

static void *second(void *nothing) {
    unsigned long dice = 7;
    for (unsigned turn = 1;; turn++) {
        while (atomic_load(&ready) != turn)
            if (atomic_load(&over))
                return nothing;
        wait_a_little(&dice);
        pair->other(&memory);
        atomic_store(&done, turn);
    }
}

static int run(void) {
    use_first_gpu();
    pthread_t thread;
    pthread_create(&thread, NULL, second, NULL);
    unsigned long dice = 5;
    for (unsigned turn = 1; now_us() < end; turn++) {
        memset(&memory, 0, sizeof memory);
        memory.fd = -1;
        pair->before(&memory);
        atomic_store(&ready, turn);
        wait_a_little(&dice);
        pair->one(&memory);
        while (atomic_load(&done) != turn) {
        }
        if (pair->after != NULL)
            pair->after(&memory);
        if (memory.fd >= 0)
            close(memory.fd);
        MUST(cuMemAddressFree(memory.at, SIZE));
        if (memory.beside != 0)
            MUST(cuMemAddressFree(memory.beside, SIZE));
        atomic_fetch_add(&counted->rounds, 1);
    }
    atomic_store(&over, 1);
    pthread_join(thread, NULL);
    return 0;
}

int main(int count, char **words) {
    double seconds = count > 1 ? atof(words[1]) : 0;
    if (seconds <= 0) {
        printf("same_allocation SECONDS [the pair]...\n");
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    counted = mmap(NULL, sizeof *counted, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int deaths = 0;
    for (size_t i = 0; i < PAIRS; i++) {
        int chosen = count == 2;
        for (int w = 2; w < count; w++)
            chosen |= strcmp(words[w], pairs[i].name) == 0;
        for (int host = 0; chosen && host < 2; host++) {
            memset(counted, 0, sizeof *counted);
            pid_t pid = fork();
            if (pid == 0) {
                pair = &pairs[i];
                kind = host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
                end = now_us() + 1e6 * seconds;
                exit(run());
            }
            int status;
            waitpid(pid, &status, 0);
            printf("%-32s %-7s %8lu rounds, %lu errors", pairs[i].name, host ? "host" : "device", counted->rounds, counted->errors);
            if (WIFSIGNALED(status))
                printf(", died of signal %d", WTERMSIG(status));
            else if (WEXITSTATUS(status) != 0)
                printf(", failed");
            printf("\n");
            deaths += WIFSIGNALED(status) != 0;
        }
    }
    return deaths > 0;
}
