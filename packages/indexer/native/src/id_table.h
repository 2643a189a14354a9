// Maps a hash to a block number: buckets of one cache line in segments. Each segment is split when it is full, and merged when it is
// sparse, so that the table never exists twice and no block waits for all of it.
//
//   hash            = 8 bits that choose the root . 8 bits home bucket . fraction . 8 bits tag
//   fraction        = … later splits . depth bits          a full segment becomes two that each have half of its hashes
//   entry           = 24 bits: the group of eight blocks (one line of the arena) and, above its number, the next bits of the fraction; 8 bits tag
//
//   bucket 5 of a segment       bucket 5 of one half     A split moves an entry, if at all, to the same bucket of the other half, by the lowest
//          a b c d e f …    →          a c e …           of its bits of the fraction, and reads no block. That bit is the group's from then on:
//                           →          b d f …           twice as many blocks need it. If an entry has no such bit left, its block is read.
//
//   Guests, entries that did not fit into their full home bucket, are marked; the hash of their block shows where they belong.
//
//   The roots have different shares of the hashes, an eighth of an octave apart: at any time some segments were split just now and others
//   will be soon, and together they are 0.68 full. All segments have one size and are contiguous: the last one moves to a place that
//   becomes free, and the memory after them is returned to the system.
//
// If an allocation fails, nothing has changed: a segment that cannot grow accepts entries until only one bucket's slots are free.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <new>
#include <unordered_map>
#include <vector>

#include "bucket_scan.h"
#include "reserved.h"

namespace svc {

class IdTable {
 public:
  static constexpr u32 groupBlocks = 8;

  // `capacity` is the number of blocks.
  explicit IdTable(u32 capacity) : buckets_(capacity / 3 + smallBuckets), guests_(capacity / 3 + smallBuckets), wideEnd_(static_cast<u32>(buckets_.size())) {
    directory_.resize(roots << depth_);
    segments_.reserve(roots);
    for (u32 root = 0; root < roots; ++root) add({.root = static_cast<u8>(root)});
  }
  IdTable(const IdTable&) = delete;
  IdTable& operator=(const IdTable&) = delete;

  // The place where a hash's entry is searched; invalid once `growths` has changed.
  struct Spot {
    u32 bucket, number;
    u32 told, groups;  // the entry's bits of the fraction, and the mask of its group
    u8 tag;
    bool isWide;
  };

  std::size_t bytes() const {
    return (segments_.size() * segmentBuckets + wideBuckets_) * bucketBytes + segments_.capacity() * sizeof(Segment) + directory_.size() * sizeof(Part) + sparse_.capacity() * sizeof(u64);
  }
  u32 growths() const { return growths_; }
  [[gnu::always_inline]] Spot spotOf(u64 hash) const {
    const Part part = partOf(hash);
    const u32 bucket = part.isWide ? segments_[part.number].wideFirst + wideHome(segments_[part.number].wideBuckets, hash) : part.number * segmentBuckets + homeOf(hash);
    return {bucket, part.number, toldOf(part.groupBits, part.depth + part.lag, hash), (1u << part.groupBits) - 1, tagOf(hash), part.isWide != 0};
  }
  // These are inline, since compilers consider a call that only prefetches as free of effects and drop it.
  [[gnu::always_inline]] void prefetch(const Spot& spot) const { __builtin_prefetch(&buckets_[spot.bucket]); }
  [[gnu::always_inline]] void prefetch(u64 hash) const { prefetch(spotOf(hash)); }
  // The maximum growth while a slice of a batch is stored.
  std::size_t growthBytes() const { return mostAtOnce * (segmentBuckets * bucketBytes + sizeof(Segment)) + std::size_t{widest_} * 2 * bucketBytes; }
  // Returns the first number of the first candidates without checking them, so that its block can be prefetched.
  u32 candidate(const Spot& spot) const {
    const Bucket& bucket = buckets_[spot.bucket];
    for (u32 hits = bytesEqual(bucket.tags, spot.tag); hits != 0; hits &= hits - 1)
      if (const u32 group = bucket.field(static_cast<u32>(std::countr_zero(hits))) ^ spot.told; group <= spot.groups) return group * groupBlocks;
    return 0;
  }

