// A mutex that is granted in the order of requests, so that a thread that relocks it at once cannot starve the others.
#pragma once
#include <atomic>

#include "base/base.h"

namespace svc {

class FairMutex {
 public:
  void lock() {
    const u32 ticket = next_.fetch_add(1, std::memory_order_relaxed);
    for (u32 now = serving_.load(std::memory_order_acquire); now != ticket; now = serving_.load(std::memory_order_acquire)) serving_.wait(now);
  }
  void unlock() {
    serving_.fetch_add(1, std::memory_order_release);
    serving_.notify_all();
  }

 private:
  std::atomic<u32> next_{0}, serving_{0};
};

}  // namespace svc
