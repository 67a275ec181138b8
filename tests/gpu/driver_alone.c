/* Whether the driver itself survives what the stress program does, without this library: processes whose threads
 * allocate, copy, export, import, unmap and free memory while signals interrupt them, others fork,
 * and some are killed.
 *
 *   driver_alone SECONDS PROCESSES [left out: signals forks kills exchange imports own read-only
 *                                   host segments legacy copies questions demand keepalive]
 *
 * A thread never touches memory that another one may free; one more asks for the BUFFER_ID of what the
 * others map ("questions"), and exports handles that they hold ("demand"), as a broker does. "keepalive" is a
 * descriptor of an allocation without handle and mapping. A process that dies says by which signal, and
 * what each of its threads was doing. Exits 1 if one did. */
#define _GNU_SOURCE
#include "probe.h"
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_PROCESSES 64
#define THREADS 3
#define OWN 3
#define IMPORTS 5
#define PIECES 3
#define PIECE ((size_t)2 << 20)
#define COPIED ((size_t)96 << 10)

enum { MALLOC, ONE, MANY, HOST, KINDS };
static const char *const kind_names[KINDS] = {"cuda-malloc", "vmm-fd", "segments", "host-numa"};

/* What an importer needs to know. */
struct exported {
    atomic_uint turn; /* odd while it stands */
    pid_t pid;
    int kind, pieces, fds[PIECES];
    size_t piece;
    CUipcMemHandle legacy;
};

static struct shared {
    atomic_ulong steps, refused, children, kills, sent, unmaps, demanded;
    atomic_int ending, deaths;
    struct exported exports[MOST_PROCESSES][THREADS * OWN];
} *shared;

/* Memory of this process. */
struct own {
    int kind, pieces, maker, has_cpu, imported, fds[PIECES];
    size_t piece, slot;
    CUdeviceptr at;
    CUmemGenericAllocationHandle handles[PIECES];
    struct exported *exported;
};

/* Another process's. */
struct import {
    int kind, pieces, read_only, maker;
    size_t piece;
    CUdeviceptr at;
};

struct thread {
    size_t number;
    unsigned long dice;
    struct own own[OWN];
    struct import imports[IMPORTS];
    char bytes[COPIED];
};

static struct thread threads[THREADS];
static struct own shelf_own;
static struct import shelf_import;
static pthread_mutex_t shelf = PTHREAD_MUTEX_INITIALIZER;
/* The last one's is the thread that asks. */
static char doing[THREADS + 1][200];
static _Atomic CUdeviceptr mapped[THREADS];
/* Handles that may be exported; who takes one out and releases it does so under the lock. */
static CUmemGenericAllocationHandle held[THREADS][OWN];
static int held_kinds[THREADS][OWN];
static pthread_mutex_t holding = PTHREAD_MUTEX_INITIALIZER;
static int keepalive = -1;
static CUcontext context;
static int process;
static int with_signals = 1, with_forks = 1, with_kills = 1, with_exchange = 1, with_imports = 1, with_own = 1,
           with_read_only = 1, with_host = 1, with_segments = 1, with_legacy = 1, with_copies = 1, with_questions = 1, with_demand = 1,
           with_keepalive = 1;

static void poked(int number) { (void)number; }

static void died(int number) {
    static atomic_int first;
    if (atomic_fetch_add(&first, 1) > 0)
        for (;;)
            pause();
    char text[1024];
    int length = snprintf(text, sizeof text, "process %d died of signal %d; its threads:\n", (int)getpid(), number);
    for (size_t i = 0; i <= THREADS; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, "  %s\n", doing[i]);
    void *frames[24];
    int count = backtrace(frames, 24);
    if (write(1, text, (size_t)length) < 0)
        _exit(3);
    backtrace_symbols_fd(frames, count, 1);
    atomic_fetch_add(&shared->deaths, 1);
    _exit(2);
}

static unsigned dice(struct thread *t, unsigned below) {
    t->dice = t->dice * 6364136223846793005UL + 1442695040888963407UL;
    return (unsigned)(t->dice >> 33) % below;
}

/* What a thread is at. */
#define AT(t, ...) snprintf(doing[(t)->number], sizeof doing[0], __VA_ARGS__)

