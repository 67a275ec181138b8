/* Layouts and numbers that programs were compiled with, and that never change. */
#include "gpuipc.h"

#ifdef __cplusplus
#define ALIGNMENT alignof
#define PROMISE(condition) static_assert(condition, #condition)
#else
#define ALIGNMENT _Alignof
#define PROMISE(condition) _Static_assert(condition, #condition)
#endif

/* The field lies `at` bytes from the start and has `size` bytes. */
#define FIELD(type, field, at, size)                                                               \
    PROMISE(offsetof(type, field) == (at));                                                        \
    PROMISE(sizeof(((type *)0)->field) == (size))

PROMISE(sizeof(gpuipc_status) == 4);
PROMISE(sizeof(size_t) == 8);

/* The handle. */
PROMISE(GPUIPC_HANDLE_BYTES == 384);
PROMISE(sizeof(gpuipc_mem_handle) == GPUIPC_HANDLE_BYTES);
PROMISE(ALIGNMENT(gpuipc_mem_handle) == 8);
FIELD(gpuipc_mem_handle, magic, 0, 4);
FIELD(gpuipc_mem_handle, version, 4, 1);
FIELD(gpuipc_mem_handle, min_reader, 5, 1);
FIELD(gpuipc_mem_handle, platform, 6, 1);
FIELD(gpuipc_mem_handle, type_flags, 7, 1);
FIELD(gpuipc_mem_handle, attributes, 8, 2);
FIELD(gpuipc_mem_handle, num_devices, 10, 2);
FIELD(gpuipc_mem_handle, numa_node, 12, 2);
FIELD(gpuipc_mem_handle, reserved_short, 14, 2);
FIELD(gpuipc_mem_handle, base_size, 16, 8);
FIELD(gpuipc_mem_handle, offset_from_base, 24, 8);
FIELD(gpuipc_mem_handle, length, 32, 8);
FIELD(gpuipc_mem_handle, allocation_id, 40, 8);
FIELD(gpuipc_mem_handle, range_id, 48, 8);
FIELD(gpuipc_mem_handle, range_length, 56, 8);
FIELD(gpuipc_mem_handle, range_offset, 64, 8);
FIELD(gpuipc_mem_handle, segment_index, 72, 4);
FIELD(gpuipc_mem_handle, segment_count, 76, 4);
FIELD(gpuipc_mem_handle, device_uuid, 80, 16);
FIELD(gpuipc_mem_handle, process_id, 96, 16);
FIELD(gpuipc_mem_handle, host_id, 112, 16);
FIELD(gpuipc_mem_handle, pid, 128, 4);
FIELD(gpuipc_mem_handle, pid_namespace, 132, 4);
FIELD(gpuipc_mem_handle, net_namespace, 136, 4);
FIELD(gpuipc_mem_handle, fabric_clique, 140, 4);
FIELD(gpuipc_mem_handle, fabric_cluster, 144, 16);
FIELD(gpuipc_mem_handle, pool_id, 160, 8);
FIELD(gpuipc_mem_handle, reserved, 168, 20);
FIELD(gpuipc_mem_handle, checksum, 188, 4);
FIELD(gpuipc_mem_handle, slot_0, 192, 64);
FIELD(gpuipc_mem_handle, slot_1, 256, 64);
FIELD(gpuipc_mem_handle, slot_2, 320, 64);

/* A slot of the handle. */
PROMISE(GPUIPC_SLOT_BYTES == 64);
PROMISE(sizeof(gpuipc_slot) == GPUIPC_SLOT_BYTES);
FIELD(gpuipc_slot, bytes, 0, 64);
FIELD(gpuipc_slot, runtime_ipc, 0, 64);
FIELD(gpuipc_slot, pool_pointer, 0, 64);
FIELD(gpuipc_slot, ticket, 0, 64);
FIELD(gpuipc_slot, fabric, 0, 64);
FIELD(gpuipc_ticket, endpoint, 0, 16);
FIELD(gpuipc_ticket, token, 16, 16);
FIELD(gpuipc_ticket, fd, 32, 4);
FIELD(gpuipc_ticket, table_fd, 36, 4);
FIELD(gpuipc_ticket, table_slot, 40, 4);
FIELD(gpuipc_ticket, reserved, 44, 4);
FIELD(gpuipc_ticket, table_device, 48, 8);
FIELD(gpuipc_ticket, table_inode, 56, 8);

