/* Where every thread of a process was when it died: a library to preload.
 *
 *   gcc -shared -fPIC -O1 -o stacks.so tests/gpu/stacks.c
 *   STACKS=FOLDER LD_PRELOAD=./stacks.so gpuipc-stress --driver cuda --minutes 10
 *
 * For x86-64. At SIGSEGV, SIGBUS or SIGABRT it writes FOLDER/PID: registers and stack of the thread that died, then the stacks of all
 * others. A thread that takes no signals, as the broker's does, cannot say where it is; of its stack all
 * words are written that lie in code, the newest first, old ones among them. addr2line makes lines of them. */
#define _GNU_SOURCE
#include <dirent.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* Frames, or words in code, of one thread that are written. */
#define FRAMES 64
/* Words of a silent thread's stack that are looked at. */
#define WORDS 4096

static int file = -1, asking;
static volatile int answered;

static void say(const char *what, int thread, int number) {
    char text[200], name[32] = "?", path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", thread);
    int comm = open(path, O_RDONLY | O_CLOEXEC);
    if (comm >= 0) {
        ssize_t length = read(comm, name, sizeof name - 1);
        name[length > 0 ? length - 1 : 0] = 0;
        close(comm);
    }
    int length = snprintf(text, sizeof text, "== %s: process %d, thread %d (%s), signal %d\n", what, (int)getpid(), thread, name, number);
    if (write(file, text, (size_t)length) < 0)
        return;
}

static void own_stack(void) {
    void *frames[FRAMES];
    int count = backtrace(frames, FRAMES);
    backtrace_symbols_fd(frames, count, file);
}

static void other(int number) {
    if (file < 0)
        return;
    say("asked", (int)syscall(SYS_gettid), number);
    own_stack();
    answered = 1;
}

struct search {
    uintptr_t word;
    int is_code;
};

static int look(struct dl_phdr_info *library, size_t size, void *of) {
    struct search *search = of;
    (void)size;
    for (int i = 0; i < library->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &library->dlpi_phdr[i];
        uintptr_t begin = library->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && part->p_flags & PF_X && search->word >= begin && search->word < begin + part->p_memsz)
            search->is_code = 1;
    }
    return search->is_code;
}

/* From where the kernel says its stack and its next instruction are. */
static void silent_stack(int thread) {
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    int state = open(path, O_RDONLY | O_CLOEXEC);
    if (state < 0 || read(state, text, sizeof text - 1) <= 0 || strncmp(text, "running", 7) == 0) {
        say("running, and not to be read", thread, 0);
        if (state >= 0)
            close(state);
        return;
    }
    close(state);
    say("silent", thread, 0);
    if (write(file, text, strlen(text)) < 0)
        return;
    /* The last two words. */
    char *pc = strrchr(text, ' ');
    *pc = 0;
    char *sp = strrchr(text, ' ');
    uintptr_t at = strtoull(sp + 1, NULL, 16);
    void *code[FRAMES] = {(void *)strtoull(pc + 1, NULL, 16)};
    int count = 1;
    /* Read by the kernel, which refuses what is not there. */
    int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    for (size_t i = 0; i < WORDS && count < FRAMES; i++) {
        struct search search = {.word = 0};
        ssize_t got = pread(memory, &search.word, sizeof search.word, (off_t)(at + i * sizeof search.word));
        if (got != sizeof search.word)
            break;
        dl_iterate_phdr(look, &search);
        if (search.is_code)
            code[count++] = (void *)search.word;
    }
    close(memory);
    backtrace_symbols_fd(code, count, file);
}

/* What the thread that died held, by the names of <ucontext.h>. */
static void registers(const siginfo_t *why, const ucontext_t *at) {
    static const char *const names[] = {"r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15", "rdi",
                                        "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp", "rip"};
    char text[800];
    int length = snprintf(text, sizeof text, "address %p", why->si_addr);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%s%s %llx", i % 6 == 0 ? "\n" : " ", names[i],
                           (unsigned long long)at->uc_mcontext.gregs[i]);
    text[length++] = '\n';
    if (write(file, text, (size_t)length) < 0)
        return;
    /* And what lies where they point. */
    int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        unsigned long long words[16];
        if (pread(memory, words, sizeof words, (off_t)at->uc_mcontext.gregs[i]) != sizeof words)
            continue;
        length = snprintf(text, sizeof text, "[%s]", names[i]);
        for (size_t w = 0; w < sizeof words / sizeof *words; w++)
            length += snprintf(text + length, sizeof text - (size_t)length, " %llx", words[w]);
        text[length++] = '\n';
        if (write(file, text, (size_t)length) < 0)
            break;
    }
    close(memory);
}

static void died(int number, siginfo_t *why, void *at) {
    static int first;
    if (__sync_fetch_and_add(&first, 1) > 0)
        for (;;)
            pause();
    /* What is said below may wait for a lock that is held for ever, such as malloc's. */
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGALRM);
    signal(SIGALRM, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &end, NULL);
    alarm(10);
    const char *folder = getenv("STACKS");
    char path[300];
    snprintf(path, sizeof path, "%s/%d", folder ? folder : "/tmp", (int)getpid());
    file = open(path, O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0644);
    int self = (int)syscall(SYS_gettid);
    say("died", self, number);
    registers(why, at);
    own_stack();
    DIR *threads = opendir("/proc/self/task");
    struct dirent *entry;
    while (threads && (entry = readdir(threads))) {
        int thread = atoi(entry->d_name);
        if (thread == 0 || thread == self)
            continue;
        answered = 0;
        syscall(SYS_tgkill, getpid(), thread, asking);
        for (int i = 0; i < 50 && !answered; i++)
            usleep(1000);
        if (!answered)
            silent_stack(thread);
    }
    /* For whoever watches the process and is told now and then what it is at. */
    usleep(400000);
    signal(number, SIG_DFL);
    raise(number);
}

__attribute__((constructor)) static void begin(void) {
    /* The first call loads a library. */
    void *frames[2];
    backtrace(frames, 2);
    asking = SIGRTMAX - 1;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = other;
    action.sa_flags = SA_RESTART;
    sigaction(asking, &action, NULL);
    action.sa_sigaction = died;
    action.sa_flags = SA_ONSTACK | SA_SIGINFO;
    int deaths[] = {SIGSEGV, SIGBUS, SIGABRT};
    for (size_t i = 0; i < sizeof deaths / sizeof *deaths; i++)
        sigaction(deaths[i], &action, NULL);
}
