// Finds, stores and removes blocks.
#include "at_end.h"
#include "block_keys.h"

#include <algorithm>

namespace svc {
namespace {

// Returns how many blocks the tables are made for, in whole pages: more than the budget, which `limitBlocks` applies exactly, will ever permit.
u32 capacityFor(u64 budget) {
  const u64 blocks = std::min<u64>(budget / 18 + 4096, BlockArena::maxBlocks);
  return static_cast<u32>(blocks / BlockArena::pageBlocks * BlockArena::pageBlocks);
}

}  // namespace

Index::Index(u64 budgetBytes, u64 seed) : budget_(budgetBytes), seed_(seed), arena_(capacityFor(budgetBytes)), table_(capacityFor(budgetBytes)), engineTable_(capacityFor(budgetBytes)), media_{"GPU", "CPU", "DISK"} {}

u32 Index::tick() {
  if (clock_ >= 0xfffffff0u) {
    for (u32 page = 0; page < arena_.pages(); ++page) arena_.setStamp(page, arena_.stamp(page) / 2);
    oldest_.clear();
    clock_ /= 2;
  }
  return ++clock_;
}

u32 Index::find(u32 space, u64 sequence) const {
  return table_.find(mix(sequence ^ spaces_[space].seed), arena_.sequence.data(), sequence, [&](u32 block) { return isOf(space, block); });
}

bool Index::holds(const Subscription& sub, u32 block) const {
  const auto& set = sets_[arena_.holders[block]];
  return std::any_of(sub.streams.begin(), sub.streams.end(), [&](u32 stream) { return set.has(stream); });
}

void Index::setHolders(u32 block, u32 set) {
  u32& holders = arena_.holders[block];
  if (holders != HolderSets::none) sets_.lose(holders, 1);
  sets_.gain(set, 1);
  holders = set;
}

void Index::store(u32 id, u32 stream, u32 space, const u64* sequences, u32 count, const u64* names, u32 previous, Outcomes& outcomes) {
  constexpr u32 ahead = 16;
  const u64 seed = spaces_[space].seed, scope = scopes_[space];
  u32 lastSet = HolderSets::none, lastResult = HolderSets::none, freshSet = HolderSets::none;
  // Changes are counted per run of blocks with one set, not per block.
  u32 run = 0, freshRun = 0;
  const auto settle = [&] {
    if (run > 0) sets_.lose(lastSet, run), sets_.gain(lastResult, run);
    if (freshRun > 0) sets_.gain(freshSet, freshRun);
    run = freshRun = 0;
  };
  const AtEnd settles(settle);
  const u32 clock = clock_;
  if (previous != 0) arena_.touch(previous, clock);
  u64 keys[ahead], nameKeys[ahead];
  IdTable::Spot spots[ahead], nameSpots[ahead];
  u32 warmed = 0, growths = table_.growths(), nameGrowths = engineTable_.growths();
  // Prefetches the tables' lines. Few entries but the wanted one look like it, so the blocks that they refer to are prefetched when they
  // are found.
  const auto warm = [&](u32 from) {
    warmed = std::max(warmed, from);
    for (const u32 until = std::min(count, from + ahead); warmed < until; ++warmed) {
      const u32 at = warmed % ahead;
      table_.prefetch(spots[at] = table_.spotOf(keys[at] = mix(sequences[warmed] ^ seed)));
      if (names != nullptr) engineTable_.prefetch(nameSpots[at] = engineTable_.spotOf(nameKeys[at] = mix(names[warmed] ^ scope)));
    }
  };
  // After a table grew, its entries are in other places.
  const auto renew = [&](u32 from) {
    if (growths != table_.growths())
      for (u32 i = from; i < warmed; ++i) spots[i % ahead] = table_.spotOf(keys[i % ahead]);
    if (nameGrowths != engineTable_.growths())
      for (u32 i = from; i < warmed; ++i) nameSpots[i % ahead] = engineTable_.spotOf(nameKeys[i % ahead]);
    growths = table_.growths();
    nameGrowths = engineTable_.growths();
  };
  // Blocks that are already stored stay.
  const auto giveUp = [&](u32 from) {
    outcomes[OverBudget] += count - from;
    ++changes_;
  };
  const Subscription& sub = subscriptions_[id];
  const bool ownNames = sub.ownNames, inScope = scope == sub.scope;
  const u32 twin = streams_[stream].isUncertain ? Stream::noStream : streams_[stream].twin;
  const bool counts = sub.countsCopies && !streams_[stream].isUncertain;
  bool lastHad = false;
  for (u32 i = 0; i < count; ++i) {
    const u64 sequence = sequences[i];
    // Blocks of one chain are mostly neighbours, so look there before searching the table.
    u32 block = previous == 0 ? 0 : previous + 1;
    if (block == 0 || arena_.sequence[block] != sequence || !arena_.used(block) || spaceOf(block) != space) {
      // Prepare some look-ups ahead, so that lines arrive while others are processed.
      renew(i);
      warm(i);
      const IdTable::Spot& spot = spots[i % ahead];
      u8* vacant = nullptr;
      block = table_.findOrVacant(spot, arena_.sequence.data(), sequence, [&](u32 found) { return isOf(space, found); }, vacant);
      if (block == 0) {
        if (freshSet == HolderSets::none) freshSet = sets_.with(sets_.emptyOf(space), stream);
        block = arena_.allocate(previous);
        if (block == 0) return giveUp(i);
        arena_.sequence[block] = sequence;
        ++freshRun;
        arena_.holders[block] = freshSet;
        if (!table_.insertAt(vacant, spot, keys[i % ahead], block, BlockKeys<false>(*this))) {
          --freshRun;
          arena_.release(block);
          if (!table_.relieve(keys[i % ahead], BlockKeys<false>(*this))) return giveUp(i);
          --i;
          continue;
        }
        arena_.touch(block, clock);
        if (names != nullptr && !(inScope && nameFresh(sub, nameSpots[i % ahead], nameKeys[i % ahead], block, names[i]))) {
          settle();
          if (!nameBlock(id, stream, block, names[i])) return release(block), giveUp(i);
        }
        previous = block;
        continue;
      }
    }
    const u32 set = arena_.holders[block];
    if (set != lastSet) {
      settle();
      lastSet = set;
      lastResult = sets_.with(set, stream);
      // A block that is stored again is certain again.
      if (twin != Stream::noStream) lastResult = sets_.without(lastResult, twin);
      lastHad = counts && sets_[set].has(stream);
    }
    if (lastHad && !addCopy(id, stream, block)) [[unlikely]] return settle(), giveUp(i);
    // No stream had the block, so its former name is replaced by this publisher's.
    if (names != nullptr && arena_.engine[block] != 0 && arena_.engine[block] != names[i] && sets_[set].empty()) unname(block);
    if (set != lastResult) {
      arena_.holders[block] = lastResult;
      ++run;
    }
    arena_.touch(block, clock);
    if (names != nullptr && (ownNames || sub.ownNames || arena_.engine[block] != names[i])) {
      settle();
      if (!nameBlock(id, stream, block, names[i])) return setHolders(block, sets_.current(set)), giveUp(i);
    }
    previous = block;
  }
  settle();
  if (streams_[stream].shard != 0) joinShards(stream, space, sequences, count);
  outcomes[Stored] += count;
  ++changes_;
}

void Index::remove(u32 id, u32 stream, std::int64_t space, const u64* names, u32 count, Outcomes& outcomes, const u64* own, bool everywhere) {
  Subscription& sub = subscriptions_[id];
  if (own == nullptr) own = names;
  if (streams_[stream].shard != 0) breakShards(stream, space, names, count);
  constexpr u32 ahead = 16;
  u32 lastSet = HolderSets::none, lastResult = HolderSets::none, run = 0;
  bool lastEmpty = false;
  const bool shared = engineInUse_ && !sub.ownNames && !sub.standard;
  const u32 twin = streams_[stream].twin;
  const auto held = [&](u32 block) {
    const auto& set = sets_[arena_.holders[block]];
    return block != 0 && (set.has(stream) || (twin != Stream::noStream && set.has(twin))) ? block : 0;
  };
  const auto inSpace = [&](u64 name) { return space < 0 ? 0 : held(find(static_cast<u32>(space), name)); };
  const u64* const keyed = shared ? own : names;
  const u64 seed = space >= 0 ? spaces_[static_cast<u32>(space)].seed : 0;
  const auto settle = [&] {
    if (run > 0) sets_.lose(lastSet, run), sets_.gain(lastResult, run);
    run = 0;
  };
  const AtEnd settles(settle);
  IdTable::Spot spots[ahead];
  u32 warmed = 0, previous = 0;
  bool neighbourly = false;  // blocks next to the previous one that share its set are this publisher's, by the same rule of names
  const u64* const called = shared ? arena_.engine.data() : arena_.sequence.data();
  for (u32 i = 0; i < count; ++i) {
    u32 block = 0;
    if (neighbourly && keyed[i] != 0) {
      // Engines evict chains from their tails, stores from their heads.
      if (called[previous + 1] == keyed[i] && arena_.holders[previous + 1] == lastSet) block = previous + 1;
      else if (called[previous - 1] == keyed[i] && arena_.holders[previous - 1] == lastSet) block = previous - 1;
    }
    if (block == 0 && i >= warmed) {
      // Prefetch in two rounds ahead of the look-ups: the tables' lines, then the blocks that they refer to.
      const u32 until = std::min(count - i, ahead);
      const IdTable& table = shared ? engineTable_ : table_;
      for (u32 k = 0; k < until; ++k) table.prefetch(spots[k] = table.spotOf(mix(keyed[i + k] ^ (shared ? sub.scope : seed))));
      for (u32 k = 0; k < until; ++k) {
        const u32 guess = table.candidate(spots[k]);
        __builtin_prefetch(&called[guess]);
        __builtin_prefetch(&arena_.holders[guess]);
      }
      warmed = i + until;
    }
    if (block == 0) {
      block = sub.standard ? inSpace(names[i]) : held(findName(sub, own[i]));
      if (block == 0) block = sub.standard ? held(findName(sub, own[i])) : inSpace(names[i]);
      if (block == 0 && everywhere && sub.standard)
        for (const u32 other : sub.spaces)
          if ((block = held(find(other, names[i]))) != 0) break;
    }
    if (block == 0) {
      ++outcomes[UnknownRemoved];
      continue;
    }
    if (sub.copies.size() > 0 && takeCopy(sub, stream, block)) [[unlikely]] {
      previous = block;
      ++outcomes[Removed];
      continue;
    }
    const u32 set = arena_.holders[block];
    if (set != lastSet) {
      settle();
      lastSet = set;
      lastResult = sets_.without(set, stream);
      if (twin != Stream::noStream) lastResult = sets_.without(lastResult, twin);
      lastEmpty = sets_[lastResult].empty();
      neighbourly = shared ? scopes_[sets_[set].space] == sub.scope : !sub.ownNames && space >= 0 && sets_[set].space == static_cast<u32>(space);
    }
    previous = block;
    arena_.holders[block] = lastResult;
    ++run;
    if (sub.ownNames && !holds(sub, block)) sub.names.erase(own[i]);
    if (lastEmpty) {
      settle();
      toGhost(block);
    }
    ++outcomes[Removed];
  }
  settle();
  if (freedSinceShrink_ >= freedForShrink) shrinkTables();
  ++changes_;
}

}  // namespace svc