/* The options. */
PROMISE(sizeof(gpuipc_open_options) == 40);
PROMISE(ALIGNMENT(gpuipc_open_options) == 8);
FIELD(gpuipc_open_options, struct_size, 0, 8);
FIELD(gpuipc_open_options, socket_dir, 8, 8);
FIELD(gpuipc_open_options, trust, 16, 4);
FIELD(gpuipc_open_options, trusted_uid_count, 20, 4);
FIELD(gpuipc_open_options, trusted_uids, 24, 8);
FIELD(gpuipc_open_options, keepalive_descriptor, 32, 4);
FIELD(gpuipc_open_options, reserved, 36, 4);
PROMISE(sizeof(gpuipc_export_options) == 24);
PROMISE(ALIGNMENT(gpuipc_export_options) == 8);
FIELD(gpuipc_export_options, struct_size, 0, 8);
FIELD(gpuipc_export_options, type_count, 8, 1);
FIELD(gpuipc_export_options, types, 9, 7);
FIELD(gpuipc_export_options, fd_on_demand, 16, 4);
FIELD(gpuipc_export_options, reserved, 20, 4);
PROMISE(sizeof(gpuipc_import_options) == 88);
PROMISE(ALIGNMENT(gpuipc_import_options) == 8);
FIELD(gpuipc_import_options, struct_size, 0, 8);
FIELD(gpuipc_import_options, device, 8, 4);
FIELD(gpuipc_import_options, access, 12, 4);
FIELD(gpuipc_import_options, require_live, 16, 4);
FIELD(gpuipc_import_options, timeout_ms, 20, 4);
FIELD(gpuipc_import_options, type_count, 24, 1);
FIELD(gpuipc_import_options, types, 25, 7);
FIELD(gpuipc_import_options, cancel, 32, 8);
FIELD(gpuipc_import_options, device_uuid, 40, 16);
FIELD(gpuipc_import_options, host_access, 56, 4);
FIELD(gpuipc_import_options, access_device_count, 60, 4);
FIELD(gpuipc_import_options, access_devices, 64, 8);
FIELD(gpuipc_import_options, place, 72, 8);
FIELD(gpuipc_import_options, place_offset, 80, 8);
PROMISE(sizeof(gpuipc_device) == 24);
PROMISE(ALIGNMENT(gpuipc_device) == 4);
FIELD(gpuipc_device, ordinal, 0, 4);
FIELD(gpuipc_device, reserved, 4, 4);
FIELD(gpuipc_device, uuid, 8, 16);

/* Registered memory. */
PROMISE(GPUIPC_TRANSPORT_BYTES == 64 && GPUIPC_TRANSPORTS == 16);
PROMISE(sizeof(gpuipc_transport) == 72);
PROMISE(ALIGNMENT(gpuipc_transport) == 4);
FIELD(gpuipc_transport, kind, 0, 4);
FIELD(gpuipc_transport, len, 4, 4);
FIELD(gpuipc_transport, bytes, 8, 64);
PROMISE(sizeof(gpuipc_owner) == 40);
PROMISE(ALIGNMENT(gpuipc_owner) == 4);
FIELD(gpuipc_owner, process_id, 0, 16);
FIELD(gpuipc_owner, host_id, 16, 16);
FIELD(gpuipc_owner, pid, 32, 4);
FIELD(gpuipc_owner, pid_namespace, 36, 4);

/* What a failed call leaves behind. */
PROMISE(sizeof(gpuipc_error) == 32);
PROMISE(ALIGNMENT(gpuipc_error) == 8);
FIELD(gpuipc_error, status, 0, 4);
FIELD(gpuipc_error, memory_kind, 4, 4);
FIELD(gpuipc_error, code_kind, 8, 4);
FIELD(gpuipc_error, code, 12, 4);
FIELD(gpuipc_error, attempt_count, 16, 4);
FIELD(gpuipc_error, reserved, 20, 4);
FIELD(gpuipc_error, reserved_long, 24, 8);
PROMISE(sizeof(gpuipc_attempt) == 96);
PROMISE(ALIGNMENT(gpuipc_attempt) == 8);
FIELD(gpuipc_attempt, handle_type, 0, 4);
FIELD(gpuipc_attempt, step, 4, 4);
FIELD(gpuipc_attempt, reason, 8, 4);
FIELD(gpuipc_attempt, code_kind, 12, 4);
FIELD(gpuipc_attempt, code, 16, 4);
FIELD(gpuipc_attempt, segment, 20, 4);
FIELD(gpuipc_attempt, elapsed_ns, 24, 8);
FIELD(gpuipc_attempt, step_text, 32, 8);
FIELD(gpuipc_attempt, reason_text, 40, 8);
FIELD(gpuipc_attempt, hint_text, 48, 8);
FIELD(gpuipc_attempt, reserved_long, 56, 8);
FIELD(gpuipc_attempt, pair_from, 64, 16);
FIELD(gpuipc_attempt, pair_to, 80, 16);
PROMISE(sizeof(gpuipc_type_feasibility) == 104);
PROMISE(ALIGNMENT(gpuipc_type_feasibility) == 8);
FIELD(gpuipc_type_feasibility, handle_type, 0, 4);
FIELD(gpuipc_type_feasibility, feasible, 4, 4);
FIELD(gpuipc_type_feasibility, attempt, 8, 96);

