// A bounded spin before a thread sleeps, because waking an idle core takes longer than many an answer.
#pragma once
#include <sched.h>

#include <algorithm>

#include "base.h"

namespace svc {

/** Belongs to one thread, or to a connection that one thread uses. Fruitless spins make it spin less often, down to one wait in 64. */
class Spin {
 public:
  explicit Spin(uint64_t boundNs) : boundNs_(boundNs) {}

  /** Calls `arrived` repeatedly until it returns true or the limit passes; returns whether it did. */
  template <typename Arrived>
  bool until(Arrived&& arrived) {
    if (boundNs_ == 0) return false;
    if (skip_ > 0) {
      skip_--;
      return false;
    }
    const uint64_t end = nowNs() + boundNs_;
    do {
      if (arrived()) {
        misses_ = 0;
        return true;
      }
      // The answering thread may need this core.
      sched_yield();
    } while (nowNs() < end);
    misses_ = std::min(misses_ + 1, MAX_MISSES);
    skip_ = (1u << misses_) - 1;
    return false;
  }

 private:
  static constexpr uint32_t MAX_MISSES = 6;
  uint64_t boundNs_;
  uint32_t skip_ = 0, misses_ = 0;
};

}  // namespace svc
