// Changes in one client's memory, for that client: it keeps a copy, and reports it to a master that lost its state.
#pragma once
#include <deque>
#include <utility>
#include <vector>

#include "rpc/arguments.h"

namespace svc {

//  subscription ──> the whole table, in slices ──> changes as they occur ──too many pending──> the whole table again
class Holdings {
 public:
  static constexpr std::size_t most = 65'536;

  void start() {
    changes_.clear();
    cursor = 1;
    begins = true;
  }
  // Records an object of the table that was added or changed.
  void came(u32 index) { add(index); }
  void went(u64 address) { add(address | isGone); }
  bool empty() const { return changes_.empty(); }
  // Pops the next change: true and an address that is free now, or false and the index of an object.
  bool next(u64& value) {
    value = changes_.front() & ~isGone;
    const bool gone = (changes_.front() & isGone) != 0;
    changes_.pop_front();
    return gone;
  }

  u32 cursor = 0;  // where the scan of the whole table continues; 0: it has finished
  bool begins = false;

 private:
  static constexpr u64 isGone = u64{1} << 63;
  void add(u64 change) {
    if (changes_.size() >= most) start();
    else changes_.push_back(change);
  }
  std::deque<u64> changes_;
};

// The reply to a subscriber: first the addresses that no longer belong to an object, then objects and their addresses.
struct Changes {
  bool begins = false, isWhole = false, more = false;
  std::vector<u64> gone;
  std::vector<std::pair<u32, u64>> held;
};

// An object as its holder reports it to a master that lost its state.
using Restored = wire::Holding;

}  // namespace svc
