/* Fails one system call of many, for files below FAULT_DIR.
 *
 * FAULT_OP     write | sync | open | look (which does not fail, but hangs while FAULT_WHILE is there)
 * FAULT_AT     which call of that kind fails, from 1; 0 only counts
 * FAULT_ERRNO  with which error
 * FAULT_MODE   once | always (that call and all later ones of the kind)
 * FAULT_WHILE  a file: instead of the two above, calls fail while it is there
 * FAULT_LOG    a file that gets the line "fault" when the first call fails, and "count n" at the end
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static long calls;
static int faulted;

static void note(const char *line) {
    const char *log = getenv("FAULT_LOG");
    ssize_t (*real_write)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    int (*real_open)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    if (!log) return;
    int fd = real_open(log, O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (fd < 0) return;
    real_write(fd, line, strlen(line));
    close(fd);
}

__attribute__((destructor)) static void count(void) {
    char line[64];
    snprintf(line, sizeof line, "count %ld\n", calls);
    note(line);
}

static int is_below(const char *path) {
    const char *dir = getenv("FAULT_DIR");
    return dir && strncmp(path, dir, strlen(dir)) == 0;
}

static int is_fd_below(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return is_below(path);
}

static int fails(const char *op) {
    const char *wanted = getenv("FAULT_OP"), *at = getenv("FAULT_AT"), *mode = getenv("FAULT_MODE");
    const char *bad = getenv("FAULT_WHILE");
    if (!wanted || strcmp(wanted, op) != 0) return 0;
    if (bad) {
        errno = atoi(getenv("FAULT_ERRNO"));
        int failed = errno, fails = access(bad, F_OK) == 0;
        errno = failed;
        return fails;
    }
    long call = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST), first = at ? atol(at) : 0;
    int always = mode && strcmp(mode, "always") == 0;
    if (first == 0 || call < first || (call > first && !always)) return 0;
    if (!__atomic_exchange_n(&faulted, 1, __ATOMIC_SEQ_CST)) note("fault\n");
    errno = atoi(getenv("FAULT_ERRNO"));
    return 1;
}

ssize_t write(int fd, const void *bytes, size_t n) {
    ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    if (is_fd_below(fd) && fails("write")) {
        int failed = errno;
        /* Half of it gets there: the torn write that a full disk leaves. */
        if (n > 1) real(fd, bytes, n / 2);
        errno = failed;
        return -1;
    }
    return real(fd, bytes, n);
}

ssize_t writev(int fd, const struct iovec *parts, int n) {
    ssize_t (*real)(int, const struct iovec *, int) = dlsym(RTLD_NEXT, "writev");
    return is_fd_below(fd) && fails("write") ? -1 : real(fd, parts, n);
}

#define PWRITE(name, offset_type)                                                     \
    ssize_t name(int fd, const void *bytes, size_t n, offset_type at) {               \
        ssize_t (*real)(int, const void *, size_t, offset_type) = dlsym(RTLD_NEXT, #name); \
        return is_fd_below(fd) && fails("write") ? -1 : real(fd, bytes, n, at);        \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

int fsync(int fd) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    return is_fd_below(fd) && fails("sync") ? -1 : real(fd);
}

int fdatasync(int fd) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    return is_fd_below(fd) && fails("sync") ? -1 : real(fd);
}

#define OPEN(name)                                                                     \
    int name(const char *path, int flags, ...) {                                       \
        int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #name);                 \
        va_list rest;                                                                  \
        va_start(rest, flags);                                                         \
        mode_t mode = va_arg(rest, mode_t);                                            \
        va_end(rest);                                                                  \
        if ((flags & (O_WRONLY | O_RDWR)) && is_below(path) && fails("open")) return -1; \
        return real(path, flags, mode);                                                \
    }
OPEN(open)
OPEN(open64)

/* By which Rust asks for a file: the look at a network disk whose server is gone. */
int statx(int dir, const char *restrict path, int flags, unsigned mask, struct statx *restrict found) {
    int (*real)(int, const char *, int, unsigned, struct statx *) = dlsym(RTLD_NEXT, "statx");
    /* Rust asks without a name whether there is such a call, and the compiler believes that nobody does. */
    const char *volatile named = path;
    while (named && fails("look") && is_below(named)) usleep(20000);
    return real(dir, path, flags, mask, found);
}
