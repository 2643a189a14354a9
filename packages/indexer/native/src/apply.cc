// Applies each event to the index, by the rules of docs/indexer.md.
#include <algorithm>
#include <cctype>

#include "extra_keys.h"
#include "index.h"

namespace svc {
namespace {

std::string_view mediumName(const Event& event, std::string& scratch) {
  scratch = mediumOf(event.medium);
  return scratch;
}

std::string contradiction(std::string_view what, std::string_view found, std::string_view registered) {
  return "an event says " + std::string(what) + " \"" + std::string(found.substr(0, 200)) + "\", the registration says \"" + std::string(registered) + "\"";
}

}  // namespace

std::string mediumOf(std::string_view wire) {
  if (wire.empty()) return "GPU";
  std::string name(wire.substr(0, 64));
  for (char& letter : name) letter = static_cast<char>(std::toupper(static_cast<u8>(letter)));
  if (name == "CPU_PINNED") return "CPU";
  if (name == "STORAGE") return "DISK";
  return name;
}

// Fills in the dimensions: the event's own, else the registration's. Returns false if they contradict each other.
bool Index::accepts(Subscription& sub, const Event& event, Namespace& space, Outcomes& outcomes) {
  const auto refuse = [&](Outcome outcome, std::string complaint) {
    ++outcomes[outcome];
    sub.complaint = std::move(complaint);
    return false;
  };
  if (!event.model.empty() && event.model != sub.model) return refuse(RefusedModel, contradiction("model", event.model, sub.model));
  // An offloading connector that knows no size of its own says 0.
  if (event.hasBlockSize && event.blockSize != 0 && event.blockSize != sub.blockSize)
    return refuse(RefusedBlockSize, contradiction("block size", std::to_string(event.blockSize), std::to_string(sub.blockSize)));
  if (!event.lora.empty() && !sub.lora.empty() && event.lora != sub.lora) return refuse(RefusedLora, contradiction("LoRA adapter", event.lora, sub.lora));
  if (!event.salt.empty() && !sub.salt.empty() && event.salt != sub.salt) return refuse(RefusedSalt, "an event's salt is not the registration's");
  space.tenant = event.tenant.empty() ? sub.tenant : std::string(event.tenant);
  space.model = sub.model;
  space.blockSize = sub.blockSize;
  space.salt = event.salt.empty() ? sub.salt : std::string(event.salt);
  if (!event.lora.empty()) space.lora = "n:" + std::string(event.lora);
  else if (!sub.lora.empty()) space.lora = "n:" + sub.lora;
  // Engines number their adapters from 1, so 0 means the base model.
  else if (event.hasLoraId && (event.loraId.empty() ? event.loraNumber != 0 : event.loraId != "0")) space.lora = "i:" + (event.loraId.empty() ? std::to_string(event.loraNumber) : std::string(event.loraId));
  return true;
}

bool Index::inOrder(Subscription& sub, u32 stream, u32 space, const Event& event, Outcomes& outcomes) {
  settleUnverified(sub, stream, space, event);
  if (!event.hasEventId) return true;
  const auto [last, first] = sub.lastEventId.try_emplace(static_cast<u64>(stream) << 32 | space, event.eventId);
  if (first) return true;
  if (event.eventId <= last->second) {
    ++outcomes[Duplicate];
    return false;
  }
  if (event.eventId != last->second + 1) ++outcomes[IdJump];
  last->second = event.eventId;
  return true;
}

// Refuses an event that contradicts its registration, then finds the place of its blocks: by hashes that other groups or tiers named, by
// hashes alone, inside a chain without a parent, at a chain's root, or under a parent. Blocks whose parent is unknown wait for it.
void Index::applyStored(u32 id, const Event& event, Outcomes& outcomes) {
  Subscription& sub = subscriptions_[id];
  Namespace like;
  const u32 rank = rankOf(sub, event);
  CacheGroup* const group = learnGroup(sub, rank, event);
  if (group == nullptr) {
    ++outcomes[TooManyStreams];
    return;
  }
  if (isChunked(sub, event)) return applyChunks(id, event, outcomes);
  if (!accepts(sub, event, like, outcomes)) return;
  if (event.hashCount == 0) {
    // A group that keeps only some blocks may send an event without any.
    if (!event.hasGroup || !event.hasTokens) ++outcomes[Unhashed];
    return;
  }
  if (!evictFor(event.hashCount)) {
    ++outcomes[OverBudget];
    return;
  }
  like.ahead = event.hasPairs ? 1 : event.ahead;
  const bool inheritsSalt = event.hasTokens && event.hasParent && event.salt.empty();
  // The tokens cover a run of blocks, of which this group keeps some. Their hashes identify them if another group has all blocks.
  const bool coversMore = event.hasTokens && group->kind != GroupKind::Whole && event.hasGroup && event.tokenCount % like.blockSize == 0 &&
                          event.tokenCount > static_cast<u64>(event.hashCount) * like.blockSize;
  // An engine's other tiers may say only the hashes under which its device's events named the same blocks.
  const bool isOffloaded = !event.standardNames && isOtherTier(sub, event) && (event.tokenCount == 0 || isPutBy(sub, event));
  const bool isSparse = coversMore || isOffloaded;
  if (event.hasTokens && !isSparse) {
    const bool isMisled = event.ahead > 0 && event.aheadRows != event.hashCount;
    if (isMisled || event.tokenCount != static_cast<u64>(event.hashCount) * like.blockSize) {
      ++outcomes[RefusedTokens];
      sub.complaint = "an event has " + std::to_string(event.hashCount) + " blocks and " + std::to_string(event.tokenCount) + " tokens; the registered block size is " + std::to_string(like.blockSize);
      return;
    }
    localHashes(event, like, sub, outcomes);
  } else if (!isSparse && !event.standardNames && sub.kind == PublisherKind::Engine) {
    ++outcomes[MissingTokens];
    sub.complaint = "stored events carry neither token_ids nor standard hashes (seq_hashes), so no prompt can be matched with them";
    return;
  }
  std::string scratch;
  const StreamName name{event.backend, mediumName(event, scratch), rank, event.shard, static_cast<u32>(event.group), ownerOf(sub, event)};
  const std::int64_t found = hasRoomForSpace(like) ? internStream(id, name) : -1;
  if (found < 0) {
    ++outcomes[TooManyStreams];
    if (event.shard != 0) giveUpShards(id, name);
    return;
  }
  const u32 stream = static_cast<u32>(found);
  u32 space = internSpace(like);
  if (sub.spaces.insert(space).second) ++version_;
  if (!inOrder(sub, orderOf(stream), space, event, outcomes)) return;
  taken_ = true;

  const u64* names = batch_.hashes.data() + event.hashBegin;
  const u32 count = event.hashCount;
  if (isSparse) {
    ParkedEvent sparse;
    sparse.stream = stream, sparse.space = space, sparse.sparse = true;
    sparse.names.assign(names, names + count);
    return placeSparse(id, std::move(sparse), outcomes);
  }
  if (!event.hasTokens) {
    const u32 parent = event.hasParent ? find(space, event.parent) : 0;
    spaces_[space].bare = true;
    store(id, stream, space, names, count, nullptr, parent, outcomes);
    return;
  }
  judgeSeed(sub, event, like, outcomes);
  if (!event.hasParent && event.hasBase && event.base > 0) {
    // The first block is inside a chain, but its parent is not named: only standard hashes identify its place.
    const bool proven = sub.standard || (count > 1 && roll(names[0], locals_[1], seed_) == names[1]);
    if (proven) return store(id, stream, space, names, count, nullptr, 0, outcomes);
    // If one block of the event is known by its hash, its prefix is known, and so is the place of all later blocks.
    for (u32 i = 0; i < count; ++i) {
      const u32 known = findParent(sub, space, names[i]);
      if (known == 0 || spaceOf(known) != space) continue;
      outcomes[MissingParent] += i > 0 ? 1 : 0;
      store(id, stream, space, &arena_.sequence[known], 1, names[i] == arena_.sequence[known] ? nullptr : names + i, 0, outcomes);
      return i + 1 < count ? place(id, stream, space, known, arena_.sequence[known], false, names + i + 1, locals_.data() + i + 1, count - i - 1, outcomes) : void();
    }
    ++outcomes[MissingParent];
    sub.complaint = "a stored event begins inside a chain (base_block_idx above 0), names no parent_hash, and no block of it is known: its prefix is unknown";
    return;
  }
  const bool standard = names[0] == (event.hasParent ? roll(event.parent, locals_[0], seed_) : locals_[0]);
  const u64 qualifier = standard ? 0 : qualifierOf(sub, event, like);
  names = qualified(names, count, qualifier);
  const u64 parentName = qualifier == 0 ? event.parent : mix(event.parent ^ qualifier);
  u32 parent = event.hasParent ? findParent(sub, space, parentName) : 0;
  // A standard hash is the same under every salt, so the parent may be in another namespace of the publisher.
  if (parent == 0 && standard && inheritsSalt)
    for (const u32 other : sub.spaces)
      if ((parent = findParent(sub, other, parentName)) != 0) break;
  if (!event.hasParent) return place(id, stream, space, 0, 0, true, names, locals_.data(), count, outcomes);
  if (parent != 0) {
    // Only a chain's first block has a cache salt, so its children belong to their parent's namespace.
    const Namespace& home = spaces_[spaceOf(parent)];
    const bool isSameSalt = sub.salt.empty() || registeredSalt(home.salt) == sub.salt;
    if (inheritsSalt && isSameSalt && home.lora == like.lora && home.tenant == like.tenant && home.ahead == like.ahead) space = spaceOf(parent);
    if (sub.spaces.insert(space).second) ++version_;
    place(id, stream, space, parent, arena_.sequence[parent], false, names, locals_.data(), count, outcomes);
  } else if (standard) {
    // A standard parent hash proves the prefix, although the parent itself was not stored here.
    place(id, stream, space, find(space, event.parent), event.parent, false, names, locals_.data(), count, outcomes);
  } else {
    parkEvent(sub, event, parentName, names, stream, space, inheritsSalt, outcomes);
  }
}

void Index::place(u32 id, u32 stream, u32 space, u32 parent, u64 previous, bool root, const u64* names, const u64* locals, u32 count, Outcomes& outcomes) {
  sequences_.resize(count);
  for (u32 i = 0; i < count; ++i) {
    previous = root && i == 0 ? locals[0] : roll(previous, locals[i], seed_);
    sequences_[i] = previous;
  }
  // Standard hashes need no second name, and may be the same in several namespaces.
  const bool named = !std::equal(names, names + count, sequences_.begin());
  store(id, stream, space, sequences_.data(), count, named ? names : nullptr, parent, outcomes);
  if (!waiters_.empty()) joinWaiting(space, names, sequences_.data(), count);
  const Subscription& sub = subscriptions_[id];
  if (sub.park.empty()) return;
  for (u32 i = 0; i < count; ++i)
    if (sub.awaited.contains(names[i])) return unpark(id, outcomes);
}

void Index::localHashes(const Event& event, Namespace& space, const Subscription& sub, Outcomes& outcomes) {
  const u32 count = event.hashCount, size = space.blockSize, window = size + (event.hasPairs ? 1 : 0), ahead = event.hasPairs ? 0 : event.ahead;
  const u32* tokens = batch_.tokens.data() + event.tokenBegin;
  locals_.resize(count);
  if (event.extraBegin == nullptr && ahead == 0) {
    for (u32 i = 0; i < count; ++i) locals_[i] = localHash(tokens + static_cast<u64>(i) * size, window, seed_);
    return;
  }
  ExtraKeys extras(event.extraBegin, event.extraEnd, event.extraCount, event.lora, !event.hasParent);
  for (u32 i = 0; i < count; ++i) {
    const auto* bytes = reinterpret_cast<const u8*>(tokens + static_cast<u64>(i) * size);
    blockBytes_.assign(bytes, bytes + window * 4ull);
    const auto* behind = reinterpret_cast<const u8*>(batch_.lookahead.data() + event.aheadBegin + i * ahead);
    blockBytes_.insert(blockBytes_.end(), behind, behind + ahead * 4ull);
    // A key that is neither a LoRA nor a salt changes the block's content, so the block never matches plain text.
    if (extras.next(blockBytes_, i == 0)) ++outcomes[Multimodal];
    locals_[i] = XXH3_64bits_withSeed(blockBytes_.data(), blockBytes_.size(), seed_);
  }
  if (extras.salt().empty()) return;
  space.salt = joinedSalt(sub.salt, extras.salt());
}

void Index::applyRemoved(u32 id, const Event& event, Outcomes& outcomes) {
  Subscription& sub = subscriptions_[id];
  Namespace like;
  if (!accepts(sub, event, like, outcomes)) return;
  if (event.hashCount == 0) {
    ++outcomes[Unhashed];
    return;
  }
  if (!sub.chunks.empty() && isOtherTier(sub, event) && removeChunks(id, event, outcomes)) return;
  const std::string medium = mediumOf(event.medium);
  const u64* names = batch_.hashes.data() + event.hashBegin;
  const std::int64_t space = findSpace(like);
  taken_ = true;
  const StreamName name{event.backend, medium, rankOf(sub, event), event.shard, static_cast<u32>(event.group), ownerOf(sub, event)};
  for (u32 stream : sub.streams) {
    if (!streams_[stream].is(name, media_[streams_[stream].medium])) continue;
    if (space >= 0 && !inOrder(sub, orderOf(stream), static_cast<u32>(space), event, outcomes)) {
      taken_ = false;
      return;
    }
    const u64* own = qualified(names, event.hashCount, qualifierOf(sub, event, like));
    remove(id, stream, space, names, event.hashCount, outcomes, own, !event.named);
    removeParked(sub, stream, own, event.hashCount);
    return;
  }
  outcomes[UnknownRemoved] += event.hashCount;
}

void Index::applyCleared(u32 id, const Event& event, Outcomes& outcomes) {
  Subscription& sub = subscriptions_[id];
  Namespace like;
  if (!accepts(sub, event, like, outcomes)) return;
  const std::string medium = mediumOf(event.medium);
  const u32 rank = rankOf(sub, event);
  const std::int64_t space = event.named ? findSpace(like) : -1;
  // A batch without a rank may concern any rank.
  const bool ranked = event.hasRank || (sub.kind == PublisherKind::Engine && batch_.hasRank);
  std::vector<u32> streams;
  for (u32 stream : sub.streams) {
    const Stream& known = streams_[stream];
    // An engine's AllBlocksCleared has no dimensions and means all blocks of its rank; the envelope means exactly its own stream.
    const bool same = known.rank == rank && media_[known.medium] == medium && known.backend == event.backend;
    const bool meant = (!ranked || known.rank == rank) && (!event.hasMedium || media_[known.medium] == medium);
    if (event.named ? same : meant) streams.push_back(stream);
  }
  if (event.named) {
    if (space < 0) return;
    if (!streams.empty() && !inOrder(sub, orderOf(streams.front()), static_cast<u32>(space), event, outcomes)) return;
  }
  ++outcomes[Cleared];
  if (!event.named && streams.size() == sub.streams.size()) ++outcomes[ClearedAll], sub.evicted = false;
  std::erase_if(sub.park, [&](const ParkedEvent& parked) {
    const bool hit = std::find(streams.begin(), streams.end(), parked.stream) != streams.end() && (space < 0 || parked.space == static_cast<u32>(space));
    if (hit) sub.parkedBlocks -= static_cast<u32>(parked.names.size());
    return hit;
  });
  purge(streams, space);
  const auto cleared = [&](u64 key) { return std::find(streams.begin(), streams.end(), static_cast<u32>(key >> 32)) != streams.end(); };
  if (space < 0 && std::erase_if(sub.unverified, cleared) > 0) ++version_;
  if (!event.named && streams.size() == sub.streams.size()) dropTwins(sub), sub.chunks.clear();
}

}  // namespace svc
