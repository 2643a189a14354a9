// An object's bytes go through one aligned buffer: they are copied into it, summed there, and written from there.
#include "client/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace svc {

namespace {

constexpr std::size_t bufferBytes = 1 << 20;
/** Every file system takes direct writes in multiples of this. */
constexpr std::size_t blockBytes = 4096;
/** The size of a buffered write: if the kernel is not preemptible, no other thread runs on this processor while it copies one. */
constexpr std::size_t cachedBytes = 64 << 10;

}  // namespace

void FileWriter::Free::operator()(char* buffer) const { std::free(buffer); }

int FileWriter::create(int folder, const char* name, std::size_t bytes) {
  close();
  constexpr int how = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  isDirect_ = bytes >= leastDirectBytes;
  if (isDirect_) fd_ = openat(folder, name, how | O_DIRECT, 0600);
  if (fd_ >= 0) return 0;
  // Some file systems do not support O_DIRECT.
  isDirect_ = false;
  fd_ = openat(folder, name, how, 0600);
  return fd_ < 0 ? errno : 0;
}

int FileWriter::write(const std::vector<iovec>& parts, RunningSum& sum) {
  if (!buffer_) {
    buffer_.reset(static_cast<char*>(std::aligned_alloc(blockBytes, bufferBytes)));
    if (!buffer_) return ENOMEM;
  }
  for (const iovec& part : parts) {
    for (std::size_t done = 0; done < part.iov_len;) {
      // The piece is small enough to be still cached when it is summed.
      const std::size_t size = std::min({part.iov_len - done, bufferBytes - filled_, cachedBytes});
      std::memcpy(buffer_.get() + filled_, static_cast<const char*>(part.iov_base) + done, size);
      sum.add(buffer_.get() + filled_, size);
      done += size;
      filled_ += size;
      if (filled_ < bufferBytes) continue;
      if (const int error = flush(filled_); error != 0) return error;
    }
  }
  return 0;
}

int FileWriter::finish(std::string_view tail) {
  if (isDirect_) {
    if (const int error = flush(filled_ - filled_ % blockBytes); error != 0) return error;
    if (const int error = leavePastCache(); error != 0) return error;
  }
  for (std::size_t done = 0; done < tail.size();) {
    const std::size_t size = std::min(tail.size() - done, bufferBytes - filled_);
    std::memcpy(buffer_.get() + filled_, tail.data() + done, size);
    done += size;
    filled_ += size;
    if (const int error = done == tail.size() || filled_ == bufferBytes ? flush(filled_) : 0; error != 0) return error;
  }
  return 0;
}

int FileWriter::sync() { return fdatasync(fd_) == 0 ? 0 : errno; }

void FileWriter::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  filled_ = 0;
}

int FileWriter::leavePastCache() {
  isDirect_ = false;
  const int flags = fcntl(fd_, F_GETFL);
  return flags >= 0 && fcntl(fd_, F_SETFL, flags & ~O_DIRECT) == 0 ? 0 : errno;
}

// Writes the first `bytes` of the buffer; the rest moves to the front.
int FileWriter::flush(std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t wrote = ::write(fd_, buffer_.get() + done, isDirect_ ? bytes - done : std::min(bytes - done, cachedBytes));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EINVAL && isDirect_) {
      if (const int error = leavePastCache(); error != 0) return error;
      continue;
    }
    if (wrote < 0) return errno;
    if (wrote == 0) return EIO;
    done += static_cast<std::size_t>(wrote);
    // The rest begins in the middle of a block, so it cannot be written directly.
    if (isDirect_ && done % blockBytes != 0)
      if (const int error = leavePastCache(); error != 0) return error;
  }
  std::memmove(buffer_.get(), buffer_.get() + bytes, filled_ - bytes);
  filled_ -= bytes;
  return 0;
}

}  // namespace svc