#define DO(t, call, ...)                \
    do {                                \
        AT(t, #call " of " __VA_ARGS__); \
        MUST(call);                     \
    } while (0)

static void push(void) { MUST(cuCtxPushCurrent(context)); }

static void pop(void) {
    CUcontext old;
    MUST(cuCtxPopCurrent(&old));
}

static CUmemAccessDesc right(CUmemLocationType type, CUmemAccess_flags flags) {
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location.type = type;
    access.flags = flags;
    return access;
}

static void copy_out(struct thread *t, CUdeviceptr at) {
    if (!with_copies)
        return;
    AT(t, "cuMemcpyDtoH");
    push();
    MUST(cuMemcpyDtoH(t->bytes, at, COPIED));
    pop();
}

static void give(struct thread *t, size_t index) {
    struct own *own = &t->own[index];
    memset(own, 0, sizeof *own);
    own->kind = (int)dice(t, KINDS);
    if ((own->kind == HOST && !with_host) || (own->kind == MANY && !with_segments) || (own->kind == MALLOC && !with_legacy))
        own->kind = ONE;
    own->maker = (int)t->number;
    own->pieces = own->kind == MANY ? PIECES : 1;
    own->piece = own->kind == MANY ? PIECE : PIECE * (1 + dice(t, 2));
    const char *name = kind_names[own->kind];
    struct exported *exported = &shared->exports[process][t->number * OWN + index];
    if (own->kind == MALLOC) {
        push();
        DO(t, cuMemAlloc(&own->at, own->piece), "%s", name);
        DO(t, cuIpcGetMemHandle(&exported->legacy, own->at), "%s", name);
        pop();
    } else {
        size_t size = own->piece * (size_t)own->pieces;
        DO(t, cuMemAddressReserve(&own->at, size, 0, 0, 0), "%s", name);
        for (int i = 0; i < own->pieces; i++) {
            AT(t, "cuMemCreate of %s", name);
            CUmemGenericAllocationHandle handle =
                create(own->kind == HOST ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE, own->piece);
            DO(t, cuMemMap(own->at + (size_t)i * own->piece, own->piece, 0, handle, 0), "%s", name);
            DO(t, cuMemRelease(handle), "%s", name);
        }
        CUmemAccessDesc access = right(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        DO(t, cuMemSetAccess(own->at, size, &access, 1), "%s", name);
    }
    mapped[t->number] = own->at;
    if (with_copies) {
        AT(t, "cuMemcpyHtoD to %s", name);
        push();
        MUST(cuMemcpyHtoD(own->at, t->bytes, COPIED));
        MUST(cuCtxSynchronize());
        pop();
    }
    unsigned long long id;
    for (int i = 0; i < own->pieces && own->kind != MALLOC; i++) {
        CUdeviceptr at = own->at + (size_t)i * own->piece;
        DO(t, cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, at), "%s", name);
        DO(t, cuMemRetainAllocationHandle(&own->handles[i], (void *)at), "%s", name);
        AT(t, "cuMemExportToShareableHandle of %s", name);
        own->fds[i] = export_fd(own->handles[i]);
    }
    if (own->kind == HOST) {
        CUmemAllocationProp prop;
        DO(t, cuMemGetAllocationPropertiesFromHandle(&prop, own->handles[0]), "%s", name);
    }
    own->slot = index;
    pthread_mutex_lock(&holding);
    held[t->number][index] = own->handles[0];
    held_kinds[t->number][index] = own->kind;
    pthread_mutex_unlock(&holding);
    own->exported = exported;
    exported->pid = getpid();
    exported->kind = own->kind;
    exported->pieces = own->pieces;
    exported->piece = own->piece;
    memcpy(exported->fds, own->fds, sizeof exported->fds);
    atomic_fetch_add(&exported->turn, 1);
}

static void let_go_of_handles(struct thread *t, struct own *own) {
    pthread_mutex_lock(&holding);
    held[own->maker][own->slot] = 0;
    pthread_mutex_unlock(&holding);
    for (int i = 0; i < own->pieces && own->kind != MALLOC; i++) {
        DO(t, cuMemRelease(own->handles[i]), "%s", kind_names[own->kind]);
        close(own->fds[i]);
    }
}

static void free_own(struct thread *t, struct own *own) {
    size_t size = own->piece * (size_t)own->pieces;
    const char *name = kind_names[own->kind];
    if (own->kind == MALLOC) {
        push();
        DO(t, cuMemFree(own->at), "%s made by thread %d", name, own->maker);
        pop();
        return;
    }
    DO(t, cuMemUnmap(own->at, size), "own %s (%d x %zu) made by thread %d in thread %zu%s%s", name, own->pieces, own->piece,
       own->maker, t->number, own->has_cpu ? ", the CPU got access" : "", own->imported ? ", was read again" : "");
    atomic_fetch_add(&shared->unmaps, 1);
    DO(t, cuMemAddressFree(own->at, size), "%s", name);
}

static void take_back(struct thread *t, size_t index) {
    struct own *own = &t->own[index];
    if (own->at == 0)
        return;
    if (own->exported != NULL)
        atomic_fetch_add(&own->exported->turn, 1);
    if (dice(t, 2)) {
        free_own(t, own);
        let_go_of_handles(t, own);
    } else {
        let_go_of_handles(t, own);
        free_own(t, own);
    }
    own->at = 0;
}

/* What the owner does that imports its own memory: access for those that lack it, and a copy. */
static void take_own(struct thread *t, size_t index) {
    struct own *own = &t->own[index];
    if (own->at == 0)
        return;
    own->imported = 1;
    for (int i = 0; i < own->pieces && own->kind != MALLOC; i++) {
        CUdeviceptr at = own->at + (size_t)i * own->piece;
        for (int cpu = 0; cpu <= (own->kind == HOST); cpu++) {
            unsigned long long flags;
            CUmemAccessDesc access = right(cpu ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE,
                                           CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
            DO(t, cuMemGetAccess(&flags, &access.location, at), "%s", kind_names[own->kind]);
            if (flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
                DO(t, cuMemSetAccess(at, own->piece, &access, 1), "%s", kind_names[own->kind]);
                own->has_cpu = 1;
            }
        }
    }
    copy_out(t, own->at);
}

static void unmap(struct thread *t, struct import *import) {
    if (import->at == 0)
        return;
    size_t size = import->piece * (size_t)import->pieces;
    const char *name = kind_names[import->kind];
    if (import->kind == MALLOC) {
        push();
        DO(t, cuIpcCloseMemHandle(import->at), "%s", name);
        pop();
    } else {
        DO(t, cuMemUnmap(import->at, size), "imported %s (%d x %zu) made by thread %d in thread %zu%s", name, import->pieces,
           import->piece, import->maker, t->number, import->read_only ? ", read-only" : "");
        atomic_fetch_add(&shared->unmaps, 1);
        DO(t, cuMemAddressFree(import->at, size), "imported %s", name);
    }
    import->at = 0;
}

static void take(struct thread *t, struct import *import) {
    int from = (int)dice(t, MOST_PROCESSES);
    struct exported *at = &shared->exports[from][dice(t, THREADS * OWN)], exported;
    unsigned turn = atomic_load(&at->turn);
    memcpy(&exported, at, sizeof exported);
    if (from == process || turn % 2 == 0)
        return;
    memset(import, 0, sizeof *import);
    import->kind = exported.kind;
    import->pieces = exported.pieces;
    import->piece = exported.piece;
    import->maker = (int)t->number;
    const char *name = kind_names[exported.kind];
    if (exported.kind == MALLOC) {
        push();
        AT(t, "cuIpcOpenMemHandle");
        if (cuIpcOpenMemHandle(&import->at, exported.legacy, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS)
            import->at = 0;
        pop();
        /* Its owner may free it at any time: it is not read. */
        return;
    }
    size_t size = exported.piece * (size_t)exported.pieces, done = 0;
    CUdeviceptr base;
    DO(t, cuMemAddressReserve(&base, size, 0, 0, 0), "imported %s", name);
    int pidfd = (int)syscall(SYS_pidfd_open, exported.pid, 0);
    for (int i = 0; pidfd >= 0 && i < exported.pieces; i++) {
        int fd = (int)syscall(SYS_pidfd_getfd, pidfd, exported.fds[i], 0);
        /* The number may be another file's by now. */
        if (fd < 0 || atomic_load(&at->turn) != turn) {
            if (fd >= 0)
                close(fd);
            break;
        }
        CUmemGenericAllocationHandle handle;
        AT(t, "cuMemImportFromShareableHandle of %s", name);
        CUresult code = cuMemImportFromShareableHandle(&handle, (void *)(size_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        close(fd);
        if (code != CUDA_SUCCESS)
            break;
        DO(t, cuMemMap(base + done, exported.piece, 0, handle, 0), "imported %s", name);
        DO(t, cuMemRelease(handle), "imported %s", name);
        done += exported.piece;
    }
    if (pidfd >= 0)
        close(pidfd);
    if (done < size) {
        atomic_fetch_add(&shared->refused, 1);
        if (done > 0)
            DO(t, cuMemUnmap(base, done), "a part of imported %s", name);
        DO(t, cuMemAddressFree(base, size), "imported %s", name);
        return;
    }
    import->at = base;
    import->read_only = with_read_only && dice(t, 5) == 0;
    CUmemAccess_flags flags = import->read_only ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUmemAccessDesc access[2] = {right(CU_MEM_LOCATION_TYPE_DEVICE, flags), right(CU_MEM_LOCATION_TYPE_HOST_NUMA, flags)};
    DO(t, cuMemSetAccess(base, size, access, exported.kind == HOST ? 2 : 1), "imported %s", name);
    copy_out(t, base);
    if (import->read_only && exported.kind != HOST && with_copies) {
        push();
        AT(t, "cuMemcpyHtoD where only reading is allowed");
        if (cuMemcpyHtoD(base, t->bytes, 1) == CUDA_SUCCESS)
            printf("a read-only mapping was written\n");
        pop();
    }
}

static void exchange(struct thread *t) {
    struct own *own = &t->own[dice(t, OWN)];
    struct import *import = &t->imports[dice(t, IMPORTS)];
    pthread_mutex_lock(&shelf);
    if (dice(t, 2)) {
        struct own old = shelf_own;
        shelf_own = *own;
        *own = old;
    } else {
        struct import old = shelf_import;
        shelf_import = *import;
        *import = old;
    }
    pthread_mutex_unlock(&shelf);
}

static void make_keepalive(struct thread *t) {
    pthread_mutex_lock(&shelf);
    if (keepalive >= 0)
        close(keepalive);
    AT(t, "a keepalive descriptor");
    CUmemGenericAllocationHandle handle = create(CU_MEM_LOCATION_TYPE_HOST_NUMA, PIECE);
    keepalive = export_fd(handle);
    MUST(cuMemRelease(handle));
    pthread_mutex_unlock(&shelf);
}

static void fork_one(struct thread *t) {
    AT(t, "fork");
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    atomic_fetch_add(&shared->children, 1);
}

static void *work(void *of) {
    struct thread *t = of;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    while (!atomic_load(&shared->ending)) {
        unsigned what = dice(t, 64);
        size_t own = dice(t, OWN);
        struct import *import = &t->imports[dice(t, IMPORTS)];
        if (what < 12) {
            if (t->own[own].at != 0)
                take_back(t, own);
            /* A slot of the table is free again when its memory is: what came from another thread keeps its own. */
            else if (shared->exports[process][t->number * OWN + own].turn % 2 == 0)
                give(t, own);
        } else if (what < 34 && with_imports) {
            if (import->at != 0)
                unmap(t, import);
            else
                take(t, import);
        } else if (what < 40 && with_own)
            take_own(t, own);
        else if (what < 46) {
            if (import->at != 0 && import->kind != MALLOC)
                copy_out(t, import->at);
        } else if (what < 50 && with_exchange)
            exchange(t);
        else if (what == 50 && with_forks && dice(t, 4) == 0)
            fork_one(t);
        else if (what == 51 && with_keepalive && dice(t, 4) == 0)
            make_keepalive(t);
        atomic_fetch_add(&shared->steps, 1);
    }
    for (size_t i = 0; i < IMPORTS; i++)
        unmap(t, &t->imports[i]);
    for (size_t i = 0; i < OWN; i++)
        take_back(t, i);
    return NULL;
}

static void *ask(void *nothing) {
    struct thread self = {.number = THREADS, .dice = (unsigned long)getpid() * 31};
    while (!atomic_load(&shared->ending)) {
        for (size_t thread = 0; thread < THREADS; thread++) {
            unsigned long long id;
            CUdeviceptr at = mapped[thread];
            if (at != 0 && with_questions) {
                AT(&self, "cuPointerGetAttribute, asking");
                (void)cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, at);
            }
        }
        size_t thread = dice(&self, THREADS), slot = dice(&self, OWN);
        pthread_mutex_lock(&holding);
        if (held[thread][slot] != 0 && with_demand) {
            AT(&self, "cuMemExportToShareableHandle of %s on demand",
                     kind_names[held_kinds[thread][slot]]);
            close(export_fd(held[thread][slot]));
            atomic_fetch_add(&shared->demanded, 1);
        }
        pthread_mutex_unlock(&holding);
        AT(&self, "nothing");
        usleep(100 + dice(&self, 1000));
    }
    return nothing;
}

static void run(int number) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    process = number;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = poked;
    sigaction(SIGUSR1, &action, NULL);
    action.sa_handler = died;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGABRT, &action, NULL);
    use_first_gpu();
    MUST(cuCtxGetCurrent(&context));
    pthread_t started[THREADS], asking;
    for (size_t i = 0; i < THREADS; i++) {
        threads[i].number = i;
        threads[i].dice = (unsigned long)getpid() * 7919 + i;
        pthread_create(&started[i], NULL, work, &threads[i]);
    }
    if (with_questions || with_demand)
        pthread_create(&asking, NULL, ask, NULL);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(started[i], NULL);
    exit(0);
}

static pid_t start(int number) {
    /* What a killed one had exported. */
    for (size_t i = 0; i < THREADS * OWN; i++)
        if (shared->exports[number][i].turn % 2 == 1)
            atomic_fetch_add(&shared->exports[number][i].turn, 1);
    pid_t pid = fork();
    if (pid == 0)
        run(number);
    return pid;
}

int main(int count, char **words) {
    struct {
        const char *name;
        int *is;
    } options[] = {{"signals", &with_signals},     {"forks", &with_forks},       {"kills", &with_kills},
                   {"exchange", &with_exchange},   {"imports", &with_imports},   {"own", &with_own},
                   {"read-only", &with_read_only}, {"host", &with_host},         {"segments", &with_segments},
                   {"legacy", &with_legacy},       {"copies", &with_copies},     {"questions", &with_questions},
                   {"demand", &with_demand},       {"keepalive", &with_keepalive}};
    int processes = count > 2 ? atoi(words[2]) : 0;
    if (processes < 1 || processes > MOST_PROCESSES) {
        printf("driver_alone SECONDS PROCESSES [what is left out]\n");
        return 1;
    }
    for (int i = 3; i < count; i++)
        for (size_t o = 0; o < sizeof options / sizeof *options; o++)
            if (strcmp(words[i], options[o].name) == 0)
                *options[o].is = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    pid_t pids[MOST_PROCESSES];
    for (int i = 0; i < processes; i++)
        pids[i] = start(i);
    double begin = now_us(), end = begin + 1e6 * atof(words[1]), kill_at = begin + 2e6;
    struct thread parent = {.dice = (unsigned long)getpid()};
    while (now_us() < end) {
        usleep(1000 + dice(&parent, 6000));
        int chosen = (int)dice(&parent, (unsigned)processes);
        if (with_signals && now_us() > begin + 2e6) {
            kill(pids[chosen], SIGUSR1);
            atomic_fetch_add(&shared->sent, 1);
        }
        if (with_kills && now_us() > kill_at) {
            kill(pids[chosen], SIGKILL);
            kill_at = now_us() + 6e5 + dice(&parent, 2400000);
            atomic_fetch_add(&shared->kills, 1);
        }
        for (int i = 0; i < processes; i++)
            if (waitpid(pids[i], NULL, WNOHANG) > 0)
                pids[i] = start(i);
    }
    atomic_store(&shared->ending, 1);
    double last = now_us() + 2e7;
    for (int i = 0; i < processes; i++)
        while (waitpid(pids[i], NULL, WNOHANG) == 0) {
            if (now_us() > last) {
                kill(pids[i], SIGKILL);
                printf("a process does not end\n");
                break;
            }
            usleep(1000);
        }
    printf("%d died; %lu steps, %lu unmaps, %lu signals, %lu kills, %lu forked, %lu exports on demand, %lu imports refused\n",
           shared->deaths, shared->steps, shared->unmaps, shared->sent, shared->kills, shared->children, shared->demanded,
           shared->refused);
    return shared->deaths > 0;
}
