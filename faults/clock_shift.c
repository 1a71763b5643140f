/* Preloaded, it shifts the wall clock of a process, and of all that it starts, by SHIFT_SECONDS.

   libfaketime cannot serve here: its clock_nanosleep fails with EINVAL under Python 3.11 where the monotonic clock is left
   alone, and waits hang where it is not. Here only the wall clock is shifted; a wait until a moment of it is shifted
   back. Such a moment is told from one of the monotonic clock by its size: no machine has been up since 2001. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define EPOCH_OF_THIS_CENTURY 978307200

static long shift;

__attribute__((constructor)) static void begin(void) {
    const char *given = getenv("SHIFT_SECONDS");
    shift = given ? atol(given) : 0;
}

static int is_wall_clock(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && is_wall_clock(clock)) now->tv_sec += shift;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *now, int base) { return clock_gettime(CLOCK_REALTIME, now) ? 0 : base; }

static struct timespec real(const struct timespec *until) {
    struct timespec moment = *until;
    if (moment.tv_sec > EPOCH_OF_THIS_CENTURY) moment.tv_sec -= shift;
    return moment;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!next) next = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2"); /* the older one has another layout */
    if (!next) next = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec moment = real(until);
    return next(condition, mutex, &moment);
}

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*next)(pthread_mutex_t *, const struct timespec *);
    if (!next) next = dlsym(RTLD_NEXT, "pthread_mutex_timedlock");
    struct timespec moment = real(until);
    return next(mutex, &moment);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    static int (*next)(sem_t *, const struct timespec *);
    if (!next) next = dlsym(RTLD_NEXT, "sem_timedwait");
    struct timespec moment = real(until);
    return next(semaphore, &moment);
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until) {
    static int (*next)(cnd_t *, mtx_t *, const struct timespec *);
    if (!next) next = dlsym(RTLD_NEXT, "cnd_timedwait");
    struct timespec moment = real(until);
    return next(condition, mutex, &moment);
}
