// Batches and their tasks. Handles contain generations, and the counters cost the same for one request as for ten thousand.
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

/** One request; several of its slices may be in flight. */
struct Task {
  Batch* batch = nullptr;
  Buffer* source = nullptr;  // pinned until the last slice has ended
  uint64_t length = 0;
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint32_t> slicesLeft{0};
  std::atomic<bool> broken{false};
  std::atomic<TransferStatusEnum> state{WAITING};
  std::string error;  // written once, under the batch's mutex
};

/** A batch in the pool, whose memory lives as long as the engine, so that a late wake-up never touches freed memory. */
class Batch {
 public:
  std::mutex mutex;
  std::deque<Task> tasks;
  size_t capacity = 0;
  uint32_t generation = 0;
  bool inUse = false;
  /** The count that callers see; it is decremented before a task's end becomes visible. */
  std::atomic<uint32_t> tasksOpen{0};
  /** Decremented last: once it is 0, no thread touches the tasks any more. */
  std::atomic<uint32_t> tasksLeft{0};
  std::atomic<uint32_t> failedTasks{0};
  std::atomic<uint64_t> completedBytes{0};
  /** Runs once when tasksLeft falls to 0, before that is visible. */
  std::function<void(Batch&)> whenDone;
  /** For batches without a caller: runs once after tasksLeft is 0, and may free the batch. */
  std::function<void(Batch&)> afterDone;
  std::atomic<uint32_t> waiters{0};

  /** Waits until no task is in flight; returns false after the deadline. */
  bool wait(uint64_t deadlineNs);
  /** The reason why the first failed task failed. */
  std::string firstError();
  /** The task's state, consistent with that of the batch. */
  TransferStatusEnum stateOf(const Task& task) const;
};

/** Ends one slice of a task. A null `error` means that its bytes have arrived. */
void finishSlice(Task& task, uint64_t bytes, const std::string* error);

class BatchTable {
 public:
  static constexpr size_t MAX_BATCHES = 1 << 16;
  static constexpr size_t MAX_BATCH_SIZE = 1 << 22;

  BatchID allocate(size_t size);
  /** Returns null for a handle that was never allocated or has been freed. */
  Batch* find(BatchID id);
  Status free(BatchID id);
  /** Waits briefly for every batch to end; used when the engine stops. */
  bool allIdle();

 private:
  std::mutex mutex_;
  std::deque<Batch> pool_;
  std::vector<uint32_t> spare_;
};

}  // namespace svc
