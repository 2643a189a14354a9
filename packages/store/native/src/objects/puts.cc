// Puts and upserts from start to end, their revocation, and removals.
#include "objects/puts.h"

#include <algorithm>

namespace svc {

namespace {
// A client that was assigned this many files in a row and ended none cannot reach the folder.
constexpr u32 mostUnfiled = 16;
}  // namespace

i32 Puts::checkPolicy(u16 tenant, std::string_view key, u64 size, const PutPolicy& policy) const {
  if (key.empty() || key.size() > KeyArena::longest || size == 0 || (policy.replicas == 0 && policy.nofReplicas == 0)) return code::invalidParams;
  if ((policy.nofReplicas != 0 && !settings.nof) || policy.dfsReplicas > 1) return code::invalidParams;
  // A pin's duration without a request to pin is a mistake.
  if (policy.softPin > 2 || (policy.softPin != 1 && policy.softPinMs) || policy.softPinMs.value_or(0) > settings.maxSoftPinMs) return code::invalidParams;
  if (policy.dfsReplicas == 1) return code::dfsUnavailable;
  if (tenant == Tenants::none) return code::tenantUnknown;
  return code::ok;
}

i32 Puts::create(u32 client, u16 tenant, std::string_view key, u64 size, const PutPolicy& policy, std::string_view group, bool files, u32& index) {
  if (const i32 wrong = eviction.overQuota(tenant, policy.replicas == 0 ? 0 : size, key); wrong != code::ok) return wrong;
  Placed placed[2 * Space::mostReplicas];
  u32 count = eviction.withinQuota(tenant, size, placed, eviction.place(size, policy, Tier::memory, placed));
  count += eviction.place(size, policy, Tier::nof, placed + count, count > 0);
  if (count == 0) return refuseForSpace();
  index = objects.create(client, tenant, key, size, policy.dataType, policy.hardPin);
  if (index == 0) {
    for (u32 i = 0; i < count; ++i) space.free(placed[i].segment, placed[i].node);
    return code::noHandle;
  }
  objects.setReplicas(index, placed, count, ReplicaStatus::processing);
  objects.setProcessing(table[index], true);
  if (files && cluster.client(client).unfiled < mostUnfiled) folder.add(index);
  if (!group.empty()) groups.join(index, tenant, group);
  if (policy.softPin == 1) table.extraOf(index).softPinMs = static_cast<u32>(pinMs(policy));
  objects.log(index);
  return code::ok;
}

i32 Puts::refuseForSpace() {
  ++counters.allocationFailures;
  return code::noHandle;
}

i32 Puts::makeWay(u16 tenant, std::string_view key) {
  const u32 there = objects.find(tenant, key);
  if (there == 0) return code::ok;
  const Object& object = table[there];
  if (object.flags & flag::unfinished) {
    const bool young = nowMs() < u64{object.started} * tickMs + settings.discardMs;
    // A lost writer ends no put any more.
    if (young && cluster.client(object.client).used && !cluster.client(object.client).silent) return code::exists;
    return objects.discard(there) ? code::ok : code::exists;
  }
  if (where.anyReadable(there)) return code::exists;
  // The object is unreadable, so a refusal would only lose the caller's bytes. Readers of the old bytes may still be active.
  objects.erase(there, settings.leaseMs, true, Gone::holderLost);
  return code::ok;
}

i32 Puts::start(u32 client, u16 tenant, std::string_view key, u64 size, const PutPolicy& policy, std::string_view group, u32& index) {
  if (const i32 wrong = checkPolicy(tenant, key, size, policy); wrong != code::ok) return wrong;
  if (client == 0) return code::noHandle;
  if (const i32 taken = makeWay(tenant, key); taken != code::ok) return taken;
  return create(client, tenant, key, size, policy, group, true, index);
}

i32 Puts::startUpsert(u32 client, u16 tenant, std::string_view key, u64 size, const PutPolicy& policy, std::string_view group, u32& index) {
  if (const i32 wrong = checkPolicy(tenant, key, size, policy); wrong != code::ok) return wrong;
  if (client == 0) return code::noHandle;
  const u32 there = objects.find(tenant, key);
  if (there == 0) return create(client, tenant, key, size, policy, group, true, index);
  Object& object = table[there];
  objects.cancelOffload(there);
  const Extra* extra = object.extra == 0 ? nullptr : &table.extras[object.extra];
  if (objects.busy(object)) return code::hasTask;
  if (!group.empty() && group != groups.nameOf(object)) return code::invalidParams;
  const bool unfinished = (object.flags & flag::unfinished) != 0;
  // The end of a file names no file, so that of the former one must not count for the new one.
  const bool files = (object.flags & flag::filing) == 0;
  u32 replicas = 0;
  bool reachable = true;
  table.eachReplica(there, [&](const Replica& replica) {
    ++replicas;
    reachable = reachable && where.readable(replica) && where.inMemory(replica);
  });
  // Its ranges are written again only if no reader or writer can be using them.
  if (!unfinished && reachable && policy.nofReplicas == 0 && object.size == size && replicas >= std::min<u64>(policy.replicas, Space::mostReplicas) && !objects.leased(object)) {
    index = there;
    if (!objects.restored.empty()) objects.restored.erase(index);
    table.eachReplica(index, [](Replica& replica) { replica.status = ReplicaStatus::processing; });
    object.started = tick();
    object.dataType = policy.dataType;
    objects.setOwner(object, client);
    objects.setProcessing(object, true);
    if (object.extra != 0 || policy.softPin == 1) {
      Extra& own = table.extraOf(there);
      own.hasChecksum = false;
      own.fingerprint = 0;
      own.softPinMs = policy.softPin == 1 ? static_cast<u32>(pinMs(policy)) : 0;
      if (policy.softPin == 2) own.softPinUntil = 0;
    }
    objects.log(there);
    return code::ok;
  }
  if (const i32 wrong = eviction.overQuota(tenant, size > object.size && policy.replicas > 0 ? size - object.size : 0, {}, there); wrong != code::ok) return wrong;
  // The new replicas go elsewhere, and the old object is erased only once there is space: a full store keeps it.
  const std::string kept(groups.nameOf(object));
  const Tick pinned = extra != nullptr && policy.softPin == 0 ? extra->softPinUntil : 0;
  const u64 evicted = counters.evictedObjects + counters.nofEvictedObjects;
  Placed placed[2 * Space::mostReplicas];
  u32 count = eviction.place(size, policy, Tier::memory, placed);
  count += eviction.place(size, policy, Tier::nof, placed + count, count > 0);
  if (count == 0) return refuseForSpace();
  for (u32 i = 0; i < count; ++i) space.free(placed[i].segment, placed[i].node);
  // The eviction may have erased the old object.
  const bool stands = evicted == counters.evictedObjects + counters.nofEvictedObjects || objects.find(tenant, key) == there;
  if (stands) objects.erase(there, std::max(unfinished ? settings.releaseMs : 0, objects.leased(object) ? settings.leaseMs : 0));
  const i32 made = create(client, tenant, key, size, policy, kept, files, index);
  if (made == code::ok && pinned != 0) {
    table.extraOf(index).softPinUntil = pinned;
    objects.log(index);
  }
  return made;
}

i32 Puts::end(const Uuid& client, u16 tenant, std::string_view key, std::optional<u64> checksum, ReplicaType type) {
  u32 index = 0;
  if (const i32 wrong = objects.findOwn(client, tenant, key, index); wrong != code::ok) return wrong;
  Object& object = table[index];
  if (type == ReplicaType::disk) return folder.end(index, true);
  if (!(object.flags & flag::unfinished)) return where.anyStatus(index, ReplicaStatus::complete) ? code::ok : code::invalidWrite;
  objects.complete(index, [&](const Replica& replica) { return where.isOf(replica, type); });
  // The end concerns no replica that the object has, so nothing is kept.
  if (!where.anyStatus(index, ReplicaStatus::complete)) return code::invalidWrite;
  // Replicas of different types may end one after the other.
  const bool partly = where.writing(index);
  objects.setProcessing(object, partly);
  // The object is readable but has no lease yet, so it may be evicted as soon as space is needed.
  object.leaseUntil(nowMs());
  objects.describe(index, {checksum, {}}, 0);
  if (object.extra != 0) {
    Extra& extra = table.extras[object.extra];
    if (extra.softPinMs != 0) extra.softPinUntil = tickOf(nowMs() + extra.softPinMs) + 1;
    extra.softPinMs = 0;
  }
  if (partly) objects.log(index);
  else journal.complete(table, index);
  announcer.announce(index, type != ReplicaType::nof);
  if (disks.offloads()) disks.queue(index, false);
  return code::ok;
}

i32 Puts::revoke(const Uuid& client, u16 tenant, std::string_view key, ReplicaType type) {
  u32 index = 0;
  if (const i32 wrong = objects.findOwn(client, tenant, key, index); wrong != code::ok) return wrong;
  if (type == ReplicaType::disk) return folder.end(index, false);
  if (!(table[index].flags & flag::unfinished)) return code::invalidWrite;
  // The usual reason is a failed transfer, so its holders are probed.
  objects.suspect(index);
  // The file is revoked by a call of its own. Replicas of a type that has ended were acknowledged, and readers may be using them.
  if (type == ReplicaType::memory || type == ReplicaType::nof || where.anyEnded(index)) objects.dropUnfinished(index, type, 0, Gone::unknown);
  else objects.erase(index, 0);
  return code::ok;
}

i32 Puts::remove(u16 tenant, std::string_view key, bool force) {
  const u32 index = objects.find(tenant, key);
  if (index == 0) return code::notFound;
  const Object& object = table[index];
  const bool isLeased = objects.leased(object);
  if (isLeased && !force) return code::hasLease;
  if (where.anyStatus(index, ReplicaStatus::processing)) return code::notReady;
  if (objects.busy(object)) return code::hasTask;
  // A reader under a lease, and the disk's owner during an offload, must not read another object's bytes.
  const bool offloading = object.extra != 0 && table.extras[object.extra].task == TaskKind::offload;
  objects.erase(index, isLeased || offloading ? settings.leaseMs : 0, true, Gone::removed);
  return code::ok;
}

i32 Puts::clear(const Uuid& client, u16 tenant, std::string_view key, std::string_view segment) {
  u32 index = 0;
  if (const i32 wrong = objects.findOwn(client, tenant, key, index); wrong != code::ok) return wrong;
  const Object& object = table[index];
  if (objects.leased(object)) return code::hasLease;
  if (object.flags & (flag::unfinished | flag::filing)) return code::notReady;
  objects.cancelOffload(index);
  if (objects.busy(object)) return code::hasTask;
  if (segment.empty()) {
    objects.erase(index, 0, true, Gone::removed);
    return code::ok;
  }
  bool found = false;
  const auto there = [&](const Replica& replica) {
    const bool here = cluster.segment(replica.segment)->name == segment;
    found = found || here;
    return here;
  };
  if (!objects.dropReplicas(index, there, 0)) {
    objects.erase(index, 0, true, Gone::removed);
  } else if (found) {
    announcer.announce(index);
    objects.log(index);
  }
  return found ? code::ok : code::replicaNotFound;
}

}  // namespace svc
