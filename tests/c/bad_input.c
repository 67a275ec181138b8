/* What a C program can do wrong: each gives the status that the header names,
 * leaves the outputs as they were, and is explained by the last error. */
#define _GNU_SOURCE
#include "check.h"
#include "cuda_mini.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define SIZE GRANULARITY

/* What outputs hold before a call that fails, and after it. */
static char untouched_place;
#define UNTOUCHED ((void *)&untouched_place)

static void null_is_a_status(gpuipc *ipc, gpuipc_exported *exported, gpuipc_mem *mem,
                             const uint8_t *handle, CUdeviceptr ptr) {
    gpuipc_exported *new_exported = UNTOUCHED;
    gpuipc_mem *new_mem = UNTOUCHED;
    uint8_t bytes[GPUIPC_HANDLE_BYTES];
    char text[16];
    size_t size = 77;
    uint64_t address = 77;
    uint32_t number = 77;

    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_open(NULL));
    TEXT_HAS("gpuipc_open: argument out is NULL");
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_export(NULL, ptr, SIZE, &new_exported));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_export(ipc, ptr, SIZE, NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_exported_handle_count(NULL, &size));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_exported_handle_count(exported, NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_exported_handle_bytes(NULL, 0, bytes, sizeof bytes));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_exported_handle_bytes(exported, 0, NULL, sizeof bytes));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_exported_attempts(NULL, text, sizeof text, &size));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_exported_attempts(exported, NULL, sizeof text, &size));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_exported_attempts(exported, NULL, 0, NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_import_options_init(NULL, sizeof(gpuipc_import_options)));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_import(NULL, handle, GPUIPC_HANDLE_BYTES, NULL, &new_mem));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_import(ipc, NULL, GPUIPC_HANDLE_BYTES, NULL, &new_mem));
    TEXT_HAS("gpuipc_import: argument handles is NULL");
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_import(ipc, handle, GPUIPC_HANDLE_BYTES, NULL, NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_ptr(NULL, &address));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_ptr(mem, NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_len(NULL, &size));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_len(mem, NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_type_used(NULL, &number));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_type_used(mem, NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_liveness(NULL, &number));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_liveness(mem, NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_attempts(NULL, text, sizeof text, &size));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_attempts(mem, NULL, sizeof text, &size));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_attempts(mem, NULL, 0, NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_handle_check(NULL, GPUIPC_HANDLE_BYTES));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_last_error(NULL, sizeof text, &size));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_last_error(NULL, 0, NULL));
    CHECK(new_exported == UNTOUCHED && new_mem == UNTOUCHED);
    CHECK(size == 77 && address == 77 && number == 77);

    gpuipc_close(NULL);
    gpuipc_exported_free(NULL);
    gpuipc_mem_free(NULL);
}

static void the_last_error_belongs_to_the_last_call(void) {
    char text[128], part[6] = "xxxxx";
    size_t needed, again;
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_open(NULL));
    OK(gpuipc_last_error(NULL, 0, &needed));
    OK(gpuipc_last_error(text, needed, &again));
    CHECK(needed == again && strlen(text) == needed - 1);
    /* What fits, and what all would need. */
    EXPECT(GPUIPC_BUFFER_TOO_SMALL, gpuipc_last_error(part, sizeof part, &again));
    CHECK(strcmp(part, "gpuip") == 0 && again == needed);
    /* Asking and freeing leave it as it is; a call that succeeds clears it. */
    gpuipc_mem_free(NULL);
    OK(gpuipc_last_error(text, sizeof text, NULL));
    CHECK(strlen(text) == needed - 1);
    OK(gpuipc_import_options_init(&(gpuipc_import_options){0}, sizeof(gpuipc_import_options)));
    OK(gpuipc_last_error(text, sizeof text, &needed));
    CHECK(needed == 1 && text[0] == '\0');
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_last_error(text, SIZE_MAX, &needed));
}

