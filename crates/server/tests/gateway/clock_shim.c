/* Sets the wall clock of one process: adds the seconds that are written in the file CLOCK_FILE.
 * With CLOCK_ALL every clock of the C library is moved, as tools that fake the time do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, time);
    const char *path = getenv("CLOCK_FILE");
    if (!path || (id != CLOCK_REALTIME && !getenv("CLOCK_ALL"))) return result;
    FILE *file = fopen(path, "r");
    long seconds = 0;
    if (file) {
        if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    time->tv_sec += seconds;
    return result;
}
