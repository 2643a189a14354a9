// Replicas behind NVMe over Fabrics: who may mount them, which replicas an end concerns, and what is dropped from one tier only.
#include <algorithm>

#include "store.h"

namespace svc {

//  memory   lost with its holder's process
//  NOF      kept by a file or device: another process that mounts the segment by the same id, base and size gets the same objects

bool Store::inMemory(const Replica& replica) const {
  const Segment* segment = cluster.segment(replica.segment);
  return segment == nullptr || segment->inMemory();
}

bool Store::onNof(const Replica& replica) const {
  const Segment* segment = cluster.segment(replica.segment);
  return segment != nullptr && segment->nof();
}

bool Store::inMemory(u32 index) const {
  bool found = false;
  eachReplica(index, [&](const Replica& replica) { found = found || inMemory(replica); });
  return found;
}

bool Store::anyNof(u32 index) const {
  bool found = false;
  eachReplica(index, [&](const Replica& replica) { found = found || onNof(replica); });
  return found;
}

bool Store::anyElse(u32 index, Tier tier) const {
  bool found = false;
  eachReplica(index, [&](const Replica& replica) { found = found || !(tier == Tier::nof ? onNof(replica) : inMemory(replica)); });
  return found;
}

void Store::dropTier(u32 index, Tier tier) {
  dropReplicas(index, [&](const Replica& replica) { return tier == Tier::nof ? onNof(replica) : inMemory(replica); }, 0);
  announce(index);
  log(index);
}

i32 Store::checkMount(const SegmentSpec& spec, u32 number) const {
  const Tier tier = tierOf(spec.protocol);
  if (tier == Tier::nof && !settings.nof) return code::notSupported;
  // A NOF segment needs an endpoint, since overlaps are checked per endpoint.
  if (tier == Tier::nof && spec.endpoint.empty()) return code::invalidParams;
  for (const u32 each : cluster.client(number).segments) {
    const Segment& other = *cluster.segment(each);
    if (other.onDisk() || other.id == spec.id || other.tier != tier || (tier == Tier::nof && other.endpoint != spec.endpoint)) continue;
    if (spec.base < other.base + other.size && other.base < spec.base + spec.sizeBytes) return code::segmentExists;
  }
  return code::ok;
}

bool Store::takeOver(Segment& segment, const SegmentSpec& spec, u32 number) {
  if (!segment.nof() || tierOf(spec.protocol) != Tier::nof || segment.base != spec.base || segment.size != spec.sizeBytes) return false;
  // A holder that is heard keeps its segment.
  if (!segment.awaiting && !segment.silent && !segment.unreachable) return false;
  cluster.handOver(segment, number, spec.name, spec.endpoint);
  segment.hostID = spec.hostID;
  segment.awaiting = segment.silent = segment.unreachable = false;
  segment.suspectedMs = 0;
  cluster.client(number).known = true;
  cluster.refresh();
  journal.segment(segment);
  if (onSuspect) onSuspect(segment.number);
  return true;
}

bool Store::isOf(const Replica& replica, ReplicaType type) const {
  if (type == ReplicaType::memory) return inMemory(replica);
  if (type == ReplicaType::nof) return onNof(replica);
  return !onShared(replica);
}

bool Store::anyEnded(u32 index) const {
  bool found = false;
  eachReplica(index, [&](const Replica& replica) { found = found || (replica.status == ReplicaStatus::complete && !onShared(replica)); });
  return found;
}

bool Store::dropUnfinished(u32 index, ReplicaType type, u64 coolMs, Gone why) {
  if (!dropReplicas(index, [&](const Replica& replica) { return replica.status == ReplicaStatus::processing && isOf(replica, type); }, coolMs)) {
    erase(index, 0, true, why);
    return true;
  }
  setProcessing(table[index], writing(index));
  announce(index);
  log(index);
  return false;
}

bool Store::discard(u32 index) {
  ++counters.discarded;
  // Complete replicas stay readable; an object that has none is erased.
  if (anyStatus(index, ReplicaStatus::complete)) return dropUnfinished(index, ReplicaType::all, settings.releaseMs, Gone::expired);
  erase(index, settings.releaseMs, true, Gone::expired);
  return true;
}

bool Store::dropDamaged(u32 index, u64 replica) {
  bool found = false;
  eachReplica(index, [&](const Replica& each) { found = found || (onNof(each) && each.status == ReplicaStatus::complete && replicaID(each) == replica); });
  if (!found || busy(table[index])) return false;
  cancelOffload(index);
  ++counters.nofDamaged;
  if (!dropReplicas(index, [&](const Replica& each) { return onNof(each) && replicaID(each) == replica; }, settings.leaseMs)) {
    erase(index, 0, true, Gone::checksum);
    return true;
  }
  announce(index);
  log(index);
  return true;
}

}  // namespace svc
