// What changed in the memory of one client, for that client: it keeps a copy, and tells a master that lost everything.
#pragma once
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "base.h"

namespace svc {

//  a subscriber asks from the start ──> the whole table, in slices ──> changes as they come; too many of them: from the start again
class Holdings {
 public:
  static constexpr std::size_t most = 65'536;

  void start() {
    changes_.clear();
    cursor = 1;
    begins = true;
  }
  // An object of the table that has come, or changed.
  void came(u32 index) { add(index); }
  void went(u64 address) { add(address | isGone); }
  bool empty() const { return changes_.empty(); }
  // The next change: whether an address is free now, else the index of an object.
  bool next(u64& value) {
    value = changes_.front() & ~isGone;
    const bool gone = (changes_.front() & isGone) != 0;
    changes_.pop_front();
    return gone;
  }

  u32 cursor = 0;  // where the look at the whole table goes on; 0: it was finished
  bool begins = false;

 private:
  static constexpr u64 isGone = u64{1} << 63;
  void add(u64 change) {
    if (changes_.size() >= most) start();
    else changes_.push_back(change);
  }
  std::deque<u64> changes_;
};

// What a subscriber gets: first addresses whose bytes are no object's any more, then objects and their addresses.
struct Changes {
  bool begins = false, isWhole = false, more = false;
  std::vector<u64> gone;
  std::vector<std::pair<u32, u64>> held;
};

// An object as a holder says it, from before a loss of everything here.
struct Restored {
  u64 address = 0, size = 0, asOf = 0, checksum = 0, softPinUntilMs = 0;
  std::string_view tenant, key, fingerprint, group;
  u8 dataType = 0;
  bool hardPin = false;
};

}  // namespace svc
