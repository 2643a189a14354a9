// Hash to block number: open addressing over u32 entries of 27 bits number and 5 bits tag, at most 0.6 full.
#pragma once
#include <cstdlib>
#include <new>
#include <utility>

#include "hashing.h"

namespace svc {

class IdTable {
 public:
  static constexpr u32 empty = 0, grave = 1;  // block numbers begin at 2, so no entry equals these
  static constexpr u32 idMask = 0x07ffffff;

  IdTable() { slots_ = allocate(size_); }
  ~IdTable() { std::free(slots_); }
  IdTable(const IdTable&) = delete;
  IdTable& operator=(const IdTable&) = delete;

  std::size_t bytes() const { return size_ * sizeof(u32); }
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

  // For a hash that is not there. `(owner.*hashOf)(id)`, which looks at the two arrays, serves when the table has to grow.
  template <typename Owner>
  void insert(u64 hash, u32 id, const Owner& owner, u64 (Owner::*hashOf)(u32) const, const u64* first, const u32* second) {
    if ((used_ + 1) * 5 > size_ * 3) rebuild(owner, hashOf, first, second);
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
  static u32* allocate(std::size_t size) {
    auto* slots = static_cast<u32*>(std::calloc(size, sizeof(u32)));
    if (slots == nullptr) throw std::bad_alloc();
    return slots;
  }
  static u32 tagOf(u64 hash) { return static_cast<u32>(hash & 31) << 27; }
  std::size_t place(u64 hash) const { return static_cast<std::size_t>((static_cast<unsigned __int128>(hash) * size_) >> 64); }

  template <typename Owner>
  void rebuild(const Owner& owner, u64 (Owner::*hashOf)(u32) const, const u64* first, const u32* second) {
    constexpr std::size_t ahead = 24;
    // Many graves: the same size again. Otherwise half as much more, so that it is never under a third full by growth.
    const std::size_t size = live_ * 2 < size_ ? size_ : size_ + size_ / 2;
    u32* slots = allocate(size);
    std::swap(slots_, slots);
    const std::size_t before = std::exchange(size_, size);
    used_ = live_;
    // In the old order, which is the new one, too: writes are sequential.
    for (std::size_t i = 0; i < before; ++i) {
      if (i + ahead < before) {
        __builtin_prefetch(&first[slots[i + ahead] & idMask]);
        __builtin_prefetch(&second[slots[i + ahead] & idMask]);
      }
      if (slots[i] <= grave) continue;
      const u64 hash = (owner.*hashOf)(slots[i] & idMask);
      std::size_t at = place(hash);
      while (slots_[at] != empty) at = at + 1 == size_ ? 0 : at + 1;
      slots_[at] = slots[i];
    }
    std::free(slots);
  }

  u32* slots_ = nullptr;
  std::size_t size_ = 4096;
  std::size_t used_ = 0;  // entries and graves
  std::size_t live_ = 0;
};

}  // namespace svc
