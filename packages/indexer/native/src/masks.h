// The masks of a view: the streams that count for each of its numbers.
#pragma once
#include <map>

#include "query.h"

namespace svc {

class Masks {
 public:
  Masks(const Index& index, View& view, std::vector<std::int64_t> spaces) : index_(index), view_(view), spaces_(std::move(spaces)) {}

  bool counts(u32 stream) const { return index_.streams()[stream].counts(); }
  // Returns the mask of these streams for an engine with these groups; `isGrouped` says whether each group is matched by its own streams.
  u32 of(std::vector<u32> streams, const std::vector<CacheGroup>& groups);
  static bool isGrouped(const std::vector<CacheGroup>& groups);
  // True for blocks of a store whose keys name their group.
  bool namesGroup(u32 stream) const;

 private:
  struct Held {
    GroupKind kind = GroupKind::Whole;
    u32 window = 0;
    std::vector<u32> streams[View::partMasks];
  };
  bool isUnverified(u32 stream) const;
  // Sorts a group's streams by what their blocks prove.
  Held sorted(const CacheGroup& group, const std::vector<u32>& streams) const;
  u32 coarse(const std::vector<u32>& streams);
  u32 fine(const std::vector<Held>& parts, bool isGrouped);
  void setBits(u64* bits, const std::vector<u32>& streams) const {
    for (const u32 stream : streams) bits[stream / 64] |= 1ull << (stream % 64);
  }

  const Index& index_;
  View& view_;
  std::vector<std::int64_t> spaces_;
  std::map<std::vector<u32>, u32> known_, knownFine_;
};

}  // namespace svc
