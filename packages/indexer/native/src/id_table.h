// Hash to block number: buckets of one cache line in segments that are split one by one, each when it is full, so that the table is never
// there twice and the next block never waits for all of it.
//
//   hash × roots    = root . fraction                     the directory: `roots << depth` parts of equal width, each part's segment
//   fraction        = depth bits . place in the segment   a full segment becomes two of its size that each have half of its hashes
//   entry           = 24 bits group of eight blocks (one line of the arena), 8 bits tag, a part of the place
//
//   place  0 1 2 3 4 5 6 7 8 9 …     An entry that lies in its home bucket and its tag tell the place as far as a split needs it, so
//          └ bucket ─────┘           splitting reads no block. It uses up a bit: every third one asks the blocks for new tags.
//                     └ tag ──────   Guests, which lie behind their full home, are marked, and asked as well.
//
//   Roots have sizes of their own: at any time some segments were split a moment ago and others will be soon, 0.65 full together.
#pragma once
#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "bucket_scan.h"
#include "reserved.h"

namespace svc {

class IdTable {
 public:
  static constexpr u32 groupBlocks = 8;

  // For this many blocks.
  explicit IdTable(u32 capacity) : buckets_(capacity / 3 + smallBuckets), guests_(capacity / 3 + smallBuckets) {
    for (const u32 buckets : rootBuckets) {
      directory_.push_back(static_cast<u32>(segments_.size()));
      add({takeBuckets(buckets), buckets, roots, 0, 0, 0});
    }
  }
  IdTable(const IdTable&) = delete;
  IdTable& operator=(const IdTable&) = delete;

  // Where a hash's entry is looked for; void once `growths` has changed.
  struct Spot {
    u32 bucket, number;
    u8 tag;
  };

  std::size_t bytes() const { return taken_ * (sizeof(Bucket) + sizeof(u16)) + segments_.size() * sizeof(Segment) + directory_.size() * sizeof(u32); }
  u32 growths() const { return growths_; }
  [[gnu::always_inline]] Spot spotOf(u64 hash) const {
    const u32 number = numberOf(hash);
    const Segment& segment = segments_[number];
    const u64 place = hash * segment.multiple;
    return {segment.first + home(segment, place), number, tagOf(segment, place)};
  }
  // Inline: compilers take a call that only prefetches for one without effect.
  [[gnu::always_inline]] void prefetch(const Spot& spot) const { __builtin_prefetch(&buckets_[spot.bucket]); }
  [[gnu::always_inline]] void prefetch(u64 hash) const { prefetch(spotOf(hash)); }
  // What it may grow by while a slice of a batch is stored.
  std::size_t growthBytes() const { return mostAtOnce * (mostBuckets * (sizeof(Bucket) + sizeof(u16)) + sizeof(Segment)) + std::size_t{widest_} * 2 * (sizeof(Bucket) + sizeof(u16)); }
  // The first number of the first candidates without a look at them: for prefetching what it points at.
  u32 candidate(const Spot& spot) const {
    const Bucket& bucket = buckets_[spot.bucket];
    const u32 hits = bytesEqual(bucket.tags, spot.tag);
    return hits == 0 ? 0 : bucket.group(static_cast<u32>(std::countr_zero(hits)));
  }

  // The number whose value among `values` this is and that `accept(id)` takes, or 0.
  template <typename Accept>
  u32 find(u64 hash, const u64* values, u64 value, Accept accept) const {
    u8* vacant = nullptr;
    return look<false>(spotOf(hash), values, value, accept, vacant);
  }
  // As `find`; where there is none, `vacant` is where `insertAt` may put it, as long as nothing else is put before.
  template <typename Accept>
  u32 findOrVacant(const Spot& spot, const u64* values, u64 value, Accept accept, u8*& vacant) const {
    vacant = nullptr;
    return look<true>(spot, values, value, accept, vacant);
  }

  // For a hash that is not there. `keys` tells the hashes of blocks that are there, `id` among them.
  template <typename Keys>
  void insert(u64 hash, u32 id, Keys keys) {
    const Spot spot = spotOf(hash);
    for (u32 at = spot.bucket;; at = next(segments_[spot.number], at)) {
      Bucket& bucket = buckets_[at];
      const u32 free = bytesAtMost(bucket.tags, grave);
      if (free != 0) return insertAt(&bucket.tags[std::countr_zero(free)], spot, hash, id, keys);
    }
  }
  template <typename Keys>
  void insertAt(u8* vacant, const Spot& spot, u64 hash, u32 id, Keys keys) {
    Segment& segment = segments_[spot.number];
    if (*vacant == empty) ++segment.used;
    ++segment.live;
    const auto offset = static_cast<std::size_t>(vacant - reinterpret_cast<u8*>(buckets_.data()));
    const auto at = static_cast<u32>(offset / sizeof(Bucket));
    const auto slot = static_cast<u32>(offset % sizeof(Bucket) - sizeof(Bucket::groups));
    buckets_[at].put(slot, id / groupBlocks, spot.tag);
    if (at != spot.bucket) markGuest(segment, at, slot, true);
    if (segment.used * 100 > segment.buckets * bucketSlots * fullPercent) grow(hash, keys);
  }

  void erase(u64 hash, u32 id) {
    const Spot spot = spotOf(hash);
    Segment& segment = segments_[spot.number];
    for (u32 at = spot.bucket;; at = next(segment, at)) {
      Bucket& bucket = buckets_[at];
      const u32 free = bytesEqual(bucket.tags, empty);
      for (u32 hits = bytesEqual(bucket.tags, spot.tag); hits != 0; hits &= hits - 1) {
        // Of equal entries any will do: each is found by whoever looks for the others.
        const auto slot = static_cast<u32>(std::countr_zero(hits));
        if (bucket.group(slot) != id / groupBlocks * groupBlocks) continue;
        // One that was never full has nobody behind it.
        bucket.tags[slot] = free != 0 ? empty : grave;
        if (free != 0) --segment.used;
        --segment.live;
        if (at != spot.bucket) markGuest(segment, at, slot, false);
        return;
      }
      if (free != 0) return;
    }
  }

