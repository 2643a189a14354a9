// One socket, one request at a time. The caller polls for a while before it sleeps, since a wake-up costs more than most answers.
#include "client/caller.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <stdexcept>

#include "rpc/wire.h"

namespace svc {

namespace {
constexpr u64 nsPerMs = 1'000'000, lookNs = 50'000;
constexpr std::size_t mostAnswerBytes = std::size_t{1} << 30;

u64 nowNs() { return static_cast<u64>(std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count()); }
[[noreturn]] void fail(const std::string& why) { throw std::runtime_error(why); }
}  // namespace

Caller::Caller(const std::string& host, u16 port, u64 timeoutMs) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int wrong = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); wrong != 0) fail(gai_strerror(wrong));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  fd_ = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0) fail(std::strerror(errno));
  const int yes = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  try {
    if (connect(fd_, found->ai_addr, found->ai_addrlen) != 0) {
      if (errno != EINPROGRESS) fail(std::strerror(errno));
      waitFor(POLLOUT, nowNs() + timeoutMs * nsPerMs);
      int error = 0;
      socklen_t size = sizeof error;
      getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) fail(std::strerror(error));
    }
  } catch (...) {
    close(fd_);
    throw;
  }
}

Caller::~Caller() { close(fd_); }

void Caller::waitFor(short events, u64 untilNs) {
  while (true) {
    const u64 now = nowNs();
    if (now >= untilNs) fail("no answer in time");
    pollfd entry{fd_, events, 0};
    const int ready = poll(&entry, 1, static_cast<int>((untilNs - now) / nsPerMs) + 1);
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) fail(std::strerror(errno));
  }
}

std::string_view Caller::call(u32 function, std::string_view body, u64 timeoutMs, u8& error) {
  const u64 begun = nowNs(), until = begun + timeoutMs * nsPerMs;
  char head[requestBytes] = {static_cast<char>(wireMagic)};
  const u32 numbers[4] = {++seq_, function, static_cast<u32>(body.size()), 0};
  std::memcpy(head + 4, numbers, sizeof numbers);
  for (std::size_t sent = 0; sent < sizeof head + body.size();) {
    const std::size_t headLeft = sent < sizeof head ? sizeof head - sent : 0, bodyFrom = headLeft > 0 ? 0 : sent - sizeof head;
    iovec parts[2] = {{head + sizeof head - headLeft, headLeft}, {const_cast<char*>(body.data()) + bodyFrom, body.size() - bodyFrom}};
    msghdr message{};
    message.msg_iov = headLeft > 0 ? parts : parts + 1;
    message.msg_iovlen = headLeft > 0 ? 2 : 1;
    const ssize_t wrote = sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (wrote > 0) sent += static_cast<std::size_t>(wrote);
    else if (errno == EAGAIN) waitFor(POLLOUT, until);
    else if (errno != EINTR) fail(std::strerror(errno));
  }
  in_.clear();
  std::size_t whole = responseBytes;
  while (in_.size() < whole) {
    const ssize_t got = recv(fd_, part_.get(), readBytes, 0);
    const int wrong = errno;
    if (got > 0) in_.append(part_.get(), static_cast<std::size_t>(got));
    if (got == 0) fail("the connection was closed");
    if (got < 0) {
      if (wrong != EAGAIN && wrong != EINTR) fail(std::strerror(wrong));
      if (nowNs() - begun < lookNs) sched_yield();
      else waitFor(POLLIN, until);
      continue;
    }
    if (in_.size() < responseBytes) continue;
    u32 sizes[3];
    std::memcpy(sizes, in_.data() + 4, sizeof sizes);
    whole = responseBytes + std::size_t{sizes[1]} + sizes[2];
    if (static_cast<u8>(in_[0]) != wireMagic || sizes[0] != seq_ || whole > mostAnswerBytes) fail("the answer is not one to this request");
  }
  error = static_cast<u8>(in_[2]);
  u32 bodyBytes = 0;
  std::memcpy(&bodyBytes, in_.data() + 8, sizeof bodyBytes);
  return std::string_view(in_).substr(responseBytes, bodyBytes);
}

}  // namespace svc
