// A client's blocking side of the RPC: one request goes out, and the calling thread waits for its answer.
#pragma once
#include <memory>
#include <string>

#include "base.h"

namespace svc {

class Caller {
 public:
  // Throws std::runtime_error when nobody answers there within `timeoutMs`.
  Caller(const std::string& host, u16 port, u64 timeoutMs);
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // The body of the answer, valid until the next call; `error` is the one of its head. Throws when the connection breaks or the time is
  // over: what became of the request is not known then, and the connection is of no more use.
  std::string_view call(u32 function, std::string_view body, u64 timeoutMs, u8& error);

 private:
  static constexpr std::size_t readBytes = 64 << 10;
  void waitFor(short events, u64 untilNs);
  // Not cleared before each look for an answer, as a string's room would be.
  std::unique_ptr<char[]> part_ = std::make_unique_for_overwrite<char[]>(readBytes);
  int fd_ = -1;
  u32 seq_ = 0;
  std::string in_;
};

}  // namespace svc
