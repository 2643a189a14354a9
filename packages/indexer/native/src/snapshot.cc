// Reads a snapshot back into an index; snapshot_save.cc defines the layout.
#include <algorithm>
#include <cstring>

#include "block_keys.h"

namespace svc {

class SnapshotReader {
 public:
  SnapshotReader(const u8* at, const u8* end) : at_(at), end_(end) {}
  template <typename T>
  T number() {
    T value{};
    raw(&value, sizeof value);
    return value;
  }
  std::string text() {
    const u64 size = number<u64>();
    if (size > left()) return fail(), std::string();
    std::string value(reinterpret_cast<const char*>(at_), size);
    at_ += size;
    return value;
  }
  bool raw(void* to, u64 size) {
    if (size > left()) return fail(), false;
    if (size > 0) std::memcpy(to, at_, size);
    at_ += size;
    return true;
  }
  // Returns the address of the next `size` bytes, which are used in place.
  const u8* pass(u64 size) {
    if (size > left()) return fail(), at_;
    at_ += size;
    return at_ - size;
  }
  // Reads a number of items that take at least `each` bytes.
  u64 count(u64 each) {
    const u64 value = number<u64>();
    if (value > left() / each) fail();
    return bad ? 0 : value;
  }
  u64 left() const { return static_cast<u64>(end_ - at_); }
  void fail() { bad = true; }
  bool bad = false;

