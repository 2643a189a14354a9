// Where the bytes of objects are: questions about replicas and the segments that have them.
#pragma once
#include "common.h"

namespace svc {

enum class ReplicaType : i32 { memory = 0, disk = 1, localDisk = 2, nof = 3, all = 4 };  // numbered as on the wire

// Owns nothing: it reads the table and the cluster. The server's lock guards both.
class Locations : Part {
 public:
  explicit Locations(Common& common) : Part(common) {}

  //  memory   lost with its holder's process
  //  NOF      kept by a file or device: another process that mounts the segment by the same id, base and size gets the same objects
  //  disk     files of one client, or of the folder that all share
  bool inMemory(const Replica& replica) const;
  bool onNof(const Replica& replica) const;
  bool onDisk(const Replica& replica) const;
  bool onShared(const Replica& replica) const;
  bool inTier(const Replica& replica, Tier tier) const { return tier == Tier::nof ? onNof(replica) : inMemory(replica); }
  bool readable(const Replica& replica) const;
  // Returns whether an end of that type concerns the replica.
  bool isOf(const Replica& replica, ReplicaType type) const;
  // Returns a replica's id on the wire; for one of our files it contains the file's number.
  u64 replicaID(const Replica& replica) const;

  template <typename Which>
  bool any(u32 index, Which which) const {
    bool found = false;
    table.eachReplica(index, [&](const Replica& replica) { found = found || which(replica); });
    return found;
  }
  bool anyReadable(u32 index) const;
  bool anyStatus(u32 index, ReplicaStatus status) const;
  bool inMemory(u32 index) const;
  bool anyNof(u32 index) const;
  bool anyCold(u32 index) const;
  // Returns whether it lies on a client's own disk.
  bool anyOwned(u32 index) const;
  // Returns whether it has a replica outside of the tier that it may leave.
  bool anyElse(u32 index, Tier tier) const;
  // Returns whether a replica outside of the shared folder is complete.
  bool anyEnded(u32 index) const;
  // Returns whether any replica other than its file in the shared folder is being written.
  bool writing(u32 index) const;
  // Returns whether a complete replica lies with a holder that was not lost: in memory, or on what KV events call a disk.
  bool lies(u32 index, bool disk) const;
  const Replica* fileOn(u32 index, const Segment& disk) const;
  Replica* sharedOf(u32 index);
};

}  // namespace svc
