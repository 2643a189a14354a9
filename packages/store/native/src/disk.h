// A client's own disk as the master sees it: how much lies there, and what its owner is to do next.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base.h"

namespace svc {

// A folder on a file system that clients share: its files belong to none of them, and each object has at most one.
struct SharedFolder {
  std::string path;
  bool evicts = true;
  std::map<u64, u32> objects;             // by file: the oldest first
  // Files that no object has any more and that a late writer may still make: until when they are left alone.
  std::unordered_map<u64, Tick> writers;
};

struct Disk {
  // A file is named by its number, which its owner gives to no second one.
  static constexpr u32 fileBits = 28, labelBits = 16;
  static constexpr u64 mostFile = (u64{1} << fileBits) - 1, mostLabel = (u64{1} << labelBits) - 1;
  // Orders that wait for an owner; beyond it a removed object's file stays until its owner compares what it has with us.
  static constexpr std::size_t mostOrders = 1 << 20, mostDoubts = 1024;
  struct Key {
    u16 tenant;
    std::string key;
  };
  // An object to store, which lies at `address` in its owner's memory.
  struct Offload {
    u32 index, task;
    u64 address;
  };

  // Labels from here on are devices of the cold tier: administered one by one, filled when that is asked for, and never evicted from.
  static constexpr u32 firstCold = 0x8000;
  bool cold() const { return label >= firstCold; }

  // Which objects of its owner's memory go to a device of the cold tier: those that are asked for one by one, those about to be evicted, or
  // all once they are stored. Its owner says so each time it mounts the device, so no record keeps it.
  enum class Fills : u8 { asked = 0, evicted = 1, stored = 2 };
  Fills fills = Fills::asked;
  std::string tenant;  // of these objects; empty: of any
  static constexpr u64 fileOverhead = 512;
  bool hasRoom(u64 size) const { return used + (files + 1) * fileOverhead + size <= capacity; }

  u32 label = 0;        // among the disks of its owner
  bool ours = false;    // its owner speaks our own operations, and its files are segments of the transfer engine
  bool enabled = true;  // takes objects
  bool wipe = false;    // everything was removed, and an owner of the field asks whether it was
  u64 capacity = 0, used = 0, files = 0;
  u32 cursor = 1;  // where the look for objects that it does not hold goes on
  u32 looked = 1;  // the same of a device of the cold tier, whose owner asks for objects
  std::deque<Key> offload, promote;
  // Numbers of files that no object has any more, and those its owner was told of last: it has removed them when it asks again.
  std::unordered_set<u64> dropped;
  std::vector<u64> told;
  struct Doubt {
    u16 tenant;
    std::string key;
    u64 file;
  };
  std::vector<Doubt> doubted;  // files whose bytes a reader found wrong
  std::unique_ptr<SharedFolder> folder;  // of the shared one, which has no owner
};

// How routes and moves name a device of the cold tier.
std::string coldName(const Uuid& disk);

struct DiskSpec {
  Uuid id;
  u32 label = 0;
  bool ours = false, enabled = true;
  u64 capacity = 0;
  std::string_view endpoint;
};

// A file that an owner has: written because we asked (`task`), or found there (0). `unknownTask` is said of one that was written because a
// master asked that is another by now; its bytes have the checksum that this master gave.
struct StoredFile {
  static constexpr u32 unknownTask = ~u32{0};
  std::string_view key, fingerprint, group;
  u64 size = 0, file = 0, storedMs = 0;
  u32 task = 0;
  u64 checksum = 0;
  u8 dataType = 0;
  bool hardPin = false;
};

}  // namespace svc