static void settings_that_cannot_be(void) {
    static const struct {
        const char *variable, *value;
        gpuipc_status status;
    } wrong[] = {
        {"GPUIPC_LIBCUDA", "/nowhere/libcuda.so.1", GPUIPC_DRIVER_LIBRARY},
        {"GPUIPC_LIBCUDA", "libc.so.6", GPUIPC_DRIVER_SYMBOL},
        {"GPUIPC_TYPES", "carrier-pigeon", GPUIPC_INVALID_SETTING},
        {"GPUIPC_TIMEOUT_MS", "soon", GPUIPC_INVALID_SETTING},
        {"GPUIPC_LOG", "loud", GPUIPC_INVALID_SETTING},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        gpuipc *ipc = UNTOUCHED;
        const char *now = getenv(wrong[i].variable);
        char *before = now != NULL ? strdup(now) : NULL;
        CHECK(setenv(wrong[i].variable, wrong[i].value, 1) == 0);
        EXPECT(wrong[i].status, gpuipc_open(&ipc));
        TEXT_HAS(wrong[i].value);
        CHECK(ipc == UNTOUCHED);
        if (before != NULL) {
            CHECK(setenv(wrong[i].variable, before, 1) == 0);
        } else {
            CHECK(unsetenv(wrong[i].variable) == 0);
        }
        free(before);
    }
}

static void memory_that_cannot_be_exported(const cuda_mini *cu, gpuipc *ipc, CUdeviceptr ptr) {
    static char host[64];
    gpuipc_exported *exported = UNTOUCHED;
    CUdeviceptr freed;
    EXPECT(GPUIPC_NOT_EXPORTABLE, gpuipc_export(ipc, (uint64_t)(uintptr_t)host, 64, &exported));
    TEXT_HAS("plain host memory");
    EXPECT(GPUIPC_NOT_EXPORTABLE, gpuipc_export(ipc, 0, 64, &exported));
    CU(cu->mem_alloc(&freed, SIZE));
    CU(cu->mem_free(freed));
    EXPECT(GPUIPC_NOT_EXPORTABLE, gpuipc_export(ipc, freed, 64, &exported));
    TEXT_HAS("freed");
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_export(ipc, ptr, 0, &exported));
    TEXT_HAS("len");
    EXPECT(GPUIPC_NOT_EXPORTABLE, gpuipc_export(ipc, ptr, SIZE + 1, &exported));
    EXPECT(GPUIPC_NOT_EXPORTABLE, gpuipc_export(ipc, ptr + 1, SIZE_MAX - 1, &exported));
    TEXT_HAS("beyond the allocation");
    CHECK(exported == UNTOUCHED);
}

static void buffers_that_are_too_short(gpuipc_exported *exported) {
    uint8_t bytes[GPUIPC_HANDLE_BYTES];
    memset(bytes, 0x5a, sizeof bytes);
    EXPECT(GPUIPC_BUFFER_TOO_SMALL, gpuipc_exported_handle_bytes(exported, 0, bytes, 0));
    EXPECT(GPUIPC_BUFFER_TOO_SMALL,
           gpuipc_exported_handle_bytes(exported, 0, bytes, GPUIPC_HANDLE_BYTES - 1));
    TEXT_HAS("383 bytes, 384 are needed");
    EXPECT(GPUIPC_INVALID_ARGUMENT,
           gpuipc_exported_handle_bytes(exported, 1, bytes, sizeof bytes));
    TEXT_HAS("index is 1");
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_exported_handle_bytes(exported, 0, bytes, SIZE_MAX));
    for (size_t i = 0; i < sizeof bytes; i++) {
        CHECK(bytes[i] == 0x5a);
    }
}

/* Both functions that take handles say the same about them. */
static void refused(gpuipc *ipc, const uint8_t *bytes, size_t len, gpuipc_status status) {
    gpuipc_mem *mem = UNTOUCHED;
    /* Of just this length, so that reading on would be seen. */
    uint8_t *exact = malloc(len + 1);
    CHECK(exact != NULL);
    memcpy(exact + 1, bytes, len);
    EXPECT(status, gpuipc_handle_check(exact + 1, len));
    EXPECT(status, gpuipc_import(ipc, exact + 1, len, NULL, &mem));
    CHECK(mem == UNTOUCHED);
    free(exact);
}

