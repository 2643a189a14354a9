// The registered buffers of one engine: who may access which memory, and until when.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base.h"

namespace svc {

/**
 * One registration. A peer's bytes enter only between enter() and leave(), which unregister waits for. Our own requests pin the buffer
 * instead, as source or target, and unregister is refused while they are in flight.
 */
class Buffer {
 public:
  uint64_t address = 0;
  uint64_t length = 0;
  std::string location;
  bool remoteAccessible = true;
  /** True if the next published record names the buffer. */
  bool published = true;
  /** The slot and generation in the page that peers on this host check; -1 if it has no slot. */
  int slot = -1;
  uint64_t generation = 0;
  /** One entry per device of the rdma transport, in its order. */
  std::vector<uint64_t> remoteKeys;
  std::vector<void*> localDescriptors;

  bool enter() {
    users_.fetch_add(1, std::memory_order_seq_cst);
    if (!revoked_.load(std::memory_order_seq_cst)) return true;
    leave();
    return false;
  }
  void leave() { users_.fetch_sub(1, std::memory_order_release); }
  void pin() { pins_.fetch_add(1, std::memory_order_relaxed); }
  void unpin() { pins_.fetch_sub(1, std::memory_order_release); }
  uint32_t pins() const { return pins_.load(std::memory_order_acquire); }
  bool revoked() const { return revoked_.load(std::memory_order_acquire); }
  /** Refuses all later access, by peers and by our own requests. */
  void shut() { revoked_.store(true, std::memory_order_seq_cst); }
  /** Returns when all accesses that began before have ended. */
  void drain();

 private:
  std::atomic<uint32_t> users_{0}, pins_{0};
  std::atomic<bool> revoked_{false};
};

using BufferRef = std::shared_ptr<Buffer>;

class MemoryRegistry {
 public:
  /** Returns 0, or the error code with lastError(): zero length, wrap-around, overlap. */
  int add(const BufferRef& buffer);
  BufferRef find(uint64_t address) const;
  /** Returns the buffer that contains the whole range, for a peer; null if there is none or the peer may not access it. */
  BufferRef forPeer(uint64_t address, uint64_t length) const;
  bool overlaps(uint64_t address, uint64_t length) const;
  /** Returns the buffer that contains the whole range, pinned until unpin(), for copies within this process. */
  Buffer* pinTarget(uint64_t address, uint64_t length) const;
  /** Prevents all new access and ends access over the network. Returns false while our own requests use the buffer. */
  bool close(const BufferRef& buffer);
  /** Removes a closed buffer, so that its range may be registered again. */
  void remove(const BufferRef& buffer);
  std::vector<BufferRef> all() const;
  /** Locks the table for a series of lookups. */
  std::shared_lock<std::shared_mutex> lockShared() const { return std::shared_lock(mutex_); }
  Buffer* forSourceLocked(uint64_t address, uint64_t length) const;

 private:
  const BufferRef* holding(uint64_t address, uint64_t length) const;
  mutable std::shared_mutex mutex_;
  std::map<uint64_t, BufferRef> buffers_;
};

}  // namespace svc
