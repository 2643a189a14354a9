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
  bool inMemory(const Replica& replica) const {
    const Segment* segment = cluster.segment(replica.segment);
    return segment == nullptr || segment->inMemory();
  }
  bool onNof(const Replica& replica) const {
    const Segment* segment = cluster.segment(replica.segment);
    return segment != nullptr && segment->nof();
  }
  bool onDisk(const Replica& replica) const {
    const Segment* segment = cluster.segment(replica.segment);
    return segment != nullptr && segment->onDisk();
  }
  bool onShared(const Replica& replica) const {
    const Segment* segment = cluster.segment(replica.segment);
    return segment != nullptr && segment->shared();
  }
  bool inTier(const Replica& replica, Tier tier) const { return tier == Tier::nof ? onNof(replica) : inMemory(replica); }
  bool readable(const Replica& replica) const {
    if (replica.status != ReplicaStatus::complete) return false;
    const Segment* segment = cluster.segment(replica.segment);
    return segment != nullptr && segment->readable();
  }
  // Returns whether an end of that type concerns the replica.
  bool isOf(const Replica& replica, ReplicaType type) const {
    if (type == ReplicaType::memory) return inMemory(replica);
    if (type == ReplicaType::nof) return onNof(replica);
    return !onShared(replica);
  }
  // Returns a replica's id on the wire; for one of our files it contains the file's number.
  u64 replicaID(const Replica& replica) const {
    const Segment* segment = cluster.segment(replica.segment);
    if (segment == nullptr || !segment->onDisk() || !segment->disk->ours || segment->shared()) return (u64{replica.segment} << 32) | replica.node;
    return u64{1} << 63 | u64{segment->disk->label} << 32 | nodes[replica.node].offset;
  }

  template <typename Which>
  bool any(u32 index, Which which) const {
    bool found = false;
    table.eachReplica(index, [&](const Replica& replica) { found = found || which(replica); });
    return found;
  }
  bool anyReadable(u32 index) const {
    return any(index, [&](const Replica& replica) { return readable(replica); });
  }
  bool anyStatus(u32 index, ReplicaStatus status) const {
    return any(index, [&](const Replica& replica) { return replica.status == status; });
  }
  bool inMemory(u32 index) const {
    return any(index, [&](const Replica& replica) { return inMemory(replica); });
  }
  bool anyNof(u32 index) const {
    return any(index, [&](const Replica& replica) { return onNof(replica); });
  }
  bool anyCold(u32 index) const {
    return any(index, [&](const Replica& replica) { return cluster.segment(replica.segment)->cold(); });
  }
  // Returns whether it lies on a client's own disk.
  bool anyOwned(u32 index) const {
    return any(index, [&](const Replica& replica) { return onDisk(replica) && !onShared(replica); });
  }
  // Returns whether it has a replica outside of the tier that it may leave.
  bool anyElse(u32 index, Tier tier) const {
    return any(index, [&](const Replica& replica) { return !inTier(replica, tier); });
  }
  // Returns whether a replica outside of the shared folder is complete.
  bool anyEnded(u32 index) const {
    return any(index, [&](const Replica& replica) { return replica.status == ReplicaStatus::complete && !onShared(replica); });
  }
  // Returns whether any replica other than its file in the shared folder is being written.
  bool writing(u32 index) const {
    return any(index, [&](const Replica& replica) { return replica.status == ReplicaStatus::processing && !onShared(replica); });
  }
  // Returns whether a complete replica lies with a holder that was not lost: in memory, or on what KV events call a disk.
  bool lies(u32 index, bool disk) const {
    return any(index, [&](const Replica& replica) {
      const Segment* segment = cluster.segment(replica.segment);
      return replica.status == ReplicaStatus::complete && segment != nullptr && !segment->gone && segment->inMemory() != disk;
    });
  }
  const Replica* fileOn(u32 index, const Segment& disk) const {
    const Replica* found = nullptr;
    table.eachReplica(index, [&](const Replica& replica) {
      if (replica.segment == disk.number) found = &replica;
    });
    return found;
  }
  Replica* sharedOf(u32 index) {
    Replica* found = nullptr;
    table.eachReplica(index, [&](Replica& replica) {
      if (found == nullptr && onShared(replica)) found = &replica;
    });
    return found;
  }
};

}  // namespace svc
