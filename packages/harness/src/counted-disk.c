// A library that is preloaded into a server: from the n-th allocating write in a folder on, the disk is full; freed space may be used
// again.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

// Shared with the test and among the processes of a server; counted-disk.ts uses the same layout.
struct control {
  _Atomic int64_t limit;   // writes that succeed; -1 means all
  _Atomic int64_t seen;    // writes that succeeded
  _Atomic int64_t refused;
  _Atomic int64_t room;    // bytes freed since the limit was reached
  _Atomic int64_t torn;    // 1: the first refused write stores half of its data
};

static struct control *control;
static char folder[PATH_MAX];
static size_t folderLength;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("SVC_COUNTED_DISK_CONTROL");
  const char *under = getenv("SVC_COUNTED_DISK_FOLDER");
  if (path == NULL || under == NULL || realpath(under, folder) == NULL) return;
  folderLength = strlen(folder);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped != MAP_FAILED) control = mapped;
}

#define REAL(name) \
  static __typeof__(name) *real; \
  if (real == NULL) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static int isUnder(const char *path) {
  return strncmp(path, folder, folderLength) == 0 && (path[folderLength] == '/' || path[folderLength] == '\0');
}

static int isOurs(int fd) {
  if (control == NULL) return 0;
  char link[48], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const int saved = errno;
  const ssize_t length = readlink(link, path, sizeof path - 1);
  errno = saved;
  if (length <= 0) return 0;
  path[length] = '\0';
  return isUnder(path);
}

// Resolves the folder of a path, whose last part may not exist yet.
static int isOursAt(int at, const char *path) {
  if (control == NULL || path == NULL) return 0;
  char parent[PATH_MAX], whole[PATH_MAX];
  if (path[0] != '/' && at != AT_FDCWD) return isOurs(at);
  if (strlen(path) >= sizeof parent) return 0;
  strcpy(parent, path);
  char *slash = strrchr(parent, '/');
  if (slash == NULL) strcpy(parent, ".");
  else slash[slash == parent] = '\0';
  const int saved = errno;
  const int found = realpath(parent, whole) != NULL && isUnder(whole);
  errno = saved;
  return found;
}

// The space that a file uses: its bytes, and the bytes reserved behind them.
static int64_t heldBytes(const struct stat *file) {
  const int64_t blocks = (int64_t)file->st_blocks * 512;
  const int64_t rounded = (file->st_size + file->st_blksize - 1) / file->st_blksize * file->st_blksize;
  return blocks > rounded ? blocks : file->st_size;
}

enum answer { PASS, TEAR, REFUSE };

static enum answer ask(int64_t bytes) {
  const int64_t limit = atomic_load(&control->limit);
  if (limit < 0) return PASS;
  const int64_t before = atomic_fetch_add(&control->seen, 1);
  if (before < limit) return PASS;
  atomic_fetch_sub(&control->seen, 1);
  int64_t room = atomic_load(&control->room);
  while (room > 0 && room >= bytes)
    if (atomic_compare_exchange_weak(&control->room, &room, room - bytes)) return PASS;
  if (atomic_fetch_add(&control->refused, 1) == 0 && atomic_load(&control->torn) == 1) return TEAR;
  return REFUSE;
}

static void freed(int64_t bytes) {
  if (bytes > 0 && atomic_load(&control->limit) >= 0 && atomic_load(&control->seen) >= atomic_load(&control->limit)) atomic_fetch_add(&control->room, bytes);
}

static int full(void) {
  errno = ENOSPC;
  return -1;
}

// Returns how many of `length` bytes at `offset` (-1: the file's position) may be written: all, a part, or none (-1).
static ssize_t granted(int fd, size_t length, off_t offset) {
  struct stat file;
  if (!isOurs(fd) || length == 0 || fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) return (ssize_t)length;
  if (offset < 0) offset = (fcntl(fd, F_GETFL) & O_APPEND) != 0 ? file.st_size : lseek(fd, 0, SEEK_CUR);
  const int64_t more = (int64_t)offset + (int64_t)length - heldBytes(&file);
  if (more <= 0) return (ssize_t)length;
  switch (ask(more)) {
    case PASS: return (ssize_t)length;
    case TEAR: return length > 1 ? (ssize_t)(length / 2) : full();
    default: return full();
  }
}

ssize_t write(int fd, const void *bytes, size_t length) {
  REAL(write);
  const ssize_t some = granted(fd, length, -1);
  return some < 0 ? -1 : real(fd, bytes, (size_t)some);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
  REAL(pwrite64);
  const ssize_t some = granted(fd, length, offset);
  return some < 0 ? -1 : real(fd, bytes, (size_t)some, offset);
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) { return pwrite64(fd, bytes, length, offset); }

static size_t lengthOf(const struct iovec *parts, int count) {
  size_t length = 0;
  for (int i = 0; i < count; i++) length += parts[i].iov_len;
  return length;
}

// If a write of several parts is torn, half of the first part is stored.
ssize_t writev(int fd, const struct iovec *parts, int count) {
  REAL(writev);
  const size_t length = lengthOf(parts, count);
  const ssize_t some = granted(fd, length, -1);
  if (some < 0) return -1;
  if ((size_t)some == length) return real(fd, parts, count);
  const struct iovec half = {parts[0].iov_base, parts[0].iov_len / 2};
  return half.iov_len == 0 ? full() : real(fd, &half, 1);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
  REAL(pwritev64);
  const size_t length = lengthOf(parts, count);
  const ssize_t some = granted(fd, length, offset);
  if (some < 0) return -1;
  if ((size_t)some == length) return real(fd, parts, count, offset);
  const struct iovec half = {parts[0].iov_base, parts[0].iov_len / 2};
  return half.iov_len == 0 ? full() : real(fd, &half, 1, offset);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) { return pwritev64(fd, parts, count, offset); }

