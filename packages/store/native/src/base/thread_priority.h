// Scheduling of our threads on a machine that has fewer processors than work.
#pragma once
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

namespace svc {

// The kernel's own layout of `struct sched_attr`, which not every C library declares.
struct ThreadAttributes {
  u32 size = sizeof(ThreadAttributes), policy = 0;
  u64 flags = 0;
  i32 nice = 0;
  u32 priority = 0;
  u64 runtimeNs = 0, deadlineNs = 0, periodNs = 0;
};
static_assert(sizeof(ThreadAttributes) == 48);

// For a thread that answers and then waits: a short slice lets it preempt a computing thread soon, without a greater share. It needs
// Linux 6.12 or later; elsewhere nothing changes.
inline void runSoon() {
  constexpr u64 sliceNs = 100'000;
  ThreadAttributes own;
  if (syscall(SYS_sched_getattr, 0, &own, sizeof own, 0) != 0 || own.policy != 0) return;
  own.runtimeNs = sliceNs;
  syscall(SYS_sched_setattr, 0, &own, 0);
}

// For a thread whose work may wait while others are busy. SCHED_BATCH keeps it from preempting a running thread when it wakes up.
inline void runBehindOthers() {
  constexpr int nice = 10;
  const auto self = static_cast<id_t>(syscall(SYS_gettid));
  if (getpriority(PRIO_PROCESS, self) < nice) setpriority(PRIO_PROCESS, self, nice);
  constexpr sched_param none{};
  if (sched_getscheduler(0) == SCHED_OTHER) sched_setscheduler(0, SCHED_BATCH, &none);
}

}  // namespace svc
