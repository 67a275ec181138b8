/* What bad_input.c and share.c leave out: options of old and newer headers, what
 * errors say in numbers, cancelling, log lines, the library's own memory. */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#define SIZE ((size_t)1 << 20)

static char untouched_place;
#define UNTOUCHED ((void *)&untouched_place)

/* ---- options ---------------------------------------------------------------------- */

/* The first published header's, and one that does not exist yet. */
typedef struct {
    size_t struct_size;
    int32_t device;
    uint32_t access, require_live, timeout_ms;
    uint8_t type_count, types[7];
} old_import_options;

typedef struct {
    gpuipc_import_options known;
    uint64_t newer[3];
} newer_import_options;

static void options_of_other_headers(gpuipc *ipc, const uint8_t *handle) {
    struct {
        old_import_options options;
        uint8_t behind[16];
    } old;
    newer_import_options newer;
    gpuipc_mem *mem;
    memset(&old, 0x5a, sizeof old);
    OK(gpuipc_import_options_init((gpuipc_import_options *)(void *)&old.options, sizeof old.options));
    CHECK(old.options.struct_size == 32 && old.options.device == -1);
    for (size_t i = 0; i < sizeof old.behind; i++) {
        CHECK(old.behind[i] == 0x5a);
    }
    OK(gpuipc_import(ipc, handle, GPUIPC_HANDLE_BYTES,
                     (const gpuipc_import_options *)(void *)&old.options, &mem));
    gpuipc_mem_free(mem);

    memset(&newer, 0x5a, sizeof newer);
    OK(gpuipc_import_options_init(&newer.known, sizeof newer));
    CHECK(newer.known.struct_size == sizeof newer && newer.newer[0] == 0 && newer.newer[2] == 0);
    OK(gpuipc_import(ipc, handle, GPUIPC_HANDLE_BYTES, &newer.known, &mem));
    gpuipc_mem_free(mem);
    newer.newer[2] = (uint64_t)1 << 56;
    mem = UNTOUCHED;
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_import(ipc, handle, GPUIPC_HANDLE_BYTES, &newer.known, &mem));
    TEXT_HAS("older than the header");
    CHECK(mem == UNTOUCHED);
}

static void options_of_opening(const char *folder) {
    static const uint32_t uids[] = {0, 12345};
    gpuipc_open_options options;
    gpuipc *ipc = UNTOUCHED;
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_open_options_init(NULL, sizeof options));
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_open_options_init(&options, 8));
    OK(gpuipc_open_options_init(&options, sizeof options));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_open_with(&options, NULL));
    options.trust = 4;
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_open_with(&options, &ipc));
    TEXT_HAS("trust of the options is 4");
    options.trust = GPUIPC_TRUST_SAME_USER;
    options.trusted_uid_count = 2;
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_open_with(&options, &ipc));
    options.trusted_uids = uids;
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_open_with(&options, &ipc));
    TEXT_HAS("only GPUIPC_TRUST_USERS");
    options.trust = GPUIPC_TRUST_USERS;
    options.socket_dir = "";
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_open_with(&options, &ipc));
    CHECK(ipc == UNTOUCHED);
    options.socket_dir = folder;
    OK(gpuipc_open_with(&options, &ipc));
    gpuipc_close(ipc);
    OK(gpuipc_open_with(NULL, &ipc));
    gpuipc_close(ipc);

    /* A folder that cannot be costs the name in it: the log says so, and the abstract name is left. */
    options.socket_dir = "/nowhere/at/all";
    OK(gpuipc_open_with(&options, &ipc));
    {
        gpuipc_buffer *buffer;
        gpuipc_exported *exported = UNTOUCHED;
        uint64_t ptr;
        OK(gpuipc_buffer_new(ipc, 0, GPUIPC_MEMORY_VMM_FD, SIZE, &buffer));
        OK(gpuipc_buffer_ptr(buffer, &ptr));
        OK(gpuipc_export(ipc, ptr, SIZE, &exported));
        gpuipc_exported_free(exported);
        gpuipc_buffer_free(buffer);
    }
    gpuipc_close(ipc);
}

