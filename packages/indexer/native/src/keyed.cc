// Objects of a store under keys that have engines' block hashes: the store's own puts, removals and evictions say where those blocks are.
//
// A key says neither tokens nor a parent, so a block is known once an engine's event has named it; until then the object waits. Each rank
// of an engine has keys of its own, so that a block counts when the objects of all ranks seen are there (shards.cc); each group of the KV cache, too.
#include <algorithm>

#include "index.h"

namespace svc {
namespace {

constexpr std::size_t mostWaiting = 1 << 20;
// In place of a head, if several heads may be meant; no key begins so.
constexpr std::string_view undecided = "@";

u64 waitKey(u64 scope, u32 stream, u64 name) { return mix(name ^ scope) + stream; }

std::string_view lastPart(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

// vLLM's connector names the medium in small letters, and sends no removal when the store drops a block: only the store knows.
std::string_view Index::ownerOf(const Subscription& sub, const Event& event) {
  return event.owner.empty() && event.medium == "cpu" && isOtherTier(sub, event) ? sharedStore : event.owner;
}

bool Index::isPutBy(const Subscription& sub, const Event& event) const {
  if (ownerOf(sub, event) != sharedStore) return false;
  const u64* names = batch_.hashes.data() + event.hashBegin;
  return std::all_of(names, names + event.hashCount, [&](u64 name) { return findName(sub, name) != 0; });
}

u32 Index::findAnyNamed(u64 scope, u64 name) const {
  if (const u32 block = findShared(scope, name); block != 0) return block;
  for (const Subscription& sub : subscriptions_) {
    if (!sub.active || !sub.ownNames || sub.scope != scope) continue;
    const u32 block = sub.names.find(name);
    if (block != 0 && arena_.used(block) && holds(sub, block)) return block;
  }
  return 0;
}

// Equal hashes under another head belong to another model, or to engines that cannot load these blocks. The registration's model decides
// between heads; if it does not, no key counts.
bool Index::acceptsKey(u32 id, const Event& event, Outcomes& outcomes) {
  Subscription& sub = subscriptions_[id];
  if (sub.keyHead == event.keyHead) return true;
  if (event.kind == EventKind::Removed || event.keyHead.size() > 1024) return false;
  const auto isNamed = [&](std::string_view head) {
    const std::string_view model = head.substr(0, head.find("@store_tp:"));
    return model.substr(model.rfind('@') + 1) == lastPart(sub.model);
  };
  const bool isOurs = isNamed(event.keyHead);
  if (!sub.keyHead.empty()) {
    if (!isOurs && isNamed(sub.keyHead)) {
      ++outcomes[OtherGroup];
      return false;
    }
    if (!isOurs || isNamed(sub.keyHead) || sub.keyHead == undecided) {
      ++outcomes[RefusedModel];
      if (sub.keyHead == undecided) return false;
      std::string complaint = "the store's keys begin with \"" + std::string(event.keyHead) + "\" and with \"" + sub.keyHead + "\", and modelname does not say which of them the engines have: none counts";
      clear(id);
      sub.complaint = std::move(complaint);
      sub.keyHead = undecided;
      pending_ = id;
      return false;
    }
    clear(id);
    pending_ = id;
  }
  sub.keyHead = std::string(event.keyHead);
  return true;
}

void Index::applyKeyed(u32 id, const Event& event, Outcomes& outcomes) {
  Subscription& sub = subscriptions_[id];
  if (sub.kind != PublisherKind::Store) {
    ++outcomes[Unhashed];
    return;
  }
  Namespace like;
  if (!acceptsKey(id, event, outcomes) || !accepts(sub, event, like, outcomes)) return;
  const u64 scope = scopeSeed(like.tenant, like.model, like.blockSize), name = batch_.hashes[event.hashBegin];
  const std::string medium = mediumOf(event.medium);
  const StreamName wanted{event.backend, medium, rankOf(sub, event), event.shard, static_cast<u32>(event.group), sharedStore};
  const bool isStored = event.kind == EventKind::Stored;
  std::int64_t stream = -1;
  if (isStored) {
    stream = hasRoomForSpace(like) ? internStream(id, wanted) : -1;
    if (stream < 0) {
      ++outcomes[TooManyStreams];
      return giveUpShards(id, wanted);
    }
  } else {
    for (const u32 own : sub.streams)
      if (streams_[own].is(wanted, media_[streams_[own].medium])) stream = own;
    if (stream < 0) {
      ++outcomes[UnknownRemoved];
      return;
    }
  }
  const u32 own = static_cast<u32>(stream), space = internSpace(like);
  if (sub.spaces.insert(space).second) ++version_;
  if (!inOrder(sub, orderOf(own), space, event, outcomes)) return;
  taken_ = true;
  const u32 block = findAnyNamed(scope, name);
  if (isStored && block != 0) {
    if (sub.spaces.insert(spaceOf(block)).second) ++version_;
    store(id, own, spaceOf(block), &arena_.sequence[block], 1, nullptr, 0, outcomes);
  } else if (isStored) {
    if (sub.waiting.size() >= mostWaiting) {
      ++outcomes[ParkDropped];
      return;
    }
    sub.waiting.set(waitKey(scope, own, name), own + 2);
    if (std::find(waiters_.begin(), waiters_.end(), id) == waiters_.end()) waiters_.push_back(id);
    ++outcomes[Parked];
  } else {
    sub.waiting.erase(waitKey(scope, own, name));
    const u32 twin = streams_[own].twin;
    const bool isHeld = block != 0 && (sets_[arena_.holders[block]].has(own) || (twin != Stream::noStream && sets_[arena_.holders[block]].has(twin)));
    if (!isHeld) {
      ++outcomes[UnknownRemoved];
      return;
    }
    breakShards(own, spaceOf(block), &arena_.sequence[block], 1);
    u32 left = sets_.without(arena_.holders[block], own);
    if (twin != Stream::noStream) left = sets_.without(left, twin);
    setHolders(block, left);
    if (sets_[left].empty()) toGhost(block);
    ++outcomes[Removed];
    ++changes_;
  }
}

// An engine has named these blocks: objects that waited for them are found.
void Index::joinWaiting(u32 space, const u64* names, const u64* sequences, u32 count) {
  Outcomes unseen{};
  const u64 scope = scopes_[space];
  for (std::size_t i = 0; i < waiters_.size(); ++i) {
    const u32 id = waiters_[i];
    Subscription& sub = subscriptions_[id];
    for (std::size_t k = 0; k < sub.streams.size(); ++k) {
      const u32 stream = sub.streams[k];
      if (streams_[stream].owner != sharedStore || streams_[stream].shard == Stream::wholeShard || streams_[stream].isUncertain) continue;
      for (u32 at = 0; at < count && sub.waiting.size() > 0; ++at) {
        const u64 key = waitKey(scope, stream, names[at]);
        if (sub.waiting.find(key) == 0) continue;
        sub.waiting.erase(key);
        if (sub.spaces.insert(space).second) ++version_;
        store(id, stream, space, sequences + at, 1, nullptr, 0, unseen);
      }
    }
    weigh(sub);
  }
  std::erase_if(waiters_, [&](u32 id) { return subscriptions_[id].waiting.size() == 0; });
}

}  // namespace svc
