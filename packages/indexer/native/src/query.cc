// Walks along a prompt's blocks, hashing them lazily, up to the first block that no requested stream has.
#include "prompt_hashes.h"
#include "query.h"

#include <algorithm>

namespace svc {
void Query::sequences(const Request& request, u32 ahead, std::vector<u64>& out) const {
  PromptHashes source(request, ahead, index_.seed(), index_.seed());
  out.clear();
  while (out.size() < source.total) {
    u32 count = 0;
    const u64* hashes = source.take(out.size(), count);
    out.insert(out.end(), hashes, hashes + count);
  }
}

// The caller sets `lengths` to zero.
void Query::walk(u32 space, const Request& request, u32 ahead, u64 localSeed, const View& view, u32* lengths) {
  PromptHashes source(request, ahead, localSeed, index_.seed());
  BlockArena& arena = index_.arena();
  const HolderSets& sets = index_.sets();
  const u32 words = view.words, clock = index_.tick();
  const u64* bits = view.bits.data();
  alive_.clear();  // before the first block: all of them
  u32 block = 0, set = HolderSets::none;
  // Hashes that are not the standard's may be the publishers' own.
  const u64* called = arena.sequence.data();
  std::vector<u64> const* held = nullptr;
  u64 at = 0;
  while (at < source.total && (held == nullptr || !alive_.empty())) {
    u32 count = 0;
    const u64* hashes = source.take(at, count);
    u32 k = 0;
    while (k < count) {
      const u32 from = block;
      if (block != 0) {
        // These blocks are neighbours in the arena with the same holders, so no row can end here.
        const u32 run = runLength(called + block + 1, hashes + k, &arena.holders[block + 1], set, count - k);
        block += run, k += run;
        for (u32 page = from / BlockArena::pageBlocks + 1; page <= block / BlockArena::pageBlocks; ++page) arena.setStamp(page, clock);
        if (k == count) break;
      }
      if (request.hashes != nullptr && k + 8 < count) index_.prefetch(space, hashes[k + 8]);
      u32 next = index_.find(space, hashes[k]);
      if (next != 0) {
        called = arena.sequence.data();
      } else if (request.hashes != nullptr && (next = index_.findNamed(space, hashes[k])) != 0) {
        called = arena.engine.data();
      }
      if (next == 0) {
        for (u32 mask : alive_) lengths[mask] = static_cast<u32>(at + k);
        return;
      }
      arena.touch(next, clock);
      block = next;
      if (arena.holders[block] != set) {
        set = arena.holders[block];
        const std::vector<u64>& now = sets[set].bits;
        // A row can only end where a holder disappears.
        const bool isFirst = held == nullptr;
        bool lost = isFirst;
        if (!lost)
          for (u32 w = 0; w < held->size() && !lost; ++w) lost = ((*held)[w] & ~(w < now.size() ? now[w] : 0)) != 0;
        held = &now;
        if (lost) {
          const auto has = [&](u32 mask) {
            u64 any = 0;
            const auto [first, end] = view.spans[mask];
            for (u32 w = first; w < std::min<std::size_t>(end, now.size()); ++w) any |= bits[mask * words + w] & now[w];
            return any != 0;
          };
          if (isFirst) {
            // Many prompts begin with the same set of holders.
            First& first = firsts_[set % firsts_.size()];
            if (first.view != view.serial || first.bits != now) {
              first.view = view.serial, first.bits = now;
              first.alive.clear();
              for (u32 mask = 0; mask < view.masks; ++mask)
                if (has(mask)) first.alive.push_back(mask);
            }
            alive_ = first.alive;
          } else {
            std::erase_if(alive_, [&](u32 mask) {
              if (has(mask)) return false;
              lengths[mask] = static_cast<u32>(at + k);
              return true;
            });
          }
          if (alive_.empty()) break;
        }
      }
      ++k;
    }
    at += count;
  }
  for (u32 mask : alive_) lengths[mask] = static_cast<u32>(source.total);
}

const u32* Query::match(const Request& request, const View& view) {
  lengths_.assign(view.masks, 0);
  reach_.clear();
  const std::int64_t plain = view.plain;
  const u64 seed = index_.seed();
  if (view.hasCoarse && plain >= 0) walk(static_cast<u32>(plain), request, 0, seed, view, lengths_.data());
  const auto further = [&](u32 space, u32 ahead, u64 localSeed) {
    best_.assign(view.masks, 0);
    walk(space, request, ahead, localSeed, view, best_.data());
    for (u32 i = 0; i < view.masks; ++i) lengths_[i] = std::max(lengths_[i], best_[i]);
  };
  // The hashes of blocks that came without tokens may include LoRA and salt.
  const std::string_view lora = request.space.lora;
  const u64 salted = saltedSeed(lora.starts_with("n:") ? lora.substr(2) : std::string_view(), request.space.salt, seed);
  const bool isBare = plain >= 0 && salted != seed && request.hashes == nullptr && index_.spaces()[static_cast<u32>(plain)].bare;
  if (view.hasCoarse && isBare) further(static_cast<u32>(plain), 0, salted);
  if (view.hasCoarse)
    for (const auto& [ahead, space] : view.aheads) further(space, ahead, seed);
  if (!view.fine.empty()) matchAllFine(request, view, isBare ? salted : seed);
  return lengths_.data();
}

}  // namespace svc
