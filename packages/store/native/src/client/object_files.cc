// Writes a file under a pending name and renames it; reads back its description.
#include "client/object_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "base/checksum.h"
#include "client/file_writer.h"
#include "base/thread_priority.h"

namespace svc {

namespace {

struct Descriptor {
  explicit Descriptor(int fd) : fd(fd) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd;
};

std::string nameOf(u64 file) {
  char name[24];
  std::snprintf(name, sizeof name, "%08llx", static_cast<unsigned long long>(file));
  return name;
}

bool numberOf(const std::string& name, u64& file) {
  if (name.size() != 8 || name.find_first_not_of("0123456789abcdef") != std::string::npos) return false;
  file = std::stoull(name, nullptr, 16);
  return true;
}

bool readAll(int fd, void* into, std::size_t size, u64 at) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t got = pread(fd, static_cast<char*>(into) + done, size - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

u64 sumOf(const void* data, std::size_t size) {
  const u64 words[3] = {reinterpret_cast<u64>(data), 0, size};
  return checksumOf(words, 1);
}

u64 ownSum(const FileTrailer& trailer, std::string_view about) {
  std::string all(about);
  all.append(reinterpret_cast<const char*>(&trailer), offsetof(FileTrailer, ownChecksum));
  return sumOf(all.data(), all.size());
}

int readAbout(int folder, u64 file, FoundFile& out) {
  const Descriptor from(openat(folder, nameOf(file).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat info {};
  if (from.fd < 0 || fstat(from.fd, &info) != 0) return errno;
  FileTrailer trailer;
  const auto bytes = static_cast<u64>(info.st_size);
  if (bytes < sizeof trailer) return EBADMSG;
  if (!readAll(from.fd, &trailer, sizeof trailer, bytes - sizeof trailer)) return errno == 0 ? EBADMSG : errno;
  const FileTrailer expected;
  if (std::memcmp(trailer.magic, expected.magic, sizeof trailer.magic) != 0 || trailer.aboutBytes > ObjectFiles::mostAbout ||
      trailer.size + trailer.aboutBytes + sizeof trailer != bytes)
    return EBADMSG;
  out.about.resize(trailer.aboutBytes);
  if (!readAll(from.fd, out.about.data(), out.about.size(), trailer.size)) return errno == 0 ? EBADMSG : errno;
  if (ownSum(trailer, out.about) != trailer.ownChecksum) return EBADMSG;
  out.file = file;
  out.size = trailer.size;
  out.checksum = trailer.checksum;
  return 0;
}

}  // namespace

// The state outlives its owner while a thread still waits for the disk.
struct ObjectFiles::State {
  struct Lane {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::function<void()>> work;
    bool ending = false;
    FileWriter writer;
  };
  int folder = -1, pending = -1, lock = -1;
  bool syncs = false;
  std::deque<Lane> lanes;
  /** All work for one file runs in one lane, in order. */
  Lane& laneOf(u64 file) { return lanes[file % lanes.size()]; }
  ~State() {
    for (const int fd : {folder, pending, lock})
      if (fd >= 0) close(fd);
  }
};

ObjectFiles::ObjectFiles(const std::string& folder, u32 threads, bool syncs) : state_(std::make_shared<State>()) {
  const auto refuse = [&](const std::string& path) { throw std::runtime_error(path + ": " + std::strerror(errno)); };
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) refuse(folder);
  state_->folder = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (state_->folder < 0) refuse(folder);
  if (mkdirat(state_->folder, "pending", 0700) != 0 && errno != EEXIST) refuse(folder + "/pending");
  state_->pending = openat(state_->folder, "pending", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (state_->pending < 0) refuse(folder + "/pending");
  state_->lock = openat(state_->folder, "lock", O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
  if (state_->lock < 0) refuse(folder + "/lock");
  if (flock(state_->lock, LOCK_EX | LOCK_NB) != 0) throw std::runtime_error(folder + " is used by another process");
  state_->syncs = syncs;
  for (u32 i = 0; i < std::max(1u, threads); ++i) {
    State::Lane& lane = state_->lanes.emplace_back();
    std::thread([state = state_, &lane] {
      pthread_setname_np(pthread_self(), "store-files");
      // Objects stay in memory meanwhile and are read there, so this work may wait.
      runBehindOthers();
      std::unique_lock lock(lane.mutex);
      while (true) {
        lane.wake.wait(lock, [&] { return lane.ending || !lane.work.empty(); });
        if (lane.work.empty()) return;
        const std::function<void()> work = std::move(lane.work.front());
        lane.work.pop_front();
        lock.unlock();
        work();
        lock.lock();
      }
    }).detach();
  }
}

ObjectFiles::~ObjectFiles() {
  for (State::Lane& lane : state_->lanes) {
    const std::lock_guard lock(lane.mutex);
    lane.ending = true;
    lane.wake.notify_one();
  }
}

void ObjectFiles::add(u64 lane, std::function<int()> work, Done done) {
  State::Lane& to = state_->laneOf(lane);
  const std::lock_guard lock(to.mutex);
  to.work.push_back([work = std::move(work), done = std::move(done)] { done(work()); });
  to.wake.notify_one();
}

void ObjectFiles::write(u64 file, std::vector<u64> words, std::string about, std::optional<u64> expected, std::shared_ptr<u64> checksum, Done done) {
  add(file, [state = state_.get(), file, words = std::move(words), about = std::move(about), expected, checksum] {
    FileTrailer trailer;
    std::vector<iovec> parts;
    for (std::size_t i = 0; i + 2 < words.size(); i += 3) {
      parts.push_back({reinterpret_cast<void*>(words[i]), words[i + 2]});
      trailer.size += words[i + 2];
    }
    trailer.aboutBytes = static_cast<u32>(about.size());
    const std::string name = nameOf(file);
    FileWriter& to = state->laneOf(file).writer;
    int error = to.create(state->pending, name.c_str(), trailer.size);
    if (error != 0) return error;
    RunningSum sum;
    error = to.write(parts, sum);
    *checksum = trailer.checksum = sum.value();
    // The memory was given to another object meanwhile.
    if (error == 0 && expected && *expected != trailer.checksum) error = ECANCELED;
    trailer.ownChecksum = ownSum(trailer, about);
    if (error == 0) error = to.finish(about + std::string(reinterpret_cast<const char*>(&trailer), sizeof trailer));
    if (error == 0 && state->syncs) error = to.sync();
    to.close();
    // Without hard links the file is only in its final place, like one whose checksum was compared.
    const bool both = error == 0 && !expected && linkat(state->pending, name.c_str(), state->folder, name.c_str(), 0) == 0;
    if (error == 0 && !both && renameat(state->pending, name.c_str(), state->folder, name.c_str()) != 0) error = errno;
    if (error == 0 && state->syncs && fsync(state->folder) != 0) error = errno;
    if (error != 0) unlinkat(state->pending, name.c_str(), 0);
    return error;
  }, std::move(done));
}

void ObjectFiles::remove(u64 file, Done done) {
  add(file, [state = state_.get(), file] {
    for (const int folder : {state->folder, state->pending})
      if (unlinkat(folder, nameOf(file).c_str(), 0) != 0 && errno != ENOENT) return errno;
    return 0;
  }, std::move(done));
}

void ObjectFiles::settle(u64 file, Done done) {
  add(file, [state = state_.get(), file] { return unlinkat(state->pending, nameOf(file).c_str(), 0) == 0 || errno == ENOENT ? 0 : errno; }, std::move(done));
}

void ObjectFiles::verify(u64 file, Done done) {
  add(file, [state = state_.get(), file] {
    FoundFile found;
    if (const int error = readAbout(state->folder, file, found); error != 0) return error;
    const Descriptor from(openat(state->folder, nameOf(file).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (from.fd < 0) return errno;
    std::vector<char> bytes(found.size);
    if (!readAll(from.fd, bytes.data(), bytes.size(), 0)) return errno == 0 ? EBADMSG : errno;
    return sumOf(bytes.data(), bytes.size()) == found.checksum ? 0 : EBADMSG;
  }, std::move(done));
}

void ObjectFiles::about(u64 file, std::shared_ptr<FoundFile> out, Done done) {
  add(file, [state = state_.get(), file, out] { return readAbout(state->folder, file, *out); }, std::move(done));
}

void ObjectFiles::list(std::shared_ptr<std::vector<u64>> out, std::shared_ptr<u64> next, Done done) {
  add(0, [state = state_.get(), out, next] {
    const auto each = [](int folder, auto visit) {
      const int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      DIR* at = copy < 0 ? nullptr : fdopendir(copy);
      if (at == nullptr) {
        const int error = errno;
        if (copy >= 0) close(copy);
        return error;
      }
      while (const dirent* entry = readdir(at)) visit(std::string(entry->d_name));
      closedir(at);
      return 0;
    };
    if (const int error = each(state->pending, [&](const std::string& name) {
          u64 file = 0;
          // The final name is removed first: once the pending name is gone, the file counts as confirmed.
          if (numberOf(name, file) && (unlinkat(state->folder, name.c_str(), 0) == 0 || errno == ENOENT)) unlinkat(state->pending, name.c_str(), 0);
        }); error != 0) return error;
    if (const int error = each(state->folder, [&](const std::string& name) {
          if (u64 file = 0; numberOf(name, file)) out->push_back(file);
        }); error != 0) return error;
    std::sort(out->begin(), out->end());
    *next = out->empty() ? 1 : out->back() + 1;
    const Descriptor from(openat(state->folder, "next", O_RDONLY | O_CLOEXEC));
    u64 kept = 0;
    if (from.fd >= 0 && readAll(from.fd, &kept, sizeof kept, 0)) *next = std::max(*next, kept);
    return 0;
  }, std::move(done));
}

void ObjectFiles::reserve(u64 next, Done done) {
  add(0, [state = state_.get(), next] {
    {
      const Descriptor to(openat(state->folder, "next.part", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
      if (to.fd < 0) return errno;
      const ssize_t wrote = pwrite(to.fd, &next, sizeof next, 0);
      if (wrote != static_cast<ssize_t>(sizeof next)) return wrote < 0 ? errno : EIO;
      if (fdatasync(to.fd) != 0) return errno;
    }
    return renameat(state->folder, "next.part", state->folder, "next") == 0 ? 0 : errno;
  }, std::move(done));
}

void ObjectFiles::space(std::shared_ptr<std::pair<u64, u64>> out, Done done) {
  add(0, [state = state_.get(), out] {
    struct statvfs info {};
    if (fstatvfs(state->folder, &info) != 0) return errno;
    *out = {info.f_blocks * info.f_frsize, info.f_bavail * info.f_frsize};
    return 0;
  }, std::move(done));
}

}  // namespace svc
