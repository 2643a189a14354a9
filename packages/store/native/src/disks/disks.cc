// Mounting and unmounting of disks, and the files that their owners report.
#include "disks/disks.h"

#include <algorithm>

namespace svc {

Segment* Disks::diskOf(const Uuid& client, const Uuid& id, bool awaited) {
  Segment* segment = cluster.findSegment(id);
  const u32 number = cluster.findClient(client);
  if (segment == nullptr || !segment->onDisk() || segment->gone || number == 0 || segment->client != number) return nullptr;
  return segment->awaiting && !awaited ? nullptr : segment;
}

i32 Disks::mount(const DiskSpec& spec, const Uuid& id) {
  if (!settings.offload && spec.label < Disk::firstCold) return code::unableOffload;
  if (spec.label > Disk::mostLabel || spec.endpoint.size() > KeyArena::longest) return code::invalidParams;
  const u32 number = holders.clientOf(id);
  if (number == 0) return code::noHandle;
  // The client does not become known here: after a lost log, its next ping must make it mount its memory again.
  cluster.client(number).seenMs = nowMs();
  std::unordered_set<u64> dropped;
  if (Segment* there = cluster.findSegment(spec.id); there != nullptr) {
    if (!there->onDisk()) return code::segmentExists;
    if (there->client == number) {
      there->awaiting = false;
      // The owner may not have received our last answer.
      there->disk->sent.clear();
      // Objects that were stored while the disk took none are not queued for it yet.
      if (spec.enabled && !there->disk->enabled) there->disk->cursor = 1;
      there->disk->enabled = spec.enabled;
      there->disk->capacity = spec.capacity;
      return code::ok;
    }
    // The disk is in another process now: the former one cannot serve its files any more, and this one reports which there are.
    dropped = std::move(there->disk->dropped);
    holders.dropSegment(*there);
  }
  auto segment = std::make_unique<Segment>(nodes, u64{1});
  segment->number = cluster.nextSegment();
  segment->client = number;
  segment->id = spec.id;
  segment->endpoint = spec.endpoint;
  segment->disk = std::make_unique<Disk>();
  segment->disk->label = spec.label;
  if (segment->cold()) segment->name = coldName(spec.id);
  segment->disk->ours = spec.ours;
  segment->disk->enabled = spec.enabled;
  segment->disk->capacity = spec.capacity;
  segment->disk->dropped = std::move(dropped);
  journal.disk(cluster.add(std::move(segment)));
  return code::ok;
}

i32 Disks::unmountAll(const Uuid& id) {
  if (!settings.offload) return code::unableOffload;
  const u32 number = cluster.findClient(id);
  if (number == 0) return code::ok;
  const std::vector<u32> segments = cluster.client(number).segments;
  for (const u32 each : segments)
    if (cluster.segment(each)->onDisk() && !cluster.segment(each)->cold()) holders.dropSegment(*cluster.segment(each));
  return code::ok;
}

i32 Disks::unmount(const Uuid& client, const Uuid& id, bool empty) {
  Segment* segment = diskOf(client, id, true);
  if (segment == nullptr) return code::ok;
  // The disk is refused while objects lie there or its owner has not mounted it again, so that no object is stranded.
  if (empty && (segment->awaiting || segment->disk->files > 0)) return code::notReady;
  holders.dropSegment(*segment);
  return code::ok;
}

void Disks::wipe() {
  for (u32 number = 1; number < cluster.segmentEnd(); ++number)
    if (Segment* segment = cluster.segment(number); segment != nullptr && segment->onDisk() && !segment->shared()) segment->disk->wipe = true;
}

void Disks::addFile(Segment& disk, u32 index, u64 file) {
  const u32 node = nodes.take();
  nodes[node].offset = file;
  objects.addReplica(index, {disk.number, node}, ReplicaStatus::complete);
  disk.disk->used += table[index].size;
  ++disk.disk->files;
}

void Disks::freeLeaving(u32 index) {
  if ((table[index].flags & flag::leaving) && !objects.leased(table[index])) objects.dropReplicas(index, [&](const Replica& replica) { return where.inMemory(replica); }, 0);
}

bool Disks::isIn(u32 index, const StoredFile& file) const {
  const Object& object = table[index];
  const Extra* extra = object.extra == 0 ? nullptr : &table.extras[object.extra];
  return !(object.flags & flag::unfinished) && object.size == file.sizeBytes && extra != nullptr && extra->hasChecksum && extra->checksum == file.checksum && objects.fingerprintOf(object) == file.fingerprint;
}

i32 Disks::keepFile(Segment& disk, u16 tenant, const StoredFile& file) {
  if (file.key.empty() || file.key.size() > KeyArena::longest || file.group.size() > KeyArena::longest || file.sizeBytes == 0 || file.file > Disk::mostFile) return code::invalidParams;
  if (tenant == Tenants::none) return code::tenantUnknown;
  // The object was removed before its owner reported the file.
  if (disk.disk->dropped.contains(file.file)) return code::notFound;
  u32 index = objects.find(tenant, file.key);
  // The owner repeats its report, since our answer was lost, or since it went to another master and back.
  if (const Replica* known = index == 0 ? nullptr : where.fileOn(index, disk); known != nullptr && nodes[known->node].offset == file.file) return code::ok;
  if (index != 0 && file.task != 0 && endOffload(disk, index, file.task)) {
    Extra& extra = table.extraOf(index);
    if (table[index].size != file.sizeBytes || (extra.hasChecksum && extra.checksum != file.checksum)) {
      ++counters.offloadsFailed;
      return code::checksumMismatch;
    }
    extra.hasChecksum = true;
    extra.checksum = file.checksum;
    if (where.fileOn(index, disk) != nullptr) return code::replicaExists;
    ++counters.offloadedObjects;
    counters.offloadedBytes += file.sizeBytes;
    addFile(disk, index, file.file);
    freeLeaving(index);
  } else if (index != 0) {
    if (where.fileOn(index, disk) != nullptr || !isIn(index, file)) return code::exists;
    addFile(disk, index, file.file);
  } else {
    // Unless its owner compared a checksum, the bytes that it read may be another object's.
    if (file.task != 0 && file.task != unknownTask) return code::invalidWrite;
    u64 at = 0;
    const u64 hash = Recent::hashOf(tenant, file.key);
    const Gone why = objects.recent.find(hash, at);
    // A removal that is remembered here is the only sign that the object of an unknown file was removed or replaced meanwhile.
    if (why == Gone::removed || why == Gone::checksum || (file.task != 0 && objects.recent.mayBeGone(hash))) return code::notFound;
    index = objects.create(disk.client, tenant, file.key, file.sizeBytes, file.dataType, file.hardPin);
    if (index == 0) return code::noHandle;
    if (!file.group.empty()) groups.join(index, tenant, file.group);
    addFile(disk, index, file.file);
    objects.describe(index, {file.checksum, file.fingerprint}, objects.fingerprintOf(file.fingerprint));
  }
  table[index].flags &= static_cast<u8>(~flag::leaving);
  announcer.announce(index);
  objects.log(index);
  return code::ok;
}

i32 Disks::dropFile(Segment& disk, u16 tenant, std::string_view key, u64 file, Gone why) {
  const u32 index = objects.find(tenant, key);
  if (index == 0) return code::notFound;
  const Replica* known = where.fileOn(index, disk);
  if (known == nullptr || nodes[known->node].offset != file) return code::replicaNotFound;
  if (why == Gone::checksum) ++counters.damagedFiles;
  objects.dropOrErase(index, [&](const Replica& replica) { return replica.segment == disk.number; }, 0, why);
  return code::ok;
}

// Mooncake's owners name no file, so only a missing key, or one that the owner was ordered to store, certainly is the object on its disk.
i32 Disks::keepMooncakeFile(Segment& disk, u16 tenant, std::string_view key, u64 size) {
  if (key.empty() || key.size() > KeyArena::longest || size == 0) return code::invalidParams;
  if (tenant == Tenants::none) return code::tenantUnknown;
  u32 index = objects.find(tenant, key);
  if (index == 0) {
    u64 at = 0;
    if (objects.recent.find(Recent::hashOf(tenant, key), at) == Gone::removed) return code::notFound;
    index = objects.create(disk.client, tenant, key, size, 0, false);
    if (index == 0) return code::noHandle;
  } else {
    if (where.fileOn(index, disk) != nullptr) return code::ok;
    const Extra* extra = table[index].extra == 0 ? nullptr : &table.extras[table[index].extra];
    if (extra == nullptr || table[index].size != size || !endOffload(disk, index, extra->taskSource)) return code::exists;
    ++counters.offloadedObjects;
    counters.offloadedBytes += size;
  }
  addFile(disk, index, 0);
  freeLeaving(index);
  table[index].flags &= static_cast<u8>(~flag::leaving);
  announcer.announce(index);
  objects.log(index);
  return code::ok;
}

i32 Disks::dropMooncakeFile(const Uuid& client, u16 tenant, std::string_view key) {
  const Segment* disk = diskOf(client, client);
  const u32 index = disk == nullptr ? 0 : objects.find(tenant, key);
  if (index == 0) return code::notFound;
  if (where.fileOn(index, *disk) == nullptr) return code::replicaNotFound;
  objects.dropOrErase(index, [&](const Replica& replica) { return replica.segment == disk->number; }, 0, Gone::evicted);
  return code::ok;
}

std::vector<u64> Disks::takeDropped(Segment& segment, u32 most) {
  Disk& disk = *segment.disk;
  // The owner asks again, so it has removed the files of the last answer.
  for (const u64 file : disk.sent) {
    disk.dropped.erase(file);
    journal.fileSwept(segment.number, file);
  }
  disk.sent.clear();
  for (auto at = disk.dropped.begin(); at != disk.dropped.end() && disk.sent.size() < most; ++at) disk.sent.push_back(*at);
  return disk.sent;
}

bool Disks::dropDamaged(u32 index, u64 replica) {
  const auto named = [&](const Replica& each) { return where.onNof(each) && where.replicaID(each) == replica; };
  if (!where.any(index, [&](const Replica& each) { return each.status == ReplicaStatus::complete && named(each); }) || objects.busy(table[index])) return false;
  objects.cancelOffload(index);
  ++counters.nofDamaged;
  objects.dropOrErase(index, named, settings.leaseMs, Gone::checksum);
  return true;
}

i32 Disks::reportWrongBytes(u16 tenant, std::string_view key, u64 replica) {
  const u32 index = objects.find(tenant, key);
  if (index == 0) return code::notFound;
  if (dropDamaged(index, replica)) return code::ok;
  i32 outcome = code::replicaNotFound;
  table.eachReplica(index, [&](const Replica& each) {
    if (where.replicaID(each) != replica || !where.onDisk(each)) return;
    std::vector<Disk::Report>& reported = cluster.segment(each.segment)->disk->reported;
    const u64 file = nodes[each.node].offset;
    const bool known = std::any_of(reported.begin(), reported.end(), [&](const Disk::Report& other) { return other.file == file; });
    if (reported.size() < Disk::mostReports && !known) reported.push_back({tenant, std::string(key), file});
    outcome = code::ok;
  });
  return outcome;
}

bool Disks::replay(RecordReader& from) {
  const u32 number = from.get<u32>(), client = from.get<u32>();
  const Uuid id = from.get<Uuid>();
  const u32 label = from.get<u32>();
  const bool ours = from.get<u8>() != 0;
  const u64 capacity = from.get<u64>();
  const std::string_view endpoint = from.text();
  if (from.failed || number == 0 || number > Cluster::mostClients * 4) return false;
  if (client == 0 || client >= cluster.clientEnd() || cluster.segment(number) != nullptr) return true;
  auto segment = std::make_unique<Segment>(nodes, u64{1});
  segment->number = number;
  segment->client = client;
  segment->id = id;
  segment->endpoint = endpoint;
  segment->awaiting = true;
  segment->disk = std::make_unique<Disk>();
  segment->disk->label = label;
  if (segment->cold()) segment->name = coldName(id);
  segment->disk->ours = ours;
  segment->disk->capacity = capacity;
  cluster.add(std::move(segment));
  return true;
}

}  // namespace svc
