// A library to preload into a server. It adds an offset to the wall clock that the
// server reads. The offset is in nanoseconds, in the first eight bytes of the file
// CLOCK_OFFSET_FILE, and may change at any time. As when a machine's clock is set,
// timers and the monotonic clock do not change. All functions are safe in signal
// handlers: PostgreSQL reads the clock in the handler of its timer.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void) {
  const char *path = getenv("CLOCK_OFFSET_FILE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) abort();
  void *mapped = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) abort();
  offset = mapped;
  close(file);
}

int clock_gettime(clockid_t id, struct timespec *now) {
  if (syscall(SYS_clock_gettime, id, now) != 0) return -1;
  if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE) return 0;
  int64_t ns = now->tv_nsec + *offset % 1000000000;
  now->tv_sec += *offset / 1000000000;
  if (ns < 0) ns += 1000000000, now->tv_sec--;
  if (ns >= 1000000000) ns -= 1000000000, now->tv_sec++;
  now->tv_nsec = ns;
  return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec precise;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
