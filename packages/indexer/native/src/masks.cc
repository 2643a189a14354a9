// Coarse masks, where a block of any of the streams continues the prefix, and fine masks, whose parts are matched separately.
#include "masks.h"

#include <algorithm>

namespace svc {
namespace {

constexpr u16 gpu = 0;

bool isRun(GroupKind kind) { return kind != GroupKind::Window && kind != GroupKind::Chunk && kind != GroupKind::State; }

}  // namespace

bool Masks::isUnverified(u32 stream) const {
  return index_.streams()[stream].isUncertain || std::any_of(spaces_.begin(), spaces_.end(), [&](std::int64_t space) { return index_.isUnverified(stream, space); });
}

bool Masks::isGrouped(const std::vector<CacheGroup>& groups) {
  return groups.size() > 1 || std::any_of(groups.begin(), groups.end(), [](const CacheGroup& group) { return group.otherBlockSize != 0 || !isRun(group.kind); });
}

bool Masks::namesGroup(u32 stream) const {
  const Stream& known = index_.streams()[stream];
  return known.owner == sharedStore && index_.subscriptions()[known.subscription].kind == PublisherKind::Store;
}

u32 Masks::of(std::vector<u32> own, const std::vector<CacheGroup>& groups) {
  const bool grouped = isGrouped(groups);
  // Blocks of a store's further groups are no prefix by themselves.
  if (groups.size() <= 1) std::erase_if(own, [&](u32 stream) { return namesGroup(stream) && index_.streams()[stream].group != (groups.empty() ? 0 : groups.front().index); });
  std::sort(own.begin(), own.end());
  own.erase(std::unique(own.begin(), own.end()), own.end());
  const bool isCertain = std::none_of(own.begin(), own.end(), [&](u32 stream) { return isUnverified(stream); });
  if (own.empty() || (!grouped && isCertain)) return coarse(own);
  std::vector<Held> parts;
  if (!grouped) parts.push_back(sorted({}, own));
  else
    for (const CacheGroup& group : groups) {
      std::vector<u32> held;
      for (const u32 stream : own)
        if (groups.size() == 1 || index_.streams()[stream].group == group.index) held.push_back(stream);
      // Blocks of another size cannot be placed, so nothing is known: no point is served.
      if (group.otherBlockSize != 0) held.clear();
      parts.push_back(sorted(group, held));
    }
  return fine(parts, grouped);
}

Masks::Held Masks::sorted(const CacheGroup& group, const std::vector<u32>& streams) const {
  Held held;
  held.kind = group.otherBlockSize != 0 ? GroupKind::Whole : group.kind;
  held.window = group.window;
  // The stream whose blocks prove what its twin has: an engine's own, on the medium that has all blocks before a stored one.
  u32 proof = Stream::noStream;
  for (const u32 stream : streams) {
    const Stream& known = index_.streams()[stream];
    const Subscription& sub = index_.subscriptions()[known.subscription];
    const bool proves = isRun(group.kind) && known.medium == gpu && !known.isUncertain && sub.kind == PublisherKind::Engine && !sub.isEnveloped;
    if (proves) proof = proof == Stream::noStream ? stream : HolderSets::nowhere - 1;
  }
  for (const u32 stream : streams) {
    const bool isTwin = proof < HolderSets::nowhere - 1 && index_.streams()[stream].isUncertain && index_.streams()[stream].twin == proof;
    held.streams[isTwin ? View::Provable : isUnverified(stream) ? View::Unverified : View::Certain].push_back(stream);
  }
  if (proof < HolderSets::nowhere - 1 && !isUnverified(proof)) held.streams[View::Proof].push_back(proof);
  return held;
}

u32 Masks::coarse(const std::vector<u32>& streams) {
  // The key is the ordered list of counting streams: a row uses only its own streams and the stores'.
  const auto [at, added] = known_.try_emplace(streams, view_.masks);
  if (!added) return at->second;
  view_.bits.resize(view_.bits.size() + view_.words);
  setBits(view_.bits.data() + static_cast<std::size_t>(view_.masks) * view_.words, streams);
  // The streams are sorted, so the first and the last one delimit the span.
  view_.spans.push_back(streams.empty() ? View::Span{} : View::Span{streams.front() / 64, streams.back() / 64 + 1});
  view_.hasCoarse |= !streams.empty();
  return view_.masks++;
}

u32 Masks::fine(const std::vector<Held>& parts, bool isGrouped) {
  std::vector<u32> key{isGrouped};
  for (const Held& part : parts) {
    key.insert(key.end(), {static_cast<u32>(part.kind), part.window});
    for (const auto& streams : part.streams) {
      key.push_back(static_cast<u32>(streams.size()));
      key.insert(key.end(), streams.begin(), streams.end());
    }
  }
  const auto [at, added] = knownFine_.try_emplace(std::move(key), view_.masks);
  if (!added) return at->second;
  View::Fine made;
  made.mask = view_.masks++;
  made.isGrouped = isGrouped;
  // The bits stay empty, so the coarse walk ends this mask at its first block.
  view_.bits.resize(view_.bits.size() + view_.words);
  view_.spans.emplace_back();
  for (const Held& part : parts) {
    const std::size_t each = static_cast<std::size_t>(view_.words) * View::partMasks;
    const std::size_t number = each == 0 ? 0 : view_.partBits.size() / each;
    view_.partBits.resize(view_.partBits.size() + each);
    for (u32 mask = 0; mask < View::partMasks; ++mask) setBits(view_.partBits.data() + number * each + mask * view_.words, part.streams[mask]);
    made.parts.push_back({part.kind, part.window, static_cast<u32>(number)});
  }
  view_.isSparse |= std::none_of(made.parts.begin(), made.parts.end(), [](const View::Part& part) { return isRun(part.kind); });
  view_.fine.push_back(std::move(made));
  return at->second;
}

}  // namespace svc
