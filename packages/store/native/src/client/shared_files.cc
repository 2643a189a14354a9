// Walks to a file part by part, so that no name leads out of the folder; writes a temporary file and renames it.
#include "client/shared_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "base/checksum.h"

namespace svc {

namespace {

struct OpenFile {
  explicit OpenFile(int fd = -1) : fd(fd) {}
  ~OpenFile() { reset(-1); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  void reset(int next) {
    if (fd >= 0) close(fd);
    fd = next;
  }
  int fd;
};

bool partsOfName(const std::string& name, std::vector<std::string>& out) {
  if (name.empty() || name.size() > SharedFiles::longestName || name.find('\0') != std::string::npos) return false;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    const std::string part = name.substr(at, end - at);
    if (part.empty() || part == "." || part == "..") return false;
    out.push_back(part);
    at = end + 1;
  }
  return true;
}

// Opens the folder that contains the file; `leaf` is the last part of its name.
int walkTo(const std::string& folder, const std::string& name, bool makes, OpenFile& at, std::string& leaf) {
  std::vector<std::string> parts;
  if (!partsOfName(name, parts)) return EINVAL;
  at.reset(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (at.fd < 0) return errno == ENOENT || errno == ENOTDIR ? ENODEV : errno;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    constexpr int how = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int next = openat(at.fd, parts[i].c_str(), how);
    if (next < 0 && errno == ENOENT && makes) {
      if (mkdirat(at.fd, parts[i].c_str(), 0777) != 0 && errno != EEXIST) return errno;
      next = openat(at.fd, parts[i].c_str(), how);
    }
    if (next < 0) return errno == ELOOP || errno == ENOTDIR ? EINVAL : errno;
    at.reset(next);
  }
  leaf = parts.back();
  return 0;
}

int writeBytes(int fd, const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = write(fd, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    if (wrote == 0) return EIO;
    done += static_cast<std::size_t>(wrote);
  }
  return 0;
}

int writeShared(const std::string& folder, const std::string& name, const std::string& bytes, bool syncs) {
  OpenFile at;
  std::string leaf;
  if (const int error = walkTo(folder, name, true, at, leaf); error != 0) return error;
  const std::string part = leaf + ".part";
  int error = 0;
  {
    OpenFile to(openat(at.fd, part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (to.fd < 0) return errno;
    error = writeBytes(to.fd, bytes);
    if (error == 0 && syncs && fdatasync(to.fd) != 0) error = errno;
    // A remote file system may report only here that it is full.
    const int fd = to.fd;
    to.fd = -1;
    if (close(fd) != 0 && error == 0 && errno != EINTR) error = errno;
  }
  if (error == 0 && renameat(at.fd, part.c_str(), at.fd, leaf.c_str()) != 0) error = errno;
  if (error == 0 && syncs && fsync(at.fd) != 0) error = errno;
  if (error != 0) unlinkat(at.fd, part.c_str(), 0);
  return error;
}

int readShared(const std::string& folder, const std::string& name, u64 size, std::string& out) {
  OpenFile at;
  std::string leaf;
  if (const int error = walkTo(folder, name, false, at, leaf); error != 0) return error;
  const OpenFile from(openat(at.fd, leaf.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (from.fd < 0) return errno == ELOOP ? EINVAL : errno;
  if (fstat(from.fd, &info) != 0) return errno;
  if (!S_ISREG(info.st_mode) || static_cast<u64>(info.st_size) != size) return EBADMSG;
  out.resize(size);
  for (std::size_t done = 0; done < size;) {
    const ssize_t got = pread(from.fd, out.data() + done, size - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return EBADMSG;
    done += static_cast<std::size_t>(got);
  }
  return 0;
}

}  // namespace

// The state outlives its owner while a thread still waits for the file system.
struct SharedFiles::State {
  std::string folder;
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::function<void()>> work;
  u64 bytes = 0;
  bool ending = false;
};

SharedFiles::SharedFiles(std::string folder, u32 threads) : state_(std::make_shared<State>()) {
  state_->folder = std::move(folder);
  for (u32 i = 0; i < std::max(1u, threads); ++i)
    std::thread([state = state_] {
      std::unique_lock lock(state->mutex);
      while (true) {
        state->wake.wait(lock, [&] { return state->ending || !state->work.empty(); });
        if (state->work.empty()) return;
        const std::function<void()> work = std::move(state->work.front());
        state->work.pop_front();
        lock.unlock();
        work();
        lock.lock();
      }
    }).detach();
}

SharedFiles::~SharedFiles() {
  const std::lock_guard lock(state_->mutex);
  state_->ending = true;
  state_->wake.notify_all();
}

void SharedFiles::add(u64 bytes, std::function<int(const std::string& folder)> work, Done done) {
  {
    const std::lock_guard lock(state_->mutex);
    // A single job may have any size.
    if (state_->work.size() < mostQueued && (state_->bytes == 0 || state_->bytes + bytes <= mostQueuedBytes)) {
      state_->bytes += bytes;
      state_->work.push_back([state = state_, bytes, work = std::move(work), done = std::move(done)] {
        const int error = work(state->folder);
        {
          const std::lock_guard ended(state->mutex);
          state->bytes -= bytes;
        }
        done(error);
      });
      state_->wake.notify_one();
      return;
    }
  }
  done(EAGAIN);
}

void SharedFiles::write(std::string name, std::string bytes, bool syncs, Done done) {
  const u64 size = bytes.size();
  add(size, [name = std::move(name), bytes = std::move(bytes), syncs](const std::string& folder) { return writeShared(folder, name, bytes, syncs); }, std::move(done));
}

void SharedFiles::read(std::string name, u64 size, std::shared_ptr<std::string> out, Done done) {
  add(size, [name = std::move(name), size, out = std::move(out)](const std::string& folder) { return readShared(folder, name, size, *out); }, std::move(done));
}

void SharedFiles::remove(std::string name, Done done) {
  add(0, [name = std::move(name)](const std::string& folder) {
    OpenFile at;
    std::string leaf;
    const int error = walkTo(folder, name, false, at, leaf);
    if (error != 0) return error == ENOENT ? 0 : error;
    for (const std::string& each : {leaf, leaf + ".part"})
      if (unlinkat(at.fd, each.c_str(), 0) != 0 && errno != ENOENT) return errno;
    return 0;
  }, std::move(done));
}

void SharedFiles::verify(std::string name, u64 size, std::shared_ptr<u64> checksum, Done done) {
  add(size, [name = std::move(name), size, checksum = std::move(checksum)](const std::string& folder) {
    std::string bytes;
    if (const int error = readShared(folder, name, size, bytes); error != 0) return error;
    const u64 words[3] = {reinterpret_cast<u64>(bytes.data()), 0, bytes.size()};
    *checksum = checksumOf(words, 1);
    return 0;
  }, std::move(done));
}

void SharedFiles::space(std::shared_ptr<std::pair<u64, u64>> out, Done done) {
  add(0, [out = std::move(out)](const std::string& folder) {
    struct statvfs info {};
    if (statvfs(folder.c_str(), &info) != 0) return errno == ENOENT || errno == ENOTDIR ? ENODEV : errno;
    *out = {info.f_blocks * info.f_frsize, info.f_bavail * info.f_frsize};
    return 0;
  }, std::move(done));
}

}  // namespace svc
