// While a file of a given name exists, no regular file on its disk grows, of the program that this is loaded into: whatever would make one
// larger fails with "No space left on device", as on a full disk. What is written over stays possible, as it is there.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

// Shared memory is a file on another device, and not on the disk.
static int full(int fd, off_t end) {
	struct stat flag, st;
	const char *path = getenv("HEADGATE_DISK_FULL");
	return path && stat(path, &flag) == 0 && fstat(fd, &st) == 0 && st.st_dev == flag.st_dev && S_ISREG(st.st_mode) && end > st.st_size;
}

static off_t after(int fd, size_t n) {
	struct stat st;
	if (fcntl(fd, F_GETFL) & O_APPEND)
		return fstat(fd, &st) == 0 ? st.st_size + (off_t)n : 0;
	return lseek(fd, 0, SEEK_CUR) + (off_t)n;
}

static size_t sum(const struct iovec *v, int n) {
	size_t all = 0;
	for (int i = 0; i < n; i++) all += v[i].iov_len;
	return all;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define REFUSE(fd, end) do { int e = errno; if (full(fd, end)) { errno = ENOSPC; return -1; } errno = e; } while (0)

ssize_t write(int fd, const void *b, size_t n) { REFUSE(fd, after(fd, n)); return NEXT(write)(fd, b, n); }
ssize_t writev(int fd, const struct iovec *v, int n) { REFUSE(fd, after(fd, sum(v, n))); return NEXT(writev)(fd, v, n); }
ssize_t pwrite(int fd, const void *b, size_t n, off_t o) { REFUSE(fd, o + (off_t)n); return NEXT(pwrite)(fd, b, n, o); }
ssize_t pwrite64(int fd, const void *b, size_t n, off64_t o) { REFUSE(fd, o + (off_t)n); return NEXT(pwrite64)(fd, b, n, o); }
ssize_t pwritev(int fd, const struct iovec *v, int n, off_t o) { REFUSE(fd, o + (off_t)sum(v, n)); return NEXT(pwritev)(fd, v, n, o); }
ssize_t pwritev64(int fd, const struct iovec *v, int n, off64_t o) { REFUSE(fd, o + (off_t)sum(v, n)); return NEXT(pwritev64)(fd, v, n, o); }
int fallocate(int fd, int m, off_t o, off_t n) { REFUSE(fd, o + n); return NEXT(fallocate)(fd, m, o, n); }
int fallocate64(int fd, int m, off64_t o, off64_t n) { REFUSE(fd, o + n); return NEXT(fallocate64)(fd, m, o, n); }
int posix_fallocate(int fd, off_t o, off_t n) { return full(fd, o + n) ? ENOSPC : NEXT(posix_fallocate)(fd, o, n); }
int posix_fallocate64(int fd, off64_t o, off64_t n) { return full(fd, o + n) ? ENOSPC : NEXT(posix_fallocate64)(fd, o, n); }
int ftruncate(int fd, off_t n) { REFUSE(fd, n); return NEXT(ftruncate)(fd, n); }
int ftruncate64(int fd, off64_t n) { REFUSE(fd, n); return NEXT(ftruncate64)(fd, n); }
