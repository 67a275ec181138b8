/* Exports of a whole allocation, exports that outlive their object, and memory that is
 * registered for transports alone: what a runtime needs that is ported to gpuipc. */
#define _GNU_SOURCE
#include "check.h"
#include "cuda_mini.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define SIZE GRANULARITY
#define MANY 40

static char untouched_place;
#define UNTOUCHED ((void *)&untouched_place)

/* What the exporter tells: handles of memory that it freed, and of memory that it did not. */
typedef struct {
    uint8_t whole[GPUIPC_HANDLE_BYTES], kept[2][GPUIPC_HANDLE_BYTES], freed[2][GPUIPC_HANDLE_BYTES];
    uint8_t form[2048];
    size_t form_length;
} told;

static int open_descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

static void whole_allocations(gpuipc *ipc, uint64_t ptr, uint8_t handle[GPUIPC_HANDLE_BYTES]) {
    gpuipc_exported *exported = UNTOUCHED;
    gpuipc_mem_handle said;
    size_t length = 77, count;
    OK(gpuipc_export(ipc, ptr + 4096, GPUIPC_WHOLE_ALLOCATION, &exported));
    OK(gpuipc_exported_len(exported, &length));
    OK(gpuipc_exported_handle_count(exported, &count));
    CHECK(length == SIZE - 4096 && count == 1);
    OK(gpuipc_exported_handle_bytes(exported, 0, handle, GPUIPC_HANDLE_BYTES));
    OK(gpuipc_handle_read(handle, GPUIPC_HANDLE_BYTES, &said));
    CHECK(said.length == SIZE - 4096 && said.offset_from_base == 4096 && said.base_size == SIZE);
    OK(gpuipc_exported_leave(exported));
    exported = UNTOUCHED;
    EXPECT(GPUIPC_NOT_EXPORTABLE, gpuipc_export(ipc, 4096, GPUIPC_WHOLE_ALLOCATION, &exported));
    EXPECT(GPUIPC_INVALID_ARGUMENT, gpuipc_export(ipc, ptr, 0, &exported));
    CHECK(exported == UNTOUCHED);
}

static void leave(gpuipc *ipc, uint64_t ptr, uint8_t handle[GPUIPC_HANDLE_BYTES]) {
    gpuipc_exported *exported;
    OK(gpuipc_export(ipc, ptr, SIZE, &exported));
    OK(gpuipc_exported_handle_bytes(exported, 0, handle, GPUIPC_HANDLE_BYTES));
    OK(gpuipc_exported_leave(exported));
}

/* Memory of all that was left and freed is given back, however much that is. */
static void nothing_of_freed_memory_stays(cuda_mini *cu, gpuipc *ipc, told *all) {
    uint8_t handle[GPUIPC_HANDLE_BYTES];
    CUdeviceptr kept = cuda_vmm_alloc(cu, SIZE), ptr;
    int before;
    leave(ipc, kept, all->kept[0]);
    /* The same again and again is one. */
    leave(ipc, kept, handle);
    before = open_descriptors();
    for (int i = 0; i < MANY; i++) {
        ptr = cuda_vmm_alloc(cu, SIZE);
        leave(ipc, ptr, all->freed[0]);
        cuda_vmm_free(cu, ptr, SIZE);
        CU(cu->mem_alloc(&ptr, SIZE));
        leave(ipc, ptr, all->freed[1]);
        CU(cu->mem_free(ptr));
    }
    for (int i = 0; i < 3; i++) {
        leave(ipc, kept, handle);
    }
    CHECK(open_descriptors() == before);
}

