// Preloaded, it has a process's monotonic clock stand still as long as the file that CLOCK_STOPS names is there.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *t) {
	static _Thread_local struct timespec last;
	static const char *file;
	if (!file)
		file = getenv("CLOCK_STOPS");
	if (id != CLOCK_MONOTONIC || !file)
		return syscall(SYS_clock_gettime, id, t);
	int stops = !access(file, F_OK);
	if (!stops || !last.tv_sec)
		if (syscall(SYS_clock_gettime, id, &last))
			return -1;
	*t = last;
	return 0;
}
