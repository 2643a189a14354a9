// Memory leased ahead: a client writes ranges first, and gives them a key in a commit afterwards.
#pragma once
#include <deque>

#include "objects/puts.h"

namespace svc {

//  lease (logged as cooling down) → written by the client → commit (an object, complete at once)
//                                 → returned unwritten: free at once
//                                 → returned after a failed write, or expired: free after `releaseMs`

struct Extent {
  u32 client;
  u16 tenant;
  u64 size;
  Tick until;
  std::vector<Placed> ranges;
};

// Owns the leased extents. The server's lock guards it.
class Extents : Part {
 public:
  static constexpr u32 most = 256;

  Extents(Common& common, Groups& groups, Space& space, Announcer& announcer, Objects& objects, Disks& disks, Eviction& eviction, Puts& puts)
      : Part(common), groups(groups), space(space), announcer(announcer), objects(objects), disks(disks), eviction(eviction), puts(puts), last_(common.startID) {}

  // Leases ranges for at most `count` objects of that size, each an extent with an id; the two calls below end an extent.
  i32 lease(u32 client, u16 tenant, u64 size, u32 count, const PutPolicy& policy, std::vector<u64>& out);
  i32 giveBack(const Uuid& client, u64 id, bool failed);
  i32 commit(const Uuid& client, u16 tenant, std::string_view key, u64 extent, const Ended& ended, const PutPolicy& policy, std::string_view group, bool replace);
  template <typename Each>
  void eachRange(u64 extent, Each each) const {
    for (const Placed& range : extents_.at(extent).ranges) each(*cluster.segment(range.segment), range.node);
  }
  // Ends extents that have expired.
  void tend(u32 budget);
  const std::unordered_map<u64, Extent>& all() const { return extents_; }

 private:
  void end(u64 id, u64 coolMs);
  Extent forget(u64 id);

  Groups& groups;
  Space& space;
  Announcer& announcer;
  Objects& objects;
  Disks& disks;
  Eviction& eviction;
  Puts& puts;
  std::unordered_map<u64, Extent> extents_;
  std::deque<u64> ends_;  // in the order of their expiry
  u64 last_, bytes_ = 0;
};

}  // namespace svc