static void options_of_exporting(gpuipc *ipc, uint64_t ptr) {
    gpuipc_export_options options;
    gpuipc_exported *exported = UNTOUCHED;
    gpuipc_mem_handle said;
    gpuipc_attempt attempts[4];
    gpuipc_error error;
    uint8_t bytes[GPUIPC_HANDLE_BYTES];
    size_t count = 77;
    OK(gpuipc_export_options_init(&options, sizeof options));
    OK(gpuipc_export_with(ipc, ptr, SIZE, NULL, &exported));
    gpuipc_exported_free(exported);
    OK(gpuipc_export_with(ipc, ptr, SIZE, &options, &exported));
    OK(gpuipc_exported_bytes(exported, NULL, 0, &count));
    CHECK(count == GPUIPC_HANDLE_BYTES);
    count = 77;
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_exported_bytes(exported, NULL, 0, NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_exported_bytes(exported, NULL, 9, &count));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_exported_bytes(NULL, bytes, 9, &count));
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_exported_bytes(exported, bytes, SIZE_MAX, &count));
    CHECK(count == 77);
    EXPECT(GPUIPC_BUFFER_TOO_SMALL, gpuipc_exported_bytes(exported, bytes, sizeof bytes - 1, &count));
    CHECK(count == GPUIPC_HANDLE_BYTES);
    OK(gpuipc_exported_bytes(exported, bytes, sizeof bytes, NULL));
    OK(gpuipc_exported_attempt_list(exported, NULL, 0, &count));
    CHECK(count == 0);
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_exported_attempt_list(exported, NULL, 0, NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_exported_attempt_list(exported, NULL, 3, &count));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_exported_attempt_list(NULL, attempts, 3, &count));
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_exported_attempt_list(exported, attempts, SIZE_MAX, &count));
    OK(gpuipc_handle_read(bytes, sizeof bytes, &said));
    CHECK(said.length == SIZE && said.type_flags == GPUIPC_TYPE_POSIX_FD);
    CHECK(said.attributes == GPUIPC_ATTRIBUTE_TICKET && said.pid == (uint32_t)getpid());
    EXPECT(GPUIPC_HANDLE_LENGTH, gpuipc_handle_read(bytes, sizeof bytes - 1, &said));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_handle_read(NULL, sizeof bytes, &said));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_handle_read(bytes, sizeof bytes, NULL));
    bytes[200] ^= 1;
    EXPECT(GPUIPC_HANDLE_DAMAGED, gpuipc_handle_read(bytes, sizeof bytes, &said));
    gpuipc_exported_free(exported);

    /* The memory was made for descriptors only. */
    options.type_count = 1;
    options.types[0] = GPUIPC_TYPE_RUNTIME_IPC;
    exported = UNTOUCHED;
    EXPECT(GPUIPC_NOT_EXPORTABLE, gpuipc_export_with(ipc, ptr, SIZE, &options, &exported));
    OK(gpuipc_last_error_read(&error));
    CHECK(error.status == GPUIPC_NOT_EXPORTABLE && error.memory_kind == GPUIPC_KIND_VMM);
    options.types[0] = 3;
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_export_with(ipc, ptr, SIZE, &options, &exported));
    options.struct_size = 0;
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_export_with(ipc, ptr, SIZE, &options, &exported));
    EXPECT(GPUIPC_NOT_EXPORTABLE, gpuipc_export(ipc, 4096, SIZE, &exported));
    OK(gpuipc_last_error_read(&error));
    CHECK(error.memory_kind == GPUIPC_KIND_NOT_CUDA);
    CHECK(exported == UNTOUCHED);
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_last_error_read(NULL));
    OK(gpuipc_export_options_init(&options, sizeof options));
    OK(gpuipc_last_error_read(&error));
    CHECK(error.status == GPUIPC_OK && error.attempt_count == 0 && error.memory_kind == 0);
}

/* ---- the library's own memory ------------------------------------------------------ */

