/* A library that says that it was loaded, in place of a driver. */
#include <stdio.h>
#include <unistd.h>

__attribute__((constructor)) static void mark(void) {
    printf("loaded by effective uid %u\n", (unsigned)geteuid());
}
