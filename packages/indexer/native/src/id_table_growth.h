// How a segment of an IdTable gets room: cleaned of graves, split in two, or, where hashes are made to be alike, made wide.
#pragma once
#include "id_table.h"

namespace svc {

// The hash of the block that an entry stands for: of those of its group the one whose hash belongs here. `twins` counts the
// entries that were asked for already: of several alike each stands for one of the blocks, whichever. `ambiguous` where there are several and no `twins`.
template <typename Keys>
u64 IdTable::hashOf(u32 number, u32 group, u8 tag, std::unordered_map<u32, u32>* twins, bool& ambiguous, Keys& keys) const {
  const Segment& segment = segments_[number];
  u64 all[groupBlocks], hashes[groupBlocks];
  const u32 used = keys.ofGroup(group, all);
  u32 alike = 0, count = 0;
  for (u32 i = 0; i < groupBlocks; ++i) alike |= tagOf(segment, all[i] * segment.multiple) == tag ? 1u << i : 0;
  for (alike &= used; alike != 0; alike &= alike - 1)
    if (const u64 hash = all[std::countr_zero(alike)]; numberOf(hash) == number) hashes[count++] = hash;
  assert(count > 0);
  if (count == 1) return hashes[0];
  if (twins == nullptr) {
    ambiguous = true;
    return hashes[0];
  }
  return hashes[std::min((*twins)[group / groupBlocks << 8 | tag]++, count - 1)];
}

// Into `moved_`, each with the first `bits` bits of its place, in about the order of their places.
template <typename Keys>
void IdTable::collect(u32 number, u32 bits, bool askAll, Keys& keys) {
  const Segment& segment = segments_[number];
  const u32 count = segment.buckets;
  moved_.resize(static_cast<std::size_t>(count) * bucketSlots);
  Moved* to = moved_.data();
  for (u32 at = 0; at < count; ++at) {
    const Bucket& bucket = buckets_[segment.first + at];
    // The first place of this bucket, as `home` has it.
    const u32 first = askAll ? 0 : (((at << homeBits) + count - 1) / count) << (bits - homeBits);
    for (u32 held = ~bytesAtMost(bucket.tags, grave) & 0xffff; held != 0; held &= held - 1) {
      const auto slot = static_cast<u32>(std::countr_zero(held));
      const u8 tag = bucket.tags[slot];
      const bool asked = askAll || tag < 2 * firstTag || (guests_[segment.first + at] >> slot & 1) != 0;
      *to++ = {bucket.group(slot), first + ((tag - first) & 255), tag, asked};
    }
  }
  moved_.resize(static_cast<std::size_t>(to - moved_.data()));
  constexpr std::size_t ahead = 16;
  std::unordered_map<u32, u32> twins;
  bool ambiguous = false;
  for (std::size_t i = 0; i < moved_.size() && !ambiguous; ++i) {
    if (i + ahead < moved_.size() && moved_[i + ahead].asked) keys.prefetch(moved_[i + ahead].group);
    if (!moved_[i].asked) continue;
    const u64 hash = hashOf(number, moved_[i].group, moved_[i].tag, askAll ? &twins : nullptr, ambiguous, keys);
    moved_[i].told = static_cast<u32>((hash * segment.multiple) >> (64 - bits));
  }
  if (ambiguous) collect(number, bits, true, keys);
}

// Into empty buckets.
inline void IdTable::settle(u32 number, u32 from, u32 bits) {
  Segment& segment = segments_[number];
  const u32 count = segment.buckets;
  filled_.assign(count, 0);
  for (const Moved& moved : moved_) {
    if (static_cast<u64>(moved.told) >> bits != from) continue;
    const u64 place = static_cast<u64>(moved.told) << (64 - bits);
    const u32 own = home(segment, place);
    u32 at = own;
    while (filled_[at] == bucketSlots) at = at + 1 == count ? 0 : at + 1;
    const u32 slot = filled_[at]++;
    buckets_[segment.first + at].put(slot, moved.group / groupBlocks, moved.tag);
    if (at != own) markGuest(segment, segment.first + at, slot, true);
    ++segment.used;
  }
  segment.live = segment.used;
}

// `hash`: one of the segment's.
template <typename Keys>
void IdTable::grow(u64 hash, Keys& keys) {
  const u32 number = numberOf(hash);
  const Segment before = segments_[number];
  // Where an eighth is graves they are all there is to do.
  const bool isDirty = before.live * 8 <= before.used * 7;
  const bool widens = !isDirty && (isWide(before) || (before.multiple == directory_.size() && directory_.size() * 2 > mostParts * segments_.size()));
  const bool splits = !isDirty && !widens, renews = splits && before.splits == mostSplits;
  const u32 bits = widens || isWide(before) ? 32 : renews ? toldBits + 1 : toldBits - before.splits;
  collect(number, bits, bits > toldBits, keys);

  ++growths_;
  std::fill_n(&buckets_[before.first], before.buckets, Bucket{});
  std::fill_n(&guests_[before.first], before.buckets, u16{0});
  segments_[number].used = 0;
  // The former buckets are not used again: hashes made to be alike are no reason to keep account of them.
  if (widens) {
    segments_[number].first = takeBuckets(segments_[number].buckets *= 2);
    widest_ = std::max(widest_, segments_[number].buckets);
  }
  if (!splits) return settle(number, 0, bits);

  if (before.multiple == directory_.size()) {
    std::vector<u32> twice(directory_.size() * 2);
    for (std::size_t part = 0; part < twice.size(); ++part) twice[part] = directory_[part / 2];
    directory_.swap(twice);
  }
  Segment& lower = segments_[number];
  lower.multiple *= 2;
  lower.splits = renews ? 0 : before.splits + 1;
  Segment upper = lower;
  upper.first = takeBuckets(upper.buckets);
  const u32 other = add(upper);
  const std::size_t parts = directory_.size() / before.multiple;
  const std::size_t part = static_cast<std::size_t>((static_cast<unsigned __int128>(hash) * directory_.size()) >> 64) / parts * parts;
  std::fill_n(directory_.begin() + static_cast<std::ptrdiff_t>(part + parts / 2), parts / 2, other);
  if (renews)
    for (Moved& moved : moved_) moved.tag = tagFrom(moved.told);
  settle(number, 0, bits - 1);
  settle(other, 1, bits - 1);
}

}  // namespace svc
