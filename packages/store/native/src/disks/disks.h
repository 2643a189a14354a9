// Clients' disks: which objects wait for one, what their owners are ordered to do, and which files they have.
#pragma once
#include "base/sketch.h"
#include "holders/holders.h"

namespace svc {

//  put, or about to be evicted ──> queued ──handed out──> offload task ──stored──> a file next to the memory, or instead of it
//                                     └──gone, changed──> (nothing)   └──a writer, a failure, a timeout──> as before

// Owns the numbers of offloads and the counts of reads that decide on promotions; a disk's queues and files are in its segment. The server's lock
// guards it.
class Disks : Part {
 public:
  Disks(Common& common, const Locations& where, Groups& groups, Tenants& tenants, Announcer& announcer, Objects& objects, Holders& holders)
      : Part(common), where(where), groups(groups), tenants(tenants), announcer(announcer), objects(objects), holders(holders) {}

  i32 mount(const DiskSpec& spec, const Uuid& client);
  i32 unmountAll(const Uuid& client);
  // Unmounts one of them. `empty`: only a disk without objects (else notReady), so that none is stranded.
  i32 unmount(const Uuid& client, const Uuid& disk, bool empty);
  // Null if the client has no such disk here, or has not mounted it again since our restart.
  Segment* diskOf(const Uuid& client, const Uuid& id, bool awaited = false);
  // Makes Mooncake's owners remove all of their files when they ask next.
  void wipe();

  // Orders for an owner: objects to store, numbers of files to remove, objects to bring back to memory.
  std::vector<Disk::Offload> takeOffloads(Segment& disk, u32 most);
  std::vector<u64> takeDropped(Segment& disk, u32 most);
  std::vector<u32> takePromotions(Segment& disk, u32 most);
  i32 keepFile(Segment& disk, u16 tenant, const StoredFile& file);
  i32 failOffload(Segment& disk, u16 tenant, std::string_view key, u32 task);
  i32 dropFile(Segment& disk, u16 tenant, std::string_view key, u64 file, Gone why);
  i32 keepMooncakeFile(Segment& disk, u16 tenant, std::string_view key, u64 size);
  i32 dropMooncakeFile(const Uuid& client, u16 tenant, std::string_view key);
  // A reader found wrong bytes in that replica, so its owner is asked to check it.
  i32 reportWrongBytes(u16 tenant, std::string_view key, u64 replica);

  // Counts a read; an object that is read often and is not in memory waits for its promotion.
  void hit(u32 index);
  // Returns whether objects are offloaded at all.
  bool offloads() const { return settings.offload || coldFills_; }
  void queue(u32 index, bool evicting);
  // For an object that is about to be evicted: `leaving`, its memory is freed once it is on a disk; `kept`, it waits for a disk that cannot
  // take it now. `queued` counts those that one eviction queued.
  enum class Fate : u8 { evicted, leaving, kept };
  Fate leave(u32 index, u32& queued);
  // Queues objects that are on no disk, since it was mounted later, its queue was full, or the master was restarted.
  void tend(u32 budget);

  // Devices of the cold tier: returns how many objects in its owner's memory were queued for it; `ended`: the whole table was scanned.
  u32 queueCold(Segment& disk, u16 tenant, u32 most, u32 records, bool& ended);
  i32 fillCold(const Uuid& client, const Uuid& disk, Disk::Fills fills, std::string_view tenant);
  i32 releaseCold(const Uuid& disk, u16 tenant, std::string_view key, u64 file);
  // Returns the cold device that an object is queued for or being written to.
  const Segment* coldFor(u32 index) const;

  bool replay(RecordReader& from);

 private:
  Segment* diskFor(u32 index, bool evicting);
  bool isIn(u32 index, const StoredFile& file) const;
  bool endOffload(Segment& disk, u32 index, u32 task);
  void addFile(Segment& disk, u32 index, u64 file);
  // Frees an object's memory that was to leave, now that a disk has it.
  void freeLeaving(u32 index);
  // Drops a damaged replica of a NOF segment, which has no owner that could check its bytes.
  bool dropDamaged(u32 index, u64 replica);

  const Locations& where;
  Groups& groups;
  Tenants& tenants;
  Announcer& announcer;
  Objects& objects;
  Holders& holders;
  Sketch hits_;
  u32 lastOffload_ = static_cast<u32>(common.startID >> 32);
  bool coldFills_ = false;  // some cold device takes objects unasked
};

}  // namespace svc
