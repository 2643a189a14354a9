// The groups of an engine's KV cache: their kinds, learned from stored events, and the blocks of groups that keep only some of a prompt's
// blocks.
#include <algorithm>

#include "index.h"

namespace svc {
namespace {

GroupKind kindOf(std::string_view word, u64 window) {
  if (word.empty()) return GroupKind::Unsaid;
  if (word == "full_attention" || word == "mla_attention" || word == "sink_full_attention") return GroupKind::Whole;
  if (word == "sliding_window" || word == "sliding_window_mla") return window > 0 ? GroupKind::Window : GroupKind::Unknown;
  if (word == "chunked_local_attention") return window > 0 ? GroupKind::Chunk : GroupKind::Unknown;
  if (word == "mamba") return GroupKind::State;
  return GroupKind::Unknown;
}

}  // namespace

CacheGroup* Index::learnGroup(Subscription& sub, u32 rank, const Event& event) {
  const u32 index = static_cast<u32>(event.group);
  auto known = std::find_if(sub.groups.begin(), sub.groups.end(), [&](const CacheGroup& group) { return group.index == index && group.rank == rank; });
  if (known == sub.groups.end()) {
    if (sub.groups.size() >= maxGroups && index != 0) return nullptr;
    if (sub.groups.size() >= maxStreamsEach) return nullptr;
    CacheGroup fresh;
    fresh.rank = rank, fresh.index = index;
    known = sub.groups.insert(known, std::move(fresh));
    ++version_;
  }
  if (!event.spec.empty() && (known->word != event.spec || known->window != event.window)) {
    known->word = event.spec.substr(0, 64);
    known->window = static_cast<u32>(event.window);
    known->kind = kindOf(known->word, event.window);
    ++version_;
  }
  const bool isOther = event.hasGroup && event.hasBlockSize && event.blockSize != 0 && event.blockSize != sub.blockSize && mediumOf(event.medium) == "GPU";
  if (isOther && known->otherBlockSize != event.blockSize) known->otherBlockSize = event.blockSize, ++version_;
  return &*known;
}

void Index::placeSparse(u32 id, ParkedEvent event, Outcomes& outcomes) {
  Subscription& sub = subscriptions_[id];
  std::vector<u64> names;
  for (std::size_t i = 0; i < event.names.size(); ++i) {
    if (!event.gone.empty() && event.gone[i]) continue;
    const u32 block = findName(sub, event.names[i]);
    if (block == 0) {
      names.push_back(event.names[i]);
      continue;
    }
    const u32 space = spaceOf(block);
    if (sub.spaces.insert(space).second) ++version_;
    store(id, event.stream, space, &arena_.sequence[block], 1, nullptr, 0, outcomes);
  }
  if (names.empty()) return;
  event.parent = names.front();
  event.names = std::move(names);
  park(sub, std::move(event), outcomes);
}

}  // namespace svc
