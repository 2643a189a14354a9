// The file operations of snapshots: open, write, map.
#include "snapshot_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace svc {
namespace {

std::string reason(int error) {
  const char* name = error == ENOSPC ? "ENOSPC" : error == EDQUOT ? "EDQUOT" : "EIO";
  return std::string(name) + ": " + std::strerror(error);
}

class File {
 public:
  File(const std::string& path, int flags) : fd(open(path.c_str(), flags | O_CLOEXEC, 0600)) {
    if (fd < 0) throw std::runtime_error(reason(errno) + ", " + path);
  }
  ~File() { close(fd); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const int fd;
};

}  // namespace

u64 saveTo(const std::string& path, const Index& index, std::string_view note) {
  const File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  u64 written = 0;
  index.save(note, [&](const u8* bytes, std::size_t size) {
    while (size > 0) {
      const ssize_t count = write(file.fd, bytes, std::min<std::size_t>(size, std::size_t{1} << 30));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw std::runtime_error(reason(errno) + ", " + path);
      bytes += count;
      size -= static_cast<std::size_t>(count);
      written += static_cast<u64>(count);
    }
  });
  return written;
}

bool loadFrom(const std::string& path, Index& index, std::string& note, std::string& problem) {
  const File file(path, O_RDONLY);
  struct stat about {};
  if (fstat(file.fd, &about) != 0) return problem = reason(errno), false;
  const auto size = static_cast<std::size_t>(about.st_size);
  if (size == 0) return problem = "it is empty", false;
  void* at = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (at == MAP_FAILED) return problem = reason(errno), false;
  madvise(at, size, MADV_SEQUENTIAL);
  const bool sound = index.load(static_cast<const u8*>(at), size, note, problem);
  munmap(at, size);
  return sound;
}

}  // namespace svc