/* The numbers, for the preprocessor too. */
PROMISE(GPUIPC_OK == 0);
PROMISE(GPUIPC_NULL_ARGUMENT == 1);
PROMISE(GPUIPC_INVALID_ARGUMENT == 2);
PROMISE(GPUIPC_BUFFER_TOO_SMALL == 3);
PROMISE(GPUIPC_FORKED == 4);
PROMISE(GPUIPC_PANIC == 5);
PROMISE(GPUIPC_INVALID_SETTING == 6);
PROMISE(GPUIPC_SYSTEM_CALL == 7);
PROMISE(GPUIPC_HANDLE_LENGTH == 20);
PROMISE(GPUIPC_HANDLE_MAGIC == 21);
PROMISE(GPUIPC_HANDLE_NEWER == 22);
PROMISE(GPUIPC_HANDLE_DAMAGED == 23);
PROMISE(GPUIPC_HANDLE_FIELD == 24);
PROMISE(GPUIPC_REGISTERED_MEMORY == 25);
PROMISE(GPUIPC_DRIVER_LIBRARY == 40);
PROMISE(GPUIPC_DRIVER_SYMBOL == 41);
PROMISE(GPUIPC_DRIVER_CALL == 42);
PROMISE(GPUIPC_NO_DEVICE == 43);
PROMISE(GPUIPC_NOT_EXPORTABLE == 60);
PROMISE(GPUIPC_BROKER_START == 61);
PROMISE(GPUIPC_EXPORTER_GONE == 80);
PROMISE(GPUIPC_EXPORT_REVOKED == 81);
PROMISE(GPUIPC_TIMED_OUT == 82);
PROMISE(GPUIPC_NO_TYPE_WORKED == 83);
PROMISE(GPUIPC_OTHER_HOST == 84);
PROMISE(GPUIPC_UNSUPPORTED == 85);
PROMISE(GPUIPC_CANCELLED == 86);
PROMISE(GPUIPC_NOT_ONE_RANGE == 87);
PROMISE(GPUIPC_MULTICAST_UNAVAILABLE == 100);
PROMISE(GPUIPC_MULTICAST_TEAM == 101);
PROMISE(GPUIPC_TYPE_SAME_PROCESS == 0);
PROMISE(GPUIPC_TYPE_RUNTIME_IPC == 1);
PROMISE(GPUIPC_TYPE_POSIX_FD == 2);
PROMISE(GPUIPC_TYPE_FABRIC == 4);
PROMISE(GPUIPC_ACCESS_READ_WRITE == 0);
PROMISE(GPUIPC_ACCESS_READ_ONLY == 1);
PROMISE(GPUIPC_LIVENESS_UNKNOWN == 0);
PROMISE(GPUIPC_LIVENESS_MEMORY_UNCHANGED == 1);
PROMISE(GPUIPC_LIVENESS_REFERENCED == 2);
PROMISE(GPUIPC_LIVENESS_EXPORT_LIVES == 3);
PROMISE(GPUIPC_TRUST_DEFAULT == 0);
PROMISE(GPUIPC_TRUST_SAME_USER == 1);
PROMISE(GPUIPC_TRUST_USERS == 2);
PROMISE(GPUIPC_TRUST_TOKEN_ALONE == 3);
PROMISE(GPUIPC_LOG_OFF == 0);
PROMISE(GPUIPC_LOG_TRACE == 5);
PROMISE(GPUIPC_CODE_NONE == 0);
PROMISE(GPUIPC_CODE_DRIVER == 1);
PROMISE(GPUIPC_CODE_MISSING == 2);
PROMISE(GPUIPC_CODE_OS == 3);
PROMISE(GPUIPC_MEMORY_CUDA_MALLOC == 1);
PROMISE(GPUIPC_MEMORY_VMM_FD == 2);
PROMISE(GPUIPC_MEMORY_VMM_FABRIC == 3);
PROMISE(GPUIPC_MEMORY_SEGMENTS == 4);
PROMISE(GPUIPC_MEMORY_POOL == 5);
PROMISE(GPUIPC_MEMORY_HOST_NUMA == 6);
PROMISE(GPUIPC_SEGMENT_NONE == 0xffffffff);
PROMISE(GPUIPC_FEASIBLE_OTHER == 0);
PROMISE(GPUIPC_FEASIBLE_YES == 1);
PROMISE(GPUIPC_FEASIBLE_UNKNOWN == 2);
PROMISE(GPUIPC_FEASIBLE_NO == 3);
PROMISE(GPUIPC_ABI_VERSION == 1);
PROMISE(GPUIPC_ATTRIBUTE_TICKET == 1);
PROMISE(GPUIPC_ATTRIBUTE_MEM_POOL == 2);
PROMISE(GPUIPC_ATTRIBUTE_HOST_NUMA == 4);
PROMISE(GPUIPC_ATTRIBUTE_MULTICAST == 8);

#if GPUIPC_VERSION != GPUIPC_VERSION_MAJOR * 1000000 + GPUIPC_VERSION_MINOR * 1000 + GPUIPC_VERSION_PATCH || GPUIPC_OK != 0
#error "versions and statuses are for the preprocessor, too"
#endif

int main(void) { return GPUIPC_OK; }
