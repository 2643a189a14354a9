// The table of objects: fixed-size records, their keys stored apart, and a hash index that is resized a little with every insert.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "objects/key_arena.h"

namespace svc {

enum class ReplicaStatus : u8 { none = 0, initialized = 1, processing = 2, complete = 3, removed = 4, failed = 5 };

struct Replica {
  u32 segment;  // its number in the cluster
  u32 node;     // its range in the segment's allocator
  u32 next;     // the object's next replica in `Table::more`, or 0
  ReplicaStatus status;
};

namespace flag {
// `announced`, `announcedDisk`: subscribers of KV events know that it is readable from memory, or from a disk. `queued`: it waits for a
// disk's owner to take it. `leaving`: its memory is freed once it is on a disk.
inline constexpr u8 hardPin = 1, unfinished = 2, announced = 4, announcedDisk = 8, queued = 16, leaving = 32;
// Its file in the shared folder is being written.
inline constexpr u8 filing = 64;
// The flags that a record keeps.
inline constexpr u8 kept = 15;
}

struct Object {
  u64 size;
  u32 key;   // its index in the arena
  u32 hash;  // low half of the key's hash; chooses the slot
  Tick lease, started;
  u32 client;  // number of its writer
  u32 extra;   // index of its Extra, or 0
  Replica first;
  u16 keyBytes;  // 0: the record is free
  u16 tenant;
  u8 flags, dataType;
  u8 leaseMs;  // milliseconds within the tick `lease`, so that a lease ends exactly on time

  u64 leaseEndMs() const { return u64{lease} * tickMs + leaseMs; }
  void leaseUntil(u64 ms) { lease = tickOf(ms), leaseMs = static_cast<u8>(ms % tickMs); }
};
static_assert(sizeof(Object) == 56);

// Returns whether that changed the object.
inline bool setFlag(Object& object, u8 bit, bool on) {
  if (((object.flags & bit) != 0) == on) return false;
  object.flags = static_cast<u8>(on ? object.flags | bit : object.flags & ~bit);
  return true;
}

// An offload changes nothing until it is done, so a writer may cancel it, and no record keeps it.
enum class TaskKind : u8 { none = 0, copy = 1, move = 2, offload = 3, promote = 4 };

// Properties that only some objects have: a checksum, a fingerprint, a pin that ends, a group, a running copy or move.
struct Extra {
  u64 checksum;
  Tick softPinUntil, taskStarted;
  u32 softPinMs;  // requested by a put that has not ended
  u32 group, groupBefore, groupAfter;
  u32 taskClient;
  u32 taskSource;  // node of the replica that is read; for an offload its number
  TaskKind task;
  u8 taskTargets;  // number of replicas that it creates
  bool hasChecksum;
  u32 fingerprint;  // number of the fingerprint of the bytes' layout, or 0
};

struct Group {
  std::string name;
  u16 tenant = 0;
  u64 leaseEndMs = 0;
  u32 first = 0, members = 0;
};

class Table {
 public:
  static constexpr u32 most = (u32{1} << 28) - 1;

  explicit Table(u64 seed);

  u64 hashOf(u16 tenant, std::string_view key) const;
  // Prefetches what a lookup will read; used ahead of a batch.
  void prefetchSlot(u64 hash) const;
  void prefetchRecord(u64 hash) const;
  void prefetchKey(u64 hash) const;
  // Returns 0 when there is none.
  u32 find(u16 tenant, std::string_view key, u64 hash) const;
  // Returns a new record; 0 when the table is full. The key must not exist.
  u32 insert(u16 tenant, std::string_view key, u64 hash);
  void erase(u32 index);

  Object& operator[](u32 index) { return objects_[index]; }
  const Object& operator[](u32 index) const { return objects_[index]; }
  std::string_view keyOf(u32 index) const { return keys_.at(objects_[index].key, objects_[index].keyBytes); }
  // Visits every replica of an object, readable or not.
  template <typename Each>
  void eachReplica(u32 index, Each each) const {
    for (const Replica* at = &objects_[index].first;; at = &more[at->next]) {
      if (at->status != ReplicaStatus::none) each(*at);
      if (at->next == 0) return;
    }
  }
  template <typename Each>
  void eachReplica(u32 index, Each each) {
    std::as_const(*this).eachReplica(index, [&](const Replica& replica) { each(const_cast<Replica&>(replica)); });
  }
  // Returns an object's further properties, which it has from then on.
  Extra& extraOf(u32 index) {
    Object& object = objects_[index];
    if (object.extra == 0) object.extra = extras.take();
    return extras[object.extra];
  }
  bool live(u32 index) const { return objects_[index].keyBytes != 0; }
  u32 end() const { return objects_.end(); }
  u32 size() const { return objects_.live(); }

  Pool<Replica> more;
  Pool<Extra> extras;

 private:
  struct Slots {
    std::unique_ptr<u32[], void (*)(void*)> at{nullptr, nullptr};
    u32 mask = 0, used = 0;
    void resize(u32 size);
  };
  static constexpr u32 grave = ~u32{0}, movedPerInsert = 16;
  // A slot is a record's index and, above it, hash bits that no mask uses: of sixteen records that a probe passes, fifteen are not read.
  static constexpr u32 indexMask = (u32{1} << 28) - 1;
  static u32 slotOf(u32 index, u32 hash) { return index | (hash & ~indexMask); }
  static bool differs(u32 slot, u32 hash) { return ((slot ^ hash) & ~indexMask) != 0; }

  u32 findIn(const Slots& slots, u16 tenant, std::string_view key, u32 hash) const;
  static void place(Slots& slots, u32 hash, u32 index);
  void moveSome();

  u64 seed_;
  Pool<Object> objects_;
  KeyArena keys_;
  // During a resize, lookups search both; `moved_` is how far the old one was emptied.
  Slots slots_, old_;
  u32 moved_ = 0;
};

}  // namespace svc
