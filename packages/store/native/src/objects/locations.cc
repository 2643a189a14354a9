// Answers where replicas are, from their segments.
#include "objects/locations.h"

namespace svc {

bool Locations::inMemory(const Replica& replica) const {
  const Segment* segment = cluster.segment(replica.segment);
  return segment == nullptr || segment->inMemory();
}

bool Locations::onNof(const Replica& replica) const {
  const Segment* segment = cluster.segment(replica.segment);
  return segment != nullptr && segment->nof();
}

bool Locations::onDisk(const Replica& replica) const {
  const Segment* segment = cluster.segment(replica.segment);
  return segment != nullptr && segment->onDisk();
}

bool Locations::onShared(const Replica& replica) const {
  const Segment* segment = cluster.segment(replica.segment);
  return segment != nullptr && segment->shared();
}

bool Locations::readable(const Replica& replica) const {
  if (replica.status != ReplicaStatus::complete) return false;
  const Segment* segment = cluster.segment(replica.segment);
  return segment != nullptr && segment->readable();
}

bool Locations::isOf(const Replica& replica, ReplicaType type) const {
  if (type == ReplicaType::memory) return inMemory(replica);
  if (type == ReplicaType::nof) return onNof(replica);
  return !onShared(replica);
}

u64 Locations::replicaID(const Replica& replica) const {
  const Segment* segment = cluster.segment(replica.segment);
  if (segment == nullptr || !segment->onDisk() || !segment->disk->ours || segment->shared()) return (u64{replica.segment} << 32) | replica.node;
  return u64{1} << 63 | u64{segment->disk->label} << 32 | nodes[replica.node].offset;
}

bool Locations::anyReadable(u32 index) const {
  return any(index, [&](const Replica& replica) { return readable(replica); });
}
bool Locations::anyStatus(u32 index, ReplicaStatus status) const {
  return any(index, [&](const Replica& replica) { return replica.status == status; });
}
bool Locations::inMemory(u32 index) const {
  return any(index, [&](const Replica& replica) { return inMemory(replica); });
}
bool Locations::anyNof(u32 index) const {
  return any(index, [&](const Replica& replica) { return onNof(replica); });
}
bool Locations::anyCold(u32 index) const {
  return any(index, [&](const Replica& replica) { return cluster.segment(replica.segment)->cold(); });
}
bool Locations::anyOwned(u32 index) const {
  return any(index, [&](const Replica& replica) { return onDisk(replica) && !onShared(replica); });
}
bool Locations::anyElse(u32 index, Tier tier) const {
  return any(index, [&](const Replica& replica) { return !inTier(replica, tier); });
}
bool Locations::anyEnded(u32 index) const {
  return any(index, [&](const Replica& replica) { return replica.status == ReplicaStatus::complete && !onShared(replica); });
}
bool Locations::writing(u32 index) const {
  return any(index, [&](const Replica& replica) { return replica.status == ReplicaStatus::processing && !onShared(replica); });
}
bool Locations::lies(u32 index, bool disk) const {
  return any(index, [&](const Replica& replica) {
    const Segment* segment = cluster.segment(replica.segment);
    return replica.status == ReplicaStatus::complete && segment != nullptr && !segment->gone && segment->inMemory() != disk;
  });
}

const Replica* Locations::fileOn(u32 index, const Segment& disk) const {
  const Replica* found = nullptr;
  table.eachReplica(index, [&](const Replica& replica) {
    if (replica.segment == disk.number) found = &replica;
  });
  return found;
}

Replica* Locations::sharedOf(u32 index) {
  for (Replica* at = &table[index].first;; at = &table.more[at->next]) {
    if (at->status != ReplicaStatus::none && onShared(*at)) return at;
    if (at->next == 0) return nullptr;
  }
}

}  // namespace svc
