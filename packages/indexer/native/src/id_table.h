// Hash to block number: buckets of one cache line in segments that are split one by one, each when it is full, and merged again when they are
// sparse, so that the table is never there twice and no block waits for all of it.
//
//   hash            = 8 bits that choose the root . fraction
//   fraction        = depth bits . place in the segment   a full segment becomes two that each have half of its hashes
//   place           = 8 bits home bucket . tag …
//   entry           = 24 bits group of eight blocks (one line of the arena), 8 bits tag, a part of the place
//
//   place  0 1 2 3 4 5 6 7 8 9 …     An entry that lies in its home bucket and its tag tell the place as far as a split needs it, so
//          └ bucket ─────┘           splitting reads no block. It uses up a bit: every fourth one asks the blocks for new tags.
//                         └ tag ───  Guests, which lie behind their full home, are marked, and asked as well.
//
//   Roots have shares of the hashes an eighth of an octave apart: at any time some segments were split a moment ago and others will be soon,
//   0.68 full together. All segments are of one size and lie side by side: the last one moves to where another has gone, and what lies behind
//   them goes back to the system.
#pragma once
#include <algorithm>
#include <array>
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
  explicit IdTable(u32 capacity) : buckets_(capacity / 3 + smallBuckets), guests_(capacity / 3 + smallBuckets), wideEnd_(static_cast<u32>(buckets_.size())) {
    directory_.resize(roots << depth_);
    for (u32 root = 0; root < roots; ++root) add({.root = static_cast<u8>(root)});
  }
  IdTable(const IdTable&) = delete;
  IdTable& operator=(const IdTable&) = delete;

  // Where a hash's entry is looked for; void once `growths` has changed.
  struct Spot {
    u32 bucket, number;
    u8 tag;
    bool isWide;
  };

  std::size_t bytes() const {
    return (segments_.size() * segmentBuckets + wideBuckets_) * bucketBytes + segments_.capacity() * sizeof(Segment) + directory_.size() * sizeof(Part) + sparse_.capacity() * sizeof(u64);
  }
  u32 growths() const { return growths_; }
  [[gnu::always_inline]] Spot spotOf(u64 hash) const {
    const Part part = partOf(hash);
    const u64 place = placeIn(part.depth, hash);
    const u32 bucket = part.isWide ? wideHome(segments_[part.number], place) : part.number * segmentBuckets + static_cast<u32>(place >> (64 - homeBits));
    return {bucket, part.number, tagFrom(static_cast<u32>(place >> (64 - toldBits + part.splits))), part.isWide != 0};
  }
  // Inline: compilers take a call that only prefetches for one without effect.
  [[gnu::always_inline]] void prefetch(const Spot& spot) const { __builtin_prefetch(&buckets_[spot.bucket]); }
  [[gnu::always_inline]] void prefetch(u64 hash) const { prefetch(spotOf(hash)); }
  // What it may grow by while a slice of a batch is stored.
  std::size_t growthBytes() const { return mostAtOnce * (segmentBuckets * bucketBytes + sizeof(Segment)) + std::size_t{widest_} * 2 * bucketBytes; }
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
    for (u32 at = spot.bucket;; at = next(spot, at))
      if (const u32 free = bytesAtMost(buckets_[at].tags, grave); free != 0) return insertAt(freeIn(spot, at, free), spot, hash, id, keys);
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
    if (at != spot.bucket) markGuest(at, slot);
    if (segment.used > fullSlots(segment)) grow(hash, keys);
  }

  void erase(u64 hash, u32 id) { erase(spotOf(hash), hash, id); }
  void erase(const Spot& spot, u64 hash, u32 id) {
    bool isErased = false;
    for (u32 at = spot.bucket;; at = next(spot, at)) {
      Bucket& bucket = buckets_[at];
      const u32 free = bytesEqual(bucket.tags, empty);
      for (u32 hits = bytesEqual(bucket.tags, spot.tag); hits != 0; hits &= hits - 1) {
        // Of equal entries any will do: each is found by whoever looks for the others. But one that stays may be another block's from now on,
        // whose home is elsewhere.
        const auto slot = static_cast<u32>(std::countr_zero(hits));
        if (bucket.group(slot) != id / groupBlocks * groupBlocks) continue;
        if (isErased) {
          markGuest(at, slot);
          continue;
        }
        isErased = true;
        Segment& segment = segments_[spot.number];
        // One that was never full has nobody behind it.
        bucket.tags[slot] = free != 0 ? empty : grave;
        if (free != 0) --segment.used;
        if (at != spot.bucket && bucket.tags[slot ^ 1] <= grave) guests_[at] &= static_cast<u8>(~(1u << slot / 2));
        if (--segment.live == sparseSlots && !segment.isListed) {
          segment.isListed = true;
          sparse_.push_back(hash);
        }
      }
      if (free != 0) return;
    }
  }
  // Merges two segments or narrows a wide one, where some are sparse: a matter of some ten microseconds; false where there is nothing to do.
  // `keys` as in `insert`: for whenever none of the blocks is between its erasing here and its end.
  template <typename Keys>
  bool shrink(Keys keys);

 private:
  static constexpr u8 empty = 0, grave = 1, firstTag = 2;
  static constexpr u32 bucketSlots = 16, fullPercent = 96;
  // Bits of a place that say its bucket, and, of a new segment's, how many a bucket and a tag tell together.
  static constexpr u32 homeBits = 8, toldBits = 16, mostSplits = 3, rootBits = 8;
  static constexpr u32 segmentBuckets = 1 << homeBits, segmentSlots = segmentBuckets * bucketSlots, smallBuckets = 8192;
  // Of these two become one: half full.
  static constexpr u32 sparseSlots = segmentSlots / 4;
  // Of 256; an eighth of an octave apart.
  static constexpr u32 rootShares[] = {23, 25, 28, 30, 33, 36, 39, 42}, roots = std::size(rootShares);
  // Parts of the directory for each segment: there are more where hashes are made to be alike, and such a segment is made wide instead.
  static constexpr std::size_t mostParts = 32;
  static constexpr std::size_t mostAtOnce = 8;  // of splits
  static constexpr u32 mostLooks = 64;          // at segments that were sparse

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
  static constexpr std::size_t bucketBytes = sizeof(Bucket) + 1;
  // One is at `number * segmentBuckets`, unless it is wide.
  struct Segment {
    u32 prefix = 0;  // the first `depth` bits of its hashes' fractions
    u32 used = 0, live = 0;  // with graves, without
    u32 wideFirst = 0, wideBuckets = 0;
    u8 root = 0, depth = 0;
    u8 splits = 0;  // since its tags were new
    bool isListed = false;  // in `sparse_`
  };
  // All that a look-up needs of a segment.
  struct Part {
    u32 number : 20, depth : 6, splits : 2, isWide : 1;
  };
  struct Moved {
    u32 group, place;  // the first bits of its place, as far as they are known
    u8 tag;
    bool asked;
  };

  static constexpr std::array<u8, 256> rootOf = [] {
    std::array<u8, 256> all{};
    for (u32 root = 0, at = 0; root < roots; ++root)
      for (u32 i = 0; i < rootShares[root]; ++i) all[at++] = static_cast<u8>(root);
    return all;
  }();
  static u64 placeIn(u32 depth, u64 hash) { return hash << (rootBits + depth); }
  Part partOf(u64 hash) const { return directory_[(static_cast<std::size_t>(rootOf[hash >> (64 - rootBits)]) << depth_) + ((hash << rootBits) >> (64 - depth_))]; }
  static u32 wideHome(const Segment& segment, u64 place) { return segment.wideFirst + static_cast<u32>(((place >> 32) * segment.wideBuckets) >> 32); }
  u32 next(const Spot& spot, u32 at) const {
    if (!spot.isWide) return (at & ~(segmentBuckets - 1)) | ((at + 1) & (segmentBuckets - 1));
    const Segment& segment = segments_[spot.number];
    return at + 1 == segment.wideFirst + segment.wideBuckets ? segment.wideFirst : at + 1;
  }
  static u32 fullSlots(const Segment& segment) {
    if (segment.wideBuckets == 0) return segmentSlots * fullPercent / 100;
    return static_cast<u32>(u64{segment.wideBuckets} * bucketSlots * fullPercent / 100);
  }
  // Two values say that a slot is free, so four tags are two, and told apart by asking.
  static u8 tagFrom(u32 told) {
    const auto tag = static_cast<u8>(told);
    return tag < firstTag ? tag + firstTag : tag;
  }
  // Guests from the end, so that few share their mark with others.
  u8* freeIn(const Spot& spot, u32 at, u32 free) const {
    return const_cast<u8*>(&buckets_[at].tags[at == spot.bucket ? std::countr_zero(free) : 31 - std::countl_zero(free)]);
  }

  template <bool wantsVacant, typename Accept>
  u32 look(const Spot& spot, const u64* values, u64 value, Accept accept, u8*& vacant) const {
    for (u32 at = spot.bucket;; at = next(spot, at)) {
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
        if (const u32 free = vacant == nullptr ? bytesAtMost(bucket.tags, grave) : 0; free != 0) vacant = freeIn(spot, at, free);
      if (bytesEqual(bucket.tags, empty) != 0) return 0;
    }
  }

  // One bit for two slots.
  void markGuest(u32 at, u32 slot) { guests_[at] |= static_cast<u8>(1u << slot / 2); }

  void setParts(u32 number);
  u32 add(const Segment& segment);
  void drop(u32 number);
  void empties(u32 first, u32 count);
  void widen(u32 number);
  void giveWide(Segment& segment);
  void halveDirectory();

  template <typename Keys>
  u64 hashOf(const Segment& segment, u32 group, u8 tag, std::unordered_map<u32, u32>* twins, bool& ambiguous, Keys& keys) const;
  template <typename Keys>
  void collect(u32 number, bool askAll, bool askAlike, Keys& keys);
  void settle(u32 lower, u32 upper);
  void settleWide(u32 number);
  template <typename Keys>
  void grow(u64 hash, Keys& keys);
  template <typename Keys>
  void merge(u32 lower, u32 upper, Keys& keys);

  Reserved<Bucket> buckets_;
  Reserved<u8> guests_;  // by bucket
  u32 growths_ = 0;
  u32 depth_ = 1;  // of the directory; segments have less or the same
  std::vector<Part> directory_;
  std::vector<Segment> segments_;
  std::array<u32, 64> atDepth_{};  // segments
  std::vector<u64> sparse_;  // a hash of each segment that became sparse
  // Wide segments' buckets, from the end of all; those given back by the doublings that made them.
  u32 wideEnd_, wideBuckets_ = 0, widest_ = 0;
  std::array<std::vector<u32>, 32> wideFree_;
  // While segments are split or merged: their entries, and how many each bucket has of its own and of guests.
  std::vector<Moved> moved_;
  std::vector<u8> own_, others_;
};

}  // namespace svc

#include "id_table_growth.h"
