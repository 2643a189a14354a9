// Finds how deep an engine can serve a prompt if its KV cache has several groups, or if a loss may have affected some of its blocks.
//
// The prompt is divided into runs of blocks with one holder set. A point after a block is served if every group has what it needs before
// the point: all blocks (Whole), a window (Window, Chunk), or the last block (State). The deepest such point is the answer.
//
//   block    0   1   2   3   4   5   6   7        Whole   ends at 6
//   Whole    █   █   █   █   █   █   ·   ·        Window of two blocks: served at 2, 5 and 6
//   Window   █   █   ·   █   █   █   █   ·        State: served at 3 and 5
//   State    ·   ·   █   ·   █   ·   ·   ·        all three: 5
//
// Uncertain blocks count only in `reach`, with one exception: when vLLM or SGLang store a block on the GPU, they have all blocks before it
// there. Hence all blocks that a group of full attention had before a loss are certain up to the deepest block that it has stored since.
#include <algorithm>
#include <numeric>

#include "prompt_hashes.h"
#include "query.h"

namespace svc {
namespace {

struct Stretch {
  u32 end = 0;  // it begins at the end of the stretch before
  u32 set = HolderSets::none;
};

class FineMatch {
 public:
  FineMatch(const View& view, const HolderSets& sets, const std::vector<Stretch>& stretches, u32 blockSize)
      : view_(view), sets_(sets), stretches_(stretches), blockSize_(blockSize) {}

  // `most` is the deepest point that counts.
  void of(const View::Fine& fine, u32 most, u32& certain, u32& reach) {
    certain = reach = most;
    for (const View::Part& part : fine.parts)
      if (isWhole(part.kind)) {
        const auto [sure, all] = wholeLength(part);
        certain = std::min(certain, sure);
        reach = std::min(reach, all);
      }
    certain = deepest(fine, certain, false);
    reach = deepest(fine, reach, true);
  }

 private:
  static bool isWhole(GroupKind kind) { return kind != GroupKind::Window && kind != GroupKind::Chunk && kind != GroupKind::State; }

  bool has(const Stretch& stretch, const View::Part& part, View::PartMask mask) const {
    if (stretch.set == HolderSets::none) return false;
    const std::vector<u64>& held = sets_[stretch.set].bits;
    const u64* const bits = view_.partBits.data() + (static_cast<std::size_t>(part.bits) * View::partMasks + mask) * view_.words;
    for (std::size_t word = 0; word < std::min<std::size_t>(view_.words, held.size()); ++word)
      if ((bits[word] & held[word]) != 0) return true;
    return false;
  }

  std::pair<u32, u32> wholeLength(const View::Part& part) const {
    u32 proven = 0, from = 0, sure = 0, all = 0;
    for (const Stretch& stretch : stretches_)
      if (has(stretch, part, View::Proof)) proven = stretch.end;
    bool isSure = true;
    for (const Stretch& stretch : stretches_) {
      const bool certain = has(stretch, part, View::Certain), provable = !certain && has(stretch, part, View::Provable);
      isSure = isSure && (certain || (provable && proven > from));
      if (isSure) sure = stretch.end;
      else if (!certain && !provable && !has(stretch, part, View::Unverified)) break;
      all = from = stretch.end;
    }
    return {sure, all};
  }

  // Returns the deepest point up to `most` that all groups serve, except those of full attention.
  u32 deepest(const View::Fine& fine, u32 most, bool withUncertain) {
    u32 best = 0, from = 0;
    runs_.assign(fine.parts.size(), nowhere);
    for (const Stretch& stretch : stretches_) {
      if (from >= most) break;
      u32 low = from + 1, high = std::min(stretch.end, most);
      u64 steps = 1;  // a chunk that has none of its blocks serves only points at its multiples
      for (std::size_t i = 0; i < fine.parts.size(); ++i) {
        const View::Part& part = fine.parts[i];
        if (isWhole(part.kind)) continue;
        const bool isThere = has(stretch, part, View::Certain) || (withUncertain && (has(stretch, part, View::Provable) || has(stretch, part, View::Unverified)));
        if (!isThere) {
          runs_[i] = nowhere;
          if (part.kind == GroupKind::Chunk) steps = std::min<u64>(std::lcm(steps, std::lcm<u64, u64>(part.window, blockSize_) / blockSize_), ~0u);
          else high = 0;
          continue;
        }
        if (runs_[i] == nowhere) runs_[i] = from;
        if (runs_[i] == 0) continue;
        if (part.kind == GroupKind::Window) low = std::max(low, firstOfWindow(runs_[i], part.window));
        else if (part.kind == GroupKind::Chunk) low = std::max(low, firstOfChunk(runs_[i], part.window));
      }
      high -= static_cast<u32>(high % steps);
      if (low <= high) best = high;
      from = stretch.end;
    }
    return best;
  }

