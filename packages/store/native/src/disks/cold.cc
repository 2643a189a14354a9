// Devices of the cold tier: which objects wait for one, and which of its files are released since memory has the object too.
#include "disks/disks.h"
#include "report/report.h"

namespace svc {

std::string coldName(const Uuid& disk) { return "cold/" + textOf(disk); }

u32 Disks::queueCold(Segment& segment, u16 tenant, u32 most, u32 records, bool& ended) {
  Disk& disk = *segment.disk;
  u32 queued = 0;
  for (; records > 0 && disk.looked < table.end() && queued < most && disk.enabled && disk.offload.size() < settings.offloadQueue; --records) {
    const u32 index = disk.looked++;
    if (!table.live(index)) continue;
    Object& object = table[index];
    if ((tenant != Tenants::none && object.tenant != tenant) || (object.flags & (flag::queued | flag::unfinished)) || object.size > disk.capacity || where.anyCold(index)) continue;
    const bool here = where.any(index, [&](const Replica& replica) {
      const Segment* memory = cluster.segment(replica.segment);
      return where.readable(replica) && memory->inMemory() && memory->client == segment.client;
    });
    if (!here) continue;
    object.flags |= flag::queued;
    disk.offload.push_back({object.tenant, std::string(table.keyOf(index))});
    ++queued;
  }
  ended = disk.looked >= table.end();
  if (ended) disk.looked = 1;
  return queued;
}

i32 Disks::fillCold(const Uuid& client, const Uuid& id, Disk::Fills fills, std::string_view tenant) {
  Segment* segment = diskOf(client, id);
  if (segment == nullptr || !segment->cold()) return code::segmentNotFound;
  Disk& disk = *segment->disk;
  // Objects that were stored before are queued too.
  if (disk.fills != fills || disk.tenant != tenant) disk.cursor = 1;
  disk.fills = fills;
  disk.tenant = tenant;
  coldFills_ = coldFills_ || fills != Disk::Fills::asked;
  return code::ok;
}

i32 Disks::releaseCold(const Uuid& id, u16 tenant, std::string_view key, u64 file) {
  const Segment* disk = cluster.findSegment(id);
  if (disk == nullptr || !disk->cold()) return code::segmentNotFound;
  const u32 index = objects.find(tenant, key);
  if (index == 0) return code::notFound;
  const Replica* known = where.fileOn(index, *disk);
  if (known == nullptr || nodes[known->node].offset != file) return code::replicaNotFound;
  if (objects.busy(table[index])) return code::hasTask;
  if (!where.any(index, [&](const Replica& replica) { return where.inMemory(replica) && where.readable(replica); })) return code::notReady;
  objects.dropReplicas(index, [&](const Replica& replica) { return replica.segment == disk->number; }, 0);
  announcer.announce(index);
  objects.log(index);
  return code::ok;
}

const Segment* Disks::coldFor(u32 index) const {
  const Object& object = table[index];
  const Extra* extra = object.extra == 0 ? nullptr : &table.extras[object.extra];
  const bool written = extra != nullptr && extra->task == TaskKind::offload;
  if ((!written && !(object.flags & flag::queued)) || where.anyCold(index)) return nullptr;
  const Segment* found = nullptr;
  table.eachReplica(index, [&](const Replica& replica) {
    for (const u32 each : cluster.client(cluster.segment(replica.segment)->client).segments) {
      const Segment* segment = cluster.segment(each);
      if (found != nullptr || segment == nullptr || !segment->cold()) continue;
      bool waits = written;
      for (const Disk::Key& item : segment->disk->offload) waits = waits || (item.tenant == object.tenant && item.key == table.keyOf(index));
      if (waits) found = segment;
    }
  });
  return found;
}

}  // namespace svc
