// Other engines on this host: their memory is mapped, or copied by the kernel between the processes.
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
  /** Returns null with `why` if the record is of another host or pid namespace, or its process is gone or not accessible. */
  static std::shared_ptr<HostPeer> open(const HostIdentity& who, bool allowProcessVm, std::string& why);
  ~HostPeer();

  bool processVm() const { return processVm_; }
  const std::string& processVmRefusal() const { return processVmRefusal_; }
  /** Returns whether the process lives and is still the one of the record; checked at most once a millisecond. */
  bool alive();
  /** Maps the buffer and returns its address; null with `why`. The mapping lives as long as the peer object. */
  char* map(const PublishedBuffer& buffer, std::string& why);
  /** Returns false with `why` if the buffer is no longer registered, or the process ended before the last byte arrived. */
  bool copyMapped(const Slice& slice, std::string& why);
  /** All slices have one direction. Returns how many were copied, and `why` the next one was not. */
  size_t copyByKernel(std::span<const Slice> slices, std::string& why);

 private:
  HostPeer() = default;
  /** Returns null if the buffer is no longer registered, or if the page has no free hold. */
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
