// Growth and shrinking of an IdTable: a segment is cleaned of graves, split in two, merged with its other half, or widened if its hashes
// are alike on purpose. Memory is allocated before anything changes.
#pragma once
#include "id_table.h"

namespace svc {

// Returns the hash of the block that an entry stands for: the one of its group whose hash belongs here. `twins` counts the entries already
// resolved: several equal entries stand for the blocks in any order. Sets `ambiguous` if there are several and no `twins`.
template <typename Keys>
u64 IdTable::hashOf(const Segment& segment, u32 field, u8 tag, std::unordered_map<u32, u32>* twins, bool& ambiguous, Keys& keys) const {
  u64 all[groupBlocks], hashes[groupBlocks];
  const u32 group = lowest(field, segment.groupBits), used = keys.ofGroup(group * groupBlocks, all);
  u32 count = 0;
  for (u32 alike = used & tagsLike(all, 64 - tagBits, 64 - tagBits, tag, tag < 2 * firstTag ? 0xff ^ firstTag : 0xff); alike != 0; alike &= alike - 1) {
    const u64 hash = all[std::countr_zero(alike)];
    const bool isHere = rootOf[hash >> (64 - rootBits)] == segment.root && lowest(hash >> tagBits, segment.depth) == segment.prefix;
    if (isHere && (toldOf(segment.groupBits, segment.depth + segment.lag, hash) | group) == field) hashes[count++] = hash;
  }
  assert(count > 0);
  if (count == 1) return hashes[0];
  if (twins == nullptr) {
    ambiguous = true;
    return hashes[0];
  }
  return hashes[std::min((*twins)[field << tagBits | tag]++, count - 1)];
}

// Appends entries of a segment to `moved_`: all of them, or only the guests, which are not in their home bucket. They become entries of `target` or, if
// that is deeper, of its halves. Returns false if the fields of some entries do not identify their hashes without all other entries.
template <typename Keys>
bool IdTable::collect(u32 number, bool all, const Segment& target, Keys& keys) {
  const Segment& segment = segments_[number];
  const bool isWide = segment.wideBuckets != 0;
  const u32 first = isWide ? segment.wideFirst : number * segmentBuckets, count = isWide ? segment.wideBuckets : segmentBuckets;
  std::size_t at = moved_.size();
  for (u32 bucket = first; bucket < first + count; ++bucket) {
    if (!all && guests_[bucket] == 0) continue;
    const Bucket& from = buckets_[bucket];
    for (u32 held = ~bytesAtMost(from.tags, grave) & (all ? 0xffff : slotsMarked(guests_[bucket])); held != 0; held &= held - 1) {
      const auto slot = static_cast<u32>(std::countr_zero(held));
      moved_.push_back({from.field(slot), 0, from.tags[slot], 0});
    }
  }
  constexpr std::size_t ahead = 24;
  std::unordered_map<u32, u32> twins;
  bool ambiguous = false;
  const auto groupOf = [&](const Moved& moved) { return lowest(moved.field, segment.groupBits) * groupBlocks; };
  for (std::size_t i = at; i < std::min(moved_.size(), at + ahead); ++i) keys.prefetch(groupOf(moved_[i]));
  for (; at < moved_.size() && !ambiguous; ++at) {
    if (at + ahead < moved_.size()) keys.prefetch(groupOf(moved_[at + ahead]));
    Moved& moved = moved_[at];
    const u64 hash = hashOf(segment, moved.field, moved.tag, all ? &twins : nullptr, ambiguous, keys);
    moved.field = lowest(moved.field, segment.groupBits) | toldOf(target.groupBits, target.depth + target.lag, hash);
    moved.home = target.wideBuckets != 0 ? wideHome(target.wideBuckets, hash) : homeOf(hash);
    moved.half = static_cast<u8>(hash >> (tagBits + segment.depth) & 1);
  }
  return !ambiguous;
}

// Does this for each segment. Sets `all` if all entries were needed.
template <typename Keys>
void IdTable::collect(std::initializer_list<u32> numbers, bool& all, const Segment& target, Keys& keys) {
  for (;; all = true) {
    moved_.clear();
    bool isTold = true;
    for (const u32 number : numbers) isTold = isTold && collect(number, all, target, keys);
    if (isTold) return;
  }
}

// Puts the entries of `moved_` into segments that are empty or have free slots, by their halves if there are two.
inline void IdTable::settle(u32 lower, u32 upper) {
  for (const Moved& moved : moved_) {
    const u32 number = moved.half == 0 ? lower : upper, first = number * segmentBuckets;
    u32 at = moved.home, free = 0;
    while ((free = bytesEqual(buckets_[first + at].tags, empty)) == 0) at = (at + 1) % segmentBuckets;
    const u32 slot = slotFor(at == moved.home, free);
    buckets_[first + at].put(slot, moved.field, moved.tag);
    if (at != moved.home) markGuest(first + at, slot);
    ++segments_[number].live;
  }
  segments_[lower].used = segments_[lower].live;
  segments_[upper].used = segments_[upper].live;
}

inline void IdTable::settleWide(u32 number) {
  Segment& segment = segments_[number];
  for (const Moved& moved : moved_) {
    u32 at = moved.home, free = 0;
    while ((free = bytesEqual(buckets_[segment.wideFirst + at].tags, empty)) == 0) at = at + 1 == segment.wideBuckets ? 0 : at + 1;
    buckets_[segment.wideFirst + at].put(static_cast<u32>(std::countr_zero(free)), moved.field, moved.tag);
  }
  segment.used = segment.live = static_cast<u32>(moved_.size());
  moved_ = {};
}

// Keeps entries in their homes or moves them to the same bucket of the other, empty, half, and returns how many moved. Guests, which
// `settle` puts back, and graves are dropped.
inline u32 IdTable::divide(u32 lower, u32 upper) {
  const u32 shift = segments_[lower].groupBits - 1u, bit = lower == upper ? 0 : 1u << shift;
  u32 stayed = 0, gone = 0;
  for (u32 at = 0; at < segmentBuckets; ++at) {
    Bucket& from = buckets_[lower * segmentBuckets + at];
    Bucket& to = buckets_[upper * segmentBuckets + at];
    u8& guests = guests_[lower * segmentBuckets + at];
    const u32 own = ~bytesAtMost(from.tags, grave) & 0xffff & ~slotsMarked(guests);
    guests = 0;
    if (bit == 0) {
      for (u32 out = ~own & 0xffff; out != 0; out &= out - 1) from.tags[std::countr_zero(out)] = empty;
      stayed += static_cast<u32>(std::popcount(own));
      continue;
    }
    // The loop has no branches, since the half of an entry is unpredictable.
    static_assert(empty == 0);
    u32 places = 0;
    for (u32 slot = 0; slot < bucketSlots; ++slot) {
      const u32 field = from.field(slot), tag = from.tags[slot], isOwn = own >> slot & 1, goes = field >> shift & isOwn;
      to.put(places, field & ~bit, static_cast<u8>(tag & (0 - goes)));
      from.tags[slot] = static_cast<u8>(tag & (goes - isOwn));
      places += goes;
    }
    gone += places;
    stayed += static_cast<u32>(std::popcount(own)) - places;
  }
  segments_[lower].live = stayed;
  return gone;
}

// `hash` is one of the segment's. Returns false if memory runs out.
template <typename Keys>
bool IdTable::grow(u64 hash, Keys& keys) {
  const u32 number = partOf(hash).number;
  const Segment before = segments_[number];
  const bool wasWide = before.wideBuckets != 0;
  // If an eighth are graves, cleaning them is enough.
  const bool isDirty = before.live * 8 <= before.used * 7;
  const bool widens = !isDirty && (wasWide || (before.depth == depth_ && directory_.size() * 2 > mostParts * segments_.size()));
  const bool splits = !isDirty && !widens;
  bool all = wasWide || widens || (splits && !before.knowsNext());
  Segment target = before;
  if (widens) {
    target.wideBuckets = wasWide ? 2 * before.wideBuckets : 2 * segmentBuckets;
    target.groupBits = fieldBits;
  } else if (splits) {
    target.groupBits = before.knowsNext() ? before.groupBits + 1 : static_cast<u8>(std::min(fieldBits, groupWidth(number) + 1));
    target.lag = 0;
    ++target.depth;
    target.isListed = false;
  }
  try {
    if (widens) prepareWide(before, target.wideBuckets);
    if (splits) prepareSplit(before);
    collect({number}, all, target, keys);
  } catch (const std::bad_alloc&) {
    return false;
  }
  ++growths_;
  if (wasWide && !widens) empties(before.wideFirst, before.wideBuckets);
  else if (all && !wasWide) empties(number * segmentBuckets, segmentBuckets);
  if (widens) widen(number, target.wideBuckets);
  if (widens || wasWide) return settleWide(number), true;

  u32 upper = number;
  segments_[number] = target;
  segments_[number].live = 0;
  if (splits) {
    --atDepth_[before.depth];
    ++atDepth_[target.depth];
    setParts(number);
    Segment half = segments_[number];
    half.prefix |= 1u << before.depth;
    upper = add(half);
  } else {
    for (Moved& moved : moved_) moved.half = 0;
  }
  if (!all) {
    const u32 gone = divide(number, upper);
    if (splits) segments_[upper].live = gone;
  }
  return settle(number, upper), true;
}

template <typename Keys>
bool IdTable::shrink(Keys&& keys) try {
  for (u32 looks = 0; looks < mostLooks && !sparse_.empty(); ++looks) {
    const u64 hash = sparse_.back();
    sparse_.pop_back();
    const u32 number = partOf(hash).number;
    Segment& segment = segments_[number];
    segment.isListed = false;
    if (segment.live > sparseSlots) continue;
    if (segment.wideBuckets != 0) {
      Segment target = segment;
      target.wideBuckets = 0;
      bool all = true;
      prepareWide(segment, segment.wideBuckets);
      collect({number}, all, target, keys);
      for (Moved& moved : moved_) moved.half = 0;
      ++growths_;
      giveWide(segment);
      segment.live = 0;
      setParts(number);
      settle(number, number);
    } else {
      if (segment.depth == 0) continue;
      const Part other = directory_[(static_cast<std::size_t>(segment.root) << depth_) + (segment.prefix ^ 1u << (segment.depth - 1))];
      if (other.isWide || other.depth != segment.depth || segment.live + segments_[other.number].live > 2 * sparseSlots) continue;
      if (segment.prefix >> (segment.depth - 1) == 0) merge(number, other.number, keys);
      else merge(other.number, number, keys);
    }
    // A segment that is still sparse is listed again.
    Segment& now = segments_[partOf(hash).number];
    if (now.live <= sparseSlots && !now.isListed) list(now, hash);
    return true;
  }
  if (sparse_.empty()) sparse_ = {};
  return !sparse_.empty();
} catch (const std::bad_alloc&) {
  return false;
}

// Merges the two halves of one segment.
template <typename Keys>
void IdTable::merge(u32 lower, u32 upper, Keys& keys) {
  const Segment& one = segments_[lower];
  const Segment& other = segments_[upper];
  Segment whole = one;
  --whole.depth;
  whole.live = whole.used = 0;
  whole.isListed = false;
  // The bit that separated the halves is stored in the entries' fields again, in the lowest position that the groups of both halves leave free
  // and after which both know all bits.
  const u32 known = one.lag == 0 && other.lag == 0 ? std::max(one.groupBits, other.groupBits) - 1 : fieldBits - 1;
  whole.groupBits = static_cast<u8>(std::max({known, groupWidth(lower), groupWidth(upper)}));
  whole.lag = 0;
  bool all = false;
  moved_.reserve(one.live + other.live);
  collect({lower, upper}, all, whole, keys);
  for (Moved& moved : moved_) moved.half = 0;
  ++growths_;
  if (all) empties(lower * segmentBuckets, segmentBuckets);
  else whole.live = unite(lower, upper, whole.groupBits);
  empties(upper * segmentBuckets, segmentBuckets);
  --atDepth_[one.depth];
  ++atDepth_[whole.depth];
  segments_[lower] = whole;
  setParts(lower);
  settle(lower, lower);
  drop(upper);
  while (depth_ > 1 && atDepth_[depth_] == 0) halveDirectory();
}

}  // namespace svc

#include "id_table_parts.h"