  // Returns the number whose entry in `values` equals `value` and that `accept(id)` accepts, or 0.
  template <typename Accept>
  u32 find(u64 hash, const u64* values, u64 value, Accept accept) const {
    u8* vacant = nullptr;
    return look<false>(spotOf(hash), values, value, accept, vacant);
  }
  // Works like `find`; if there is no such number, `vacant` is the slot for `insertAt`, valid until the next insertion.
  template <typename Accept>
  u32 findOrVacant(const Spot& spot, const u64* values, u64 value, Accept accept, u8*& vacant) const {
    vacant = nullptr;
    return look<true>(spot, values, value, accept, vacant);
  }

  // Inserts a hash that is not there. `keys` gives the hashes of the present blocks, including `id`; it is never copied, since a whole read
  // after partial writes waits for all earlier stores. Returns false, with nothing changed, if memory runs out: see `relieve`.
  template <typename Keys>
  [[nodiscard]] bool insert(u64 hash, u32 id, Keys&& keys) {
    const Spot spot = spotOf(hash);
    for (u32 at = spot.bucket;; at = next(spot, at))
      if (const u32 free = bytesAtMost(buckets_[at].tags, grave); free != 0) return insertAt(freeIn(spot, at, free), spot, hash, id, keys);
  }
  template <typename Keys>
  [[nodiscard]] bool insertAt(u8* vacant, const Spot& spot, u64 hash, u32 id, Keys&& keys) {
    Segment& segment = segments_[spot.number];
    if (segment.used >= slotsOf(segment) - bucketSlots) return false;
    const u32 group = id / groupBlocks;
    u32 told = spot.told;
    if (group > spot.groups) {
      giveToGroups(spot.number, static_cast<u32>(std::bit_width(group)));
      told = toldOf(segment.groupBits, segment.depth + segment.lag, hash);
    }
    if (*vacant == empty) ++segment.used;
    ++segment.live;
    const auto offset = static_cast<std::size_t>(vacant - reinterpret_cast<u8*>(buckets_.data()));
    const auto at = static_cast<u32>(offset / sizeof(Bucket));
    const auto slot = static_cast<u32>(offset % sizeof(Bucket) - sizeof(Bucket::fields));
    buckets_[at].put(slot, group | told, spot.tag);
    if (at != spot.bucket) markGuest(at, slot);
    if (segment.used > slotsOf(segment) * fullPercent / 100) grow(hash, keys);
    return true;
  }
  // Retries the growth that `insert` was refused for, while its block is not there; returns true if `insert` may be tried again.
  template <typename Keys>
  bool relieve(u64 hash, Keys&& keys) { return grow(hash, keys); }

  void erase(u64 hash, u32 id) { erase(spotOf(hash), hash, id); }
  void erase(const Spot& spot, u64 hash, u32 id) {
    const u32 wanted = id / groupBlocks | spot.told;
    for (u32 at = spot.bucket;; at = next(spot, at)) {
      const Bucket& bucket = buckets_[at];
      u32 alike = 0;
      for (u32 hits = bytesEqual(bucket.tags, spot.tag); hits != 0; hits &= hits - 1)
        if (const auto slot = static_cast<u32>(std::countr_zero(hits)); bucket.field(slot) == wanted) alike |= 1u << slot;
      // Among equal entries, any may go as long as look-ups find the others: take one in its home bucket, else the first guest. An entry of
      // another home stays, since its place shows where it belongs.
      if (alike != 0 && !spot.isWide && (at != spot.bucket || (alike & (alike - 1)) != 0)) {
        const u32 marked = slotsMarked(guests_[at]);
        alike &= at == spot.bucket && (alike & ~marked) != 0 ? ~marked : marked;
      }
      const u32 free = bytesEqual(bucket.tags, empty);
      if (alike != 0) return take(spot, at, static_cast<u32>(std::countr_zero(alike)), free != 0, hash);
      if (free != 0) return;
    }
  }
  // Merges two segments or narrows a wide one if some are sparse, in some ten microseconds; returns false if there is nothing to do. `keys`
  // as in `insert`; call this only when no block is between its erasure here and its release.
  template <typename Keys>
  bool shrink(Keys&& keys);

