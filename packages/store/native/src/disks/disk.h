// A client's own disk as the master sees it: its usage, and the pending orders for its owner.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "rpc/arguments.h"

namespace svc {

// A folder on a file system that clients share: its files have no owning client, and each object has at most one.
struct SharedFolder {
  std::string path;
  bool evicts = true;
  std::map<u64, u32> objects;             // by file number, the oldest first
  // Dropped files that a late writer may still create, and the time until which they must not be swept.
  std::unordered_map<u64, Tick> writers;
};

struct Disk {
  // A file is identified by its number, which its owner never reuses.
  static constexpr u32 fileBits = 28, labelBits = 16;
  static constexpr u64 mostFile = (u64{1} << fileBits) - 1, mostLabel = (u64{1} << labelBits) - 1;
  // The limit of orders that wait for an owner. Beyond it, a removed object's file stays until its owner compares its files with the master's.
  static constexpr std::size_t mostOrders = 1 << 20, mostReports = 1024;
  struct Key {
    u16 tenant;
    std::string key;
  };
  // An object to store; its bytes are at `address` in its owner's memory.
  struct Offload {
    u32 index, task;
    u64 address;
  };

  // Labels from here on are devices of the cold tier: administered one by one, filled on request, and never evicted from.
  static constexpr u32 firstCold = 0x8000;
  bool cold() const { return label >= firstCold; }

  // Selects which objects in its owner's memory go to a cold device: those requested one by one, those about to be evicted, or all stored ones.
  // The owner sends this with each mount, so no record keeps it.
  enum class Fills : u8 { asked = 0, evicted = 1, stored = 2 };
  Fills fills = Fills::asked;
  std::string tenant;  // only this tenant's objects; empty: all
  static constexpr u64 fileOverhead = 512;
  bool fits(u64 size) const { return used + (files + 1) * fileOverhead + size <= capacity; }

  u32 label = 0;        // number among its owner's disks
  bool ours = false;    // its owner uses svc's own operations, and its files are segments of the transfer engine
  bool enabled = true;  // accepts objects
  bool wipe = false;    // all objects were removed, and a Mooncake owner will ask whether they were
  u64 capacity = 0, used = 0, files = 0;
  u32 cursor = 1;  // where the scan for objects that are not on it continues
  u32 looked = 1;  // the same for a device of the cold tier, whose owner requests objects
  std::deque<Key> offload, promote;
  // `dropped` has files without an object; `sent` has those sent to the owner last, which it has removed once it asks again.
  std::unordered_set<u64> dropped;
  std::vector<u64> sent;
  struct Report {
    u16 tenant;
    std::string key;
    u64 file;
  };
  std::vector<Report> reported;  // files that a reader reported as damaged
  std::unique_ptr<SharedFolder> folder;  // set for the shared folder, which has no owner
};

// Returns the name of a cold device in routes and moves.
std::string coldName(const Uuid& disk);

struct DiskSpec {
  Uuid id;
  u32 label = 0;
  bool ours = false, enabled = true;
  u64 capacity = 0;
  std::string_view endpoint;
};

// A file that an owner has: written on our order (`task`), or found on its disk (0). `unknownTask` marks one that a former master ordered;
// its bytes match the checksum that master gave.
using StoredFile = wire::StoredFile;
inline constexpr u32 unknownTask = ~u32{0};

}  // namespace svc
