// Which threads of ours go first where there are fewer processors than work.
#pragma once
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base.h"

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

// For a thread that answers and then waits: it takes over soon from one that computes, without a greater share. Linux 6.12 and later; elsewhere
// nothing changes.
inline void runSoon() {
  constexpr u64 sliceNs = 100'000;
  ThreadAttributes own;
  if (syscall(SYS_sched_getattr, 0, &own, sizeof own, 0) != 0 || own.policy != 0) return;
  own.runtimeNs = sliceNs;
  syscall(SYS_sched_setattr, 0, &own, 0);
}

// For a thread whose work may take longer while others of this machine are busy. Waking up, it takes no processor from one that runs.
inline void runBehindOthers() {
  constexpr int nice = 10;
  const auto self = static_cast<id_t>(syscall(SYS_gettid));
  if (getpriority(PRIO_PROCESS, self) < nice) setpriority(PRIO_PROCESS, self, nice);
  constexpr sched_param none{};
  if (sched_getscheduler(0) == SCHED_OTHER) sched_setscheduler(0, SCHED_BATCH, &none);
}

}  // namespace svc
