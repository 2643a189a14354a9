// The table of blocks against a plain map: blocks come and go while its segments are split, cleaned, merged and made wide.
#include "fuzz_table.h"

#include <cstdio>
#include <unordered_map>
#include <vector>

#include "id_table.h"

namespace svc {
namespace {

// Blocks whose values are their hashes; 0 where a number is free.
struct Blocks {
  const std::vector<u64>& values;
  void prefetch(u32) const {}
  u32 ofGroup(u32 group, u64* keys) const {
    u32 used = 0;
    for (u32 i = 0; i < IdTable::groupBlocks; ++i) {
      keys[i] = values[group + i];
      used |= keys[i] != 0 ? 1u << i : 0;
    }
    return used;
  }
};

// `alike`: bits of a hash, from the top, that all have in common; `apart`: bits from the bottom that tell blocks of a group apart.
bool fuzzed(std::mt19937_64& source, u32 blocks, u32 alike, u32 apart) {
  IdTable table(1 << 20);
  std::vector<u64> values((blocks + 64 + IdTable::groupBlocks - 1) / IdTable::groupBlocks * IdTable::groupBlocks);
  std::unordered_map<u64, u32> known;
  u64 base = 0;
  const auto hashFor = [&](u32 id) {
    if (id % IdTable::groupBlocks == 0 || apart == 64) base = source();
    const u64 own = apart == 64 ? base : (base >> apart << apart) + source() % (u64{1} << apart);
    return alike == 0 ? own : (0x5bd1e995cafef00dull >> (64 - alike) << (64 - alike)) | own >> alike;
  };
  const auto insert = [&](u32 id) {
    const u64 hash = hashFor(id);
    if (hash == 0 || known.contains(hash)) return true;
    u8* vacant = nullptr;
    if (table.findOrVacant(table.spotOf(hash), values.data(), hash, [](u32) { return true; }, vacant) != 0) return false;
    values[id] = hash;
    known.emplace(hash, id);
    table.insertAt(vacant, table.spotOf(hash), hash, id, Blocks{values});
    return true;
  };
  const auto isRight = [&](u32 id) { return values[id] == 0 || table.find(values[id], values.data(), values[id], [](u32) { return true; }) == id; };
  const auto erase = [&](u32 id) {
    if (values[id] == 0) return;
    table.erase(values[id], id);
    known.erase(values[id]);
    values[id] = 0;
    if (source() % 64 == 0) table.shrink(Blocks{values});
  };
  for (u32 id = 64; id < blocks + 64; ++id) {
    if (!insert(id) || !isRight(id) || !isRight(64 + static_cast<u32>(source() % blocks))) return false;
    if (source() % 3 == 0) erase(64 + static_cast<u32>(source() % blocks));
    if (const u64 other = source() | 1; !known.contains(other) && table.find(other, values.data(), other, [](u32) { return true; }) != 0) return false;
  }
  // As many go as come: segments are cleaned, and hold what they held.
  for (u32 round = 0; round < blocks; ++round) {
    const u32 id = 64 + static_cast<u32>(source() % blocks);
    erase(id);
    if (!insert(id) || !isRight(64 + static_cast<u32>(source() % blocks))) return false;
  }
  // Most go and come, again and again, and then all.
  const auto allRight = [&] {
    for (u32 id = 64; id < blocks + 64; ++id)
      if (!isRight(id)) return false;
    return true;
  };
  for (const u32 kept : {20u, 3u, 50u, 0u}) {
    for (u32 id = 64; id < blocks + 64; ++id) {
      const u64 gone = values[id];
      if (source() % 100 < kept) continue;
      erase(id);
      if (gone != 0 && table.find(gone, values.data(), gone, [](u32) { return true; }) != 0) return false;
    }
    if (!allRight()) return false;
    while (table.shrink(Blocks{values}))
      if (!isRight(64 + static_cast<u32>(source() % blocks))) return false;
    if (!allRight()) return false;
    // But for an account of some segments.
    if (kept == 0) return table.bytes() < IdTable(1 << 20).bytes() + 4096;
    for (u32 id = 64; id < blocks + 64; ++id)
      if (values[id] == 0 && !insert(id)) return false;
    if (!allRight()) return false;
  }
  return false;
}

// Two of one group with one tag, of homes beside each other: the first lies behind its full home, in that of the second, which goes.
bool keepsTwins(std::mt19937_64& source) {
  IdTable table(1 << 20);
  std::vector<u64> values(1 << 20);
  u32 next = 1024;
  const auto hash = [&](u64 home, u64 tag) { return home << 48 | tag << 40 | (source() >> 26 | 1); };
  const auto put = [&](u32 id, u64 own) {
    values[id] = own;
    table.insert(own, id, Blocks{values});
  };
  const auto erase = [&](u32 id) {
    table.erase(values[id], id);
    values[id] = 0;
  };
  for (const u64 home : {5, 6})
    for (u64 i = 0; i < 16; ++i, next += IdTable::groupBlocks) put(next, hash(home, 200 + i));
  constexpr u32 stays = 512, goes = 513;
  erase(next - 13 * IdTable::groupBlocks);
  put(stays, hash(5, 77));
  erase(next - 6 * IdTable::groupBlocks);
  put(goes, hash(6, 77));
  erase(goes);
  for (const u32 before = table.growths(); table.growths() == before; next += IdTable::groupBlocks) {
    u64 own = 0;
    do own = source() >> 8 | 1;
    while (own >> 48 >= 4 && own >> 48 <= 6);
    put(next, own);
  }
  return table.find(values[stays], values.data(), values[stays], [](u32) { return true; }) == stays;
}

// A table that is as small as can be, so that wide segments come close to the others: those go, and the wide ones stay whole.
bool keepsWide(std::mt19937_64& source) {
  constexpr u32 alike = 4'000, others = 70'000, first = 64;
  IdTable table(0);
  std::vector<u64> values(first + alike + others);
  for (u32 id = first; id < values.size(); ++id) {
    values[id] = id < first + alike ? 0x5bd1e995cafe0000ull | (id - first + 1) : source() | 1;
    table.insert(values[id], id, Blocks{values});
  }
  for (u32 id = first + alike; id < values.size(); ++id) {
    table.erase(values[id], id);
    values[id] = 0;
  }
  while (table.shrink(Blocks{values})) continue;
  for (u32 id = first; id < first + alike; ++id)
    if (table.find(values[id], values.data(), values[id], [](u32) { return true; }) != id) return false;
  return true;
}

}  // namespace

bool fuzzTable(std::mt19937_64& source, u64 rounds) {
  const u32 blocks = static_cast<u32>(std::clamp<u64>(rounds * 15, 1000, 300'000));
  const bool isRight = fuzzed(source, blocks, 0, 64) && fuzzed(source, 6'000, 0, 20) && fuzzed(source, 6'000, 24, 64) && fuzzed(source, 6'000, 44, 8) && keepsTwins(source) && keepsWide(source);
  if (!isRight) std::fprintf(stderr, "the table of blocks lost one, or found one that is gone\n");
  return isRight;
}

}  // namespace svc
