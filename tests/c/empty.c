#include "gpuipc.h"

/* The headers need nothing before them, and may come twice. */
#include "gpuipc.h"
#include "gpuipc_multicast.h"
#include "gpuipc_multicast.h"

int main(void) { return GPUIPC_OK; }
