// Put and upsert from start to end, and their revocation.
#include <algorithm>

#include "store.h"

namespace svc {

namespace {
// A client that was assigned this many files in a row and ended none cannot reach the folder.
constexpr u32 mostUnfiled = 16;
}  // namespace

i32 Store::checkPolicy(u16 tenant, std::string_view key, u64 size, const PutPolicy& policy) const {
  if (key.empty() || key.size() > KeyArena::longest || size == 0 || (policy.replicas == 0 && policy.nofReplicas == 0)) return code::invalidParams;
  if ((policy.nofReplicas != 0 && !settings.nof) || policy.dfsReplicas > 1) return code::invalidParams;
  // A pin's duration without a request to pin is a mistake.
  if (policy.softPin > 2 || (policy.softPin != 1 && policy.softPinMs) || policy.softPinMs.value_or(0) > settings.maxSoftPinMs) return code::invalidParams;
  if (policy.dfsReplicas == 1) return code::dfsUnavailable;
  if (tenant == noTenant) return code::tenantUnknown;
  return code::ok;
}

i32 Store::create(u32 client, u16 tenant, std::string_view key, u64 size, const PutPolicy& policy, std::string_view group, bool files, u32& index) {
  if (const i32 wrong = overQuota(tenant, policy.replicas == 0 ? 0 : size, key); wrong != code::ok) return wrong;
  Placed placed[2 * mostReplicas];
  u32 count = withinQuota(tenant, size, placed, placeEvicting(size, policy, Tier::memory, placed));
  count += placeEvicting(size, policy, Tier::nof, placed + count, count > 0);
  if (count == 0) return refuseForSpace();
  index = table.insert(tenant, key, table.hashOf(tenant, key));
  if (index == 0) {
    for (u32 i = 0; i < count; ++i) free(placed[i].segment, placed[i].node);
    return code::noHandle;
  }
  Object& object = table[index];
  object.size = size;
  object.dataType = policy.dataType;
  object.flags = policy.hardPin ? flag::hardPin : 0;
  object.started = tick();
  object.leaseUntil(nowMs_);
  setOwner(object, client);
  setReplicas(index, placed, count, ReplicaStatus::processing);
  setProcessing(object, true);
  if (files && cluster.client(client).unfiled < mostUnfiled) addShared(index);
  if (!group.empty()) joinGroup(index, tenant, group);
  if (policy.softPin == 1) extraOf(index).softPinMs = static_cast<u32>(policy.softPinMs.value_or(settings.softPinMs));
  log(index);
  return code::ok;
}

i32 Store::refuseForSpace() {
  ++counters.allocationFailures;
  return code::noHandle;
}

i32 Store::makeWay(u16 tenant, std::string_view key) {
  const u32 there = find(tenant, key);
  if (there == 0) return code::ok;
  const Object& object = table[there];
  if (object.flags & flag::unfinished) {
    const bool young = nowMs_ < u64{object.started} * tickMs + settings.discardMs;
    // A lost writer ends no put any more.
    if (young && cluster.client(object.client).used && !cluster.client(object.client).silent) return code::exists;
    return discard(there) ? code::ok : code::exists;
  }
  bool reachable = false;
  eachReplica(there, [&](const Replica& replica) { reachable = reachable || readable(replica); });
  if (reachable) return code::exists;
  // The object is unreadable, so a refusal would only lose the caller's bytes. Readers of the old bytes may still be active.
  erase(there, settings.leaseMs, true, Gone::holderLost);
  return code::ok;
}

i32 Store::putStart(u32 client, u16 tenant, std::string_view key, u64 size, const PutPolicy& policy, std::string_view group, u32& index) {
  if (const i32 wrong = checkPolicy(tenant, key, size, policy); wrong != code::ok) return wrong;
  if (client == 0) return code::noHandle;
  if (const i32 taken = makeWay(tenant, key); taken != code::ok) return taken;
  return create(client, tenant, key, size, policy, group, true, index);
}

i32 Store::upsertStart(u32 client, u16 tenant, std::string_view key, u64 size, const PutPolicy& policy, std::string_view group, u32& index) {
  if (const i32 wrong = checkPolicy(tenant, key, size, policy); wrong != code::ok) return wrong;
  if (client == 0) return code::noHandle;
  const u32 there = find(tenant, key);
  if (there == 0) return create(client, tenant, key, size, policy, group, true, index);
  Object& object = table[there];
  cancelOffload(there);
  const Extra* extra = object.extra == 0 ? nullptr : &table.extras[object.extra];
  if (busy(object)) return code::hasTask;
  if (!group.empty() && group != groupName(object)) return code::invalidParams;
  const bool unfinished = (object.flags & flag::unfinished) != 0;
  // The end of a file names no file, so that of the former one must not count for the new one.
  const bool files = (object.flags & flag::filing) == 0;
  u32 replicas = 0;
  bool reachable = true;
  eachReplica(there, [&](const Replica& replica) {
    ++replicas;
    reachable = reachable && readable(replica) && inMemory(replica);
  });
  // Its ranges are written again only if no reader or writer can be using them.
  if (!unfinished && reachable && policy.nofReplicas == 0 && object.size == size && replicas >= std::min<u64>(policy.replicas, mostReplicas) && !leased(object)) {
    index = there;
    if (!restored_.empty()) restored_.erase(index);
    for (Replica* at = &object.first;; at = &table.more[at->next]) {
      at->status = ReplicaStatus::processing;
      if (at->next == 0) break;
    }
    object.started = tick();
    object.dataType = policy.dataType;
    setOwner(object, client);
    setProcessing(object, true);
    if (object.extra != 0 || policy.softPin == 1) {
      Extra& own = extraOf(there);
      own.hasChecksum = false;
      own.fingerprint = 0;
      own.softPinMs = policy.softPin == 1 ? static_cast<u32>(policy.softPinMs.value_or(settings.softPinMs)) : 0;
      if (policy.softPin == 2) own.softPinUntil = 0;
    }
    log(there);
    return code::ok;
  }
  if (const i32 wrong = overQuota(tenant, size > object.size && policy.replicas > 0 ? size - object.size : 0, {}, there); wrong != code::ok) return wrong;
  // The new replicas go elsewhere, and the old object is erased only once there is space: a full store keeps it.
  const std::string kept(groupName(object));
  const Tick pinned = extra != nullptr && policy.softPin == 0 ? extra->softPinUntil : 0;
  const u64 objects = counters.evictedObjects + counters.nofEvictedObjects;
  Placed placed[2 * mostReplicas];
  u32 count = placeEvicting(size, policy, Tier::memory, placed);
  count += placeEvicting(size, policy, Tier::nof, placed + count, count > 0);
  if (count == 0) return refuseForSpace();
  for (u32 i = 0; i < count; ++i) free(placed[i].segment, placed[i].node);
  // The eviction may have erased the old object.
  const bool stands = objects == counters.evictedObjects + counters.nofEvictedObjects || find(tenant, key) == there;
  if (stands) erase(there, std::max(unfinished ? settings.releaseMs : 0, leased(object) ? settings.leaseMs : 0));
  const i32 made = create(client, tenant, key, size, policy, kept, files, index);
  if (made == code::ok && pinned != 0) {
    extraOf(index).softPinUntil = pinned;
    log(index);
  }
  return made;
}

i32 Store::putEnd(const Uuid& client, u16 tenant, std::string_view key, std::optional<u64> checksum, ReplicaType type) {
  const u32 index = find(tenant, key);
  if (index == 0) return code::notFound;
  Object& object = table[index];
  const u32 number = cluster.findClient(client);
  if (number == 0 || object.client != number) return code::illegalClient;
  if (type == ReplicaType::disk) return endShared(index, true);
  if (!(object.flags & flag::unfinished)) return anyStatus(index, ReplicaStatus::complete) ? code::ok : code::invalidWrite;
  for (Replica* at = &object.first;; at = &table.more[at->next]) {
    if (at->status == ReplicaStatus::processing && isOf(*at, type)) at->status = ReplicaStatus::complete;
    if (at->next == 0) break;
  }
  // The end concerns no replica that the object has, so nothing is kept.
  if (!anyStatus(index, ReplicaStatus::complete)) return code::invalidWrite;
  // Replicas of different types may end one after the other.
  const bool partly = writing(index);
  setProcessing(object, partly);
  // The object is readable but has no lease yet, so it may be evicted as soon as space is needed.
  object.leaseUntil(nowMs_);
  if (checksum) {
    Extra& extra = extraOf(index);
    extra.checksum = *checksum;
    extra.hasChecksum = true;
  }
  if (object.extra != 0) {
    Extra& extra = table.extras[object.extra];
    if (extra.softPinMs != 0) extra.softPinUntil = tickOf(nowMs_ + extra.softPinMs) + 1;
    extra.softPinMs = 0;
  }
  if (partly) log(index);
  else journal.complete(table, index);
  announce(index, type != ReplicaType::nof);
  if (offloads()) queueOffload(index, false);
  return code::ok;
}

i32 Store::putRevoke(const Uuid& client, u16 tenant, std::string_view key, ReplicaType type) {
  const u32 index = find(tenant, key);
  if (index == 0) return code::notFound;
  const Object& object = table[index];
  const u32 number = cluster.findClient(client);
  if (number == 0 || object.client != number) return code::illegalClient;
  if (type == ReplicaType::disk) return endShared(index, false);
  if (!(object.flags & flag::unfinished)) return code::invalidWrite;
  // The usual reason is a failed transfer, so its holders are probed.
  suspect(index);
  // The file is revoked by a call of its own. Replicas of a type that has ended were acknowledged, and readers may be using them.
  if (type == ReplicaType::memory || type == ReplicaType::nof || anyEnded(index)) dropUnfinished(index, type, 0, Gone::unknown);
  else erase(index, 0);
  return code::ok;
}

i32 Store::remove(u16 tenant, std::string_view key, bool force) {
  const u32 index = find(tenant, key);
  if (index == 0) return code::notFound;
  const Object& object = table[index];
  const bool isLeased = leased(object);
  if (isLeased && !force) return code::hasLease;
  if (anyStatus(index, ReplicaStatus::processing)) return code::notReady;
  if (busy(object)) return code::hasTask;
  // A reader under a lease, and the disk's owner during an offload, must not read another object's bytes.
  const bool offloading = object.extra != 0 && table.extras[object.extra].task == TaskKind::offload;
  erase(index, isLeased || offloading ? settings.leaseMs : 0, true, Gone::removed);
  return code::ok;
}

}  // namespace svc
