// Basics for the whole core: owned descriptors, clocks, the error message, log lines.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace svc {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { reset(); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

inline uint64_t nowNs() { return uint64_t(std::chrono::steady_clock::now().time_since_epoch().count()); }
inline uint64_t nowMs() { return nowNs() / 1'000'000; }
inline constexpr uint64_t NS_PER_MS = 1'000'000;

inline std::string errnoText(int error = errno) { return strerror(error); }

/** Stores the message for lastError() and returns the code, so that failing is one expression. */
int failWith(int code, std::string message);
void setLastError(std::string message);

enum class LogLevel { Error = 0, Warning = 1, Info = 2, Silent = -1 };
void setLogLevel(LogLevel level);
/** Writes one JSON line to stderr. */
void logLine(LogLevel level, const std::string& message);

std::string randomHex(size_t bytes);
std::string toHex(const void* data, size_t size);
/** Returns an empty text if the input is not hex. */
std::string fromHex(const std::string& text);
std::string hexAddress(uint64_t address);
/** Formats a range as `[0x…, +length)`, as all messages do. */
std::string rangeText(uint64_t address, uint64_t length);
/** Returns false if offset + length exceeds the end or overflows. */
inline bool inside(uint64_t start, uint64_t size, uint64_t offset, uint64_t length) {
  return offset >= start && length <= size && offset - start <= size - length;
}

}  // namespace svc
