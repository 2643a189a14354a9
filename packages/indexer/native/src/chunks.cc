// Tiers of an engine that keep several blocks as one: LMCache's chunks of 256 tokens over blocks of 16. A chunk's blocks are indexed by their
// tokens; its name, which is not the engine's, is remembered with them, since its removal says nothing else.
#include <algorithm>

#include "index.h"

namespace svc {
namespace {

constexpr std::size_t mostChunks = 1 << 20;

}  // namespace

bool Index::isOtherTier(const Subscription& sub, const Event& event) {
  return sub.kind == PublisherKind::Engine && !event.named && mediumOf(event.medium) != "GPU";
}

bool Index::isChunked(const Subscription& sub, const Event& event) {
  return event.hasBlockSize && event.blockSize > sub.blockSize && event.blockSize % sub.blockSize == 0 && event.hasTokens && !event.hasPairs && event.hashCount > 0 &&
         isOtherTier(sub, event);
}

void Index::applyChunks(u32 id, const Event& event, Outcomes& outcomes) {
  Subscription& sub = subscriptions_[id];
  Event plain = event;
  plain.hasBlockSize = false;
  Namespace like;
  if (!accepts(sub, plain, like, outcomes)) return;
  const u32 size = sub.blockSize;
  const u64 before = static_cast<u64>(event.hashCount - 1) * event.blockSize;
  // The last chunk may end early, even inside a block.
  if (event.tokenCount <= before || event.tokenCount > before + event.blockSize) {
    ++outcomes[RefusedTokens];
    sub.complaint = "an event has " + std::to_string(event.hashCount) + " chunks of " + std::to_string(event.blockSize) + " tokens and " + std::to_string(event.tokenCount) + " tokens";
    return;
  }
  if (!evictFor(event.tokenCount / size) || sub.chunks.size() + event.hashCount > mostChunks) {
    ++outcomes[OverBudget];
    return;
  }
  const std::string medium = mediumOf(event.medium);
  const std::int64_t found = hasRoomForSpace(like) ? internStream(id, {event.backend, medium, rankOf(sub, event), 0, static_cast<u32>(event.group), ownerOf(sub, event)}) : -1;
  if (found < 0) {
    ++outcomes[TooManyStreams];
    return;
  }
  const u32 stream = static_cast<u32>(found);
  u32 space = internSpace(like);
  u64 previous = 0;
  bool isRoot = !event.hasParent;
  if (event.hasParent) {
    const auto chunk = sub.chunks.find(event.parent);
    const u32 block = chunk == sub.chunks.end() ? findParent(sub, space, event.parent) : 0;
    if (chunk == sub.chunks.end() && block == 0) {
      ++outcomes[MissingParent];
      sub.complaint = "an event's chunk of blocks names a parent that no event has named";
      return;
    }
    space = block == 0 ? chunk->second.space : spaceOf(block);
    previous = block == 0 ? chunk->second.sequences.back() : arena_.sequence[block];
  }
  if (sub.spaces.insert(space).second) ++version_;
  if (!inOrder(sub, stream, space, event, outcomes)) return;
  taken_ = true;
  const u64* const names = batch_.hashes.data() + event.hashBegin;
  const u32* const tokens = batch_.tokens.data() + event.tokenBegin;
  for (u32 at = 0; at < event.hashCount; ++at) {
    const u64 from = static_cast<u64>(at) * event.blockSize;
    const u32 count = static_cast<u32>(std::min<u64>(event.blockSize, event.tokenCount - from)) / size;
    if (count == 0) return;
    Chunk chunk{space, {}};
    const u32 parent = isRoot ? 0 : find(space, previous);
    for (u32 i = 0; i < count; ++i) {
      const u64 local = localHash(tokens + from + static_cast<u64>(i) * size, size, seed_);
      previous = isRoot ? local : roll(previous, local, seed_);
      isRoot = false;
      chunk.sequences.push_back(previous);
    }
    // The tier has a chunk once, however often it reports it.
    const u32 last = find(space, previous);
    if (last == 0 || !sets_[sets_.current(arena_.holders[last])].has(stream)) store(id, stream, space, chunk.sequences.data(), count, nullptr, parent, outcomes);
    sub.chunks.insert_or_assign(names[at], std::move(chunk));
  }
}

bool Index::removeChunks(u32 id, const Event& event, Outcomes& outcomes) {
  Subscription& sub = subscriptions_[id];
  const u64* const names = batch_.hashes.data() + event.hashBegin;
  if (std::none_of(names, names + event.hashCount, [&](u64 name) { return sub.chunks.contains(name); })) return false;
  const std::string medium = mediumOf(event.medium);
  const StreamName wanted{event.backend, medium, rankOf(sub, event), 0, static_cast<u32>(event.group), ownerOf(sub, event)};
  std::int64_t stream = -1;
  for (const u32 own : sub.streams)
    if (streams_[own].is(wanted, media_[streams_[own].medium])) stream = own;
  taken_ = true;
  for (u32 at = 0; at < event.hashCount; ++at) {
    const auto chunk = sub.chunks.find(names[at]);
    if (chunk == sub.chunks.end() || stream < 0) {
      ++outcomes[UnknownRemoved];
      continue;
    }
    bool isElsewhere = false;
    const u32 twin = streams_[static_cast<u32>(stream)].twin;
    for (const u64 sequence : chunk->second.sequences) {
      const u32 block = find(chunk->second.space, sequence);
      if (block == 0) continue;
      u32 left = sets_.without(arena_.holders[block], static_cast<u32>(stream));
      if (twin != Stream::noStream) left = sets_.without(left, twin);
      if (left != arena_.holders[block]) {
        setHolders(block, left);
        if (sets_[left].empty()) toGhost(block);
        ++outcomes[Removed];
      }
      isElsewhere |= holds(sub, block);
    }
    // A block that is still on the device, or in another tier, keeps the chunk's name: that tier may remove it by the same name.
    if (!isElsewhere) sub.chunks.erase(chunk);
  }
  ++changes_;
  return true;
}

}  // namespace svc
