// Batches: allocated from a pool, counted down by their slices, and waited for without spinning.
#include "batch.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>

#include <ctime>

namespace svc {

namespace {
long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation | FUTEX_PRIVATE_FLAG, value, timeout, nullptr, 0);
}
}  // namespace

bool Batch::wait(uint64_t deadlineNs) {
  if (tasksLeft.load(std::memory_order_acquire) == 0) return true;
  waiters.fetch_add(1, std::memory_order_seq_cst);
  while (true) {
    uint32_t left = tasksLeft.load(std::memory_order_seq_cst);
    uint64_t now = nowNs();
    if (left == 0 || now >= deadlineNs) {
      waiters.fetch_sub(1, std::memory_order_relaxed);
      return left == 0;
    }
    timespec timeout{time_t((deadlineNs - now) / 1'000'000'000), long((deadlineNs - now) % 1'000'000'000)};
    futex(tasksLeft, FUTEX_WAIT, left, &timeout);
  }
}

std::string Batch::firstError() {
  std::lock_guard lock(mutex);
  for (auto& task : tasks)
    if (task.state.load(std::memory_order_acquire) == FAILED) return task.error;
  return {};
}

TransferStatusEnum Batch::stateOf(const Task& task) const {
  TransferStatusEnum state = task.state.load(std::memory_order_acquire);
  // Another thread has counted the task down and will set its state within a few instructions.
  while (state == WAITING && tasksOpen.load(std::memory_order_acquire) == 0) {
    sched_yield();
    state = task.state.load(std::memory_order_acquire);
  }
  return state;
}

void finishSlice(Task& task, uint64_t bytes, const std::string* error) {
  Batch& batch = *task.batch;
  if (error != nullptr) {
    std::lock_guard lock(batch.mutex);
    if (!task.broken.exchange(true)) task.error = *error;
  } else {
    task.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  if (task.slicesLeft.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (task.source != nullptr) task.source->unpin();
  // The counters come first, so that a caller who sees the task's end also finds it in the batch's totals.
  const bool failed = task.broken.load(std::memory_order_acquire);
  if (failed) batch.failedTasks.fetch_add(1, std::memory_order_relaxed);
  else batch.completedBytes.fetch_add(task.length, std::memory_order_relaxed);
  batch.tasksOpen.fetch_sub(1, std::memory_order_acq_rel);
  task.state.store(failed ? FAILED : COMPLETED, std::memory_order_release);
  // The thread that brings the count to zero runs the callbacks before it: after the store the batch may be freed.
  uint32_t left = batch.tasksLeft.load(std::memory_order_acquire);
  std::function<void(Batch&)> after;
  while (true) {
    if (left == 1) {
      if (batch.whenDone) std::exchange(batch.whenDone, nullptr)(batch);
      if (batch.afterDone) after = std::exchange(batch.afterDone, nullptr);
    }
    if (batch.tasksLeft.compare_exchange_strong(left, left - 1, std::memory_order_seq_cst)) break;
  }
  if (left != 1) return;
  if (batch.waiters.load(std::memory_order_seq_cst) != 0) futex(batch.tasksLeft, FUTEX_WAKE, 1 << 30, nullptr);
  if (after) after(batch);
}

BatchID BatchTable::allocate(size_t size) {
  if (size == 0 || size > MAX_BATCH_SIZE) {
    setLastError("a batch of " + std::to_string(size) + " requests: expected 1 to " + std::to_string(MAX_BATCH_SIZE));
    return INVALID_BATCH_ID;
  }
  std::lock_guard lock(mutex_);
  uint32_t index;
  if (!spare_.empty()) {
    index = spare_.back();
    spare_.pop_back();
  } else if (pool_.size() < MAX_BATCHES) {
    index = uint32_t(pool_.size());
    pool_.emplace_back();
  } else {
    setLastError(std::to_string(MAX_BATCHES) + " batches are allocated; free some first");
    return INVALID_BATCH_ID;
  }
  Batch& batch = pool_[index];
  batch.inUse = true;
  // The generation is 1 to 2^31 - 1, so that no handle is 0 or INVALID_BATCH_ID.
  batch.generation = (batch.generation + 1) & 0x7fffffff;
  if (batch.generation == 0) batch.generation = 1;
  batch.capacity = size;
  return uint64_t(batch.generation) << 32 | index;
}

Batch* BatchTable::find(BatchID id) {
  std::lock_guard lock(mutex_);
  uint32_t index = uint32_t(id);
  if (index >= pool_.size()) return nullptr;
  Batch& batch = pool_[index];
  return batch.inUse && batch.generation == id >> 32 ? &batch : nullptr;
}

Status BatchTable::free(BatchID id) {
  Batch* batch = find(id);
  if (batch == nullptr) return {1, "batch " + hexAddress(id) + " is not allocated, or was freed before"};
  if (uint32_t left = batch->tasksOpen.load(std::memory_order_acquire); left != 0)
    return {4, "batch " + hexAddress(id) + " has " + std::to_string(left) + " requests in flight; wait for them first"};
  // All tasks have ended, but the thread that ended the last one has a few instructions left.
  batch->wait(~0ull);
  {
    // The thread that finished the last task may still hold this mutex.
    std::lock_guard finished(batch->mutex);
    batch->tasks.clear();
    batch->failedTasks = 0;
    batch->completedBytes = 0;
    batch->whenDone = nullptr;
    batch->afterDone = nullptr;
  }
  std::lock_guard lock(mutex_);
  if (!batch->inUse || batch->generation != id >> 32) return {1, "batch " + hexAddress(id) + " was freed by another thread"};
  batch->inUse = false;
  spare_.push_back(uint32_t(id));
  return Status::OK();
}

bool BatchTable::allIdle() {
  std::lock_guard lock(mutex_);
  for (auto& batch : pool_)
    if (batch.tasksLeft.load(std::memory_order_acquire) != 0) return false;
  return true;
}

}  // namespace svc
