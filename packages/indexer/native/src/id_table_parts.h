// The parts of an IdTable that do not depend on the kind of keys: its directory, the places of its segments, and their memory.
#pragma once
#include "id_table.h"

namespace svc {

// Expands the marks of a bucket, each of which covers two slots.
inline u32 IdTable::slotsMarked(u32 pairs) {
  pairs = (pairs | pairs << 4) & 0x0f0f;
  pairs = (pairs | pairs << 2) & 0x3333;
  pairs = (pairs | pairs << 1) & 0x5555;
  return pairs | pairs << 1;
}

inline void IdTable::list(Segment& segment, u64 hash) noexcept {
  try {
    sparse_.push_back(hash);
    segment.isListed = true;
  } catch (const std::bad_alloc&) {
    // The segment is listed when it becomes sparse the next time.
  }
}

// Widens the group number in all entries of a segment to `bits`; they have fewer bits of the fraction from then on.
inline void IdTable::giveToGroups(u32 number, u32 bits) {
  Segment& segment = segments_[number];
  const u32 lag = segment.lag + bits - segment.groupBits, kept = lag > mostLag ? 0 : fieldMask << bits & fieldMask, groups = (1u << segment.groupBits) - 1;
  ++growths_;
  segment.groupBits = static_cast<u8>(lag > mostLag ? fieldBits : bits);
  segment.lag = static_cast<u8>(lag > mostLag ? 0 : lag);
  setParts(number);
  for (u32 bucket = number * segmentBuckets; bucket < (number + 1) * segmentBuckets; ++bucket)
    for (u32 slot = 0; slot < bucketSlots; ++slot) buckets_[bucket].put(slot, buckets_[bucket].field(slot) & (groups | kept), buckets_[bucket].tags[slot]);
}

// Returns the number of bits of the highest group.
inline u32 IdTable::groupWidth(u32 number) const {
  const u32 most = segments_[number].groupBits;
  u32 any = 0;
  for (u32 bucket = number * segmentBuckets; bucket < (number + 1) * segmentBuckets && any >> (most - 1) == 0; ++bucket)
    for (u32 slot = 0; slot < bucketSlots; ++slot) any |= buckets_[bucket].tags[slot] > grave ? lowest(buckets_[bucket].field(slot), most) : 0;
  return static_cast<u32>(std::bit_width(any));
}

// Moves the entries of two halves that are in their homes to the lower half's buckets, and returns how many; those that do not fit go to
// `moved_`, which has capacity for all. Each gets back the bit of its half, above `groupBits`.
inline u32 IdTable::unite(u32 lower, u32 upper, u32 groupBits) {
  u32 live = 0;
  for (u32 at = 0; at < segmentBuckets; ++at) {
    Bucket& to = buckets_[lower * segmentBuckets + at];
    for (const u32 half : {0u, 1u}) {
      const u32 number = half == 0 ? lower : upper, before = segments_[number].groupBits;
      const Bucket& from = buckets_[number * segmentBuckets + at];
      u8& guests = guests_[number * segmentBuckets + at];
      u32 own = ~bytesAtMost(from.tags, grave) & 0xffff & ~slotsMarked(guests);
      guests = 0;
      if (half == 0)
        for (u32 out = ~own & 0xffff; out != 0; out &= out - 1) to.tags[std::countr_zero(out)] = empty;
      for (u32 free = half == 0 ? own : bytesEqual(to.tags, empty); own != 0; own &= own - 1) {
        const auto slot = static_cast<u32>(std::countr_zero(own));
        const u32 field = from.field(slot), next = field >> before << 1 | half, made = lowest(field, before) | (next << groupBits & fieldMask);
        if (free == 0) {
          moved_.push_back({made, at, from.tags[slot], 0});
          continue;
        }
        to.put(static_cast<u32>(std::countr_zero(free)), made, from.tags[slot]);
        free &= free - 1;
        ++live;
      }
    }
  }
  return live;
}

inline void IdTable::setParts(u32 number) {
  const Segment& segment = segments_[number];
  Part* const parts = &directory_[static_cast<std::size_t>(segment.root) << depth_];
  for (u32 part = segment.prefix; part < 1u << depth_; part += 1u << segment.depth)
    parts[part] = {number, segment.depth, segment.groupBits, segment.lag, segment.wideBuckets != 0};
}

// Prepares the directory's depth, and capacity for one more segment.
inline void IdTable::prepareSplit(const Segment& segment) {
  if ((segments_.size() + 1) * segmentBuckets > wideEnd_) throw std::bad_alloc();
  if (segments_.size() == segments_.capacity()) segments_.reserve(segments_.size() * 2);
  if (segment.depth < depth_) return;
  std::vector<Part> twice(directory_.size() * 2);
  const u32 each = 1u << depth_;
  for (std::size_t part = 0; part < twice.size(); ++part) twice[part] = directory_[part / (2 * each) * each + part % each];
  directory_.swap(twice);
  ++depth_;
}

// The caller has made sure of the capacity.
inline u32 IdTable::add(const Segment& segment) {
  const auto number = static_cast<u32>(segments_.size());
  segments_.push_back(segment);
  buckets_.use((number + 1) * segmentBuckets);
  guests_.use((number + 1) * segmentBuckets);
  ++atDepth_[segment.depth];
  setParts(number);
  return number;
}

// Drops a segment that is empty and in no part of the directory: the last one moves to its place.
inline void IdTable::drop(u32 number) {
  const auto last = static_cast<u32>(segments_.size() - 1);
  --atDepth_[segments_[number].depth];
  if (number != last) {
    segments_[number] = segments_[last];
    std::memcpy(&buckets_[number * segmentBuckets], &buckets_[last * segmentBuckets], segmentBuckets * sizeof(Bucket));
    std::memcpy(&guests_[number * segmentBuckets], &guests_[last * segmentBuckets], segmentBuckets);
    empties(last * segmentBuckets, segmentBuckets);
    setParts(number);
  }
  segments_.pop_back();
  if (segments_.size() * 4 < segments_.capacity()) segments_.shrink_to_fit();
  buckets_.giveBackBehind(last * segmentBuckets, wideEnd_);
  guests_.giveBackBehind(last * segmentBuckets, wideEnd_);
}

inline void IdTable::empties(u32 first, u32 count) {
  std::memset(static_cast<void*>(&buckets_[first]), 0, count * sizeof(Bucket));
  std::memset(&guests_[first], 0, count);
}

inline void IdTable::halveDirectory() {
  const std::size_t each = std::size_t{1} << --depth_;
  for (u32 root = 1; root < roots; ++root) std::copy_n(directory_.begin() + static_cast<std::ptrdiff_t>(root * 2 * each), each, directory_.begin() + static_cast<std::ptrdiff_t>(root * each));
  directory_.resize(roots * each);
  directory_.shrink_to_fit();
}

// Reserves capacity in the lists of freed wide segments, and buckets for a new one.
inline void IdTable::prepareWide(const Segment& segment, u32 buckets) {
  std::vector<u32>& wanted = wideFree_[std::countr_zero(buckets)];
  wanted.reserve(wanted.size() + 1);
  if (segment.wideBuckets != 0) {
    std::vector<u32>& left = wideFree_[std::countr_zero(segment.wideBuckets)];
    left.reserve(left.size() + 1);
  }
  if (segment.wideBuckets != buckets && wanted.empty() && segments_.size() * segmentBuckets + buckets > wideEnd_) throw std::bad_alloc();
}

// Widens a segment to this many empty buckets: those of a former segment of the same size, else new ones in front of all others.
inline void IdTable::widen(u32 number, u32 buckets) {
  Segment& segment = segments_[number];
  giveWide(segment);
  std::vector<u32>& known = wideFree_[std::countr_zero(buckets)];
  if (known.empty()) {
    segment.wideFirst = wideEnd_ -= buckets;
  } else {
    segment.wideFirst = known.back();
    known.pop_back();
  }
  segment.wideBuckets = buckets;
  segment.groupBits = fieldBits;
  segment.lag = 0;
  wideBuckets_ += buckets;
  widest_ = std::max(widest_, buckets);
  setParts(number);
}

inline void IdTable::giveWide(Segment& segment) {
  if (segment.wideBuckets == 0) return;
  empties(segment.wideFirst, segment.wideBuckets);
  buckets_.giveBack(segment.wideFirst, segment.wideFirst + segment.wideBuckets);
  wideFree_[std::countr_zero(segment.wideBuckets)].push_back(segment.wideFirst);
  wideBuckets_ -= segment.wideBuckets;
  segment.wideFirst = segment.wideBuckets = 0;
}

}  // namespace svc
