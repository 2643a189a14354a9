// A client's blocking side of the RPC: one request goes out, and the calling thread waits for its answer.
#pragma once
#include <memory>
#include <string>

#include "base/base.h"

namespace svc {

class Caller {
 public:
  // Throws std::runtime_error if no connection is established within `timeoutMs`.
  Caller(const std::string& host, u16 port, u64 timeoutMs);
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // Returns the body of the answer, valid until the next call; `error` is that of its head. Throws on a broken connection or a timeout:
  // the request's outcome is unknown then, and the connection must not be used again.
  std::string_view call(u32 function, std::string_view body, u64 timeoutMs, u8& error);

 private:
  static constexpr std::size_t readBytes = 64 << 10;
  void waitFor(short events, u64 untilNs);
  // A raw array, since a string would zero its bytes before every read.
  std::unique_ptr<char[]> part_ = std::make_unique_for_overwrite<char[]>(readBytes);
  int fd_ = -1;
  u32 seq_ = 0;
  std::string in_;
};

}  // namespace svc
