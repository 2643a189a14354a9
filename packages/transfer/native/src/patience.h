// A bounded look for what is due before the thread sleeps: waking an idle core takes longer than many an answer does.
#pragma once
#include <sched.h>

#include <algorithm>

#include "base.h"

namespace svc {

/** Of one thread, or of one connection in the hands of one. Waits that were in vain make it look less often, down to one in 64. */
class Patience {
 public:
  explicit Patience(uint64_t boundNs) : boundNs_(boundNs) {}

  /** Calls `arrived` again and again, for no longer than the bound; true as soon as it says so. */
  template <typename Arrived>
  bool look(Arrived&& arrived) {
    if (boundNs_ == 0) return false;
    if (skip_ > 0) {
      skip_--;
      return false;
    }
    const uint64_t until = nowNs() + boundNs_;
    do {
      if (arrived()) {
        inVain_ = 0;
        return true;
      }
      // Who is to answer may be waiting for this very core.
      sched_yield();
    } while (nowNs() < until);
    inVain_ = std::min(inVain_ + 1, MOST_IN_VAIN);
    skip_ = (1u << inVain_) - 1;
    return false;
  }

 private:
  static constexpr uint32_t MOST_IN_VAIN = 6;
  uint64_t boundNs_;
  uint32_t skip_ = 0, inVain_ = 0;
};

}  // namespace svc
