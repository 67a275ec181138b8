/* Every rank of an MPI program maps every other rank's buffer. The handles travel by
 * MPI_Allgather, as any other bytes; nothing says which ranks share a host, a
 * container or a GPU: the library finds out what works.
 *
 *     mpicc -std=c11 allgather_mpi.c $(pkg-config --cflags --libs gpuipc)
 *     mpirun -n 4 ./a.out
 */
#include <gpuipc.h>

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define WORDS ((size_t)1 << 16)
#define SIZE (WORDS * sizeof(uint32_t))

static int rank, ranks;

/* Ends all ranks with the library's words. */
static void check(gpuipc_status status, const char *what) {
    char text[4096] = "";
    if (status == GPUIPC_OK) {
        return;
    }
    gpuipc_last_error(text, sizeof text, NULL);
    fprintf(stderr, "rank %d: %s: %s\n%s\n", rank, what, gpuipc_status_name(status), text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static uint32_t word(int of_rank, size_t at) { return (uint32_t)at * 2654435761u + (uint32_t)of_rank; }

static void map_and_compare(const gpuipc *ipc, const uint8_t *handle, int of_rank, uint32_t *words) {
    static const char *const names[] = {"SameProcess", "RuntimeIpc", "PosixFd", "?", "Fabric"};
    gpuipc_mem *mem;
    uint32_t used;
    check(gpuipc_import(ipc, handle, GPUIPC_HANDLE_BYTES, NULL, &mem), "import");
    check(gpuipc_mem_type_used(mem, &used), "type");
    check(gpuipc_mem_read(mem, 0, (uint8_t *)words, SIZE), "read");
    for (size_t at = 0; at < WORDS; at++) {
        if (words[at] != word(of_rank, at)) {
            fprintf(stderr, "rank %d: word %zu of rank %d is wrong\n", rank, at, of_rank);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    gpuipc_mem_free(mem);
    printf("rank %d mapped rank %d by %s\n", rank, of_rank, used <= GPUIPC_TYPE_FABRIC ? names[used] : "?");
}

int main(int argc, char **argv) {
    uint8_t own[GPUIPC_HANDLE_BYTES], *all;
    uint32_t *words = malloc(SIZE);
    gpuipc *ipc;
    gpuipc_buffer *buffer;
    gpuipc_exported *exported;
    uint64_t ptr;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    all = malloc((size_t)ranks * GPUIPC_HANDLE_BYTES);
    if (words == NULL || all == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    check(gpuipc_open(&ipc), "open");
    /* Fabric handles reach other hosts; where there is no fabric, descriptors do on this one. */
    if (gpuipc_buffer_new(ipc, 0, GPUIPC_MEMORY_VMM_FABRIC, SIZE, &buffer) != GPUIPC_OK) {
        check(gpuipc_buffer_new(ipc, 0, GPUIPC_MEMORY_VMM_FD, SIZE, &buffer), "buffer");
    }
    for (size_t at = 0; at < WORDS; at++) {
        words[at] = word(rank, at);
    }
    check(gpuipc_buffer_write(buffer, 0, (const uint8_t *)words, SIZE), "write");
    check(gpuipc_buffer_ptr(buffer, &ptr), "ptr");
    check(gpuipc_export(ipc, ptr, SIZE, &exported), "export");
    check(gpuipc_exported_handle_bytes(exported, 0, own, sizeof own), "handle");
    MPI_Allgather(own, GPUIPC_HANDLE_BYTES, MPI_BYTE, all, GPUIPC_HANDLE_BYTES, MPI_BYTE, MPI_COMM_WORLD);
    for (int of_rank = 0; of_rank < ranks; of_rank++) {
        if (of_rank != rank) {
            map_and_compare(ipc, all + (size_t)of_rank * GPUIPC_HANDLE_BYTES, of_rank, words);
        }
    }
    /* Exports and memory must stay until everybody has mapped and read them. */
    MPI_Barrier(MPI_COMM_WORLD);
    gpuipc_exported_free(exported);
    gpuipc_buffer_free(buffer);
    gpuipc_close(ipc);
    free(all);
    free(words);
    MPI_Finalize();
    return 0;
}
