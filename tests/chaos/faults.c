/* Preloaded: the n-th call of a kind on a file below a folder fails, is interrupted, or is short. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char folder[4096];
static int fault; /* 0 none, 1 write ENOSPC, 2 read EIO, 3 read EINTR, 4 short read, 5 write EIO, 6 short write */
static long at, calls;

void fault_set(const char *below, int kind, long number) {
    strncpy(folder, below, sizeof folder - 1);
    at = number;
    calls = 0;
    fault = kind;
}

long fault_calls(void) { return calls; }

/* Whether this call is the n-th on a file below the folder. */
static int hit(int descriptor) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    if (strncmp(path, folder, strlen(folder)) != 0) return 0;
    return __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST) == at;
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define FAIL(number) do { errno = number; return -1; } while (0)
#define READ(...) \
    if (fault >= 2 && fault <= 4 && hit(descriptor)) { \
        if (fault == 2) FAIL(EIO); \
        if (fault == 3) FAIL(EINTR); \
        if (size > 1) size = size / 2; \
    } \
    return real(__VA_ARGS__)
#define WRITE(...) \
    if ((fault == 1 || fault >= 5) && hit(descriptor)) { \
        if (fault == 1) FAIL(ENOSPC); \
        if (fault == 5) FAIL(EIO); \
        if (size > 1) size = size / 2; \
    } \
    return real(__VA_ARGS__)

ssize_t read(int descriptor, void *data, size_t size) { REAL(read); READ(descriptor, data, size); }
ssize_t pread(int descriptor, void *data, size_t size, off_t from) { REAL(pread); READ(descriptor, data, size, from); }
ssize_t pread64(int descriptor, void *data, size_t size, off64_t from) { REAL(pread64); READ(descriptor, data, size, from); }
ssize_t write(int descriptor, const void *data, size_t size) { REAL(write); WRITE(descriptor, data, size); }
ssize_t pwrite(int descriptor, const void *data, size_t size, off_t to) { REAL(pwrite); WRITE(descriptor, data, size, to); }
ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t to) { REAL(pwrite64); WRITE(descriptor, data, size, to); }
