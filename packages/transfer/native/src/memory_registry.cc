// The registered buffers of one engine, ordered by address.
#include "memory_registry.h"

#include <sched.h>

#include <mutex>

#include "svc/transfer_engine.h"

namespace svc {

void Buffer::drain() {
  // Each user is one copy or one system call that does not block.
  while (users_.load(std::memory_order_seq_cst) != 0) sched_yield();
}

int MemoryRegistry::add(const BufferRef& buffer) {
  if (buffer->length == 0) return failWith(ERR_INVALID_ARGUMENT, "registering " + hexAddress(buffer->address) + ": the length is 0");
  if (buffer->address == 0 || buffer->address + buffer->length < buffer->address)
    return failWith(ERR_INVALID_ARGUMENT, "registering " + rangeText(buffer->address, buffer->length) + ": the range is null or passes the end of memory");
  std::unique_lock lock(mutex_);
  auto next = buffers_.lower_bound(buffer->address);
  const BufferRef* other = nullptr;
  if (next != buffers_.end() && next->first < buffer->address + buffer->length) other = &next->second;
  if (next != buffers_.begin() && std::prev(next)->first + std::prev(next)->second->length > buffer->address) other = &std::prev(next)->second;
  if (other != nullptr)
    return failWith(ERR_ADDRESS_OVERLAPPED, "registering " + rangeText(buffer->address, buffer->length) + ": it overlaps the registered " +
                                                rangeText((*other)->address, (*other)->length) + "; unregister that first");
  buffers_.emplace(buffer->address, buffer);
  return 0;
}

const BufferRef* MemoryRegistry::holding(uint64_t address, uint64_t length) const {
  auto after = buffers_.upper_bound(address);
  if (after == buffers_.begin()) return nullptr;
  const BufferRef& candidate = std::prev(after)->second;
  return !candidate->revoked() && inside(candidate->address, candidate->length, address, length) ? &candidate : nullptr;
}

BufferRef MemoryRegistry::find(uint64_t address) const {
  std::shared_lock lock(mutex_);
  auto found = buffers_.find(address);
  return found == buffers_.end() ? nullptr : found->second;
}

BufferRef MemoryRegistry::forPeer(uint64_t address, uint64_t length) const {
  std::shared_lock lock(mutex_);
  const BufferRef* found = holding(address, length);
  return found != nullptr && (*found)->remoteAccessible ? *found : nullptr;
}

Buffer* MemoryRegistry::forSourceLocked(uint64_t address, uint64_t length) const {
  const BufferRef* found = holding(address, length);
  return found == nullptr ? nullptr : found->get();
}

bool MemoryRegistry::overlaps(uint64_t address, uint64_t length) const {
  if (length == 0) return false;
  uint64_t last = address + (length - 1) < address ? ~0ull : address + (length - 1);
  std::shared_lock lock(mutex_);
  auto after = buffers_.upper_bound(last);
  return after != buffers_.begin() && std::prev(after)->first + (std::prev(after)->second->length - 1) >= address;
}

Buffer* MemoryRegistry::pinTarget(uint64_t address, uint64_t length) const {
  std::shared_lock lock(mutex_);
  Buffer* found = forSourceLocked(address, length);
  if (found != nullptr) found->pin();
  return found;
}

bool MemoryRegistry::close(const BufferRef& buffer) {
  {
    std::unique_lock lock(mutex_);
    // Requests pin while they hold this lock shared, so none can start now.
    if (buffer->pins() != 0) return false;
    buffer->shut();
  }
  buffer->drain();
  return true;
}

void MemoryRegistry::remove(const BufferRef& buffer) {
  std::unique_lock lock(mutex_);
  buffers_.erase(buffer->address);
}

std::vector<BufferRef> MemoryRegistry::all() const {
  std::shared_lock lock(mutex_);
  std::vector<BufferRef> list;
  for (const auto& [address, buffer] : buffers_) list.push_back(buffer);
  return list;
}

}  // namespace svc
