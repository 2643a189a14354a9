// How an IdTable gets room and gives it back: a segment is cleaned of graves, split in two, merged with its other half, or, where hashes are made
// to be alike, made wide.
#pragma once
#include "id_table.h"

namespace svc {

// The hash of the block that an entry stands for: of those of its group the one whose hash belongs here. `twins` counts the
// entries that were asked for already: of several alike each stands for one of the blocks, whichever. `ambiguous` where there are several and no `twins`.
template <typename Keys>
u64 IdTable::hashOf(const Segment& segment, u32 group, u8 tag, std::unordered_map<u32, u32>* twins, bool& ambiguous, Keys& keys) const {
  u64 all[groupBlocks], hashes[groupBlocks];
  const u32 used = keys.ofGroup(group, all);
  u32 count = 0;
  for (u32 alike = used & tagsLike(all, rootBits + segment.depth, 64 - toldBits + segment.splits, tag, tag < 2 * firstTag ? 0xff ^ firstTag : 0xff); alike != 0; alike &= alike - 1) {
    const u64 hash = all[std::countr_zero(alike)];
    if (rootOf[hash >> (64 - rootBits)] == segment.root && (segment.depth == 0 || (hash << rootBits) >> (64 - segment.depth) == segment.prefix)) hashes[count++] = hash;
  }
  assert(count > 0);
  if (count == 1) return hashes[0];
  if (twins == nullptr) {
    ambiguous = true;
    return hashes[0];
  }
  return hashes[std::min((*twins)[group / groupBlocks << 8 | tag]++, count - 1)];
}

// To the end of `moved_`, in about the order of their places. `askAlike`: those as well whose tag is one of two.
template <typename Keys>
void IdTable::collect(u32 number, bool askAll, bool askAlike, Keys& keys) {
  const Segment segment = segments_[number];
  const bool isWide = segment.wideBuckets != 0;
  const u32 first = isWide ? segment.wideFirst : number * segmentBuckets, count = isWide ? segment.wideBuckets : segmentBuckets;
  const std::size_t before = moved_.size();
  moved_.resize(before + segment.live);
  Moved* to = moved_.data() + before;
  const u32 tagShift = 32 - toldBits + segment.splits, tagMask = (1u << (32 - homeBits)) - 1;
  askAll |= isWide;
  for (u32 at = 0; at < count; ++at) {
    const Bucket& bucket = buckets_[first + at];
    const u32 guests = askAll ? 0xff : guests_[first + at];
    for (u32 held = ~bytesAtMost(bucket.tags, grave) & 0xffff; held != 0; held &= held - 1) {
      const auto slot = static_cast<u32>(std::countr_zero(held));
      const u8 tag = bucket.tags[slot];
      *to++ = {bucket.group(slot), at << (32 - homeBits) | (static_cast<u32>(tag) << tagShift & tagMask), tag, (guests >> slot / 2 & 1) != 0 || (askAlike && tag < 2 * firstTag)};
    }
  }
  assert(to == moved_.data() + moved_.size());
  constexpr std::size_t ahead = 24;
  std::unordered_map<u32, u32> twins;
  bool ambiguous = false;
  for (std::size_t i = before; i < moved_.size() && !ambiguous; ++i) {
    if (i + ahead < moved_.size() && moved_[i + ahead].asked) keys.prefetch(moved_[i + ahead].group);
    if (!moved_[i].asked) continue;
    const u64 hash = hashOf(segment, moved_[i].group, moved_[i].tag, askAll ? &twins : nullptr, ambiguous, keys);
    moved_[i].place = static_cast<u32>(placeIn(segment.depth, hash) >> 32);
  }
  if (!ambiguous) return;
  moved_.resize(before);
  collect(number, true, askAlike, keys);
}

// All of `moved_` into the empty buckets of a segment, or of two by the first bit of their places.
inline void IdTable::settle(u32 lower, u32 upper) {
  own_.assign(2 * segmentBuckets, 0);
  others_.assign(2 * segmentBuckets, 0);
  const u32 shift = lower == upper ? 0 : 1;
  u32 counts[2] = {0, 0};
  for (const Moved& moved : moved_) {
    const u32 half = shift == 0 ? 0 : moved.place >> 31, home = (moved.place << shift) >> (32 - homeBits), row = half * segmentBuckets;
    u32 at = home;
    while (own_[row + at] + others_[row + at] == bucketSlots) at = (at + 1) & (segmentBuckets - 1);
    const u32 slot = at == home ? own_[row + at]++ : bucketSlots - 1 - others_[row + at]++;
    const u32 bucket = (half == 0 ? lower : upper) * segmentBuckets + at;
    buckets_[bucket].put(slot, moved.group / groupBlocks, moved.tag);
    if (at != home) markGuest(bucket, slot);
    ++counts[half];
  }
  segments_[lower].used = segments_[lower].live = counts[0];
  if (shift != 0) segments_[upper].used = segments_[upper].live = counts[1];
}

inline void IdTable::settleWide(u32 number) {
  Segment& segment = segments_[number];
  own_.assign(segment.wideBuckets, 0);
  for (const Moved& moved : moved_) {
    u32 at = wideHome(segment, static_cast<u64>(moved.place) << 32) - segment.wideFirst;
    while (own_[at] == bucketSlots) at = at + 1 == segment.wideBuckets ? 0 : at + 1;
    buckets_[segment.wideFirst + at].put(own_[at]++, moved.group / groupBlocks, moved.tag);
  }
  segment.used = segment.live = static_cast<u32>(moved_.size());
  own_ = {};
}

// `hash`: one of the segment's.
template <typename Keys>
void IdTable::grow(u64 hash, Keys& keys) {
  const u32 number = partOf(hash).number;
  const Segment before = segments_[number];
  const bool wasWide = before.wideBuckets != 0;
  // Where an eighth is graves they are all there is to do.
  const bool isDirty = before.live * 8 <= before.used * 7;
  const bool widens = !isDirty && (wasWide || (before.depth == depth_ && directory_.size() * 2 > mostParts * segments_.size()));
  const bool splits = !isDirty && !widens, renews = splits && before.splits == mostSplits;
  ++growths_;
  moved_.clear();
  collect(number, widens || renews, false, keys);
  if (wasWide) empties(before.wideFirst, before.wideBuckets);
  else empties(number * segmentBuckets, segmentBuckets);
  if (widens) widen(number);
  if (widens || wasWide) return settleWide(number);
  if (!splits) return settle(number, number);

  if (before.depth == depth_) {
    std::vector<Part> twice(directory_.size() * 2);
    for (std::size_t part = 0; part < twice.size(); ++part) twice[part] = directory_[part / 2];
    directory_.swap(twice);
    ++depth_;
  }
  Segment& lower = segments_[number];
  --atDepth_[before.depth];
  ++atDepth_[++lower.depth];
  lower.prefix *= 2;
  lower.splits = renews ? 0 : before.splits + 1;
  lower.isListed = false;
  setParts(number);
  Segment half = lower;
  ++half.prefix;
  const u32 upper = add(half);
  if (renews)
    for (Moved& moved : moved_) moved.tag = tagFrom(moved.place << 1 >> (32 - toldBits));
  settle(number, upper);
}

template <typename Keys>
bool IdTable::shrink(Keys keys) {
  for (u32 looks = 0; looks < mostLooks && !sparse_.empty(); ++looks) {
    const u64 hash = sparse_.back();
    sparse_.pop_back();
    const u32 number = partOf(hash).number;
    Segment& segment = segments_[number];
    segment.isListed = false;
    if (segment.live > sparseSlots) continue;
    if (segment.wideBuckets != 0) {
      ++growths_;
      moved_.clear();
      collect(number, true, false, keys);
      giveWide(segment);
      setParts(number);
      settle(number, number);
    } else {
      if (segment.depth == 0) continue;
      const Part other = directory_[(static_cast<std::size_t>(segment.root) << depth_) + (static_cast<std::size_t>(segment.prefix ^ 1) << (depth_ - segment.depth))];
      if (other.isWide || other.depth != segment.depth || segment.live + segments_[other.number].live > 2 * sparseSlots) continue;
      if (segment.prefix % 2 == 0) merge(number, other.number, keys);
      else merge(other.number, number, keys);
    }
    // What is sparse still comes again.
    const u32 now = partOf(hash).number;
    if (segments_[now].live <= sparseSlots && !segments_[now].isListed) {
      segments_[now].isListed = true;
      sparse_.push_back(hash);
    }
    return true;
  }
  if (sparse_.empty()) sparse_ = {};
  return !sparse_.empty();
}

// Halves of one segment.
template <typename Keys>
void IdTable::merge(u32 lower, u32 upper, Keys& keys) {
  ++growths_;
  moved_.clear();
  collect(lower, false, true, keys);
  const std::size_t middle = moved_.size();
  collect(upper, false, true, keys);
  Segment whole = segments_[lower];
  // As many bits of the place as both tell.
  const u32 splits = std::max({u32{1}, u32{whole.splits}, u32{segments_[upper].splits}}) - 1;
  for (std::size_t i = 0; i < moved_.size(); ++i) {
    Moved& moved = moved_[i];
    moved.place = moved.place >> 1 | (i < middle ? 0 : 1u << 31);
    moved.tag = tagFrom(moved.place >> (32 - toldBits + splits));
  }
  empties(lower * segmentBuckets, segmentBuckets);
  empties(upper * segmentBuckets, segmentBuckets);
  --atDepth_[whole.depth];
  ++atDepth_[--whole.depth];
  whole.prefix /= 2;
  whole.splits = static_cast<u8>(splits);
  whole.isListed = false;
  const u32 stays = std::min(lower, upper);
  segments_[stays] = whole;
  setParts(stays);
  settle(stays, stays);
  drop(std::max(lower, upper));
  while (depth_ > 1 && atDepth_[depth_] == 0) halveDirectory();
}

inline void IdTable::setParts(u32 number) {
  const Segment& segment = segments_[number];
  const u32 below = depth_ - segment.depth;
  const std::size_t from = (static_cast<std::size_t>(segment.root) << depth_) + (static_cast<std::size_t>(segment.prefix) << below);
  std::fill_n(directory_.begin() + static_cast<std::ptrdiff_t>(from), std::size_t{1} << below, Part{number, segment.depth, segment.splits, segment.wideBuckets != 0});
}

inline u32 IdTable::add(const Segment& segment) {
  const auto number = static_cast<u32>(segments_.size());
  if ((number + 1) * segmentBuckets > wideEnd_) throw std::bad_alloc();
  segments_.push_back(segment);
  buckets_.use((number + 1) * segmentBuckets);
  guests_.use((number + 1) * segmentBuckets);
  ++atDepth_[segment.depth];
  setParts(number);
  return number;
}

// One that is empty and in no part of the directory: the last one moves to its place.
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
  std::vector<Part> half(directory_.size() / 2);
  for (std::size_t part = 0; part < half.size(); ++part) half[part] = directory_[part * 2];
  directory_.swap(half);
  --depth_;
}

// To twice its buckets, which are empty: where a former segment of that many was, else in front of all others.
inline void IdTable::widen(u32 number) {
  Segment& segment = segments_[number];
  const u32 buckets = segment.wideBuckets == 0 ? 2 * segmentBuckets : 2 * segment.wideBuckets;
  giveWide(segment);
  std::vector<u32>& known = wideFree_[std::countr_zero(buckets)];
  if (known.empty()) {
    if (segments_.size() * segmentBuckets + buckets > wideEnd_) throw std::bad_alloc();
    known.push_back(wideEnd_ -= buckets);
  }
  segment.wideFirst = known.back();
  known.pop_back();
  segment.wideBuckets = buckets;
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