 private:
  static constexpr u8 empty = 0, grave = 1, firstTag = 2;
  static constexpr u32 bucketSlots = 16, fullPercent = 96;
  static constexpr u32 rootBits = 8, homeBits = 8, tagBits = 8, fieldBits = 24, fieldMask = (1u << fieldBits) - 1;
  // The group bits of a new table's entries: enough for a table twice as full as one at its first split.
  static constexpr u32 firstGroupBits = 13;
  static constexpr u32 mostLag = 3;
  static constexpr u32 segmentBuckets = 1 << homeBits, segmentSlots = segmentBuckets * bucketSlots, smallBuckets = 8192;
  // Two segments with this many entries each are merged to one that is half full.
  static constexpr u32 sparseSlots = segmentSlots / 4;
  // The shares of the roots, which add up to 256 and are an eighth of an octave apart.
  static constexpr u32 rootShares[] = {23, 25, 28, 30, 33, 36, 39, 42}, roots = std::size(rootShares);
  // The directory's parts per segment: more are needed only if hashes are alike on purpose, and such a segment is widened instead.
  static constexpr std::size_t mostParts = 32;
  static constexpr std::size_t mostAtOnce = 8;  // the maximum number of splits
  static constexpr u32 mostLooks = 64;          // the maximum number of listed segments examined

  struct alignas(64) Bucket {
    u8 fields[3 * bucketSlots];  // three bytes each
    u8 tags[bucketSlots];
    u32 field(u32 slot) const {
      u32 value;
      std::memcpy(&value, fields + 3 * slot, sizeof value);
      return value & fieldMask;
    }
    void put(u32 slot, u32 field, u8 tag) {
      std::memcpy(fields + 3 * slot, &field, 3);
      tags[slot] = tag;
    }
  };
  static constexpr std::size_t bucketBytes = sizeof(Bucket) + 1;
  // A segment is at `number * segmentBuckets`, unless it is wide.
  struct Segment {
    u32 prefix = 0;  // the lowest `depth` bits of its hashes' fractions
    u32 used = 0, live = 0;  // with graves, and without
    u32 wideFirst = 0, wideBuckets = 0;
    u8 root = 0, depth = 0;
    // The group bits of its fields. Above them are the bits of the fraction after the first `depth + lag`; if none fit there, `lag` has no
    // meaning.
    u8 groupBits = firstGroupBits, lag = 0;
    bool isListed = false;  // in `sparse_`
    bool knowsNext() const { return lag == 0 && groupBits < fieldBits; }
  };
  // The fields of a segment that a look-up needs.
  struct Part {
    u32 number : 18, depth : 6, groupBits : 5, lag : 2, isWide : 1;
  };
  struct Moved {
    u32 field, home;  // within its segment
    u8 tag, half;
  };

  static constexpr std::array<u8, 256> rootOf = [] {
    std::array<u8, 256> all{};
    for (u32 root = 0, at = 0; root < roots; ++root)
      for (u32 i = 0; i < rootShares[root]; ++i) all[at++] = static_cast<u8>(root);
    return all;
  }();
  static u32 lowest(u64 of, u32 bits) { return static_cast<u32>(of & ((u64{1} << bits) - 1)); }
  static u32 homeOf(u64 hash) { return static_cast<u32>(hash >> (64 - rootBits - homeBits)) % segmentBuckets; }
  static u32 toldOf(u32 groupBits, u32 from, u64 hash) { return static_cast<u32>(hash >> (tagBits + from)) << groupBits & fieldMask; }
  // Uses all bits of the hash, since such hashes have many in common.
  static u32 wideHome(u32 buckets, u64 hash) { return static_cast<u32>((((hash * 0x9E3779B97F4A7C15ull) >> 32) * buckets) >> 32); }
  // Two values mark a free slot, so four tags share two values.
  static u8 tagOf(u64 hash) {
    const auto tag = static_cast<u8>(hash);
    return tag < firstTag ? tag + firstTag : tag;
  }
  Part partOf(u64 hash) const { return directory_[(static_cast<std::size_t>(rootOf[hash >> (64 - rootBits)]) << depth_) + lowest(hash >> tagBits, depth_)]; }
  u32 next(const Spot& spot, u32 at) const {
    if (!spot.isWide) return (at & ~(segmentBuckets - 1)) | ((at + 1) & (segmentBuckets - 1));
    const Segment& segment = segments_[spot.number];
    return at + 1 == segment.wideFirst + segment.wideBuckets ? segment.wideFirst : at + 1;
  }
  static u32 slotsOf(const Segment& segment) { return segment.wideBuckets == 0 ? segmentSlots : segment.wideBuckets * bucketSlots; }
  // Guests take slots from the end, so that few share their mark with other entries.
  static u32 slotFor(bool isHome, u32 free) { return static_cast<u32>(isHome ? std::countr_zero(free) : 31 - std::countl_zero(free)); }
  u8* freeIn(const Spot& spot, u32 at, u32 free) const { return const_cast<u8*>(&buckets_[at].tags[slotFor(at == spot.bucket, free)]); }

