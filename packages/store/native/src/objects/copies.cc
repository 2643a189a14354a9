// Begins and ends copies, moves and promotions.
#include "objects/copies.h"

#include <algorithm>

namespace svc {

i32 Copies::start(const Uuid& client, u16 tenant, std::string_view key, std::string_view source, std::span<const std::string_view> targets, TaskKind kind, u32& index) {
  const u32 number = holders.clientOf(client);
  if (number == 0) return code::clientNotFound;
  if (targets.empty() || targets.size() >= Space::mostReplicas) return code::invalidParams;
  // A move to its own source would drop the only copy.
  if (kind == TaskKind::move && std::find(targets.begin(), targets.end(), source) != targets.end()) return code::invalidParams;
  index = objects.find(tenant, key);
  if (index == 0) return code::notFound;
  Object& object = table[index];
  if (object.flags & (flag::unfinished | flag::filing)) return code::notReady;
  objects.cancelOffload(index);
  if (object.extra != 0 && table.extras[object.extra].task != TaskKind::none) {
    if (!objects.abandoned(table.extras[object.extra])) return code::hasTask;
    objects.endTask(index);
  }
  if (cluster.named(source).empty()) return code::segmentNotFound;
  const auto replicaIn = [&](std::string_view name, bool readableOnly) {
    u32 found = 0;
    table.eachReplica(index, [&](const Replica& replica) {
      const Segment* segment = cluster.segment(replica.segment);
      if (segment != nullptr && segment->name == name && (!readableOnly || where.readable(replica))) found = replica.node;
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
    if (const i32 wrong = eviction.overQuota(tenant, object.size * more, {}, index); wrong != code::ok) return wrong;
  Placed placed[Space::mostReplicas];
  u32 count = 0;
  i32 wrong = code::ok;
  for (const std::string_view target : targets) {
    const std::vector<u32>& named = cluster.named(target);
    // A target that has a replica already needs no work.
    if (!named.empty() && replicaIn(target, false) != 0) continue;
    const u32 before = count;
    for (const u32 segment : named)
      if (count == before) space.placeIn(segment, object.size, placed, count);
    if (count > before) continue;
    wrong = named.empty() ? code::segmentNotFound : code::noHandle;
    break;
  }
  if (wrong != code::ok) {
    for (u32 i = 0; i < count; ++i) space.free(placed[i].segment, placed[i].node);
    return wrong;
  }
  objects.setReplicas(index, placed, count, ReplicaStatus::processing);
  objects.beginTask(index, kind, number, read, count);
  objects.log(index);
  return code::ok;
}

i32 Copies::startPromotion(const Uuid& client, u16 tenant, std::string_view key, u64 size, std::span<const std::string_view> preferred, u32& index) {
  const u32 number = cluster.findClient(client);
  if (number == 0) return code::clientNotFound;
  index = objects.find(tenant, key);
  if (index == 0 || table[index].size != size) return code::notFound;
  if (where.inMemory(index)) return code::replicaExists;
  if (table[index].flags & flag::filing) return code::notReady;
  if (!where.any(index, [&](const Replica& replica) { return where.readable(replica) && cluster.segment(replica.segment)->client == number; })) return code::replicaNotFound;
  if (table[index].extra != 0 && table.extras[table[index].extra].task != TaskKind::none) return code::hasTask;
  if (const i32 wrong = eviction.overQuota(tenant, size, {}, index); wrong != code::ok) return wrong;
  PutPolicy policy;
  policy.preferred.assign(preferred.begin(), preferred.end());
  Placed placed[1];
  // A promotion that finds no space must not cause an eviction.
  bool& noSpace = space.usageOf(Tier::memory).noSpace;
  const bool before = noSpace;
  if (space.place(size, 1, policy, Tier::memory, placed) == 0) {
    noSpace = before;
    return code::noHandle;
  }
  objects.addReplica(index, placed[0], ReplicaStatus::processing);
  objects.beginTask(index, TaskKind::promote, number, 0, 1);
  objects.log(index);
  return code::ok;
}

i32 Copies::end(const Uuid& client, u16 tenant, std::string_view key, TaskKind kind, bool revoke) {
  const u32 index = objects.find(tenant, key);
  if (index == 0) return code::notFound;
  Object& object = table[index];
  if (object.extra == 0 || table.extras[object.extra].task == TaskKind::none) return code::noTask;
  if (table.extras[object.extra].task != kind) return code::invalidParams;
  const Extra& extra = table.extras[object.extra];
  const u32 number = cluster.findClient(client);
  if (number == 0 || extra.taskClient != number) return code::illegalClient;
  const u32 source = extra.taskSource;
  objects.leaveTask(index);
  const auto created = [](const Replica& replica) { return replica.status == ReplicaStatus::processing; };
  if (revoke) {
    objects.suspect(index);
    objects.dropReplicas(index, created, 0);
    if (kind == TaskKind::promote) ++counters.promotionsFailed;
    objects.log(index);
    return code::ok;
  }
  u32 whole = 0;
  table.eachReplica(index, [&](const Replica& replica) { whole += created(replica); });
  // A target's holder was lost meanwhile: either all targets succeed or none, and the complete replicas stay.
  if (whole < extra.taskTargets) {
    objects.dropReplicas(index, created, 0);
    objects.log(index);
    return code::replicaNotFound;
  }
  objects.complete(index, created);
  if (kind == TaskKind::promote) ++counters.promotedObjects;
  if (kind == TaskKind::move) objects.dropReplicas(index, [&](const Replica& replica) { return replica.node == source; }, objects.leased(object) ? settings.leaseMs : 0);
  announcer.announce(index);
  objects.log(index);
  // The object was not queued for a disk while it was being copied.
  if (disks.offloads() && kind != TaskKind::promote) disks.queue(index, false);
  return code::ok;
}

}  // namespace svc