static void bytes_that_are_no_handle(gpuipc *ipc, const uint8_t *handle) {
    uint8_t bytes[2 * GPUIPC_HANDLE_BYTES];
    gpuipc_mem *mem = UNTOUCHED;
    memcpy(bytes, handle, GPUIPC_HANDLE_BYTES);
    memcpy(bytes + GPUIPC_HANDLE_BYTES, handle, GPUIPC_HANDLE_BYTES);
    refused(ipc, bytes, 0, GPUIPC_HANDLE_LENGTH);
    refused(ipc, bytes, 1, GPUIPC_HANDLE_LENGTH);
    refused(ipc, bytes, GPUIPC_HANDLE_BYTES - 1, GPUIPC_HANDLE_LENGTH);
    refused(ipc, bytes, GPUIPC_HANDLE_BYTES + 1, GPUIPC_HANDLE_LENGTH);
    TEXT_HAS("length is 385");
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_handle_check(bytes, SIZE_MAX));

    for (size_t at = 0; at < GPUIPC_HANDLE_BYTES; at++) {
        gpuipc_status status;
        bytes[at] ^= 0x10;
        status = gpuipc_handle_check(bytes, GPUIPC_HANDLE_BYTES);
        CHECK(status != GPUIPC_OK && strncmp(gpuipc_status_name(status), "HANDLE_", 7) == 0);
        CHECK(at > 4 || status == GPUIPC_HANDLE_MAGIC || at == 4);
        CHECK(at < 6 || status == GPUIPC_HANDLE_DAMAGED);
        bytes[at] ^= 0x10;
    }
    bytes[0] = 'X';
    refused(ipc, bytes, GPUIPC_HANDLE_BYTES, GPUIPC_HANDLE_MAGIC);
    bytes[0] = handle[0];
    bytes[4] = bytes[5] = 200;
    refused(ipc, bytes, GPUIPC_HANDLE_BYTES, GPUIPC_HANDLE_NEWER);
    bytes[4] = handle[4], bytes[5] = handle[5];
    bytes[GPUIPC_HANDLE_BYTES + 100] ^= 1;
    refused(ipc, bytes, sizeof bytes, GPUIPC_HANDLE_DAMAGED);
    bytes[GPUIPC_HANDLE_BYTES + 100] ^= 1;

    /* Several handles are memory in several segments. */
    OK(gpuipc_handle_check(bytes, sizeof bytes));
    EXPECT(GPUIPC_NOT_ONE_RANGE, gpuipc_import(ipc, bytes, sizeof bytes, NULL, &mem));
    CHECK(mem == UNTOUCHED);
}

static void options_that_cannot_be(gpuipc *ipc, const uint8_t *handle) {
    gpuipc_import_options good, options;
    gpuipc_mem *mem = UNTOUCHED;
    memset(&options, 0x5a, sizeof options);
    good = options;
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_import_options_init(&options, 0));
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_import_options_init(&options, sizeof options - 1));
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_import_options_init(&options, 36));
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_import_options_init(&options, 5000));
    CHECK(memcmp(&options, &good, sizeof options) == 0);
    OK(gpuipc_import_options_init(&good, sizeof good));
    CHECK(good.struct_size == sizeof good && good.device == -1 && good.type_count == 0);

#define WRONG(change, words)                                                                       \
    options = good;                                                                                \
    change;                                                                                        \
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_import(ipc, handle, GPUIPC_HANDLE_BYTES, &options, &mem)); \
    TEXT_HAS(words)
    WRONG(options.struct_size = 0, "struct_size of the options is 0");
    WRONG(options.struct_size = 36, "struct_size of the options is 36");
    WRONG(options.struct_size = SIZE_MAX, "struct_size of the options is");
    WRONG(options.device = -2, "device of the options is -2");
    WRONG(options.access = 2, "access of the options is 2");
    WRONG(options.require_live = 2, "require_live of the options is 2");
    WRONG(options.type_count = 8, "type_count of the options is 8");
    WRONG((options.type_count = 1, options.types[0] = 3), "types of the options has 3");
    WRONG(options.type_count = 1, "types of the options has 0");
    WRONG((options.type_count = 2, options.types[0] = 1, options.types[1] = 1), "twice");
    WRONG(options.types[0] = 1, "goes on after type_count");
    CHECK(mem == UNTOUCHED);
}

