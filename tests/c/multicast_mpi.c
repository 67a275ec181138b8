/* The ranks of an MPI program are the members of a multicast object, each with a GPU
 * of its own, on the emulated driver. The handle travels by MPI_Bcast, the members'
 * messages by MPI's non-blocking calls.
 *
 *     mpirun -n 4 multicast_mpi             every rank writes, and all ranks have it
 *     mpirun -n 4 multicast_mpi away RANK   that rank stays away after it has joined
 */
#define _GNU_SOURCE
#include "check.h"
#include "cuda_mini.h"
#include "gpuipc_multicast.h"

#include <mpi.h>
#include <time.h>

#define MOST 16
/* Of each exchange; an agreement has two. */
#define TIMEOUT_MS 120000
#define SHORT_TIMEOUT_MS 3000
#define WORDS ((size_t)1 << 14)

static int rank, ranks;

typedef uint8_t message_bytes[GPUIPC_MULTICAST_MESSAGE_BYTES];

/* What `gather` needs beside MPI. */
typedef struct {
    /* Exchanges so far: a message that comes too late is none of a later exchange. */
    int calls;
    /* The message of each; MPI may read one until its sends are done. */
    message_bytes sent[8];
} transport;

static double now_ms(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void gather(void *context, const uint8_t *message, uint8_t *all, uint8_t *heard,
                   uint32_t timeout_ms) {
    const struct timespec pause = {0, 200000};
    const double deadline = now_ms() + timeout_ms;
    transport *own = context;
    const int tag = own->calls++;
    uint8_t *bytes = own->sent[tag];
    /* By rank; this one's own stay MPI_REQUEST_NULL, which counts as done. */
    MPI_Request requests[2 * MOST];
    int done = 0;
    CHECK(tag < 8);
    memcpy(bytes, message, sizeof own->sent[tag]);
    for (int other = 0; other < ranks; other++) {
        uint8_t *to = all + (size_t)other * GPUIPC_MULTICAST_MESSAGE_BYTES;
        requests[other] = requests[ranks + other] = MPI_REQUEST_NULL;
        if (other != rank) {
            MPI_Irecv(to, GPUIPC_MULTICAST_MESSAGE_BYTES, MPI_BYTE, other, tag, MPI_COMM_WORLD,
                      &requests[other]);
            MPI_Isend(bytes, GPUIPC_MULTICAST_MESSAGE_BYTES, MPI_BYTE, other, tag, MPI_COMM_WORLD,
                      &requests[ranks + other]);
        }
    }
    for (;;) {
        MPI_Testall(2 * ranks, requests, &done, MPI_STATUSES_IGNORE);
        if (done || now_ms() >= deadline) {
            break;
        }
        nanosleep(&pause, NULL);
    }
    for (int other = 0; other < ranks; other++) {
        heard[other] = GPUIPC_HEARD_MESSAGE;
        if (requests[other] != MPI_REQUEST_NULL) {
            /* It may come just now: then it is cancelled too late, and was heard. */
            MPI_Status status;
            int cancelled;
            MPI_Cancel(&requests[other]);
            MPI_Wait(&requests[other], &status);
            MPI_Test_cancelled(&status, &cancelled);
            if (cancelled) {
                heard[other] = GPUIPC_HEARD_SILENT;
            }
        }
        if (requests[ranks + other] != MPI_REQUEST_NULL) {
            /* It is read when the other one comes back; its bytes stay until then. */
            MPI_Request_free(&requests[ranks + other]);
        }
    }
}

/* Reads what the others sent to this rank while it stayed away: a vote and a verdict
 * of each. */
static void read_what_was_missed(const transport *own) {
    message_bytes bytes;
    for (int other = 0; other < ranks; other++) {
        for (int call = own->calls; other != rank && call < own->calls + 2; call++) {
            MPI_Recv(bytes, sizeof bytes, MPI_BYTE, other, call, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
}

static uint32_t word(int of_rank, size_t at) { return (uint32_t)at * 2654435761u + (uint32_t)of_rank; }

/* Each rank writes in its turn through the multicast address, and after each turn
 * every rank finds it in the memory of its own GPU. */
static void write_in_turns(const cuda_mini *cu, uint64_t multicast, CUdeviceptr memory) {
    static uint32_t words[WORDS];
    for (int turn = 0; turn < ranks; turn++) {
        if (turn == rank) {
            for (size_t at = 0; at < WORDS; at++) {
                words[at] = word(turn, at);
            }
            CU(cu->copy_in(multicast, words, sizeof words));
        }
        MPI_Barrier(MPI_COMM_WORLD);
        memset(words, 0, sizeof words);
        CU(cu->copy_out(words, memory, sizeof words));
        for (size_t at = 0; at < WORDS; at++) {
            CHECK(words[at] == word(turn, at));
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* The bind of a member whose fellow `away` does not come. */
static void bind_without(int away, const gpuipc_multicast *multicast, CUdeviceptr memory) {
    gpuipc_multicast_buffer *buffer;
    char words[64];
    const double start = now_ms();
    double took;
    EXPECT(GPUIPC_MULTICAST_TEAM, gpuipc_multicast_bind(multicast, memory, GRANULARITY, &buffer));
    took = now_ms() - start;
    snprintf(words, sizeof words, "member %d said nothing until the deadline", away);
    TEXT_HAS(words);
    CHECK(took >= SHORT_TIMEOUT_MS);
    CHECK(took < TIMEOUT_MS);
    /* From now on nobody is waited for any more. */
    EXPECT(GPUIPC_MULTICAST_TEAM, gpuipc_multicast_bind(multicast, memory, GRANULARITY, &buffer));
    TEXT_HAS(words);
    CHECK(now_ms() - start < took + 1000);
    printf("rank %d did without rank %d\n", rank, away);
}

int main(int argc, char **argv) {
    transport own = {0};
    gpuipc_multicast_team team = {sizeof team, 0, 0, TIMEOUT_MS, 0, gather, &own};
    uint8_t handle[GPUIPC_HANDLE_BYTES];
    gpuipc_multicast_object *object = NULL;
    gpuipc_multicast *multicast;
    gpuipc *ipc;
    CUdeviceptr memory;
    char own_gpu[16];
    int away = -1;
    cuda_mini cu;

    CHECK(MPI_Init(&argc, &argv) == MPI_SUCCESS);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(ranks <= MOST);
    if (argc == 3 && strcmp(argv[1], "away") == 0) {
        away = atoi(argv[2]);
        team.timeout_ms = SHORT_TIMEOUT_MS;
    }
    team.rank = (uint32_t)rank;
    team.size = (uint32_t)ranks;

    snprintf(own_gpu, sizeof own_gpu, "%d", rank);
    CHECK(setenv("GPUIPC_EMULATED_VISIBLE", own_gpu, 1) == 0);
    cuda_start(&cu);
    memory = cuda_vmm_alloc(&cu, GRANULARITY);
    OK(gpuipc_open(&ipc));
    if (rank == 0) {
        OK(gpuipc_multicast_create(ipc, GRANULARITY, team.size, &object));
        OK(gpuipc_multicast_object_handle(object, handle, sizeof handle));
    }
    MPI_Bcast(handle, sizeof handle, MPI_BYTE, 0, MPI_COMM_WORLD);
    OK(gpuipc_multicast_join(ipc, handle, sizeof handle, 0, &team, &multicast));
    gpuipc_multicast_object_free(object);
    gpuipc_close(ipc);

    if (away < 0) {
        gpuipc_multicast_buffer *buffer;
        uint64_t ptr;
        OK(gpuipc_multicast_bind(multicast, memory, GRANULARITY, &buffer));
        OK(gpuipc_multicast_buffer_ptr(buffer, &ptr));
        write_in_turns(&cu, ptr, memory);
        OK(gpuipc_multicast_buffer_close(buffer));
        printf("rank %d wrote and read\n", rank);
    } else if (rank == away) {
        read_what_was_missed(&own);
    } else {
        bind_without(away, multicast, memory);
    }
    gpuipc_multicast_free(multicast);
    cuda_vmm_free(&cu, memory, GRANULARITY);
    CU(cu.set_current(NULL));
    CU(cu.primary_release(cu.device));
    MPI_Finalize();
    return 0;
}
