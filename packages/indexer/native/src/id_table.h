// Hash to block number: open addressing over u32 entries of 27 bits number and 5 bits tag, at most 0.7 full.
//
//   It grows by those who store, some blocks each in the order of their numbers, so that nobody waits for all of it:
//
//     blocks   │ walked: in `now_`  │ not yet: in `former_` │ stored meanwhile: in `now_`
//     look-up  `now_` first, then `former_`, which may still have what is in `now_`, too
#pragma once
#include <algorithm>
#include <cstdlib>

#include "reserved.h"

namespace svc {

class IdTable {
 public:
  static constexpr u32 empty = 0, grave = 1;  // block numbers begin at 2, so no entry equals these
  static constexpr u32 idMask = 0x07ffffff;

  IdTable() : now_(allocate(4096)) {}
  ~IdTable() {
    release(now_);
    release(former_);
    release(coming_);
  }
  IdTable(const IdTable&) = delete;
  IdTable& operator=(const IdTable&) = delete;

  std::size_t bytes() const { return roomFor(now_.size) + roomFor(former_.size) + roomFor(coming_.size); }
  void prefetch(u64 hash) const {
    __builtin_prefetch(&now_.at[now_.place(hash)]);
    if (former_.at != nullptr) __builtin_prefetch(&former_.at[former_.place(hash)]);
  }
  // The first candidate's number without a look at it: for prefetching what it points at.
  u32 candidate(u64 hash) const { return now_.at[now_.place(hash)] & idMask; }

  // The number whose hash this is by `same(id)`, or 0.
  template <typename Same>
  u32 find(u64 hash, Same same) const {
    const u32 found = findIn(now_, hash, same);
    return found != 0 || former_.at == nullptr ? found : findIn(former_, hash, same);
  }

  // As `find`; where there is none, `vacant` is where `insertAt` may put it, as long as nothing else is put before.
  template <typename Same>
  u32 findOrVacant(u64 hash, Same same, std::size_t& vacant) const {
    const u32 tag = tagOf(hash);
    vacant = none;
    for (std::size_t at = now_.place(hash);; at = now_.next(at)) {
      const u32 entry = now_.at[at];
      if (entry <= grave) {
        if (vacant == none) vacant = at;
        if (entry == empty) break;
      } else if ((entry & ~idMask) == tag && same(entry & idMask)) {
        return entry & idMask;
      }
    }
    return former_.at == nullptr ? 0 : findIn(former_, hash, same);
  }

  // For a hash that is not there. `keys` tells of every number whether it belongs here, and its hash, when the table has to grow.
  template <typename Keys>
  void insert(u64 hash, u32 id, Keys keys) {
    std::size_t at = now_.place(hash);
    while (now_.at[at] > grave) at = now_.next(at);
    insertAt(at, hash, id, keys);
  }
  template <typename Keys>
  void insertAt(std::size_t vacant, u64 hash, u32 id, Keys keys) {
    put(vacant, hash, id);
    ++live_;
    if (former_.at != nullptr) walk(keys);
    else if (used_ * 20 > now_.size * 13) prepare(keys.end());
  }

  // Room for this many, while there is none yet.
  void reserve(std::size_t count) {
    if (live_ > 0 || count * 2 < now_.size) return;
    release(now_);
    now_ = allocate(count * 2);
    used_ = 0;
  }

  void erase(u64 hash, u32 id) {
    const bool found = eraseIn(now_, hash, id);
    if ((former_.at != nullptr && eraseIn(former_, hash, id)) || found) --live_;
  }

 private:
  static constexpr std::size_t none = ~std::size_t{0};
  // Freshly sized a table is this full, in tenths: with the former one beside it both take 20 bytes a block at most.
  static constexpr std::size_t freshTenths = 4;
  // Numbers walked for each block stored are this many at least, and more where most numbers are free: all are walked
  // before the new table has grown by an eighth (and `walkSlack` for small ones), so it never fills meanwhile.
  static constexpr u32 walkedEach = 64, walkSlack = 512;
  // Blocks stored for each large page of the next table that is asked of the system, which may take milliseconds for it.
  static constexpr u32 storedEachPage = 256;
  static constexpr std::size_t largeBytes = hugeBytes / 2;

  struct Slots {
    u32* at = nullptr;
    std::size_t size = 0;
    std::size_t place(u64 hash) const { return static_cast<std::size_t>((static_cast<unsigned __int128>(hash) * size) >> 64); }
    std::size_t next(std::size_t i) const { return i + 1 == size ? 0 : i + 1; }
  };

