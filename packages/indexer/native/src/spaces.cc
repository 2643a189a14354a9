// Namespaces and their numbers: assigned when an event first names one, and freed when nothing needs them.
#include <algorithm>

#include "index.h"

namespace svc {
namespace {

u64 textSeed(std::string_view text, u64 seed) { return XXH3_64bits_withSeed(text.data(), text.size(), seed); }

void append(std::string& key, std::string_view part) {
  key.append(std::to_string(part.size())).push_back(':');
  key.append(part);
}

// A namespace's share of the vectors, of the map and of the caller's own sets.
constexpr u64 spaceFixedBytes = 400;

}  // namespace

std::string spaceKey(const Namespace& space) {
  std::string key = std::to_string(space.blockSize) + (space.ahead == 0 ? "t" : "a" + std::to_string(space.ahead) + ":");
  for (std::string_view part : {std::string_view(space.tenant), std::string_view(space.model), std::string_view(space.lora), std::string_view(space.salt)})
    append(key, part);
  return key;
}

u64 scopeSeed(std::string_view tenant, std::string_view model, u32 blockSize) { return mix(textSeed(tenant, textSeed(model, blockSize)) | 1); }

u64 seedOf(const Namespace& space) { return textSeed(spaceKey(space), 0); }

std::int64_t Index::findSpace(const Namespace& like) const {
  const auto found = spaceIds_.find(spaceKey(like));
  return found == spaceIds_.end() ? std::int64_t{-1} : std::int64_t{found->second};
}

u32 Index::internSpace(const Namespace& like) {
  if (const std::int64_t known = findSpace(like); known >= 0) return static_cast<u32>(known);
  if (liveSpaces() >= collectSpacesAt_) collectSpaces();
  u32 id = static_cast<u32>(spaces_.size());
  if (freeSpaces_.empty()) {
    spaces_.emplace_back();
    scopes_.push_back(0);
  } else {
    id = freeSpaces_.back();
    freeSpaces_.pop_back();
  }
  fillSpace(id, like);
  return id;
}

void Index::fillSpace(u32 id, const Namespace& like) {
  const std::string key = spaceKey(like);
  spaceIds_.emplace(key, id);
  spaces_[id] = like;
  spaces_[id].live = true;
  if (like.ahead > 0) aheads_ |= 1u << std::min(like.ahead, 31u);
  spaces_[id].bare = false;
  spaces_[id].seed = seedOf(like);
  Namespace plain = like;
  plain.ahead = 0;
  spaces_[id].nameSeed = seedOf(plain);
  scopes_[id] = scopeSeed(like.tenant, like.model, like.blockSize);
  spaceBytes_ += spaceFixedBytes + 2 * key.size();
  // Views contain the numbers of their namespaces.
  ++version_;
}

void Index::restoreSpace(const Namespace& like, bool live, bool bare) {
  const u32 id = static_cast<u32>(spaces_.size());
  spaces_.emplace_back();
  scopes_.push_back(0);
  if (!live || findSpace(like) >= 0) return freeSpaces_.push_back(id);
  fillSpace(id, like);
  spaces_[id].bare = bare;
}

bool Index::hasRoomForSpace(const Namespace& like) {
  if (liveSpaces() < maxSpaces || findSpace(like) >= 0) return true;
  // The search for unused namespaces is too expensive to repeat for each event that is refused.
  if (refusedSpaces_++ % 4096 == 0) collectSpaces();
  return liveSpaces() < maxSpaces;
}

// Frees namespaces that no block, no parked event and no requested row needs, together with their event order.
void Index::collectSpaces() {
  std::vector<u8> used(spaces_.size());
  for (u32 set = 1; set < sets_.size(); ++set)
    if (sets_.blocksOf(set) > 0 && !sets_[set].empty()) used[sets_[set].space] = 1;
  for (const Subscription& sub : subscriptions_)
    for (const ParkedEvent& parked : sub.park) used[parked.space] = 1;
  // Blocks without holders keep no namespace alive.
  for (u32& ghost : ghosts_) {
    if (!arena_.used(ghost) || !sets_[arena_.holders[ghost]].empty() || used[spaceOf(ghost)] != 0) continue;
    release(ghost);
  }
  for (u32 set = 1; set < sets_.size(); ++set)
    if (sets_.blocksOf(set) > 0) used[sets_[set].space] = 1;
  for (u32 id = 0; id < spaces_.size(); ++id) {
    if (used[id] != 0 || !spaces_[id].live) continue;
    const std::string key = spaceKey(spaces_[id]);
    spaceBytes_ -= spaceFixedBytes + 2 * key.size();
    spaceIds_.erase(key);
    spaces_[id] = {};
    freeSpaces_.push_back(id);
  }
  for (Subscription& sub : subscriptions_) {
    std::erase_if(sub.spaces, [&](u32 space) { return used[space] == 0; });
    std::erase_if(sub.lastEventId, [&](const auto& entry) { return used[static_cast<u32>(entry.first)] == 0; });
    std::erase_if(sub.unverified, [&](u64 key) { return used[static_cast<u32>(key)] == 0; });
    weigh(sub);
  }
  collectSpacesAt_ = std::clamp(2 * liveSpaces(), firstSpaceCollection, maxSpaces);
  ++version_;
}

}  // namespace svc
