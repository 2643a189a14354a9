// Batches and their tasks: handles that carry generations, counters that cost the same for one request as for ten thousand.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base.h"
#include "memory_registry.h"
#include "svc/transfer_engine.h"

namespace svc {

class Batch;

/** One request; several slices of it may be in flight. */
struct Task {
  Batch* batch = nullptr;
  Buffer* source = nullptr;  // pinned until the last slice is through
  uint64_t length = 0;
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint32_t> slicesLeft{0};
  std::atomic<bool> broken{false};
  std::atomic<TransferStatusEnum> state{WAITING};
  std::string error;  // written once, under the batch's mutex
};

/** Lives in a pool: its memory stays while the engine does, so a late wake-up touches nothing freed. */
class Batch {
 public:
  std::mutex mutex;
  std::deque<Task> tasks;
  size_t capacity = 0;
  uint32_t generation = 0;
  bool inUse = false;
  /** What callers are told: counted down before the end of a task can be seen. */
  std::atomic<uint32_t> tasksOpen{0};
  /** Counted down last: at 0 nobody touches the tasks any more. */
  std::atomic<uint32_t> tasksLeft{0};
  std::atomic<uint32_t> failedTasks{0};
  std::atomic<uint64_t> completedBytes{0};
  /** Run once when tasksLeft falls to 0, before that is visible. */
  std::function<void(Batch&)> whenDone;
  /** For batches that no caller holds: run once after tasksLeft is 0, and free to end the batch. */
  std::function<void(Batch&)> afterDone;
  std::atomic<uint32_t> waiters{0};

  /** Until no task is in flight; false when the deadline passed. */
  bool wait(uint64_t deadlineNs);
  /** Why the first task that failed did. */
  std::string firstError();
  /** The task's state, which the batch's own never contradicts. */
  TransferStatusEnum stateOf(const Task& task) const;
};

/** One slice of a task is through. `error` null: its bytes have arrived. */
void finishSlice(Task& task, uint64_t bytes, const std::string* error);

class BatchTable {
 public:
  static constexpr size_t MAX_BATCHES = 1 << 16;
  static constexpr size_t MAX_BATCH_SIZE = 1 << 22;

  BatchID allocate(size_t size);
  /** Null for a handle that was never given out or has been freed. */
  Batch* find(BatchID id);
  Status free(BatchID id);
  /** Waits a moment for every batch to end; used when the engine stops. */
  bool allIdle();

 private:
  std::mutex mutex_;
  std::deque<Batch> pool_;
  std::vector<uint32_t> spare_;
};

}  // namespace svc
