/* Sets the wall clock of one process apart from that of the machine, and lets it be stepped while the process runs.

   The number of nanoseconds to add is read from the file named by CLOCK_SHIM_FILE, which stays mapped: whoever writes to
   the file sets the clock. Only the clock on the wall is touched; monotonic clocks, timers and waits are not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static volatile int64_t none = 0;
static volatile int64_t *offset = &none;
static int (*original)(clockid_t, struct timespec *);

__attribute__((constructor)) static void map_offset(void)
{
    const char *path = getenv("CLOCK_SHIM_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    original = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (file < 0)
        return;
    void *place = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (place != MAP_FAILED)
        offset = place;
    close(file);
}

static int64_t shifted(struct timespec *now, clockid_t clock)
{
    /* Constructors of other libraries may ask before ours has run. */
    int failed = original ? original(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
    if (failed)
        return -1;
    int64_t nanos = now->tv_sec * SECOND + now->tv_nsec + *offset;
    now->tv_sec = nanos / SECOND;
    now->tv_nsec = nanos % SECOND;
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        return (int)shifted(now, clock);
    return original ? original(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    if (shifted(&exact, CLOCK_REALTIME))
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *place)
{
    struct timespec exact;
    if (shifted(&exact, CLOCK_REALTIME))
        return (time_t)-1;
    if (place)
        *place = exact.tv_sec;
    return exact.tv_sec;
}