  static std::size_t roomFor(std::size_t size) { return size * sizeof(u32); }
  static Slots allocate(std::size_t size) {
    const std::size_t bytes = roomFor(size);
    void* at = bytes < largeBytes ? std::calloc(size, sizeof(u32)) : mapHuge(bytes);
    if (at == nullptr) throw std::bad_alloc();
    return {static_cast<u32*>(at), size};
  }
  static void release(Slots& slots) {
    const std::size_t bytes = roomFor(slots.size);
    if (bytes < largeBytes) std::free(slots.at);
    else munmap(slots.at, bytes);
    slots = {};
  }
  static u32 tagOf(u64 hash) { return static_cast<u32>(hash & 31) << 27; }

  template <typename Same>
  static u32 findIn(const Slots& slots, u64 hash, Same same) {
    const u32 tag = tagOf(hash);
    for (std::size_t at = slots.place(hash);; at = slots.next(at)) {
      const u32 entry = slots.at[at];
      if (entry == empty) return 0;
      if ((entry & ~idMask) == tag && entry != grave && same(entry & idMask)) return entry & idMask;
    }
  }

  bool eraseIn(const Slots& slots, u64 hash, u32 id) {
    const u32 entry = tagOf(hash) | id;
    std::size_t at = slots.place(hash);
    while (slots.at[at] != entry) {
      if (slots.at[at] == empty) return false;
      at = slots.next(at);
    }
    // The last of its chain leaves no grave.
    const bool last = slots.at[slots.next(at)] == empty;
    slots.at[at] = last ? empty : grave;
    if (last && &slots == &now_) --used_;
    return true;
  }

  void put(std::size_t vacant, u64 hash, u32 id) {
    if (now_.at[vacant] == empty) ++used_;
    now_.at[vacant] = tagOf(hash) | id;
  }

  void prepare(u32 end) {
    // One that was asked for long ago may have become too small.
    if (coming_.at != nullptr && live_ * 2 > coming_.size) release(coming_);
    if (coming_.at == nullptr) {
      coming_ = allocate(std::max<std::size_t>(live_ * 10 / freshTenths, 4096));
      touched_ = stored_ = 0;
    }
    const std::size_t bytes = roomFor(coming_.size);
    const bool full = used_ * 10 > now_.size * 7;
    if (touched_ < bytes && !full) {
      if (++stored_ % storedEachPage != 0 && bytes >= largeBytes) return;
      // Written, though with what is there already: a page that is only read stays the system's page of zeros.
      reinterpret_cast<volatile u32*>(coming_.at)[touched_ / sizeof(u32)] = empty;
      touched_ += hugeBytes;
      if (touched_ < bytes) return;
    }
    former_ = now_;
    now_ = coming_;
    coming_ = {};
    used_ = 0;
    walked_ = 0;
    end_ = end;
    pace_ = walkedEach + static_cast<u32>(end / (live_ / 8 + walkSlack));
  }

  template <typename Keys>
  void walk(Keys keys) {
    u64 hashes[walkedEach];
    u32 ids[walkedEach], count = 0;
    const auto settle = [&] {
      for (u32 i = 0; i < count; ++i) {
        // What was stored since the growth began is there already.
        std::size_t at = now_.place(hashes[i]);
        const u32 entry = tagOf(hashes[i]) | ids[i];
        while (now_.at[at] != empty && now_.at[at] != entry) at = now_.next(at);
        if (now_.at[at] == empty) put(at, hashes[i], ids[i]);
      }
      count = 0;
    };
    const u32 until = std::min(walked_ + pace_, end_);
    for (u32 id = walked_; id < until; ++id) {
      if (!keys.has(id)) continue;
      if (count == walkedEach) settle();
      hashes[count] = keys.key(id);
      ids[count] = id;
      __builtin_prefetch(&now_.at[now_.place(hashes[count++])], 1);
    }
    settle();
    walked_ = until;
    if (walked_ >= end_) release(former_);
  }

  Slots now_, former_, coming_;
  std::size_t touched_ = 0;  // bytes of `coming_`
  u32 stored_ = 0;
  u32 pace_ = walkedEach;
  u32 walked_ = 0, end_ = 0;  // while it grows: numbers below are in `now_`, numbers from here on were never in `former_`
  std::size_t used_ = 0;      // entries and graves of `now_`
  std::size_t live_ = 0;
};

}  // namespace svc
