/* pthread_cancel of a thread in a call: the call goes on, the thread ends after it. */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define SIZE (1 << 21)

static void silent_exporter(int to_parent) {
    gpuipc *ipc;
    gpuipc_buffer *buffer;
    gpuipc_exported *exported;
    uint64_t ptr;
    uint8_t handle[GPUIPC_HANDLE_BYTES];
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    OK(gpuipc_open(&ipc));
    OK(gpuipc_buffer_new(ipc, 0, GPUIPC_MEMORY_CUDA_MALLOC, SIZE, &buffer));
    OK(gpuipc_buffer_ptr(buffer, &ptr));
    OK(gpuipc_export(ipc, ptr, SIZE, &exported));
    OK(gpuipc_exported_handle_bytes(exported, 0, handle, sizeof handle));
    send_all(to_parent, handle, sizeof handle);
    raise(SIGSTOP);
    for (;;) {
        pause();
    }
}

static gpuipc *ipc;
static uint8_t handle[GPUIPC_HANDLE_BYTES];
static int state_after = -1, lines;
static gpuipc_status said = GPUIPC_PANIC;

/* Both are places where a thread can be cancelled. */
static void hear(void *user, uint32_t level, const char *target, const char *message) {
    (void)user, (void)level, (void)target, (void)message;
    __atomic_add_fetch(&lines, 1, __ATOMIC_RELAXED);
    pthread_testcancel();
    CHECK(write(STDOUT_FILENO, "", 0) == 0);
}

static void *import_from_the_silent(void *unused) {
    gpuipc_import_options options;
    gpuipc_mem *mem;
    OK(gpuipc_import_options_init(&options, sizeof options));
    options.timeout_ms = 500;
    options.require_live = 1;
    pthread_cancel(pthread_self());
    said = gpuipc_import(ipc, handle, sizeof handle, &options, &mem);
    CHECK(gpuipc_close_idle_connections(ipc) == GPUIPC_OK);
    gpuipc_exported_free(NULL);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state_after) == 0);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
    pthread_testcancel();
    CHECK(!"the thread was cancelled");
    return unused;
}

int main(void) {
    int ends[2], status;
    pthread_t thread;
    void *result;
    pid_t other;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    other = fork();
    CHECK(other >= 0);
    if (other == 0) {
        silent_exporter(ends[1]);
    }
    receive_all(ends[0], handle, sizeof handle);
    CHECK(waitpid(other, &status, WUNTRACED) == other && WIFSTOPPED(status));
    OK(gpuipc_open(&ipc));
    OK(gpuipc_log_set(hear, NULL, GPUIPC_LOG_TRACE));
    CHECK(pthread_create(&thread, NULL, import_from_the_silent, NULL) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    OK(gpuipc_log_set(NULL, NULL, GPUIPC_LOG_OFF));
    CHECK(said != GPUIPC_OK && said != GPUIPC_PANIC && lines > 0);
    CHECK(state_after == PTHREAD_CANCEL_ENABLE);
    CHECK(kill(other, SIGKILL) == 0 && waitpid(other, NULL, 0) == other);
    gpuipc_close(ipc);
    puts("cancelled");
    return 0;
}