/* In the exporting process itself. */
static gpuipc_mem *the_original_pointer(gpuipc *ipc, const uint8_t *handle, CUdeviceptr ptr) {
    gpuipc_mem *mem;
    uint64_t address;
    size_t len;
    uint32_t used;
    OK(gpuipc_import(ipc, handle, GPUIPC_HANDLE_BYTES, NULL, &mem));
    OK(gpuipc_mem_ptr(mem, &address));
    OK(gpuipc_mem_len(mem, &len));
    OK(gpuipc_mem_type_used(mem, &used));
    CHECK(address == ptr && len == SIZE && used == GPUIPC_TYPE_SAME_PROCESS);
    return mem;
}

static void a_forked_child_may_free_and_no_more(gpuipc *ipc, const uint8_t *handle,
                                                CUdeviceptr ptr) {
    gpuipc_exported *exported;
    int status;
    pid_t child;
    OK(gpuipc_export(ipc, ptr, SIZE, &exported));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        gpuipc *again = UNTOUCHED;
        gpuipc_exported *new_exported = UNTOUCHED;
        gpuipc_mem *mem = UNTOUCHED;
        EXPECT(GPUIPC_FORKED, gpuipc_open(&again));
        EXPECT(GPUIPC_FORKED, gpuipc_export(ipc, ptr, SIZE, &new_exported));
        EXPECT(GPUIPC_FORKED, gpuipc_import(ipc, handle, GPUIPC_HANDLE_BYTES, NULL, &mem));
        TEXT_HAS("forked");
        CHECK(again == UNTOUCHED && new_exported == UNTOUCHED && mem == UNTOUCHED);
        OK(gpuipc_handle_check(handle, GPUIPC_HANDLE_BYTES));
        gpuipc_exported_free(exported);
        /* exec, and not exit: what the threads had that a forked child lacks would
         * pass for leaks. */
        execlp("true", "true", (char *)NULL);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    gpuipc_exported_free(exported);
}

/* Exports two allocations, revokes the first export, and waits to be killed. */
static void other_exporter(int to_parent) {
    uint8_t handles[2][GPUIPC_HANDLE_BYTES];
    gpuipc *ipc;
    gpuipc_exported *exported[2];
    cuda_mini cu;
    /* It would outlive a test that fails. */
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    cuda_start(&cu);
    OK(gpuipc_open(&ipc));
    for (int i = 0; i < 2; i++) {
        OK(gpuipc_export(ipc, cuda_vmm_alloc(&cu, SIZE), SIZE, &exported[i]));
        OK(gpuipc_exported_handle_bytes(exported[i], 0, handles[i], sizeof handles[i]));
    }
    gpuipc_exported_free(exported[0]);
    send_all(to_parent, handles, sizeof handles);
    for (;;) {
        pause();
    }
}

static void exports_that_end(gpuipc *ipc, int from_other, pid_t other) {
    uint8_t handles[2][GPUIPC_HANDLE_BYTES];
    gpuipc_import_options options;
    gpuipc_mem *mem = UNTOUCHED;
    receive_all(from_other, handles, sizeof handles);
    EXPECT(GPUIPC_EXPORT_REVOKED,
           gpuipc_import(ipc, handles[0], GPUIPC_HANDLE_BYTES, NULL, &mem));
    TEXT_HAS("PosixFd failed at broker request");

    OK(gpuipc_import_options_init(&options, sizeof options));
    options.type_count = 2;
    options.types[0] = GPUIPC_TYPE_RUNTIME_IPC;
    options.types[1] = GPUIPC_TYPE_FABRIC;
    EXPECT(GPUIPC_NO_TYPE_WORKED,
           gpuipc_import(ipc, handles[1], GPUIPC_HANDLE_BYTES, &options, &mem));
    TEXT_HAS("PosixFd failed at select");
    CHECK(mem == UNTOUCHED);
    options.types[0] = GPUIPC_TYPE_POSIX_FD;
    options.access = GPUIPC_ACCESS_READ_ONLY;
    OK(gpuipc_import(ipc, handles[1], GPUIPC_HANDLE_BYTES, &options, &mem));
    gpuipc_mem_free(mem);

    CHECK(kill(other, SIGKILL) == 0 && waitpid(other, NULL, 0) == other);
    mem = UNTOUCHED;
    EXPECT(GPUIPC_EXPORTER_GONE, gpuipc_import(ipc, handles[1], GPUIPC_HANDLE_BYTES, NULL, &mem));
    TEXT_HAS("PosixFd failed at broker connect");
    CHECK(mem == UNTOUCHED);
}

