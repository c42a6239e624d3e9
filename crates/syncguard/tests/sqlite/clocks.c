// Clocks that can be set: see suspended.rs, and verify/torture/src/clock.rs.

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
// What the clock has lost, and what it shows while it stands still.
static long long lost = 0, shown = -1;

static long long monotonic(long long now) {
  const char *still = getenv("CLOCKS_STILL");
  pthread_mutex_lock(&mutex);
  if (still && access(still, F_OK) == 0) {
    if (shown < 0) shown = now - lost;
    now = shown;
  } else {
    if (shown >= 0) lost = now - shown;
    shown = -1;
    now -= lost;
  }
  pthread_mutex_unlock(&mutex);
  return now;
}

// The number in the file that the variable names.
static long long number(const char *variable) {
  const char *path = getenv(variable);
  char text[16] = {0};
  int file = path ? open(path, O_RDONLY) : -1;
  if (file < 0) return 0;
  if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
  close(file);
  return atoll(text);
}

int clock_gettime(clockid_t id, struct timespec *time) {
  int failed = syscall(SYS_clock_gettime, id, time);
  if (failed) return failed;
  if (id == CLOCK_REALTIME) time->tv_sec += number("CLOCKS_AHEAD");
  if (id == CLOCK_MONOTONIC) {
    long long now = monotonic(time->tv_sec * 1000000000LL + time->tv_nsec);
    now -= number("CLOCKS_BEHIND_MS") * 1000000;
    time->tv_sec = now / 1000000000LL;
    time->tv_nsec = now % 1000000000LL;
  }
  return 0;
}
