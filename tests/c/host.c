/* A host with two plugins, each of which has the library in it.
 *
 * usage: host PLUGIN SAME_PLUGIN_ELSEWHERE        (neither this program nor its
 * children link the library) */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define HANDLE_BYTES 384
#define POSIX_FD 2

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

typedef struct {
    void *object;
    void *(*open)(void);
    int (*export_new)(void *, uint8_t *, uint64_t *);
    int (*read)(void *, const uint8_t *, uint64_t *, uint32_t *, char *);
    void (*close)(void *);
} plugin;

static void find(void *object, const char *name, void *function) {
    void *address = dlsym(object, name);
    CHECK(address != NULL);
    memcpy(function, &address, sizeof address);
}

static plugin load(const char *path) {
    plugin made;
    made.object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (made.object == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    find(made.object, "plugin_open", &made.open);
    find(made.object, "plugin_export", &made.export_new);
    find(made.object, "plugin_read", &made.read);
    find(made.object, "plugin_close", &made.close);
    return made;
}

static int threads(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;
    CHECK(folder != NULL);
    while ((entry = readdir(folder)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    closedir(folder);
    return count;
}

static int is_loaded(const char *path) {
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL) {
        found |= strstr(line, path) != NULL;
    }
    fclose(maps);
    return found;
}

static void handlers(void (*all[NSIG])(int)) {
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        all[number] = sigaction(number, NULL, &action) == 0 ? action.sa_handler : NULL;
    }
}

static void *open_and_close(void *the) {
    void *opened = ((plugin *)the)->open();
    CHECK(opened != NULL);
    ((plugin *)the)->close(opened);
    return NULL;
}

/* Without an export, nothing keeps the plugin once the threads that called it are gone. */
static void unloads_before_an_export(const char *path) {
    plugin the = load(path);
    pthread_t thread;
    CHECK(is_loaded(path));
    CHECK(pthread_create(&thread, NULL, open_and_close, &the) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(dlclose(the.object) == 0);
    CHECK(!is_loaded(path));
}

static void importer(const char *path, int channel) {
    uint8_t handle[HANDLE_BYTES];
    uint64_t ptr;
    uint32_t used;
    char text[8];
    plugin the = load(path);
    void *opened;
    CHECK(read(channel, handle, sizeof handle) == sizeof handle);
    opened = the.open();
    CHECK(opened != NULL && the.read(opened, handle, &ptr, &used, text));
    CHECK(strcmp(text, "plugged") == 0 && used == POSIX_FD);
    the.close(opened);
}

int main(int argc, char **argv) {
    uint8_t handle[HANDLE_BYTES], later[HANDLE_BYTES];
    void (*before[NSIG])(int), (*after[NSIG])(int);
    uint64_t ptr, same;
    uint32_t used = 99;
    char text[8];
    int ends[2], status;
    void *first, *second;
    plugin one, other;
    pid_t child;
    CHECK(argc == 3);
    memset(before, 0, sizeof before);
    memset(after, 0, sizeof after);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        importer(argv[1], ends[1]);
        return 0;
    }
    close(ends[1]);

    unloads_before_an_export(argv[1]);
    handlers(before);
    one = load(argv[1]);
    other = load(argv[2]);
    CHECK(one.open != other.open);
    first = one.open();
    second = other.open();
    CHECK(first != NULL && second != NULL);
    CHECK(threads() == 1);

    /* The first export starts the one thread, and pins the plugin. */
    CHECK(one.export_new(first, handle, &ptr));
    CHECK(threads() == 2);
    CHECK(dlclose(one.object) == 0 && is_loaded(argv[1]));
    CHECK(other.read(second, handle, &same, &used, text));
    CHECK(same == ptr && used == 0);
    CHECK(write(ends[0], handle, sizeof handle) == sizeof handle);
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    CHECK(other.export_new(second, later, &same));
    CHECK(threads() == 3);
    CHECK(one.read(first, later, &ptr, &used, text));
    CHECK(same == ptr && used == 0);

    one.close(first);
    CHECK(!other.read(second, handle, &ptr, &used, text));
    other.close(second);
    CHECK(threads() == 1);
    CHECK(dlclose(other.object) == 0 && is_loaded(argv[2]));
    handlers(after);
    CHECK(memcmp(before, after, sizeof before) == 0);
    puts("hosted");
    return 0;
}
