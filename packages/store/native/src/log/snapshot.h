// Snapshots: the table is walked in slices while the log continues; with the log from its first LSN on, a snapshot is the whole state.
#pragma once
#include "log/log.h"

namespace svc {

class Snapshot {
 public:
  Snapshot(Log& log, Store& store) : log_(log), store_(store) {}
  ~Snapshot();

  bool running() const { return fd_ >= 0; }
  // Running, or being synced to disk.
  bool saving() const { return running() || finishing_.load(std::memory_order_acquire); }
  u64 taken() const { return taken_.load(std::memory_order_relaxed); }
  // Must be called between loop iterations, when every record is written.
  bool begin();
  // Writes one slice; true while there is more.
  bool some();
  // Damaged files, renamed once the next snapshot is complete.
  std::vector<std::string> damaged;

 private:
  bool frame();
  void giveUp();

  Log& log_;
  Store& store_;
  Journal journal_;
  int fd_ = -1;
  u64 lsn_ = 0, objects_ = 0;
  u32 cursor_ = 1;
  std::atomic<u64> taken_{0};
  std::atomic<bool> finishing_{false};
  Worker worker_;
};

}  // namespace svc
