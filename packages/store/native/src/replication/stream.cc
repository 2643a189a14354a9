// The stream's socket: it never blocks, and reads a bounded amount per loop iteration.
#include "replication/stream.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace svc {

void Stream::take(int fd) {
  close();
  fd_ = fd;
}

void Stream::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  in_ = out_ = {};
  sent_ = 0;
}

void Stream::say(StreamHead head, std::string_view payload) {
  head.bytes = static_cast<u32>(payload.size());
  out_.append(reinterpret_cast<const char*>(&head), sizeof head);
  out_.append(payload);
}

bool Stream::flush() {
  while (sent_ < out_.size()) {
    const ssize_t wrote = ::send(fd_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (wrote < 0 && errno == EINTR) continue;
    // A socket that is still connecting takes nothing yet.
    if (wrote < 0 && (errno == EAGAIN || errno == ENOTCONN)) break;
    if (wrote <= 0) return false;
    sent_ += static_cast<std::size_t>(wrote);
  }
  constexpr std::size_t trimBytes = 1 << 20;
  if (sent_ == out_.size()) {
    if (out_.capacity() > trimBytes) std::string().swap(out_);
    out_.clear();
    sent_ = 0;
  } else if (sent_ > trimBytes) {
    out_.erase(0, sent_);
    sent_ = 0;
  }
  return true;
}

bool Stream::fill() {
  constexpr std::size_t stepBytes = 256 << 10;
  for (std::size_t taken = 0; taken < turnBytes;) {
    const std::size_t before = in_.size();
    in_.resize(before + stepBytes);
    const ssize_t got = ::recv(fd_, in_.data() + before, stepBytes, MSG_DONTWAIT);
    in_.resize(before + (got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == ENOTCONN)) return true;
    if (got <= 0) return false;
    taken += static_cast<std::size_t>(got);
    if (static_cast<std::size_t>(got) < stepBytes) return true;
  }
  return true;
}

}  // namespace svc
