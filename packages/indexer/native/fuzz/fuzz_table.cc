// Compares the table of blocks with a plain map: blocks are added and removed while segments are split, cleaned, merged and widened.
#include "fuzz_table.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "id_table.h"

namespace svc {

Allocations allocations;

namespace {

// Blocks whose values are their hashes; a free number has 0.
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

// The similarity of the hashes: bits that all of them share, and bits that the blocks of a group share. `stride` is the distance between
// block numbers.
struct Likeness {
  u64 all = 0, ofGroup = 0;
  u32 stride = 1;
};

constexpr u64 common = 0x5bd1e995cafef00dull;

bool fuzzed(std::mt19937_64& source, u32 blocks, const Likeness& kind) {
  IdTable table(1 << 20);
  std::vector<u64> values((blocks + 64 + IdTable::groupBlocks - 1) / IdTable::groupBlocks * IdTable::groupBlocks * kind.stride);
  std::unordered_map<u64, u32> known;
  u64 base = 0;
  const auto hashFor = [&](u32 id) {
    if (id % IdTable::groupBlocks == 0) base = source();
    return (common & kind.all) | (((base & kind.ofGroup) | (source() & ~kind.ofGroup)) & ~kind.all);
  };
  // Maps the n-th block to its number: groups are `stride` apart, blocks within a group are neighbours.
  const auto place = [&](u32 id) { return id / IdTable::groupBlocks * kind.stride * IdTable::groupBlocks + id % IdTable::groupBlocks; };
  const auto insert = [&](u32 nth) {
    const u32 id = place(nth);
    const u64 hash = hashFor(nth);
    if (hash == 0 || known.contains(hash)) return true;
    u8* vacant = nullptr;
    if (table.findOrVacant(table.spotOf(hash), values.data(), hash, [](u32) { return true; }, vacant) != 0) return false;
    values[id] = hash;
    known.emplace(hash, id);
    return table.insertAt(vacant, table.spotOf(hash), hash, id, Blocks{values});
  };
  const auto isRight = [&](u32 nth) {
    const u32 id = place(nth);
    return values[id] == 0 || table.find(values[id], values.data(), values[id], [](u32) { return true; }) == id;
  };
  const auto erase = [&](u32 nth) {
    const u32 id = place(nth);
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
  // As many blocks are removed as added, so segments are cleaned and keep their size.
  for (u32 round = 0; round < blocks; ++round) {
    const u32 id = 64 + static_cast<u32>(source() % blocks);
    erase(id);
    if (!insert(id) || !isRight(64 + static_cast<u32>(source() % blocks))) return false;
  }
  // Most blocks are removed and added several times, and finally all are removed.
  const auto allRight = [&] {
    for (u32 id = 64; id < blocks + 64; ++id)
      if (!isRight(id)) return false;
    return true;
  };
  for (const u32 kept : {20u, 3u, 50u, 0u}) {
    for (u32 id = 64; id < blocks + 64; ++id) {
      const u64 gone = values[place(id)];
      if (source() % 100 < kept) continue;
      erase(id);
      if (gone != 0 && table.find(gone, values.data(), gone, [](u32) { return true; }) != 0) return false;
    }
    if (!allRight()) return false;
    while (table.shrink(Blocks{values}))
      if (!isRight(64 + static_cast<u32>(source() % blocks))) return false;
    if (!allRight()) return false;
    // Only a record of some segments may remain.
    if (kept == 0) return table.bytes() < IdTable(1 << 20).bytes() + 4096;
    for (u32 id = 64; id < blocks + 64; ++id)
      if (values[place(id)] == 0 && !insert(id)) return false;
    if (!allRight()) return false;
  }
  return false;
}

// Tests two blocks of one group with one tag and adjacent homes: the first is a guest in the home of the second, which is then removed.
bool keepsTwins(std::mt19937_64& source) {
  IdTable table(1 << 20);
  std::vector<u64> values(1 << 20);
  u32 next = 1024;
  constexpr u64 twins = 77;
  bool isPut = true;
  const auto hash = [&](u64 home, u64 tag) { return home << 48 | (source() >> 36 << 20) | (tag == twins ? 0 : source() % 4096) << 8 | tag; };
  const auto put = [&](u32 id, u64 own) {
    values[id] = own;
    isPut = table.insert(own, id, Blocks{values}) && isPut;
  };
  const auto erase = [&](u32 id) {
    table.erase(values[id], id);
    values[id] = 0;
  };
  for (const u64 home : {5, 6})
    for (u64 i = 0; i < 16; ++i, next += IdTable::groupBlocks) put(next, hash(home, 200 + i));
  constexpr u32 stays = 512, goes = 513;
  erase(next - 13 * IdTable::groupBlocks);
  put(stays, hash(5, twins));
  erase(next - 6 * IdTable::groupBlocks);
  put(goes, hash(6, twins));
  erase(goes);
  for (const u32 before = table.growths(); table.growths() == before; next += IdTable::groupBlocks) {
    u64 own = 0;
    do own = source() >> 8 | 1;
    while (own >> 48 >= 4 && own >> 48 <= 6);
    put(next, own);
  }
  return isPut && table.find(values[stays], values.data(), values[stays], [](u32) { return true; }) == stays;
}

// Makes hashes that no split separates: they share the root and the fraction, and some share the tag as well.
u64 alikeBut(u64 number) {
  const u64 home = number < 8 ? 248 + number : number / 17, tag = number < 8 ? 2 : number % 17 + 2;
  return 0x5b00e995cafef000ull | home << 48 | tag;
}

// Tests the smallest possible table, so that wide segments come close to the others: the others are removed, and the wide ones stay intact.
bool keepsWide(std::mt19937_64& source) {
  constexpr u32 alike = 4'000, others = 70'000, first = 64;
  IdTable table(0);
  std::vector<u64> values(first + alike + others);
  for (u32 id = first; id < values.size(); ++id) {
    values[id] = id < first + alike ? alikeBut(id - first) : source() | 1;
    if (!table.insert(values[id], id, Blocks{values})) return false;
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

// Tests a table that grows, shrinks and grows while the n-th allocation, or all from there on, fail: it keeps what it accepted, and accepts
// everything again once there is memory.
bool survivesWithoutMemory(std::mt19937_64& source) {
  constexpr u32 first = 64, blocks = 4'000, alike = 4'200;
  bool failed = true;
  for (u64 nth = 0; failed; ++nth)
    for (const u64 most : {u64{1}, ~u64{0}}) {
      IdTable table(1 << 20);
      std::vector<u64> values(first + blocks + alike);
      u32 held = 0, refused = 0;
      const auto put = [&](u32 id) {
        values[id] = id < first + blocks ? source() | 2 : alikeBut(id - first - blocks);
        while (!table.insert(values[id], id, Blocks{values})) {
          const u64 hash = std::exchange(values[id], 0);
          if (!table.relieve(hash, Blocks{values})) return ++refused, void();
          values[id] = hash;
        }
        ++held;
      };
      const auto isRight = [&] {
        u32 found = 0;
        for (u32 id = first; id < values.size(); ++id)
          found += values[id] != 0 && table.find(values[id], values.data(), values[id], [](u32) { return true; }) == id;
        return found == held;
      };
      const auto fill = [&] {
        for (u32 id = first; id < values.size(); ++id)
          if (values[id] == 0) put(id);
      };
      const auto empty = [&](u32 upTo) {
        for (u32 id = first; id < upTo; ++id)
          if (values[id] != 0) table.erase(values[id], id), values[id] = 0, --held;
        while (table.shrink(Blocks{values})) continue;
      };
      allocations = {nth, most};
      fill();
      failed = allocations.most != most;
      bool right = isRight();
      empty(first + blocks / 8 * 7);
      right = right && isRight();
      fill();
      empty(first + blocks / 4);
      failed = failed || allocations.most != most;
      const bool wasRefused = refused > 0;
      allocations = {};
      right = right && isRight();
      refused = 0;
      fill();
      if (!right || refused > 0 || held != blocks + alike || !isRight()) return false;
      // Without any memory the table has only its first eight segments.
      if (nth == 0 && most > 1 && !wasRefused) return false;
    }
  return true;
}

}  // namespace

bool fuzzTable(std::mt19937_64& source, u64 rounds) {
  const u32 blocks = static_cast<u32>(std::clamp<u64>(rounds * 15, 1000, 300'000));
  const std::array<Likeness, 8> kinds{{
      {.ofGroup = ~0ull << 20},           // within a group, only the tag and some of the fraction differ
      {.ofGroup = 0xff'ffff'ffffull},     // only their root and home differ
      {.all = ~0ull << 40},               // all have one home
      {.all = 0xffff'ffffull << 8},       // splits separate few of them
      {.all = 0xff'ffff'ffffull << 8},    // splits separate none of them
      {.stride = 3}, {.stride = 40}, {.stride = 300},
  }};
  const bool isRight = std::all_of(kinds.begin(), kinds.end(), [&](const Likeness& kind) { return fuzzed(source, 6'000, kind); }) && fuzzed(source, blocks, {}) && keepsTwins(source) && keepsWide(source) && survivesWithoutMemory(source);
  if (!isRight) std::fprintf(stderr, "the table of blocks lost one, or found one that is gone\n");
  return isRight;
}

}  // namespace svc

// The global operators are replaced so that allocations can be made to fail.
void* operator new(std::size_t bytes) {
  svc::Allocations& allocations = svc::allocations;
  void* const at = allocations.left == 0 && allocations.most > 0 ? nullptr : std::malloc(bytes);
  if (allocations.left > 0) --allocations.left;
  else if (allocations.most > 0) --allocations.most;
  if (at == nullptr) throw std::bad_alloc();
  return at;
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete(void* at, std::size_t) noexcept { std::free(at); }
