// Stores that keep a block as several objects, one per rank or layer: the block is complete when every kind of shard that was seen is
// there.
#include <algorithm>

#include "index.h"

namespace svc {

// Returns the stream of complete blocks that belongs to this shard's stream.
std::int64_t Index::wholeOf(u32 stream) const {
  const Stream& shard = streams_[stream];
  for (const u32 other : subscriptions_[shard.subscription].streams) {
    const Stream& known = streams_[other];
    if (known.shard == Stream::wholeShard && known.rank == shard.rank && known.group == shard.group && known.medium == shard.medium && known.backend == shard.backend) return other;
  }
  return -1;
}

void Index::joinShards(u32 stream, u32 space, const u64* sequences, u32 count) {
  const std::int64_t whole = wholeOf(stream);
  if (whole < 0 || streams_[static_cast<u32>(whole)].broken) return;
  const Stream& shard = streams_[stream];
  std::vector<u32> parts;
  for (const u32 other : subscriptions_[shard.subscription].streams) {
    const Stream& known = streams_[other];
    const bool beside = known.shard != 0 && known.shard != Stream::wholeShard && known.rank == shard.rank && known.group == shard.group && known.medium == shard.medium && known.backend == shard.backend;
    if (beside) parts.push_back(other);
  }
  for (u32 i = 0; i < count; ++i) {
    const u32 block = find(space, sequences[i]);
    if (block == 0) continue;
    const auto& set = sets_[arena_.holders[block]];
    if (std::all_of(parts.begin(), parts.end(), [&](u32 part) { return set.has(part); })) setHolders(block, sets_.with(arena_.holders[block], static_cast<u32>(whole)));
  }
}

void Index::breakShards(u32 stream, std::int64_t space, const u64* sequences, u32 count) {
  const std::int64_t whole = wholeOf(stream);
  if (whole < 0 || space < 0) return;
  for (u32 i = 0; i < count; ++i) {
    const u32 block = find(static_cast<u32>(space), sequences[i]);
    if (block != 0) setHolders(block, sets_.without(arena_.holders[block], static_cast<u32>(whole)));
  }
}

// If there is no capacity for a kind of shard, it cannot be tracked, so no block is known to be complete from here on.
void Index::giveUpShards(u32 id, StreamName name) {
  name.shard = Stream::wholeShard;
  const std::int64_t whole = internStream(id, name);
  if (whole < 0) return;
  streams_[static_cast<u32>(whole)].broken = true;
  sets_.withdraw({static_cast<u32>(whole)}, -1);
}

// A store that starts again may split its blocks in another way.
void Index::forgetShards(Subscription& sub) {
  std::erase_if(sub.streams, [&](u32 stream) {
    if (streams_[stream].shard == 0) return false;
    streams_[stream] = {};
    ++version_;
    return true;
  });
}

}  // namespace svc
