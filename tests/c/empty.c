#include "gpuipc.h"

/* The header needs nothing before it, and may come twice. */
#include "gpuipc.h"

int main(void) { return GPUIPC_OK; }