static void memory_of_its_own(gpuipc *ipc) {
    gpuipc_buffer *buffer = UNTOUCHED;
    uint8_t bytes[16] = "hello, gpu memo", back[16];
    size_t len;
    uint64_t ptr;
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_buffer_new(ipc, 0, 0, SIZE, &buffer));
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_buffer_new(ipc, 0, GPUIPC_MEMORY_VMM_FD, 0, &buffer));
    EXPECT(GPUIPC_NO_DEVICE, gpuipc_buffer_new(ipc, 99, GPUIPC_MEMORY_VMM_FD, SIZE, &buffer));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_buffer_new(NULL, 0, GPUIPC_MEMORY_VMM_FD, SIZE, &buffer));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_buffer_new(ipc, 0, GPUIPC_MEMORY_VMM_FD, SIZE, NULL));
    CHECK(buffer == UNTOUCHED);
    OK(gpuipc_buffer_new(ipc, 0, GPUIPC_MEMORY_CUDA_MALLOC, 1000, &buffer));
    OK(gpuipc_buffer_len(buffer, &len));
    OK(gpuipc_buffer_ptr(buffer, &ptr));
    CHECK(len == 1000 && ptr != 0);
    OK(gpuipc_buffer_write(buffer, 984, bytes, sizeof bytes));
    OK(gpuipc_buffer_read(buffer, 984, back, sizeof back));
    CHECK(memcmp(bytes, back, sizeof bytes) == 0);
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_buffer_read(buffer, 985, back, sizeof back));
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_buffer_read(buffer, SIZE_MAX, back, sizeof back));
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_buffer_write(buffer, 985, bytes, sizeof bytes));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_buffer_read(buffer, 0, NULL, sizeof back));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_buffer_read(NULL, 0, back, sizeof back));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_buffer_write(buffer, 0, NULL, sizeof back));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_buffer_write(NULL, 0, bytes, sizeof back));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_buffer_ptr(NULL, &ptr));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_buffer_ptr(buffer, NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_buffer_len(NULL, &len));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_buffer_len(buffer, NULL));
    /* What failed before any copy left the bytes alone. */
    CHECK(memcmp(bytes, back, sizeof bytes) == 0);
    gpuipc_buffer_free(buffer);
    gpuipc_buffer_free(NULL);
}

/* ---- another process: served, then silent ------------------------------------------- */

static void other_exporter(int to_parent) {
    uint8_t handle[GPUIPC_HANDLE_BYTES];
    gpuipc *ipc;
    gpuipc_buffer *buffer;
    gpuipc_exported *exported;
    uint64_t ptr;
    char go;
    /* Stopped, it would outlive a test that fails. */
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    OK(gpuipc_open(&ipc));
    OK(gpuipc_buffer_new(ipc, 0, GPUIPC_MEMORY_VMM_FD, SIZE, &buffer));
    OK(gpuipc_buffer_write(buffer, 100, (const uint8_t *)"from the other process", 23));
    OK(gpuipc_buffer_ptr(buffer, &ptr));
    OK(gpuipc_export(ipc, ptr, SIZE, &exported));
    OK(gpuipc_exported_handle_bytes(exported, 0, handle, sizeof handle));
    send_all(to_parent, handle, sizeof handle);
    receive_all(to_parent, &go, 1);
    /* From now on its broker answers nobody. */
    raise(SIGSTOP);
    for (;;) {
        pause();
    }
}