 private:
  const u8* at_;
  const u8* end_;
};

bool Index::load(const u8* data, std::size_t size, std::string& note, std::string& problem) {
  u64 sum = 0;
  if (size < 32) return problem = "it is shorter than a snapshot's head", false;
  u64 begins = 0;
  std::memcpy(&begins, data, 8);
  // The version is checked first, since another version may end in another way.
  if (begins != snapshotMagic) return problem = "it is of another version of the indexer, or no snapshot at all", false;
  std::memcpy(&sum, data + size - 8, 8);
  if (XXH3_64bits(data, size - 8) != sum) return problem = "its checksum is wrong: it is damaged or truncated", false;
  SnapshotReader in(data, data + size - 8);
  in.number<u64>();
  const u64 seed = in.number<u64>();
  if (seed != seed_) return problem = "it was made with hash seed " + std::to_string(seed) + ", the setting says " + std::to_string(seed_), false;
  note = in.text();
  media_.clear();
  for (u64 i = in.count(8); i > 0; --i) media_.push_back(in.text());
  for (u64 i = in.count(39); i > 0; --i) {
    Namespace space;
    for (std::string* part : {&space.tenant, &space.model, &space.lora, &space.salt}) *part = in.text();
    space.blockSize = in.number<u32>();
    space.ahead = in.number<u8>();
    const bool bare = in.number<u8>() != 0;
    // Numbers stay the same, even those that are not in use.
    restoreSpace(space, in.number<u8>() != 0, bare);
  }
  for (u64 i = in.count(45); i > 0; --i) {
    Stream stream;
    stream.subscription = in.number<u32>();
    stream.rank = in.number<u32>();
    stream.medium = in.number<u16>();
    stream.active = in.number<u8>() != 0;
    stream.shard = in.number<u64>();
    stream.broken = in.number<u8>() != 0;
    stream.group = in.number<u32>();
    stream.isUncertain = in.number<u8>() != 0;
    stream.twin = in.number<u32>();
    stream.owner = in.text();
    stream.backend = in.text();
    if (stream.medium >= media_.size()) in.fail();
    streams_.push_back(std::move(stream));
  }
  for (u64 i = in.count(80); i > 0 && !in.bad; --i) {
    Subscription sub;
    for (std::string* part : {&sub.instance, &sub.tenant, &sub.model, &sub.lora, &sub.salt, &sub.key}) *part = in.text();
    sub.blockSize = in.number<u32>();
    sub.rank = in.number<u32>();
    sub.scope = in.number<u64>();
    sub.kind = static_cast<PublisherKind>(in.number<u8>());
    sub.active = in.number<u8>() != 0;
    sub.ownNames = in.number<u8>() != 0;
    sub.standard = in.number<u8>() != 0;
    sub.unnumbered = in.number<u8>() != 0;
    sub.evicted = in.number<u8>() != 0;
    sub.isEnveloped = in.number<u8>() != 0;
    for (u64 k = in.count(4); k > 0; --k) sub.streams.push_back(in.number<u32>());
    for (u64 k = in.count(4); k > 0; --k) sub.spaces.insert(in.number<u32>());
    for (u64 k = in.count(16); k > 0; --k) {
      const u64 stream = in.number<u64>();
      sub.lastEventId[stream] = in.number<u64>();
    }
    for (u64 k = in.count(8); k > 0; --k) sub.unverified.insert(in.number<u64>());
    sub.seen.resize(in.count(16));
    if (sub.active && sub.seen.size() != seenRing) in.fail();
    in.raw(sub.seen.data(), sub.seen.size() * sizeof(Subscription::Seen));
    sub.countsCopies = in.number<u8>() != 0;
    for (u64 k = in.count(12); k > 0; --k) {
      const u64 key = in.number<u64>();
      const u32 copies = in.number<u32>();
      if (copies < 2) in.fail();
      else sub.copies.set(key, copies);
    }
    for (u64 k = in.count(25); k > 0; --k) {
      CacheGroup group;
      group.rank = in.number<u32>();
      group.index = in.number<u32>();
      const u8 kind = in.number<u8>();
      group.kind = kind <= static_cast<u8>(GroupKind::Unknown) ? static_cast<GroupKind>(kind) : GroupKind::Unknown;
      group.window = in.number<u32>();
      group.otherBlockSize = in.number<u32>();
      group.word = in.text();
      sub.groups.push_back(std::move(group));
    }
    for (u64 k = in.count(12); k > 0; --k) {
      const u64 name = in.number<u64>();
      sub.names.set(name, in.number<u32>());
    }
    sub.keyHead = in.text();
    for (u64 k = in.count(12); k > 0; --k) {
      const u64 key = in.number<u64>();
      const u32 stream = in.number<u32>();
      if (stream < 2) in.fail();
      else sub.waiting.set(key, stream);
    }
    for (u64 k = in.count(20); k > 0 && !in.bad; --k) {
      Chunk& chunk = sub.chunks[in.number<u64>()];
      chunk.space = in.number<u32>();
      chunk.sequences.resize(in.count(8));
      in.raw(chunk.sequences.data(), chunk.sequences.size() * 8);
      if (chunk.space >= spaces_.size() || chunk.sequences.empty()) in.fail();
    }
    if (sub.waiting.size() > 0) waiters_.push_back(static_cast<u32>(subscriptions_.size()));
    loadPark(in, sub);
    for (u32 stream : sub.streams)
      if (stream >= streams_.size()) in.fail();
    for (u32 space : sub.spaces)
      if (space >= spaces_.size()) in.fail();
    subscriptions_.push_back(std::move(sub));
  }
  for (const Stream& stream : streams_)
    if (stream.active && (stream.subscription >= subscriptions_.size() || (stream.twin != Stream::noStream && stream.twin >= streams_.size()))) in.fail();
  if (in.bad || !loadBlocks(in)) return problem = "it contradicts itself, or holds more than indexer.memory_budget_mb takes", false;
  for (Subscription& sub : subscriptions_) {
    sweepNames(sub);
    sweepCopies(sub);
    weigh(sub);
  }
  ++version_;
  ++changes_;
  return true;
}

void Index::loadPark(SnapshotReader& in, Subscription& sub) {
  for (u64 k = in.count(26); k > 0 && !in.bad; --k) {
    ParkedEvent parked;
    parked.parent = in.number<u64>();
    parked.stream = in.number<u32>();
    parked.space = in.number<u32>();
    parked.inheritsSalt = in.number<u8>() != 0;
    parked.sparse = in.number<u8>() != 0;
    for (u64 i = in.count(17); i > 0; --i) {
      parked.names.push_back(in.number<u64>());
      if (const u64 local = in.number<u64>(); !parked.sparse) parked.locals.push_back(local);
      parked.gone.push_back(in.number<u8>() != 0);
    }
    if (parked.stream >= streams_.size() || parked.space >= spaces_.size()) in.fail();
    sub.parkedBlocks += static_cast<u32>(parked.names.size());
    sub.awaited.insert(parked.parent);
    sub.park.push_back(std::move(parked));
  }
}

bool Index::loadBlocks(SnapshotReader& in) {
  // Set 0 means no block and is not written.
  const u64 setCount = in.number<u64>();
  if (setCount == 0 || (setCount - 1) > in.left() / 12) return false;
  std::vector<u32> sets(setCount, HolderSets::none);
  for (std::size_t i = 1; i < sets.size() && !in.bad; ++i) {
    const u32 space = in.number<u32>();
    std::vector<u64> bits(in.count(8));
    in.raw(bits.data(), bits.size() * 8);
    if (bits.size() > (streams_.size() + 63) / 64 || (space >= spaces_.size() && space != 0)) return false;
    if (space < spaces_.size()) sets[i] = sets_.intern(space, std::move(bits));
  }
  engineInUse_ = in.number<u8>() != 0;
  const u32 end = in.number<u32>();
  const u64 count = end - BlockArena::pageBlocks;
  if (in.bad || end < BlockArena::pageBlocks || in.left() != count * (engineInUse_ ? 20 : 12)) return false;
  const u8* const holdersAt = in.pass(count * 4);
  const auto holdersOf = [&](u64 i) {
    u32 set = 0;
    std::memcpy(&set, holdersAt + i * 4, 4);
    return set;
  };
  // Free numbers take no capacity: an index at its budget has some between its blocks.
  u64 taken = 0;
  for (u64 i = 0; i < count; ++i) taken += holdersOf(i) != HolderSets::none;
  const u64 limit = limitBlocks();
  if (end > arena_.capacity() || taken > limit + limit / 32) return false;
  in.raw(arena_.sequence.data() + BlockArena::pageBlocks, count * 8);
  if (engineInUse_) in.raw(arena_.engine.data() + BlockArena::pageBlocks, count * 8);
  constexpr u64 ahead = 16;
  for (u64 i = 0; i < count; ++i) {
    const u32 set = holdersOf(i);
    if (set == HolderSets::none) continue;
    if (set >= sets.size() || sets[set] == HolderSets::none) return false;
    const u32 block = static_cast<u32>(BlockArena::pageBlocks + i);
    arena_.restore(block);
    arena_.holders[block] = sets[set];
    sets_.gain(sets[set], 1);
    const u32 coming = i + ahead < count ? holdersOf(i + ahead) : HolderSets::none;
    if (coming < sets.size() && sets[coming] != HolderSets::none) {
      const u32 space = sets_[sets[coming]].space;
      table_.prefetch(mix(arena_.sequence[block + ahead] ^ spaces_[space].seed));
      if (engineInUse_) engineTable_.prefetch(mix(arena_.engine[block + ahead] ^ scopes_[space]));
    }
    if (!table_.insert(keyOf(block), block, BlockKeys<false>(*this))) return false;
    if (engineInUse_ && arena_.engine[block] != 0 && !engineTable_.insert(nameKeyOf(block), block, BlockKeys<true>(*this))) return false;
    if (sets_[sets[set]].empty()) toGhost(block);
  }
  return true;
}

}  // namespace svc
