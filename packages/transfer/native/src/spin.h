// A bounded spin before the thread sleeps: waking an idle core takes longer than many an answer does.
#pragma once
#include <sched.h>

#include <algorithm>

#include "base.h"

namespace svc {

/** Of one thread, or of one connection in the hands of one. Spins in vain make it spin less often, down to one wait in 64. */
class Spin {
 public:
  explicit Spin(uint64_t boundNs) : boundNs_(boundNs) {}

  /** Calls `arrived` again and again, for no longer than the bound; true as soon as it says so. */
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
      // Who is to answer may be waiting for this very core.
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
