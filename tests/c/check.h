/* What the tests' programs check with. */
#ifndef CHECK_H
#define CHECK_H

#include "gpuipc.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* The call returns this status. */
#define EXPECT(expected, call)                                                                     \
    do {                                                                                           \
        gpuipc_status expect_status = (call);                                                      \
        if (expect_status != (expected)) {                                                         \
            char expect_text[4096] = "";                                                           \
            gpuipc_last_error(expect_text, sizeof expect_text, NULL);                              \
            fprintf(stderr, "%s:%d: %s gave %s, not %s\n%s\n", __FILE__, __LINE__, #call,          \
                    gpuipc_status_name(expect_status), #expected, expect_text);                    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define OK(call) EXPECT(GPUIPC_OK, call)

/* The last call's text has these words. */
#define TEXT_HAS(words)                                                                            \
    do {                                                                                           \
        char text_has[4096];                                                                       \
        CHECK(gpuipc_last_error(text_has, sizeof text_has, NULL) == GPUIPC_OK);                    \
        if (strstr(text_has, (words)) == NULL) {                                                   \
            fprintf(stderr, "%s:%d: no \"%s\" in: %s\n", __FILE__, __LINE__, (words), text_has);   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static inline void send_all(int to, const void *bytes, size_t size) {
    const char *next = bytes;
    while (size > 0) {
        ssize_t sent = write(to, next, size);
        CHECK(sent > 0 || errno == EINTR);
        if (sent > 0) {
            next += sent;
            size -= (size_t)sent;
        }
    }
}

static inline void receive_all(int from, void *bytes, size_t size) {
    char *next = bytes;
    while (size > 0) {
        ssize_t got = read(from, next, size);
        CHECK(got > 0 || (got < 0 && errno == EINTR));
        if (got > 0) {
            next += got;
            size -= (size_t)got;
        }
    }
}

#endif