static void attempts_in_numbers(gpuipc *ipc, const uint8_t *handle) {
    gpuipc_import_options options;
    gpuipc_attempt attempts[4];
    gpuipc_mem *mem = UNTOUCHED;
    char text[64];
    int32_t device = 77;
    size_t count = 77;
    OK(gpuipc_import_options_init(&options, sizeof options));
    options.type_count = 2;
    options.types[0] = GPUIPC_TYPE_RUNTIME_IPC;
    options.types[1] = GPUIPC_TYPE_FABRIC;
    EXPECT(GPUIPC_NO_TYPE_WORKED, gpuipc_import(ipc, handle, GPUIPC_HANDLE_BYTES, &options, &mem));
    CHECK(mem == UNTOUCHED);
    OK(gpuipc_last_error_attempts(NULL, 0, &count));
    CHECK(count == 1);
    memset(attempts, 0x5a, sizeof attempts);
    OK(gpuipc_last_error_attempts(attempts, 4, &count));
    CHECK(count == 1 && attempts[0].handle_type == GPUIPC_TYPE_POSIX_FD);
    CHECK(attempts[0].step == GPUIPC_STEP_SELECT && attempts[0].reason == GPUIPC_REASON_NOT_ALLOWED);
    CHECK(attempts[0].code_kind == GPUIPC_CODE_NONE && attempts[0].code == 0);
    CHECK(attempts[0].segment == GPUIPC_SEGMENT_NONE && attempts[0].reserved_long == 0);
    CHECK(strcmp(attempts[0].step_text, "select") == 0);
    CHECK(strstr(attempts[0].reason_text, "excluded by the options") != NULL);
    CHECK(strlen(attempts[0].hint_text) > 0);
    CHECK(attempts[1].step == 0x5a5a5a5a);
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_last_error_attempts(NULL, 2, &count));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_last_error_attempts(NULL, 0, NULL));

    OK(gpuipc_import(ipc, handle, GPUIPC_HANDLE_BYTES, NULL, &mem));
    OK(gpuipc_mem_attempt_list(mem, NULL, 0, &count));
    CHECK(count == 0);
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_attempt_list(NULL, attempts, 4, &count));
    OK(gpuipc_mem_device(mem, &device));
    CHECK(device == 0);
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_device(NULL, &device));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_device(mem, NULL));
    OK(gpuipc_mem_read(mem, 100, (uint8_t *)text, 23));
    CHECK(strcmp(text, "from the other process") == 0);
    OK(gpuipc_mem_write(mem, 200, (const uint8_t *)"and back", 9));
    OK(gpuipc_mem_read(mem, 200, (uint8_t *)text, 9));
    CHECK(strcmp(text, "and back") == 0);
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_mem_read(mem, SIZE, (uint8_t *)text, 1));
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_mem_write(mem, SIZE, (const uint8_t *)text, 1));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_read(NULL, 0, (uint8_t *)text, 1));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_write(NULL, 0, (const uint8_t *)text, 1));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_read(mem, 0, NULL, 1));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_mem_write(mem, 0, NULL, 1));
    CHECK(strcmp(text, "and back") == 0);
    gpuipc_mem_free(mem);
}

typedef struct {
    gpuipc *ipc;
    const uint8_t *handle;
    gpuipc_import_options options;
    gpuipc_status status;
    uint32_t reason;
} waiting;

static void *wait_for_the_silent(void *argument) {
    waiting *import = argument;
    gpuipc_mem *mem = UNTOUCHED;
    gpuipc_attempt attempt;
    import->status = gpuipc_import(import->ipc, import->handle, GPUIPC_HANDLE_BYTES, &import->options, &mem);
    /* The error is this thread's. */
    CHECK(gpuipc_last_error_attempts(&attempt, 1, NULL) == GPUIPC_OK);
    import->reason = attempt.reason;
    CHECK(mem == UNTOUCHED);
    return NULL;
}

/* `known` has imported from the exporter before: it would not have to ask it. */
static void an_import_is_cancelled(gpuipc *known, const uint8_t *handle, const uint8_t *own) {
    gpuipc *ipc;
    const struct timespec while_it_waits = {0, 100000000};
    gpuipc_cancel *cancel = UNTOUCHED;
    waiting import = {NULL, handle, {0}, GPUIPC_OK, 0};
    gpuipc_mem *mem;
    pthread_t thread;
    OK(gpuipc_open(&ipc));
    import.ipc = ipc;
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_cancel_new(NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_cancel_set(NULL, 1));
    OK(gpuipc_cancel_new(&cancel));
    OK(gpuipc_import_options_init(&import.options, sizeof import.options));
    import.options.timeout_ms = 60000;
    import.options.cancel = cancel;
    CHECK(pthread_create(&thread, NULL, wait_for_the_silent, &import) == 0);
    nanosleep(&while_it_waits, NULL);
    OK(gpuipc_cancel_set(cancel, 1));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(import.status == GPUIPC_CANCELLED && import.reason == GPUIPC_REASON_CANCELLED);

    /* It stays set: the next import does not even begin to wait. */
    wait_for_the_silent(&import);
    CHECK(import.status == GPUIPC_CANCELLED);
    import.ipc = known;
    wait_for_the_silent(&import);
    CHECK(import.status == GPUIPC_CANCELLED);
    OK(gpuipc_cancel_set(cancel, 0));
    OK(gpuipc_import(ipc, own, GPUIPC_HANDLE_BYTES, &import.options, &mem));
    gpuipc_mem_free(mem);
    gpuipc_cancel_free(cancel);
    gpuipc_cancel_free(NULL);
    gpuipc_close(ipc);
}

