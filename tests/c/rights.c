/* Opens the library and says what came of it, and whether the kernel gave this program
 * more rights than its caller has. */
#include <gpuipc.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <unistd.h>

int main(void) {
    gpuipc *library = NULL;
    gpuipc_status status = gpuipc_open(&library);
    char text[2000] = "";
    (void)gpuipc_last_error(text, sizeof text, NULL);
    printf("secure %lu, effective uid %u\n%s\n%s\n", getauxval(AT_SECURE), (unsigned)geteuid(),
           gpuipc_status_name(status), text);
    gpuipc_close(library);
    return 0;
}
