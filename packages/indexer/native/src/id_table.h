// Hash to block number: open addressing over u32 entries of 27 bits number and 5 bits tag, at most 0.6 full.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "reserved.h"

namespace svc {

class IdTable {
 public:
  static constexpr u32 empty = 0, grave = 1;  // block numbers begin at 2, so no entry equals these
  static constexpr u32 idMask = 0x07ffffff;

  IdTable() { slots_ = allocate(size_); }
  ~IdTable() { std::free(slots_); }
  IdTable(const IdTable&) = delete;
  IdTable& operator=(const IdTable&) = delete;

  std::size_t bytes() const { return roomFor(size_); }
  void prefetch(u64 hash) const { __builtin_prefetch(&slots_[place(hash)]); }
  // The first candidate's number without a look at it: for prefetching what it points at.
  u32 candidate(u64 hash) const { return slots_[place(hash)] & idMask; }

  // The number whose hash this is by `same(id)`, or 0.
  template <typename Same>
  u32 find(u64 hash, Same same) const {
    const u32 tag = tagOf(hash);
    for (std::size_t at = place(hash);; at = at + 1 == size_ ? 0 : at + 1) {
      const u32 entry = slots_[at];
      if (entry == empty) return 0;
      if ((entry & ~idMask) == tag && entry != grave && same(entry & idMask)) return entry & idMask;
    }
  }

  // For a hash that is not there. `walk(visit)` tells all that belong in the table, in any order, when it has to grow.
  template <typename Walk>
  void insert(u64 hash, u32 id, Walk walk) {
    if ((used_ + 1) * 5 > size_ * 3) rebuild(id, walk);
    std::size_t at = place(hash);
    while (slots_[at] > grave) at = at + 1 == size_ ? 0 : at + 1;
    if (slots_[at] == empty) ++used_;
    slots_[at] = tagOf(hash) | id;
    ++live_;
  }

  // Room for this many, while there is none yet.
  void reserve(std::size_t count) {
    if (live_ > 0 || count * 2 < size_) return;
    std::free(slots_);
    size_ = count * 2;
    slots_ = allocate(size_);
    used_ = 0;
  }

  void erase(u64 hash, u32 id) {
    const u32 entry = tagOf(hash) | id;
    std::size_t at = place(hash);
    while (slots_[at] != entry) {
      if (slots_[at] == empty) return;
      at = at + 1 == size_ ? 0 : at + 1;
    }
    const std::size_t after = at + 1 == size_ ? 0 : at + 1;
    --live_;
    // The last of its chain leaves no grave.
    if (slots_[after] == empty) {
      slots_[at] = empty;
      --used_;
    } else {
      slots_[at] = grave;
    }
  }

 private:
  static constexpr std::size_t largeBytes = 4 * hugeBytes;
  // Large tables lie in large pages, whole ones.
  static std::size_t roomFor(std::size_t size) {
    const std::size_t bytes = size * sizeof(u32);
    return bytes < largeBytes ? bytes : (bytes + hugeBytes - 1) / hugeBytes * hugeBytes;
  }
  static u32* allocate(std::size_t size) {
    const std::size_t bytes = roomFor(size);
    const bool large = bytes >= largeBytes;
    void* slots = large ? std::aligned_alloc(hugeBytes, bytes) : std::calloc(size, sizeof(u32));
    if (slots == nullptr) throw std::bad_alloc();
    if (large) {
      wantHuge(slots, bytes);
      std::memset(slots, 0, bytes);
    }
    return static_cast<u32*>(slots);
  }
  static u32 tagOf(u64 hash) { return static_cast<u32>(hash & 31) << 27; }
  std::size_t place(u64 hash) const { return static_cast<std::size_t>((static_cast<unsigned __int128>(hash) * size_) >> 64); }

  template <typename Walk>
  void rebuild(u32 without, Walk walk) {
    constexpr u32 ahead = 32;
    // Many graves: the same size again. Otherwise half as much more, so that it is never under a third full by growth.
    const std::size_t size = live_ * 2 < size_ ? size_ : size_ + size_ / 2;
    std::free(std::exchange(slots_, allocate(size)));
    size_ = size;
    used_ = live_;
    // Blocks are read in order; their places, which are anywhere, are asked for some blocks ahead.
    std::size_t places[ahead];
    u32 entries[ahead];
    u32 count = 0;
    const auto settle = [&](u32 k) {
      std::size_t at = places[k];
      while (slots_[at] != empty) at = at + 1 == size_ ? 0 : at + 1;
      slots_[at] = entries[k];
    };
    walk([&](u64 hash, u32 id) {
      if (id == without) return;
      const u32 k = count++ % ahead;
      if (count > ahead) settle(k);
      places[k] = place(hash);
      entries[k] = tagOf(hash) | id;
      __builtin_prefetch(&slots_[places[k]], 1);
    });
    for (u32 k = 0; k < std::min(count, ahead); ++k) settle(k);
  }

  u32* slots_ = nullptr;
  std::size_t size_ = 4096;
  std::size_t used_ = 0;  // entries and graves
  std::size_t live_ = 0;
};

}  // namespace svc
