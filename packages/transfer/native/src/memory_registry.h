// The registered buffers of one engine: who may read and write what, and until when.
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
 * One registration. A peer's bytes enter only between enter() and leave(), which unregister waits for;
 * requests of our own pin it instead, at either end, and unregister is refused while they are in flight.
 */
class Buffer {
 public:
  uint64_t address = 0;
  uint64_t length = 0;
  std::string location;
  bool remoteAccessible = true;
  /** Named in the record when it is published next. */
  bool published = true;
  /** Slot and generation in the page that peers on this host check; -1 when it has none. */
  int slot = -1;
  uint64_t generation = 0;
  /** Per device of the rdma transport, in its order. */
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
  /** From here on neither peers nor requests of our own get in. */
  void shut() { revoked_.store(true, std::memory_order_seq_cst); }
  /** Returns when what had entered before is through. */
  void drain();

 private:
  std::atomic<uint32_t> users_{0}, pins_{0};
  std::atomic<bool> revoked_{false};
};

using BufferRef = std::shared_ptr<Buffer>;

class MemoryRegistry {
 public:
  /** 0, or the error code with lastError(): zero length, wrap-around, overlap. */
  int add(const BufferRef& buffer);
  BufferRef find(uint64_t address) const;
  /** The buffer that holds the whole range, for a peer; null when there is none or it may not. */
  BufferRef forPeer(uint64_t address, uint64_t length) const;
  bool overlaps(uint64_t address, uint64_t length) const;
  /** The buffer that holds the whole range, pinned until unpin(): for copies within this process. */
  Buffer* pinTarget(uint64_t address, uint64_t length) const;
  /** After this no request begins with the buffer, by whomever, and none over the network goes on; false while requests of our own use it. */
  bool close(const BufferRef& buffer);
  /** Takes a closed buffer out: its range may be registered again. */
  void remove(const BufferRef& buffer);
  std::vector<BufferRef> all() const;
  /** To look up many sources under one lock. */
  std::shared_lock<std::shared_mutex> lockShared() const { return std::shared_lock(mutex_); }
  Buffer* forSourceLocked(uint64_t address, uint64_t length) const;

 private:
  const BufferRef* holding(uint64_t address, uint64_t length) const;
  mutable std::shared_mutex mutex_;
  std::map<uint64_t, BufferRef> buffers_;
};

}  // namespace svc