/* What is wrong deep inside is told, too. */
static void causes_are_told(gpuipc *ipc, CUdeviceptr ptr) {
    gpuipc_registered *registered, *none = UNTOUCHED;
    gpuipc_transport two[2];
    uint8_t form[2048];
    size_t length;
    memset(two, 0, sizeof two);
    EXPECT(GPUIPC_REGISTERED_MEMORY, gpuipc_register(ipc, ptr, SIZE, two, 2, NULL, &none));
    TEXT_HAS("kind of transport 1 is 0");
    OK(gpuipc_register(ipc, ptr, SIZE, two, 1, NULL, &registered));
    OK(gpuipc_registered_bytes(registered, form, sizeof form, &length));
    CHECK(length == 128 + 72 + GPUIPC_HANDLE_BYTES);
    form[length - 1] ^= 1;
    EXPECT(GPUIPC_HANDLE_DAMAGED, gpuipc_deserialize(ipc, form, length, NULL, &none));
    TEXT_HAS("handle 0 of the registered memory is refused: checksum is");
    CHECK(none == UNTOUCHED);
    gpuipc_registered_free(registered);
}

/* Refused before a byte of them is looked at: there is no such memory. */
static void counts_beyond_any_sense(gpuipc *ipc, const uint8_t *handle, CUdeviceptr ptr) {
    const size_t most = (size_t)1 << 20, huge = (size_t)1 << 40;
    gpuipc_open_options opening;
    gpuipc_import_options importing;
    gpuipc_registered *registered = UNTOUCHED;
    gpuipc_feasibility *feasibility = UNTOUCHED;
    gpuipc_mem *mem = UNTOUCHED;
    gpuipc *another = UNTOUCHED;
    const gpuipc_transport *transports = (const gpuipc_transport *)handle;
    OK(gpuipc_open_options_init(&opening, sizeof opening));
    OK(gpuipc_import_options_init(&importing, sizeof importing));
    EXPECT(GPUIPC_HANDLE_LENGTH, gpuipc_handle_check(handle, huge * GPUIPC_HANDLE_BYTES));
    TEXT_HAS("at most 1048576 handles");
    EXPECT(GPUIPC_HANDLE_LENGTH, gpuipc_handle_check(handle, (most + 1) * GPUIPC_HANDLE_BYTES));
    EXPECT(GPUIPC_HANDLE_LENGTH, gpuipc_import(ipc, handle, huge * GPUIPC_HANDLE_BYTES, NULL, &mem));
    EXPECT(GPUIPC_HANDLE_LENGTH,
           gpuipc_can_import(ipc, handle, huge * GPUIPC_HANDLE_BYTES, NULL, &feasibility));
    EXPECT(GPUIPC_REGISTERED_MEMORY, gpuipc_deserialize(ipc, handle, huge, NULL, &registered));
    EXPECT(GPUIPC_REGISTERED_MEMORY,
           gpuipc_register(ipc, ptr, SIZE, transports, huge, NULL, &registered));
    TEXT_HAS("at most 16 transports");
    EXPECT(GPUIPC_REGISTERED_MEMORY,
           gpuipc_register_transports(ipc, ptr, SIZE, transports, GPUIPC_TRANSPORTS + 1, &registered));
    opening.trust = GPUIPC_TRUST_USERS;
    opening.trusted_uids = (const uint32_t *)(const void *)handle;
    opening.trusted_uid_count = UINT32_MAX;
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_open_with(&opening, &another));
    TEXT_HAS("trusted_uids has 4294967295 elements, but at most 65536");
    importing.access_devices = (const gpuipc_device *)(const void *)handle;
    importing.access_device_count = UINT32_MAX;
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_import(ipc, handle, GPUIPC_HANDLE_BYTES, &importing, &mem));
    TEXT_HAS("access_devices has 4294967295 elements, but at most 1024");
    CHECK(registered == UNTOUCHED && feasibility == UNTOUCHED && mem == UNTOUCHED && another == UNTOUCHED);
}

