// A page that peers on this host check before they access a buffer, since no server stands between them and the memory.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base.h"
#include "descriptor.h"

namespace svc {

struct ControlSlot {
  /** Odd while the buffer is registered; each registration and unregistration increments it. */
  std::atomic<uint64_t> generation;
};

/** Announces a peer's copy before the peer reads the generation: it names the process and the slot. 0 means free. */
struct alignas(64) ControlHold {
  //   63      42 41              13 12       0
  //  |   pid    | start of process |  slot + 1 |
  std::atomic<uint64_t> word;
};

inline constexpr size_t CONTROL_SLOTS = 4096, CONTROL_HOLDS = 512;
inline constexpr size_t NONCE_BYTES = 16;

struct ControlLayout {
  char nonce[NONCE_BYTES];
  ControlSlot slots[CONTROL_SLOTS];
  ControlHold holds[CONTROL_HOLDS];
};

/** The word that announces a copy of this process. */
uint64_t holdWord(uint64_t pid, uint64_t startTime, uint64_t slot);
/** Frees the holds of processes that have ended, since their copies ended with them. */
void freeDeadHolds(ControlLayout& page);

/** The owner's side of the page. */
class ControlPage {
 public:
  ControlPage();
  ~ControlPage();
  bool ready() const { return page_ != nullptr; }
  /**
   * Allocates a slot, or reopens the closed one it has, and returns its generation. Returns false if all slots are taken: such a buffer is
   * reachable only over the network.
   */
  bool take(int& slot, uint64_t& generation);
  /** Prevents new copies; it may be called repeatedly. */
  void close(int slot);
  /** Releases the closed slot once no copy is running. Returns false at the deadline, with `who` naming the process of a running copy. */
  bool giveBack(int slot, uint64_t deadlineNs, std::string& who);
  HostIdentity identity() const;

 private:
  Fd fd_;
  ControlLayout* page_ = nullptr;
  std::mutex mutex_;
  std::vector<int> spare_;
};

/** The boot id of this host, for comparison with a peer's. */
std::string hostBootID();
uint64_t pidNamespace();
/** Returns 0 if there is no such process. */
uint64_t processStartTime(uint64_t pid);

}  // namespace svc
