// The names that publishers give to blocks: shared among publishers that agree, a separate map for one that does not.
#include <algorithm>

#include "block_keys.h"

namespace svc {

u32 Index::findShared(u64 scope, u64 name) const {
  if (name == 0 || !engineInUse_) return 0;
  return engineTable_.find(mix(name ^ scope), arena_.engine.data(), name, [&](u32 block) { return isNamed(block, scope, name); });
}

u32 Index::findParent(const Subscription& sub, u32 space, u64 name) const {
  const u32 block = findName(sub, name);
  if (block != 0 || !sub.standard) return block;
  // Standard hashes are not stored as names, so the block is found by its hash.
  const u32 found = find(space, name);
  return isGone(found) ? 0 : found;
}

u32 Index::findNamed(u32 space, u64 name) const {
  if (name == 0 || !engineInUse_) return 0;
  const auto look = [&](u64 key) {
    return engineTable_.find(mix(key ^ scopes_[space]), arena_.engine.data(), key, [&](u32 block) { return isOf(space, block) && !isGone(block); });
  };
  const u32 found = look(name);
  return found != 0 ? found : look(mix(name ^ spaces_[space].nameSeed));
}

u64 Index::qualifierOf(const Subscription& sub, const Event& event, const Namespace& space) const {
  if (!event.named || (space.lora.empty() && space.salt.empty() && space.tenant == sub.tenant)) return 0;
  // A removal does not say which lookahead tokens its blocks were hashed with, so they do not count here.
  Namespace plain = space;
  plain.ahead = 0;
  return seedOf(plain);
}

const u64* Index::qualified(const u64* names, u32 count, u64 qualifier) {
  if (qualifier == 0) return names;
  qualified_.resize(count);
  for (u32 i = 0; i < count; ++i) qualified_[i] = mix(names[i] ^ qualifier);
  return qualified_.data();
}

u32 Index::findName(const Subscription& sub, u64 name) const { return sub.ownNames ? sub.names.find(name) : findShared(sub.scope, name); }

// The usual case of `nameBlock`: the block has no name yet, no block has the name, and both are in the publisher's scope.
bool Index::nameFresh(const Subscription& sub, const IdTable::Spot& spot, u64 key, u32 block, u64 name) {
  if (sub.ownNames || name == 0) return false;
  u8* vacant = nullptr;
  if (engineTable_.findOrVacant(spot, arena_.engine.data(), name, [&](u32 other) { return isNamed(other, sub.scope, name); }, vacant) != 0) return false;
  arena_.engine[block] = name;
  engineInUse_ = true;
  if (engineTable_.insertAt(vacant, spot, key, block, BlockKeys<true>(*this))) return true;
  arena_.engine[block] = 0;
  return engineTable_.relieve(key, BlockKeys<true>(*this)) && nameFresh(sub, engineTable_.spotOf(key), key, block, name);
}

// A publisher's names are shared with others that use the same ones; the first contradiction gives it a map of its own. Returns false if
// there is no memory for the name: the stream must not get the block then, since no event could remove it.
bool Index::nameBlock(u32 id, u32 stream, u32 block, u64 name) try {
  Subscription& sub = subscriptions_[id];
  if (!sub.ownNames) {
    const u64 key = mix(name ^ sub.scope);
    if (scopes_[spaceOf(block)] == sub.scope && arena_.engine[block] == 0 && nameFresh(sub, engineTable_.spotOf(key), key, block, name)) return true;
    if (name != 0 && arena_.engine[block] == name && scopes_[spaceOf(block)] == sub.scope) return true;
    goOwnNames(sub, stream, block);
  }
  // The name refers to another block now, so this stream no longer has the former one.
  const u32 before = sub.names.find(name);
  const bool leaves = before != 0 && before != block && sets_[arena_.holders[before]].has(stream);
  const u32 without = leaves ? sets_.without(arena_.holders[before], stream) : HolderSets::none;
  sub.names.set(name, block);
  if (!leaves) return true;
  sub.copies.erase(copyKey(stream, before));
  const u32 held = sets_.current(arena_.holders[before]);
  setHolders(before, without);
  if (!sets_[without].empty()) return true;
  try {
    toGhost(before);
  } catch (const std::bad_alloc&) {
    setHolders(before, held);
    sub.names.set(name, before);
    throw;
  }
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

// `stream` got the block `fresh` a moment ago, under a name that differs from the block's shared one.
void Index::goOwnNames(Subscription& sub, u32 stream, u32 fresh) {
  FlatMap names;
  for (u32 block = BlockArena::pageBlocks; block < arena_.end(); ++block) {
    if (!arena_.used(block) || arena_.engine[block] == 0 || scopes_[spaceOf(block)] != sub.scope) continue;
    const auto& set = sets_[arena_.holders[block]];
    const bool held = std::any_of(sub.streams.begin(), sub.streams.end(), [&](u32 own) { return set.has(own) && (block != fresh || own != stream); });
    if (held) names.set(arena_.engine[block], block);
  }
  sub.names = std::move(names);
  sub.ownNames = true;
}

void Index::sweepNames(Subscription& sub) {
  if (sub.ownNames) sub.names.sweep([&](u64, u32 block) { return arena_.used(block) && holds(sub, block); });
}

void Index::unname(u32 block) {
  engineTable_.erase(nameKeyOf(block), block);
  arena_.engine[block] = 0;
}

}  // namespace svc
