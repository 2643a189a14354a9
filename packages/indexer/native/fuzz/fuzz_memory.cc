// Tests the index while the n-th allocation, or all from there on, fail: every block in it can be found and removed, and it accepts
// everything once there is memory.
#include <cstdio>
#include <new>
#include <vector>

#include "fuzz_table.h"
#include "index.h"

namespace svc {
namespace {

constexpr u32 chains = 200, depth = 32, blocks = chains * depth;

class Bed {
 public:
  explicit Bed(std::mt19937_64& source) : index_(64 << 20, 1337), hashes_(blocks), names_{std::vector<u64>(blocks), std::vector<u64>(blocks)} {
    Namespace space;
    space.tenant = "default";
    space.model = "m";
    space.blockSize = 16;
    space_ = index_.internSpace(space);
    for (u64& hash : hashes_) hash = source() | 1;
    for (u64& name : names_[0]) name = source() | 1;
    names_[1] = names_[0];
    // The publishers disagree on some names, so that one of them gets a map of its own.
    for (u32 i = blocks / 2; i < blocks; i += 7) names_[1][i] = source() | 1;
    for (const char* instance : {"one", "other"}) {
      Subscription sub;
      sub.instance = instance;
      sub.tenant = space.tenant;
      sub.model = space.model;
      sub.blockSize = space.blockSize;
      subs_.push_back(index_.subscribe(std::move(sub)));
      streams_.push_back(static_cast<u32>(index_.internStream(subs_.back(), {"", "GPU"})));
    }
  }
  void store() {
    each([&](u32 who, u32 at) { index_.store(subs_[who], streams_[who], space_, &hashes_[at], depth, &names_[who][at], 0, outcomes_); });
  }
  void remove() {
    each([&](u32 who, u32 at) { index_.remove(subs_[who], streams_[who], space_, &names_[who][at], depth, outcomes_); });
  }
  u32 held() const {
    u32 count = 0;
    for (const u64 hash : hashes_) {
      const u32 block = index_.find(space_, hash);
      if (block == 0) continue;
      for (const u32 stream : streams_) count += index_.sets()[index_.arena().holders[block]].has(stream);
    }
    return count;
  }
  bool isWhole() const {
    u32 live = 0;
    for (const u64 hash : hashes_) {
      const u32 block = index_.find(space_, hash);
      if (block != 0 && index_.arena().sequence[block] != hash) return false;
      live += block != 0;
    }
    return live == index_.arena().live();
  }

 private:
  // Applies one event after the other; an event that runs out of memory is lost.
  template <typename Do>
  void each(Do apply) {
    index_.ensureCapacity(blocks);
    for (u32 who = 0; who < subs_.size(); ++who)
      for (u32 at = 0; at < blocks; at += depth) try {
          apply(who, at);
        } catch (const std::bad_alloc&) {
        }
  }
  Index index_;
  Outcomes outcomes_{};
  u32 space_ = 0;
  std::vector<u64> hashes_, names_[2];
  std::vector<u32> subs_, streams_;
};

}  // namespace

bool fuzzMemory(std::mt19937_64& source) {
  bool failed = true;
  for (u64 nth = 0; failed; nth += 1 + nth / 8)
    for (const u64 most : {u64{1}, ~u64{0}}) {
      Bed bed(source);
      allocations = {nth, most};
      bed.store();
      failed = allocations.most != most;
      allocations = {};
      const bool isWhole = bed.isWhole();
      bed.remove();
      const bool isEmpty = bed.held() == 0 && bed.isWhole();
      bed.store();
      if (isWhole && isEmpty && bed.held() == 2 * blocks && bed.isWhole()) continue;
      std::fprintf(stderr, "allocation %llu failed, and %s\n", static_cast<unsigned long long>(nth), !isWhole ? "a block is in no table" : !isEmpty ? "a block stays that was removed" : "not all came back");
      return false;
    }
  return true;
}

}  // namespace svc