/* Zeros that are mapped and as long as all handles together may be: refused by the first,
 * and nothing of that size is allocated. */
static void many_bytes_that_are_no_handles(void) {
    const size_t length = ((size_t)1 << 20) * GPUIPC_HANDLE_BYTES;
    struct rlimit limit, before;
    void *zeros = mmap(NULL, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(zeros != MAP_FAILED);
    CHECK(getrlimit(RLIMIT_AS, &before) == 0);
    limit = before;
    /* No room for anything like it. */
    limit.rlim_cur = 1;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    EXPECT(GPUIPC_HANDLE_MAGIC, gpuipc_handle_check(zeros, length));
    CHECK(setrlimit(RLIMIT_AS, &before) == 0);
    CHECK(munmap(zeros, length) == 0);
}

static void statuses_have_words(void) {
    CHECK(strcmp(gpuipc_status_name(GPUIPC_OK), "OK") == 0);
    CHECK(strcmp(gpuipc_status_text(GPUIPC_OK), "success") == 0);
    CHECK(strcmp(gpuipc_status_name(GPUIPC_UNSUPPORTED), "UNSUPPORTED") == 0);
    CHECK(strcmp(gpuipc_status_name(4711), "UNKNOWN") == 0);
    CHECK(strlen(gpuipc_status_text(UINT32_MAX)) > 0);
}

int main(void) {
    uint8_t handle[GPUIPC_HANDLE_BYTES];
    gpuipc *ipc;
    gpuipc_exported *exported;
    gpuipc_mem *mem;
    CUdeviceptr ptr;
    cuda_mini cu;
    int ends[2];
    pid_t other;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    /* Before any use of CUDA: it does not work in a forked child. */
    other = fork();
    CHECK(other >= 0);
    if (other == 0) {
        close(ends[0]);
        other_exporter(ends[1]);
    }
    close(ends[1]);

    statuses_have_words();
    the_last_error_belongs_to_the_last_call();
    settings_that_cannot_be();

    cuda_start(&cu);
    OK(gpuipc_open(&ipc));
    CU(cu.mem_alloc(&ptr, SIZE));
    OK(gpuipc_export(ipc, ptr, SIZE, &exported));
    OK(gpuipc_exported_handle_bytes(exported, 0, handle, sizeof handle));
    mem = the_original_pointer(ipc, handle, ptr);

    null_is_a_status(ipc, exported, mem, handle, ptr);
    memory_that_cannot_be_exported(&cu, ipc, ptr);
    buffers_that_are_too_short(exported);
    bytes_that_are_no_handle(ipc, handle);
    options_that_cannot_be(ipc, handle);
    causes_are_told(ipc, ptr);
    counts_beyond_any_sense(ipc, handle, ptr);
    if (getenv("UNDER_A_TOOL") == NULL) {
        many_bytes_that_are_no_handles();
    }
    exports_that_end(ipc, ends[0], other);
    a_forked_child_may_free_and_no_more(ipc, handle, ptr);

    gpuipc_mem_free(mem);
    gpuipc_exported_free(exported);
    mem = UNTOUCHED;
    EXPECT(GPUIPC_EXPORT_REVOKED, gpuipc_import(ipc, handle, sizeof handle, NULL, &mem));
    CHECK(mem == UNTOUCHED);
    gpuipc_close(ipc);
    CU(cu.mem_free(ptr));
    CU(cu.set_current(NULL));
    CU(cu.primary_release(cu.device));
    puts("refused");
    return 0;
}
