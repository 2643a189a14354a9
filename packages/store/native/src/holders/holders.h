// The clients that hold memory: their pings, what they mount and unmount, and what happens when they fall silent.
#pragma once
#include "objects/objects.h"

namespace svc {

using SegmentSpec = wire::Segment;

// Owns which clients are heard, and the lists of segments that were hidden; clients and segments themselves are in the cluster. The server's
// lock guards it.
class Holders : Part {
 public:
  Holders(Common& common, Objects& objects, Space& space) : Part(common), objects(objects), space(space) {}

  // Returns the client's number, assigned on first use; 0 when there are too many clients.
  u32 clientOf(const Uuid& id);
  i32 ping(const Uuid& id, i32& status);
  i32 mount(const SegmentSpec& spec, const Uuid& client);
  i32 remount(std::span<const SegmentSpec> specs, const Uuid& client);
  // Returns whether mounting these again changes nothing in the log: they are all the memory that the client is known to hold.
  bool holds(std::span<const SegmentSpec> specs, const Uuid& client) const;
  i32 unmount(const Uuid& id, const Uuid& client, u64 graceMs);
  i32 setState(u32 segment, SegmentState state);
  // Records the result of a probe of a segment's endpoint; false when the segment is gone.
  bool probed(u32 segment, bool reached);
  // The client stays silent until its next ping.
  void markSilent(u32 client);
  // Hides a segment or a disk; Eviction drops its replicas.
  void dropSegment(Segment& segment);
  i32 endRestore(const Uuid& client);
  // Notices clients that miss pings, and segments whose grace period is over.
  void watch();

  std::vector<u32> hidden;  // segments whose replicas are not dropped yet

 private:
  i32 checkMount(const SegmentSpec& spec, u32 client) const;
  // Gives a segment whose holder is silent to another process that mounts it by the same id.
  bool takeOver(Segment& segment, const SegmentSpec& spec, u32 client);
  void lose(u32 client);
  void forgetOrders(Segment& disk);

  Objects& objects;
  Space& space;
  u64 watchAtMs_ = 0;
};

}  // namespace svc