  template <bool wantsVacant, typename Accept>
  u32 look(const Spot& spot, const u64* values, u64 value, Accept accept, u8*& vacant) const {
    for (u32 at = spot.bucket;; at = next(spot, at)) {
      const Bucket& bucket = buckets_[at];
      for (u32 hits = bytesEqual(bucket.tags, spot.tag); hits != 0; hits &= hits - 1) {
        const u32 number = bucket.field(static_cast<u32>(std::countr_zero(hits))) ^ spot.told, group = number * groupBlocks;
        if (number > spot.groups) continue;
        for (u32 id = group; id < group + groupBlocks; ++id)
          if (values[id] == value && accept(id)) return id;
      }
      if constexpr (wantsVacant)
        if (const u32 free = vacant == nullptr ? bytesAtMost(bucket.tags, grave) : 0; free != 0) vacant = freeIn(spot, at, free);
      if (bytesEqual(bucket.tags, empty) != 0) return 0;
    }
  }

  void take(const Spot& spot, u32 at, u32 slot, bool wasNeverFull, u64 hash) {
    Segment& segment = segments_[spot.number];
    // A bucket that was never full has no guests elsewhere.
    buckets_[at].tags[slot] = wasNeverFull ? empty : grave;
    if (wasNeverFull) --segment.used;
    if (at != spot.bucket && buckets_[at].tags[slot ^ 1] <= grave) guests_[at] &= static_cast<u8>(~(1u << slot / 2));
    if (--segment.live == sparseSlots && !segment.isListed) list(segment, hash);
  }
  // One bit marks two slots.
  void markGuest(u32 at, u32 slot) { guests_[at] |= static_cast<u8>(1u << slot / 2); }
  static u32 slotsMarked(u32 pairs);
  void list(Segment& segment, u64 hash) noexcept;
  void giveToGroups(u32 number, u32 bits);
  u32 groupWidth(u32 number) const;
  void setParts(u32 number);
  void prepareSplit(const Segment& segment);
  void prepareWide(const Segment& segment, u32 buckets);
  u32 add(const Segment& segment);
  void drop(u32 number);
  void empties(u32 first, u32 count);
  void widen(u32 number, u32 buckets);
  void giveWide(Segment& segment);
  void halveDirectory();

  template <typename Keys>
  u64 hashOf(const Segment& segment, u32 field, u8 tag, std::unordered_map<u32, u32>* twins, bool& ambiguous, Keys& keys) const;
  template <typename Keys>
  bool collect(u32 number, bool all, const Segment& target, Keys& keys);
  template <typename Keys>
  void collect(std::initializer_list<u32> numbers, bool& all, const Segment& target, Keys& keys);
  u32 divide(u32 lower, u32 upper);
  u32 unite(u32 lower, u32 upper, u32 groupBits);
  void settle(u32 lower, u32 upper);
  void settleWide(u32 number);
  template <typename Keys>
  bool grow(u64 hash, Keys& keys);
  template <typename Keys>
  void merge(u32 lower, u32 upper, Keys& keys);

  Reserved<Bucket> buckets_;
  Reserved<u8> guests_;  // by bucket
  u32 growths_ = 0;
  u32 depth_ = 1;  // of the directory; a segment's depth is at most this
  std::vector<Part> directory_;
  std::vector<Segment> segments_;
  std::array<u32, 64> atDepth_{};  // the number of segments
  std::vector<u64> sparse_;  // a hash of each segment that became sparse
  // The buckets of wide segments, from the end of the array, and freed ones by the binary logarithm of their number.
  u32 wideEnd_, wideBuckets_ = 0, widest_ = 0;
  std::array<std::vector<u32>, 32> wideFree_;
  // During splits and merges: the entries whose blocks were looked up, or that do not fit into their home.
  std::vector<Moved> moved_;
};

}  // namespace svc

#include "id_table_growth.h"