int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
  REAL(fallocate64);
  struct stat file;
  if (isOurs(fd) && (mode & FALLOC_FL_PUNCH_HOLE) == 0 && fstat(fd, &file) == 0) {
    const int64_t more = (int64_t)offset + (int64_t)length - heldBytes(&file);
    if (more > 0 && ask(more) != PASS) return full();
  }
  return real(fd, mode, offset, length);
}
int fallocate(int fd, int mode, off_t offset, off_t length) { return fallocate64(fd, mode, offset, length); }

int posix_fallocate64(int fd, off64_t offset, off64_t length) { return fallocate64(fd, 0, offset, length) == 0 ? 0 : errno; }
int posix_fallocate(int fd, off_t offset, off_t length) { return posix_fallocate64(fd, offset, length); }

ssize_t copy_file_range(int from, off64_t *fromAt, int to, off64_t *toAt, size_t length, unsigned flags) {
  REAL(copy_file_range);
  if (isOurs(to) && length > 0 && ask((int64_t)length) != PASS) return full();
  return real(from, fromAt, to, toAt, length, flags);
}

ssize_t sendfile64(int to, int from, off64_t *offset, size_t length) {
  static ssize_t (*real)(int, int, off64_t *, size_t);
  if (real == NULL) real = (ssize_t(*)(int, int, off64_t *, size_t))dlsym(RTLD_NEXT, "sendfile64");
  if (isOurs(to) && length > 0 && ask((int64_t)length) != PASS) return full();
  return real(to, from, offset, length);
}
ssize_t sendfile(int to, int from, off_t *offset, size_t length) { return sendfile64(to, from, offset, length); }

// libuv copies files with the plain system call.
long syscall(long number, ...) {
  REAL(syscall);
  va_list list;
  va_start(list, number);
  long given[6];
  for (int i = 0; i < 6; i++) given[i] = va_arg(list, long);
  va_end(list);
  if (number == SYS_copy_file_range && isOurs((int)given[2]) && given[4] > 0 && ask(given[4]) != PASS) return full();
  return real(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

// A new name uses space in its folder.
static int mayName(int at, const char *path) {
  if (!isOursAt(at, path)) return 1;
  const int saved = errno;
  const int there = faccessat(at, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  errno = saved;
  return there || ask(1) == PASS;
}

#define OPEN(name) \
  int name(const char *path, int flags, ...) { \
    REAL(name); \
    va_list list; \
    va_start(list, flags); \
    const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0; \
    va_end(list); \
    if ((flags & O_CREAT) != 0 && !mayName(AT_FDCWD, path)) return full(); \
    if ((flags & O_TRUNC) != 0) emptied(AT_FDCWD, path); \
    return real(path, flags, mode); \
  }
#define OPENAT(name) \
  int name(int at, const char *path, int flags, ...) { \
    REAL(name); \
    va_list list; \
    va_start(list, flags); \
    const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0; \
    va_end(list); \
    if ((flags & O_CREAT) != 0 && !mayName(at, path)) return full(); \
    if ((flags & O_TRUNC) != 0) emptied(at, path); \
    return real(at, path, flags, mode); \
  }

// The space freed when a file is truncated, removed or replaced; a file with another name keeps it.
static void emptied(int at, const char *path) {
  struct stat file;
  const int saved = errno;
  if (isOursAt(at, path) && fstatat(at, path, &file, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(file.st_mode) && file.st_nlink == 1) freed(heldBytes(&file));
  errno = saved;
}

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

int mkdir(const char *path, mode_t mode) {
  REAL(mkdir);
  return mayName(AT_FDCWD, path) ? real(path, mode) : full();
}

int mkdirat(int at, const char *path, mode_t mode) {
  REAL(mkdirat);
  return mayName(at, path) ? real(at, path, mode) : full();
}

int symlink(const char *target, const char *path) {
  REAL(symlink);
  return mayName(AT_FDCWD, path) ? real(target, path) : full();
}

int link(const char *from, const char *path) {
  REAL(link);
  return mayName(AT_FDCWD, path) ? real(from, path) : full();
}

int rename(const char *from, const char *path) {
  REAL(rename);
  if (!mayName(AT_FDCWD, path)) return full();
  emptied(AT_FDCWD, path);
  return real(from, path);
}

int unlink(const char *path) {
  REAL(unlink);
  emptied(AT_FDCWD, path);
  return real(path);
}

int unlinkat(int at, const char *path, int flags) {
  REAL(unlinkat);
  if ((flags & AT_REMOVEDIR) == 0) emptied(at, path);
  return real(at, path, flags);
}

int ftruncate64(int fd, off64_t size) {
  REAL(ftruncate64);
  struct stat file;
  if (isOurs(fd) && fstat(fd, &file) == 0) freed(heldBytes(&file) - size);
  return real(fd, size);
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int truncate64(const char *path, off64_t size) {
  REAL(truncate64);
  struct stat file;
  if (isOursAt(AT_FDCWD, path) && stat(path, &file) == 0) freed(heldBytes(&file) - size);
  return real(path, size);
}
int truncate(const char *path, off_t size) { return truncate64(path, size); }