/* ---- log lines ----------------------------------------------------------------------- */

typedef struct {
    pthread_mutex_t lock;
    int lines, exported;
    gpuipc_status from_within;
} heard;

static void hear(void *user, uint32_t level, const char *target, const char *message) {
    heard *all = user;
    pthread_mutex_lock(&all->lock);
    CHECK(level >= GPUIPC_LOG_ERROR && level <= GPUIPC_LOG_DEBUG);
    CHECK(strncmp(target, "gpuipc::", 8) == 0);
    all->lines++;
    all->exported += strncmp(message, "exported ", 9) == 0;
    all->from_within = gpuipc_log_set(NULL, NULL, GPUIPC_LOG_OFF);
    pthread_mutex_unlock(&all->lock);
}

static void log_lines_go_to_the_host(gpuipc *ipc, uint64_t ptr) {
    heard all = {PTHREAD_MUTEX_INITIALIZER, 0, 0, GPUIPC_OK};
    gpuipc_exported *exported;
    int lines;
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_log_set(hear, &all, 6));
    OK(gpuipc_log_set(hear, &all, GPUIPC_LOG_DEBUG));
    OK(gpuipc_export(ipc, ptr, SIZE, &exported));
    gpuipc_exported_free(exported);
    OK(gpuipc_log_set(hear, &all, GPUIPC_LOG_WARN));
    CHECK(all.exported == 1 && all.from_within == GPUIPC_INVALID_ARGUMENT);
    lines = all.lines;
    OK(gpuipc_export(ipc, ptr, SIZE, &exported));
    gpuipc_exported_free(exported);
    OK(gpuipc_log_set(NULL, NULL, GPUIPC_LOG_OFF));
    CHECK(all.lines == lines);
    OK(gpuipc_export(ipc, ptr, SIZE, &exported));
    gpuipc_exported_free(exported);
    CHECK(all.lines == lines);
}

static void *free_elsewhere(void *exported) {
    gpuipc_exported_free(exported);
    return NULL;
}

int main(void) {
    uint8_t handle[GPUIPC_HANDLE_BYTES], own[GPUIPC_HANDLE_BYTES];
    const char *folder = getenv("GPUIPC_SOCKET_DIR");
    gpuipc *ipc;
    gpuipc_buffer *buffer;
    gpuipc_exported *exported;
    uint64_t ptr;
    int ends[2], status;
    pthread_t thread;
    pid_t other;

    CHECK(folder != NULL);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    other = fork();
    CHECK(other >= 0);
    if (other == 0) {
        close(ends[0]);
        other_exporter(ends[1]);
    }
    close(ends[1]);
    CHECK(gpuipc_abi_version() == GPUIPC_ABI_VERSION);
    CHECK(gpuipc_is_forked() == 0);

    options_of_opening(folder);
    OK(gpuipc_open(&ipc));
    memory_of_its_own(ipc);
    OK(gpuipc_buffer_new(ipc, 0, GPUIPC_MEMORY_VMM_FD, SIZE, &buffer));
    OK(gpuipc_buffer_ptr(buffer, &ptr));
    options_of_exporting(ipc, ptr);
    OK(gpuipc_export(ipc, ptr, SIZE, &exported));
    OK(gpuipc_exported_handle_bytes(exported, 0, own, sizeof own));
    options_of_other_headers(ipc, own);
    log_lines_go_to_the_host(ipc, ptr);

    receive_all(ends[0], handle, sizeof handle);
    attempts_in_numbers(ipc, handle);
    send_all(ends[0], "g", 1);
    CHECK(waitpid(other, &status, WUNTRACED) == other && WIFSTOPPED(status));
    an_import_is_cancelled(ipc, handle, own);
    CHECK(kill(other, SIGKILL) == 0 && waitpid(other, NULL, 0) == other);

    CHECK(pthread_create(&thread, NULL, free_elsewhere, exported) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    gpuipc_buffer_free(buffer);
    gpuipc_close(ipc);
    puts("called");
    return 0;
}
