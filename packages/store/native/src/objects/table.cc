// Finds, inserts and erases records: linear probing, and two slot arrays during a resize.
#include "objects/table.h"

#include <cstdlib>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace svc {

void Table::Slots::resize(u32 size) {
  at = {static_cast<u32*>(std::calloc(size, sizeof(u32))), std::free};
  if (!at) throw std::bad_alloc();
  mask = size - 1;
  used = 0;
}

Table::Table(u64 seed) : more(most), extras(most), seed_(seed), objects_(most) { slots_.resize(1024); }

u64 Table::hashOf(u16 tenant, std::string_view key) const { return XXH3_64bits_withSeed(key.data(), key.size(), seed_ + tenant); }

void Table::prefetchSlot(u64 hash) const { __builtin_prefetch(&slots_.at[static_cast<u32>(hash) & slots_.mask]); }

void Table::prefetchRecord(u64 hash) const {
  const u32 slot = slots_.at[static_cast<u32>(hash) & slots_.mask];
  if (slot != 0 && slot != grave && !differs(slot, static_cast<u32>(hash))) __builtin_prefetch(&objects_[slot & indexMask]);
}

void Table::prefetchKey(u64 hash) const {
  const u32 slot = slots_.at[static_cast<u32>(hash) & slots_.mask];
  if (slot != 0 && slot != grave && !differs(slot, static_cast<u32>(hash))) keys_.prefetch(objects_[slot & indexMask].key);
}

u32 Table::findIn(const Slots& slots, u16 tenant, std::string_view key, u32 hash) const {
  for (u32 at = hash & slots.mask;; at = (at + 1) & slots.mask) {
    const u32 slot = slots.at[at];
    if (slot == 0) return 0;
    if (slot == grave || differs(slot, hash)) continue;
    const u32 index = slot & indexMask;
    const Object& object = objects_[index];
    if (object.hash == hash && object.tenant == tenant && object.keyBytes == key.size() && keyOf(index) == key) return index;
  }
}

u32 Table::find(u16 tenant, std::string_view key, u64 hash) const {
  const u32 found = findIn(slots_, tenant, key, static_cast<u32>(hash));
  return found != 0 || !old_.at ? found : findIn(old_, tenant, key, static_cast<u32>(hash));
}

void Table::place(Slots& slots, u32 hash, u32 index) {
  u32 at = hash & slots.mask;
  while (slots.at[at] != 0 && slots.at[at] != grave) at = (at + 1) & slots.mask;
  if (slots.at[at] == 0) ++slots.used;
  slots.at[at] = slotOf(index, hash);
}

void Table::moveSome() {
  for (u32 i = 0; i < movedPerInsert; ++i) {
    const u32 slot = old_.at[moved_];
    if (slot != 0 && slot != grave) {
      const u32 index = slot & indexMask;
      place(slots_, objects_[index].hash, index);
      old_.at[moved_] = grave;
    }
    if (moved_++ == old_.mask) {
      old_ = {};
      return;
    }
  }
}

u32 Table::insert(u16 tenant, std::string_view key, u64 hash) {
  if (key.empty() || key.size() > KeyArena::longest) return 0;
  if (old_.at) {
    moveSome();
  } else if ((slots_.used + 1) / 3 > slots_.mask / 4) {
    // Three quarters are used: only live records, and not graves, make it larger.
    const u64 live = size(), slots = u64{slots_.mask} + 1;
    const u32 wanted = static_cast<u32>(live * 2 > slots ? slots * 2 : slots);
    old_ = std::move(slots_);
    moved_ = 0;
    slots_.resize(wanted);
    moveSome();
  }
  const u32 index = objects_.take();
  if (index == 0) return 0;
  const u32 place_ = keys_.put(key);
  if (place_ == 0) {
    objects_.give(index);
    return 0;
  }
  Object& object = objects_[index];
  object.key = place_;
  object.keyBytes = static_cast<u16>(key.size());
  object.tenant = tenant;
  object.hash = static_cast<u32>(hash);
  place(slots_, object.hash, index);
  return index;
}

void Table::erase(u32 index) {
  const u32 hash = objects_[index].hash;
  const u32 slot = slotOf(index, hash);
  const auto drop = [&](Slots& slots) {
    if (!slots.at) return false;
    for (u32 at = hash & slots.mask; slots.at[at] != 0; at = (at + 1) & slots.mask) {
      if (slots.at[at] != slot) continue;
      // A probe stops at an empty slot, so the last slot of a run needs no grave.
      const bool last = slots.at[(at + 1) & slots.mask] == 0;
      slots.at[at] = last ? 0 : grave;
      if (last) --slots.used;
      return true;
    }
    return false;
  };
  if (!drop(slots_)) drop(old_);
  keys_.drop(objects_[index].key, objects_[index].keyBytes);
  objects_.give(index);
}

}  // namespace svc
