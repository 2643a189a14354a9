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
};

/** One copy of a peer under way, written down before it looks at the generation: whose it is and which slot's. 0 while free. */
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

/** The word that a copy of this process writes down. */
uint64_t holdWord(uint64_t pid, uint64_t startTime, uint64_t slot);
/** Frees the holds of processes that have ended, whose copies ended with them. */
void freeDeadHolds(ControlLayout& page);

/** The owner's side. */
class ControlPage {
 public:
  ControlPage();
  ~ControlPage();
  bool ready() const { return page_ != nullptr; }
  /** A slot, or the closed one it has, and its generation; false when all slots are taken: such a buffer is reached over the network alone. */
  bool take(int& slot, uint64_t& generation);
  /** From here on no copy begins; safe to call again. */
  void close(int slot);
  /** Takes the closed slot back once no copy is under way; false, with `who` it waits for, when one still was at the deadline. */
  bool giveBack(int slot, uint64_t deadlineNs, std::string& who);
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