  // Returns the first point whose window begins at or after this block.
  u32 firstOfWindow(u32 block, u32 window) const {
    const u64 blocks = (u64{window} - 1 + blockSize_ - 1) / blockSize_;
    return static_cast<u32>(std::min<u64>(block + std::max<u64>(1, blocks), ~0u));
  }
  // Returns the first point whose chunk begins at or after this block.
  u32 firstOfChunk(u32 block, u32 chunk) const {
    const u64 begins = (static_cast<u64>(block) * blockSize_ + chunk - 1) / chunk * chunk;
    return static_cast<u32>(std::min<u64>((begins + blockSize_ - 1) / blockSize_, ~0u));
  }

  static constexpr u32 nowhere = ~0u;
  const View& view_;
  const HolderSets& sets_;
  const std::vector<Stretch>& stretches_;
  u32 blockSize_;
  std::vector<u32> runs_;  // by part: the beginning of its current run of blocks
};

}  // namespace

void Query::matchFine(u32 space, const Request& request, u32 ahead, u64 localSeed, const View& view) {
  PromptHashes source(request, ahead, localSeed, index_.seed());
  BlockArena& arena = index_.arena();
  const u32 clock = index_.tick();
  std::vector<Stretch> stretches;
  u32 block = 0;
  bool isOver = false;
  for (u64 at = 0; at < source.total && !isOver;) {
    u32 count = 0;
    const u64* hashes = source.take(at, count);
    for (u32 k = 0; k < count && !isOver; ++k) {
      // Blocks of one chain are mostly neighbours.
      const u32 beside = block + 1;
      if (block == 0 || arena.sequence[beside] != hashes[k] || !arena.used(beside) || !index_.isOf(space, beside)) {
        block = index_.find(space, hashes[k]);
        if (block == 0 && request.hashes != nullptr) block = index_.findNamed(space, hashes[k]);
      } else {
        block = beside;
      }
      if (block != 0) arena.touch(block, clock);
      isOver = block == 0 && !view.isSparse;
      const u32 set = block == 0 ? HolderSets::none : index_.sets().current(arena.holders[block]);
      if (isOver) break;
      if (stretches.empty() || stretches.back().set != set) stretches.push_back({0, set});
      stretches.back().end = static_cast<u32>(at + k + 1);
    }
    at += count;
  }
  const u32 blocks = stretches.empty() ? 0 : stretches.back().end, size = request.space.blockSize;
  // An engine computes a prompt's last token in any case, so only the blocks before that token count.
  const u64 before = request.hashes != nullptr || request.tokenCount == 0 ? source.total : (request.tokenCount - 1) / size;
  FineMatch match(view, index_.sets(), stretches, size);
  for (const View::Fine& fine : view.fine) {
    u32 certain = 0, reach = 0;
    match.of(fine, fine.isGrouped ? static_cast<u32>(std::min<u64>(blocks, before)) : blocks, certain, reach);
    lengths_[fine.mask] = std::max(lengths_[fine.mask], certain);
    reach_[fine.mask] = std::max(reach_[fine.mask], reach);
  }
}

bool Query::hasUncertain(const View::Row& row) const {
  return std::any_of(row.ranks.begin(), row.ranks.end(), [&](const View::Rank& rank) { return reachOf(rank) > lengthOf(rank); });
}

void Query::matchAllFine(const Request& request, const View& view, u64 salted) {
  reach_.assign(view.masks, 0);
  const u64 seed = index_.seed();
  if (view.plain >= 0) matchFine(static_cast<u32>(view.plain), request, 0, seed, view);
  if (view.plain >= 0 && salted != seed) matchFine(static_cast<u32>(view.plain), request, 0, salted, view);
  for (const auto& [ahead, space] : view.aheads) matchFine(space, request, ahead, seed, view);
}

}  // namespace svc
