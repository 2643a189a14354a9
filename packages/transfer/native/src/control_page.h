// The page that peers on this host check before they touch a buffer, since no server stands between them and the memory.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base.h"
#include "descriptor.h"

namespace svc {

struct ControlSlot {
  /** Odd while the buffer is registered; changes with every registration and its end. */
  std::atomic<uint64_t> generation;
  /** Copies of peers under way. */
  std::atomic<uint32_t> users;
};

inline constexpr size_t CONTROL_SLOTS = 4096;
inline constexpr size_t NONCE_BYTES = 16;

struct ControlLayout {
  char nonce[NONCE_BYTES];
  ControlSlot slots[CONTROL_SLOTS];
};

/** The owner's side. */
class ControlPage {
 public:
  ControlPage();
  ~ControlPage();
  bool ready() const { return page_ != nullptr; }
  /** Slot and generation for a buffer; false when all slots are taken: such a buffer is reached over the network alone. */
  bool take(int& slot, uint64_t& generation);
  /** Ends the registration, then waits a bounded time for copies under way. */
  void giveBack(int slot);
  HostIdentity identity() const;

 private:
  Fd fd_;
  ControlLayout* page_ = nullptr;
  std::mutex mutex_;
  std::vector<int> spare_;
};

/** Of this process, for comparison with a peer's. */
std::string hostBootID();
uint64_t pidNamespace();
/** 0 when there is no such process. */
uint64_t processStartTime(uint64_t pid);

}  // namespace svc
