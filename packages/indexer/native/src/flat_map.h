// A map of u64 to u32 in two arrays: a publisher's own block names if another publisher uses the same names for other blocks.
#pragma once
#include <utility>
#include <vector>

#include "hashing.h"

namespace svc {

class FlatMap {
 public:
  u32 find(u64 key) const {
    if (ids_.empty()) return 0;
    for (std::size_t at = place(key);; at = (at + 1) & mask()) {
      if (ids_[at] == empty) return 0;
      if (ids_[at] != grave && keys_[at] == key) return ids_[at];
    }
  }
  // Sets a value, and returns the former one or 0.
  u32 set(u64 key, u32 id) {
    if ((used_ + 1) * 3 > ids_.size() * 2) rebuild();
    std::size_t free = ~std::size_t{0};
    for (std::size_t at = place(key);; at = (at + 1) & mask()) {
      if (ids_[at] == grave && free == ~std::size_t{0}) free = at;
      if (ids_[at] > grave && keys_[at] == key) return std::exchange(ids_[at], id);
      if (ids_[at] != empty) continue;
      if (free == ~std::size_t{0}) {
        free = at;
        ++used_;
      }
      keys_[free] = key;
      ids_[free] = id;
      ++live_;
      return 0;
    }
  }
  void erase(u64 key) {
    if (ids_.empty()) return;
    for (std::size_t at = place(key); ids_[at] != empty; at = (at + 1) & mask()) {
      if (ids_[at] == grave || keys_[at] != key) continue;
      ids_[at] = grave;
      --live_;
      return;
    }
  }
  template <typename Keep>
  void sweep(Keep keep) {
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if (ids_[i] <= grave || keep(keys_[i], ids_[i])) continue;
      ids_[i] = grave;
      --live_;
    }
  }
  template <typename Each>
  void each(Each visit) const {
    for (std::size_t i = 0; i < ids_.size(); ++i)
      if (ids_[i] > grave) visit(keys_[i], ids_[i]);
  }
  void clear() { *this = FlatMap(); }
  std::size_t size() const { return live_; }
  std::size_t bytes() const { return ids_.size() * 12; }

 private:
  static constexpr u32 empty = 0, grave = 1;
  std::size_t mask() const { return ids_.size() - 1; }
  std::size_t place(u64 key) const { return mix(key) & mask(); }
  void rebuild() {
    const std::size_t size = ids_.empty() ? 64 : live_ * 2 < ids_.size() / 2 ? ids_.size() : ids_.size() * 2;
    std::vector<u64> keys(size);
    std::vector<u32> ids(size);
    keys.swap(keys_);
    ids.swap(ids_);
    used_ = live_;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] <= grave) continue;
      std::size_t at = place(keys[i]);
      while (ids_[at] != empty) at = (at + 1) & mask();
      keys_[at] = keys[i];
      ids_[at] = ids[i];
    }
  }

  std::vector<u64> keys_;
  std::vector<u32> ids_;
  std::size_t used_ = 0, live_ = 0;
};

}  // namespace svc
