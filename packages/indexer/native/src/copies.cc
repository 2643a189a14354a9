// Counts further copies of a block: an engine that computes a block again keeps both copies, and sends a removal for each.
//
// A stream's bit in a block's holder set is the first copy. Further copies are rare, so a map of the publisher counts them.
#include <algorithm>

#include "index.h"

namespace svc {

bool Index::addCopy(u32 id, u32 stream, u32 block) try {
  FlatMap& copies = subscriptions_[id].copies;
  const u64 key = copyKey(stream, block);
  // The map's values begin at 2.
  const u32 known = copies.find(key);
  copies.set(key, known == 0 ? 2 : known + (known < ~0u));
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

bool Index::takeCopy(Subscription& sub, u32 stream, u32 block) {
  const u64 key = copyKey(stream, block);
  const u32 known = sub.copies.find(key);
  if (known == 0) return false;
  if (known == 2) sub.copies.erase(key);
  else sub.copies.set(key, known - 1);
  return true;
}

void Index::dropCopies(Subscription& sub, const std::vector<u32>& streams, std::int64_t space) {
  if (sub.copies.size() == 0) return;
  sub.copies.sweep([&](u64 key, u32) {
    const u32 stream = static_cast<u32>(key >> 32), block = static_cast<u32>(key);
    const bool meant = std::find(streams.begin(), streams.end(), stream) != streams.end();
    return !meant || (space >= 0 && arena_.used(block) && spaceOf(block) != static_cast<u32>(space));
  });
}

void Index::sweepCopies(Subscription& sub) {
  if (sub.copies.size() == 0) return;
  sub.copies.sweep([&](u64 key, u32) {
    const u32 block = static_cast<u32>(key);
    return arena_.used(block) && sets_[arena_.holders[block]].has(static_cast<u32>(key >> 32));
  });
}

}  // namespace svc
