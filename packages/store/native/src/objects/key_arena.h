// The bytes of keys, in slots that are multiples of eight bytes; a freed slot is reused by the next key of its size.
#pragma once
#include <array>

#include "base/pool.h"

namespace svc {

class KeyArena {
 public:
  static constexpr std::size_t unit = 8, longest = 65535;

  KeyArena() : words_(~u32{0}) {}

  // Returns the index of a copy; 0 when the arena is full.
  u32 put(std::string_view key) {
    const u32 units = unitsOf(key.size());
    u32 place = free_[units];
    if (place != 0) {
      std::memcpy(&free_[units], &words_[place], sizeof(u32));
    } else {
      if (words_.left() < units) return 0;
      place = words_.extend(units);
    }
    std::memcpy(&words_[place], key.data(), key.size());
    return place;
  }
  void drop(u32 place, std::size_t size) {
    const u32 units = unitsOf(size);
    std::memcpy(&words_[place], &free_[units], sizeof(u32));
    free_[units] = place;
  }
  std::string_view at(u32 place, std::size_t size) const { return {reinterpret_cast<const char*>(&words_[place]), size}; }
  void prefetch(u32 place) const { __builtin_prefetch(&words_[place]); }

 private:
  struct Words {
    explicit Words(u32 capacity) : pool(capacity), capacity(capacity) {}
    u64& operator[](u32 at) { return pool[at]; }
    const u64& operator[](u32 at) const { return pool[at]; }
    u32 left() const { return capacity - end; }
    u32 extend(u32 units) {
      const u32 place = end;
      end += units;
      return place;
    }
    Pool<u64> pool;
    u32 capacity, end = 1;
  };
  static u32 unitsOf(std::size_t size) { return static_cast<u32>((size + unit - 1) / unit); }

  Words words_;
  std::array<u32, (longest + unit - 1) / unit + 1> free_{};
};

}  // namespace svc
