#include "gpuipc.h"

/* The header needs nothing before it, and may come twice. */
#include "gpuipc.h"
#include "gpuipc_multicast.h"
#include "gpuipc_multicast.h"

int main(void) { return GPUIPC_OK; }