 private:
  static constexpr u8 empty = 0, grave = 1, firstTag = 2;
  static constexpr u32 bucketSlots = 16, fullPercent = 96;
  // An eighth of an octave apart.
  static constexpr u32 rootBuckets[] = {144, 157, 171, 187, 204, 222, 242, 264}, roots = std::size(rootBuckets), mostBuckets = 264, smallBuckets = 8192;
  // Bits of a place that say its bucket, and, of a new segment's, how many a bucket and a tag tell together.
  static constexpr u32 homeBits = 13, toldBits = 15, mostSplits = 2;
  // Parts of the directory for each segment: there are more where hashes are made to be alike, and such a segment is made wide instead.
  static constexpr std::size_t mostParts = 32;
  static constexpr std::size_t mostAtOnce = 8;  // of splits

  struct alignas(64) Bucket {
    u8 groups[3 * bucketSlots];  // three bytes each
    u8 tags[bucketSlots];
    // Its first block.
    u32 group(u32 slot) const {
      u32 number;
      std::memcpy(&number, groups + 3 * slot, sizeof number);
      return (number & 0xffffff) * groupBlocks;
    }
    void put(u32 slot, u32 group, u8 tag) {
      std::memcpy(groups + 3 * slot, &group, 3);
      tags[slot] = tag;
    }
  };
  struct Segment {
    u32 first, buckets;
    u32 multiple;    // a hash times this is its place
    u32 used, live;  // with graves, without
    u32 splits;      // since its tags were new
  };
  struct Moved {
    u32 group, told;
    u8 tag;
    bool asked;
  };

  static bool isWide(const Segment& segment) { return segment.buckets > mostBuckets; }
  u32 numberOf(u64 hash) const { return directory_[static_cast<std::size_t>((static_cast<unsigned __int128>(hash) * directory_.size()) >> 64)]; }
  u32 home(const Segment& segment, u64 place) const {
    if (isWide(segment)) return static_cast<u32>(((place >> 32) * segment.buckets) >> 32);
    return static_cast<u32>(((place >> (64 - homeBits)) * segment.buckets) >> homeBits);
  }
  static u32 next(const Segment& segment, u32 at) { return at + 1 == segment.first + segment.buckets ? segment.first : at + 1; }
  // Two values say that a slot is free, so four tags are two, and told apart by asking.
  static u8 tagFrom(u32 told) {
    const auto tag = static_cast<u8>(told);
    return tag < firstTag ? tag + firstTag : tag;
  }
  static u8 tagOf(const Segment& segment, u64 place) { return tagFrom(static_cast<u32>(place >> (64 - toldBits + segment.splits))); }

  template <bool wantsVacant, typename Accept>
  u32 look(const Spot& spot, const u64* values, u64 value, Accept accept, u8*& vacant) const {
    for (u32 at = spot.bucket;; at = next(segments_[spot.number], at)) {
      const Bucket& bucket = buckets_[at];
      for (u32 hits = bytesEqual(bucket.tags, spot.tag); hits != 0; hits &= hits - 1) {
        const u32 group = bucket.group(static_cast<u32>(std::countr_zero(hits)));
        u32 same = 0;
        for (u32 i = 0; i < groupBlocks; ++i) same |= values[group + i] == value ? 1u << i : 0;
        for (; same != 0; same &= same - 1) {
          const u32 id = group + static_cast<u32>(std::countr_zero(same));
          if (accept(id)) return id;
        }
      }
      if constexpr (wantsVacant)
        if (const u32 free = vacant == nullptr ? bytesAtMost(bucket.tags, grave) : 0; free != 0) vacant = const_cast<u8*>(&bucket.tags[std::countr_zero(free)]);
      if (bytesEqual(bucket.tags, empty) != 0) return 0;
    }
  }

  void markGuest(const Segment& segment, u32 at, u32 slot, bool isGuest) {
    if (isWide(segment)) return;
    u16& of = guests_[at];
    of = static_cast<u16>(isGuest ? of | 1u << slot : of & ~(1u << slot));
  }
  u32 takeBuckets(u32 count) {
    if (taken_ + count > buckets_.size()) throw std::bad_alloc();
    taken_ += count;
    return static_cast<u32>(taken_ - count);
  }
  u32 add(const Segment& segment) {
    segments_.push_back(segment);
    return static_cast<u32>(segments_.size() - 1);
  }

  template <typename Keys>
  u64 hashOf(u32 number, u32 group, u8 tag, std::unordered_map<u32, u32>* twins, bool& ambiguous, Keys& keys) const;
  template <typename Keys>
  void collect(u32 number, u32 bits, bool askAll, Keys& keys);
  void settle(u32 number, u32 from, u32 bits);
  template <typename Keys>
  void grow(u64 hash, Keys& keys);

  Reserved<Bucket> buckets_;
  Reserved<u16> guests_;  // by bucket, a bit for each slot
  u32 growths_ = 0;
  std::size_t taken_ = 0;
  u32 widest_ = 0;  // buckets of the largest wide segment
  std::vector<u32> directory_;
  std::vector<Segment> segments_;
  // While a segment is split: its entries, and how many each of its buckets has.
  std::vector<Moved> moved_;
  std::vector<u8> filled_;
};

}  // namespace svc

#include "id_table_growth.h"