static void transports_alone(gpuipc *ipc, told *all) {
    gpuipc_registered *registered = UNTOUCHED;
    gpuipc_transport transports[GPUIPC_TRANSPORTS];
    gpuipc_owner own, of_it;
    gpuipc_error error;
    uint64_t number;
    size_t count;
    memset(transports, 0, sizeof transports);
    memset(&own, 0, sizeof own);
    for (uint32_t i = 0; i < GPUIPC_TRANSPORTS; i++) {
        transports[i].kind = i;
        transports[i].len = i == 0 ? 0 : 64;
        memset(transports[i].bytes, (int)i, transports[i].len);
    }
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_register_transports(NULL, 1, SIZE, NULL, 0, &registered));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_register_transports(ipc, 1, SIZE, NULL, 1, &registered));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_register_transports(ipc, 1, SIZE, NULL, 0, NULL));
    EXPECT(GPUIPC_INVALID_ARGUMENT,
           gpuipc_register_transports(ipc, 1, GPUIPC_WHOLE_ALLOCATION, NULL, 0, &registered));
    EXPECT(GPUIPC_REGISTERED_MEMORY, gpuipc_register_transports(ipc, 1, 0, NULL, 0, &registered));
    TEXT_HAS("a buffer has at least 1 byte");
    CHECK(registered == UNTOUCHED);

    /* None at all: only its owner reaches it. */
    OK(gpuipc_register_transports(ipc, 4096, SIZE, NULL, 0, &registered));
    OK(gpuipc_registered_handles(registered, NULL, 0, &count));
    CHECK(count == 0);
    OK(gpuipc_registered_data(registered, &number));
    CHECK(number == 4096);
    OK(gpuipc_registered_gpu_error(registered, &error));
    CHECK(error.status == GPUIPC_OK);
    OK(gpuipc_registered_owner(registered, &of_it));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_self(NULL, &own));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_self(ipc, NULL));
    OK(gpuipc_self(ipc, &own));
    CHECK(memcmp(&own, &of_it, sizeof own) == 0 && own.pid == (uint32_t)getpid());
    gpuipc_registered_free(registered);

    OK(gpuipc_register_transports(ipc, 4096, SIZE, transports, GPUIPC_TRANSPORTS, &registered));
    OK(gpuipc_registered_bytes(registered, all->form, sizeof all->form, &all->form_length));
    /* It stays registered. */
}

static void exporter(int to_parent) {
    static told all;
    cuda_mini cu;
    gpuipc *ipc;
    CUdeviceptr ptr;
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    cuda_start(&cu);
    OK(gpuipc_open(&ipc));
    CU(cu.mem_alloc(&ptr, SIZE));
    whole_allocations(ipc, ptr, all.whole);
    CU(cu.mem_alloc(&ptr, SIZE));
    leave(ipc, ptr, all.kept[1]);
    nothing_of_freed_memory_stays(&cu, ipc, &all);
    transports_alone(ipc, &all);
    /* What was left needs no library either. */
    gpuipc_close(ipc);
    send_all(to_parent, &all, sizeof all);
    for (;;) {
        pause();
    }
}

int main(void) {
    static told all;
    gpuipc *ipc;
    gpuipc_mem *mem = UNTOUCHED;
    gpuipc_registered *registered;
    gpuipc_transport read[GPUIPC_TRANSPORTS];
    gpuipc_owner own, theirs;
    uint64_t number;
    size_t length;
    int ends[2];
    pid_t other;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    other = fork();
    CHECK(other >= 0);
    if (other == 0) {
        exporter(ends[1]);
    }
    close(ends[1]);
    receive_all(ends[0], &all, sizeof all);
    OK(gpuipc_open(&ipc));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_exported_leave(NULL));
    EXPECT(GPUIPC_NULL_ARGUMENT, gpuipc_exported_len(NULL, &length));
    OK(gpuipc_import(ipc, all.whole, GPUIPC_HANDLE_BYTES, NULL, &mem));
    OK(gpuipc_mem_len(mem, &length));
    CHECK(length == SIZE - 4096);
    gpuipc_mem_free(mem);
    for (int i = 0; i < 2; i++) {
        uint32_t liveness;
        OK(gpuipc_import(ipc, all.kept[i], GPUIPC_HANDLE_BYTES, NULL, &mem));
        OK(gpuipc_mem_liveness(mem, &liveness));
        CHECK(liveness == (i == 0 ? GPUIPC_LIVENESS_REFERENCED : GPUIPC_LIVENESS_MEMORY_UNCHANGED));
        gpuipc_mem_free(mem);
        mem = UNTOUCHED;
        /* Of legacy memory the driver says it first. */
        EXPECT(i == 0 ? GPUIPC_EXPORT_REVOKED : GPUIPC_NO_TYPE_WORKED,
               gpuipc_import(ipc, all.freed[i], GPUIPC_HANDLE_BYTES, NULL, &mem));
        CHECK(mem == UNTOUCHED);
    }
    OK(gpuipc_deserialize(ipc, all.form, all.form_length, NULL, &registered));
    OK(gpuipc_registered_transports(registered, read, GPUIPC_TRANSPORTS, &length));
    CHECK(length == GPUIPC_TRANSPORTS && read[0].len == 0 && read[15].bytes[63] == 15);
    OK(gpuipc_registered_data(registered, &number));
    CHECK(number == 0);
    OK(gpuipc_registered_owner(registered, &theirs));
    OK(gpuipc_self(ipc, &own));
    CHECK(memcmp(own.process_id, theirs.process_id, sizeof own.process_id) != 0);
    CHECK(memcmp(own.host_id, theirs.host_id, sizeof own.host_id) == 0);
    gpuipc_registered_free(registered);
    CHECK(kill(other, SIGKILL) == 0 && waitpid(other, NULL, 0) == other);
    gpuipc_close(ipc);
    puts("left");
    return 0;
}
