// The other engines of this host: their memory mapped, or copied by the kernel from process to process.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "control_page.h"
#include "descriptor.h"
#include "slice.h"

namespace svc {

class HostPeer {
 public:
  /** Null with `why` when the record is of another host or pid namespace, or its process is gone or may not be looked into. */
  static std::shared_ptr<HostPeer> open(const HostIdentity& who, bool allowProcessVm, std::string& why);
  ~HostPeer();

  bool processVm() const { return processVm_; }
  const std::string& processVmRefusal() const { return processVmRefusal_; }
  /** The process lives and is still the one of the record; looked up at most once a millisecond. */
  bool alive();
  /** Where the buffer is mapped here; null with `why`. Kept until the peer is let go. */
  char* map(const PublishedBuffer& buffer, std::string& why);
  /** False with `why` when the buffer is registered no more, or its process ended before the last byte was in it. */
  bool copyMapped(const Slice& slice, std::string& why);
  /** All slices have one direction. How many went through; `why` for the next one. */
  size_t copyByKernel(std::span<const Slice> slices, std::string& why);

 private:
  HostPeer() = default;
  /** Null when the buffer is registered no more, or when as many copies as the page can name are under way. */
  ControlHold* begin(const PublishedBuffer& buffer);
  static void end(ControlHold* hold) { hold->word.store(0, std::memory_order_release); }
  bool probe();

  struct Mapped {
    char* base = nullptr;
    size_t length = 0;
    uint64_t skip = 0;
  };
  HostIdentity who_;
  uint64_t ownPid_ = 0, ownStartTime_ = 0;
  Fd pidfd_;
  ControlLayout* page_ = nullptr;
  bool processVm_ = false;
  std::string processVmRefusal_;
  std::mutex mutex_;
  std::map<std::pair<uint64_t, uint64_t>, Mapped> mapped_;
  std::atomic<uint64_t> aliveUntilNs_{0};
};

}  // namespace svc
