// Copies and moves of replicas: begun, ended and revoked by the client that moves the bytes.
#include <algorithm>

#include "store.h"

namespace svc {

i32 Store::copyStart(const Uuid& client, u16 tenant, std::string_view key, std::string_view source, std::span<const std::string_view> targets, TaskKind kind,
                     u32& index) {
  const u32 number = clientOf(client);
  if (number == 0) return code::clientNotFound;
  if (targets.empty() || targets.size() >= mostReplicas) return code::invalidParams;
  // A move to its own source would drop the only copy.
  if (kind == TaskKind::move && std::find(targets.begin(), targets.end(), source) != targets.end()) return code::invalidParams;
  index = find(tenant, key);
  if (index == 0) return code::notFound;
  Object& object = table[index];
  if (object.flags & (flag::unfinished | flag::filing)) return code::notReady;
  cancelOffload(index);
  if (object.extra != 0 && table.extras[object.extra].task != TaskKind::none) {
    if (!abandoned(table.extras[object.extra])) return code::hasTask;
    endTask(index);
  }
  if (cluster.named(source).empty()) return code::segmentNotFound;
  const auto replicaIn = [&](std::string_view name, bool readableOnly) {
    u32 found = 0;
    eachReplica(index, [&](const Replica& replica) {
      const Segment* segment = cluster.segment(replica.segment);
      if (segment != nullptr && segment->name == name && (!readableOnly || readable(replica))) found = replica.node;
    });
    return found;
  };
  const u32 read = replicaIn(source, true);
  if (read == 0) return code::replicaNotFound;
  u32 more = 0;
  const bool summed = object.extra != 0 && table.extras[object.extra].hasChecksum;
  for (const std::string_view target : targets) {
    // After a power failure, bytes without a checksum could not be distinguished from others.
    if (!summed && !cluster.named(target).empty() && cluster.segment(cluster.named(target).front())->nof()) return code::invalidParams;
    const bool there = replicaIn(target, false) != 0;
    // The replica that would be left after the move cannot be read, at least for now.
    if (kind == TaskKind::move && there && replicaIn(target, true) == 0) return code::notReady;
    more += !there && !cluster.named(target).empty() && cluster.segment(cluster.named(target).front())->inMemory();
  }
  // A move does not change a tenant's usage; a copy is charged like a put.
  if (kind == TaskKind::copy && more > 0)
    if (const i32 wrong = overQuota(tenant, object.size * more, {}, index); wrong != code::ok) return wrong;
  Placed placed[mostReplicas];
  u32 count = 0;
  i32 wrong = code::ok;
  for (const std::string_view target : targets) {
    const std::vector<u32>& named = cluster.named(target);
    // A target that has a replica already needs no work.
    if (!named.empty() && replicaIn(target, false) != 0) continue;
    const u32 before = count;
    for (const u32 segment : named)
      if (count == before) placeIn(segment, object.size, placed, count);
    if (count > before) continue;
    wrong = named.empty() ? code::segmentNotFound : code::noHandle;
    break;
  }
  if (wrong != code::ok) {
    for (u32 i = 0; i < count; ++i) free(placed[i].segment, placed[i].node);
    return wrong;
  }
  setReplicas(index, placed, count, ReplicaStatus::processing);
  Extra& extra = extraOf(index);
  extra.task = kind;
  extra.taskClient = number;
  extra.taskSource = read;
  extra.taskStarted = tick();
  extra.taskTargets = static_cast<u8>(count);
  ++cluster.client(number).objects;
  log(index);
  return code::ok;
}

i32 Store::copyEnd(const Uuid& client, u16 tenant, std::string_view key, TaskKind kind, bool revoke) {
  const u32 index = find(tenant, key);
  if (index == 0) return code::notFound;
  Object& object = table[index];
  if (object.extra == 0 || table.extras[object.extra].task == TaskKind::none) return code::noTask;
  if (table.extras[object.extra].task != kind) return code::invalidParams;
  Extra& extra = table.extras[object.extra];
  const u32 number = cluster.findClient(client);
  if (number == 0 || extra.taskClient != number) return code::illegalClient;
  const u32 source = extra.taskSource;
  extra.task = TaskKind::none;
  extra.taskClient = extra.taskSource = 0;
  --cluster.client(number).objects;
  if (revoke) {
    suspect(index);
    dropReplicas(index, [](const Replica& replica) { return replica.status == ReplicaStatus::processing; }, 0);
    if (kind == TaskKind::promote) ++counters.promotionsFailed;
    log(index);
    return code::ok;
  }
  u32 whole = 0;
  eachReplica(index, [&](const Replica& replica) { whole += replica.status == ReplicaStatus::processing; });
  // A target's holder was lost meanwhile: either all targets succeed or none, and the complete replicas stay.
  if (whole < extra.taskTargets) {
    dropReplicas(index, [](const Replica& replica) { return replica.status == ReplicaStatus::processing; }, 0);
    log(index);
    return code::replicaNotFound;
  }
  for (Replica* at = &object.first;; at = &table.more[at->next]) {
    if (at->status == ReplicaStatus::processing) at->status = ReplicaStatus::complete;
    if (at->next == 0) break;
  }
  if (kind == TaskKind::promote) ++counters.promotedObjects;
  if (kind == TaskKind::move) dropReplicas(index, [&](const Replica& replica) { return replica.node == source; }, leased(object) ? settings.leaseMs : 0);
  announce(index);
  log(index);
  // The object was not queued for a disk while it was being copied.
  if (offloads() && kind != TaskKind::promote) queueOffload(index, false);
  return code::ok;
}

void Store::endTask(u32 index) {
  Extra& extra = table.extras[table[index].extra];
  --cluster.client(extra.taskClient).objects;
  extra.task = TaskKind::none;
  extra.taskClient = extra.taskSource = 0;
  dropReplicas(index, [](const Replica& replica) { return replica.status == ReplicaStatus::processing; }, settings.releaseMs);
  log(index);
}

i32 Store::clear(const Uuid& client, u16 tenant, std::string_view key, std::string_view segment) {
  const u32 index = find(tenant, key);
  if (index == 0) return code::notFound;
  const Object& object = table[index];
  const u32 number = cluster.findClient(client);
  if (number == 0 || object.client != number) return code::illegalClient;
  if (leased(object)) return code::hasLease;
  if (object.flags & (flag::unfinished | flag::filing)) return code::notReady;
  cancelOffload(index);
  if (busy(object)) return code::hasTask;
  if (segment.empty()) {
    erase(index, 0, true, Gone::removed);
    return code::ok;
  }
  bool found = false;
  const auto there = [&](const Replica& replica) {
    const bool here = cluster.segment(replica.segment)->name == segment;
    found = found || here;
    return here;
  };
  if (!dropReplicas(index, there, 0)) {
    erase(index, 0, true, Gone::removed);
  } else if (found) {
    announce(index);
    log(index);
  }
  return found ? code::ok : code::replicaNotFound;
}

}  // namespace svc
