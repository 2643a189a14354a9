// Applies records one by one.
#include "log/replay.h"

#include <algorithm>

namespace svc {

static Tick tickFrom(u64 unixMs, u64 epochMs) { return unixMs <= epochMs ? 1 : tickOf(unixMs - epochMs) + 1; }

bool Replay::apply(RecordReader& from) {
  common.replaying = true;
  const auto readers = std::exchange(readers_, {});
  const auto kind = static_cast<Record>(from.get<u8>());
  switch (kind) {
    case Record::client: {
      const u32 number = from.get<u32>();
      const Uuid id = from.get<Uuid>();
      if (!from.failed) cluster.restoreClient(number, id);
      return !from.failed;
    }
    case Record::clientGone: {
      const u32 number = from.get<u32>();
      if (number != 0 && number < cluster.clientEnd() && cluster.client(number).used && cluster.client(number).segments.empty()) {
        const u32 objects = cluster.client(number).objects;
        cluster.dropClient(number);
        cluster.client(number).objects = objects;
      }
      return !from.failed;
    }
    case Record::segment:
      return applySegment(from);
    case Record::disk:
      return disks.replay(from);
    case Record::folder:
      return applyFolder(from);
    case Record::fileGone:
    case Record::fileSwept:
      return applyFile(from, kind == Record::fileSwept);
    case Record::segmentGone:
      if (Segment* segment = cluster.segment(from.get<u32>()); segment != nullptr && !segment->gone) cluster.hide(*segment);
      return !from.failed;
    case Record::object:
      applyObject(from);
      return !from.failed;
    case Record::complete: {
      const u16 tenant = from.get<u16>();
      const std::string_view key = from.text();
      const u32 index = from.failed || tenant >= tenants.size() ? 0 : table.find(tenant, key, table.hashOf(tenant, key));
      applyPins(from, index, from.get<u8>());
      if (from.failed || index == 0) return !from.failed;
      objects.setProcessing(table[index], false);
      objects.complete(index, [&](const Replica& replica) { return !where.onShared(replica); });
      for (u8 medium = 0; medium < KvEvents::media; ++medium)
        if (where.lies(index, medium == KvEvents::disk)) announcer.setAnnounced(table[index], medium, true);
      return true;
    }
    case Record::erased:
    case Record::erasedWhy:
      return applyErased(from, kind == Record::erasedWhy);
    case Record::recent: {
      const u64 hash = from.get<u64>();
      const auto why = static_cast<Gone>(from.get<u8>());
      const u64 at = from.get<u64>();
      if (!from.failed) objects.recent.note(hash, why, at);
      return !from.failed;
    }
    case Record::lineage:
      restores.setLineage(from.get<u64>());
      return !from.failed;
    case Record::cooling: {
      const u32 segment = from.get<u32>();
      const u64 offset = from.get<u64>(), size = from.get<u64>();
      if (from.failed) return false;
      const std::pair<u32, u64> range{segment, offset};
      cooling_[range] = {size, readers == range};
      if (size == 0) readers_ = range;
      return true;
    }
    case Record::freed: {
      const u32 segment = from.get<u32>();
      cooling_.erase({segment, from.get<u64>()});
      return !from.failed;
    }
    case Record::tenant: {
      const u16 number = from.get<u16>();
      const std::string_view name = from.text();
      if (!from.failed) tenants.replayName(number, name);
      return !from.failed;
    }
    case Record::quota: {
      const u16 number = from.get<u16>();
      const bool registered = from.get<u8>() != 0;
      const u64 bytes = from.get<u64>();
      return !from.failed && tenants.replayQuota(number, registered, bytes);
    }
    case Record::published:
      common.events.restore(from.get<u64>());
      return !from.failed;
    case Record::publishedID: {
      const u16 tenant = from.get<u16>();
      const u8 medium = from.get<u8>();
      const u64 id = from.get<u64>();
      if (!from.failed && tenant < tenants.size() && medium < KvEvents::media) common.events.restoreID(tenant, medium, id);
      return !from.failed;
    }
    case Record::segmentSwept:
      if (Segment* segment = cluster.segment(from.get<u32>()); segment != nullptr) {
        segment->swept = true;
        swept_.push_back(segment->number);
      }
      return !from.failed;
    case Record::note: {
      const u8 kind = from.get<u8>();
      const Uuid id = from.get<Uuid>();
      const std::string_view text = from.longText();
      if (!from.failed) notes.replay(kind, id, std::string(text));
      return !from.failed;
    }
    case Record::noteGone:
      notes.replayGone(from.get<Uuid>());
      return !from.failed;
    case Record::end:
      from.get<u64>();
      return !from.failed;
  }
  return false;
}

bool Replay::applySegment(RecordReader& from) {
  const u32 number = from.get<u32>(), client = from.get<u32>();
  const Uuid id = from.get<Uuid>();
  const u64 base = from.get<u64>(), size = from.get<u64>();
  const auto state = static_cast<SegmentState>(from.get<i32>());
  const u64 unmountAt = from.get<u64>();
  const std::string_view name = from.text(), endpoint = from.text(), protocol = from.text(), hostID = from.text();
  if (from.failed || number == 0 || number > Cluster::mostClients * 4 || size == 0) return false;
  if (client == 0 || client >= cluster.clientEnd()) return true;
  makeWay(number, id);
  Segment* there = cluster.segment(number);
  if (there == nullptr) {
    auto segment = std::make_unique<Segment>(nodes, size);
    segment->number = number;
    segment->client = client;
    segment->id = id;
    segment->base = base;
    segment->name = name;
    segment->endpoint = endpoint;
    segment->protocol = protocol;
    segment->tier = tierOf(protocol);
    segment->hostID = hostID;
    segment->awaiting = true;
    there = &cluster.add(std::move(segment));
  }
  if (!there->gone && (there->client != client || there->endpoint != endpoint)) {
    cluster.handOver(*there, client, name, endpoint);
    there->hostID = hostID;
  }
  there->state = state;
  there->unmountAtMs = unmountAt == 0 ? 0 : std::max<u64>(1, unmountAt - std::min(unmountAt, journal.epochMs));
  return true;
}

bool Replay::applyFile(RecordReader& from, bool swept) {
  const Segment* segment = cluster.segment(from.get<u32>());
  const u64 file = from.get<u64>();
  if (from.failed || segment == nullptr || !segment->onDisk()) return !from.failed;
  Disk& disk = *segment->disk;
  if (swept) disk.dropped.erase(file);
  else disk.dropped.insert(file);
  if (!disk.folder) return true;
  // A snapshot does not say whether the file was complete, so it may have a late writer.
  if (swept) disk.folder->writers.erase(file);
  else disk.folder->writers[file] = tickOf(nowMs() + settings.releaseMs) + 1;
  return true;
}

bool Replay::applyErased(RecordReader& from, bool says) {
  const u16 tenant = from.get<u16>();
  const std::string_view key = from.text();
  const Gone why = says ? static_cast<Gone>(from.get<u8>()) : Gone::unknown;
  const u64 at = says ? from.get<u64>() : 0;
  const u32 index = from.failed || tenant >= tenants.size() ? 0 : table.find(tenant, key, table.hashOf(tenant, key));
  if (says && !from.failed) objects.recent.note(Recent::hashOf(tenant, key), why, at);
  if (index != 0) objects.erase(index, 0, false);
  return !from.failed;
}

void Replay::applyPins(RecordReader& from, u32 index, u8 what) {
  const u64 checksum = what & has::checksum ? from.get<u64>() : 0;
  const u64 until = what & has::softPinUntil ? from.get<u64>() : 0;
  const u32 pinMs = what & has::softPinMs ? from.get<u32>() : 0;
  if (index == 0 || from.failed || (what & (has::checksum | has::softPinUntil | has::softPinMs)) == 0) return;
  Extra& extra = table.extraOf(index);
  extra.hasChecksum = (what & has::checksum) != 0;
  extra.checksum = checksum;
  extra.softPinUntil = until == 0 ? 0 : tickFrom(until, journal.epochMs);
  extra.softPinMs = pinMs;
}

void Replay::applyObject(RecordReader& from) {
  const u16 tenant = from.get<u16>();
  const std::string_view key = from.text();
  const u64 size = from.get<u64>();
  const u32 client = from.get<u32>();
  const u8 flags = from.get<u8>(), dataType = from.get<u8>(), what = from.get<u8>();
  u32 index = 0;
  if (!from.failed && tenant < tenants.size()) {
    const u64 hash = table.hashOf(tenant, key);
    index = table.find(tenant, key, hash);
    if (index != 0) objects.erase(index, 0, false);
    index = table.insert(tenant, key, hash);
  }
  applyPins(from, index, what);
  const std::string_view group = what & has::group ? from.text() : std::string_view();
  const std::string_view fingerprint = what & has::fingerprint ? from.text() : std::string_view();
  const auto task = what & has::task ? static_cast<TaskKind>(from.get<u8>()) : TaskKind::none;
  const u32 taskClient = what & has::task ? from.get<u32>() : 0;
  const u32 replicas = from.get<u8>();
  if (index != 0) {
    Object& object = table[index];
    object.size = size;
    object.dataType = dataType;
    object.flags = flags & flag::hardPin;
    if (client != 0 && client < cluster.clientEnd()) objects.setOwner(object, client);
    if (!group.empty()) groups.join(index, tenant, group);
    if (const u32 number = objects.fingerprintOf(fingerprint); number != 0) table.extraOf(index).fingerprint = number;
  }
  for (u32 i = 0; i < replicas && !from.failed; ++i) {
    const u32 segment = from.get<u32>();
    const u64 offset = from.get<u64>();
    const u8 status = from.get<u8>();
    if (from.failed || index == 0) continue;
    if (!cooling_.empty()) cooling_.erase({segment, offset});
    const u32 node = nodes.take();
    nodes[node].offset = offset;
    objects.addReplica(index, {segment, node}, static_cast<ReplicaStatus>(status & 0x7f));
    if ((status & 0x80) != 0) table.extraOf(index).taskSource = node;
    const Segment* known = cluster.segment(segment);
    if (known != nullptr && known->shared() && static_cast<ReplicaStatus>(status & 0x7f) == ReplicaStatus::processing) objects.setFiling(table[index], true);
  }
  if (index == 0) return;
  if (flags & flag::unfinished) objects.setProcessing(table[index], true);
  bool complete[KvEvents::media] = {(flags & flag::announced) != 0, (flags & flag::announcedDisk) != 0};
  table.eachReplica(index, [&](const Replica& replica) {
    if (replica.status == ReplicaStatus::complete) complete[where.inMemory(replica) ? KvEvents::cpu : KvEvents::disk] = true;
  });
  for (u8 medium = 0; medium < KvEvents::media; ++medium) announcer.setAnnounced(table[index], medium, complete[medium]);
  if (task == TaskKind::none || taskClient == 0 || taskClient >= cluster.clientEnd()) return;
  Extra& extra = table.extraOf(index);
  extra.task = task;
  extra.taskClient = taskClient;
  ++cluster.client(taskClient).objects;
}

void Replay::forgetObjects() {
  announcer.forgot = true;
  for (u32 index = 1; index < table.end(); ++index)
    if (table.live(index)) objects.erase(index, 0, false);
  cooling_.clear();
  // The rest of the log is incomplete, and holders may remember more objects: the next lineage is a new one, so that they restore them.
  restores.setLineage(0);
  objects.recent.markIncomplete();
}

void Replay::makeWay(u32 number, const Uuid& id) {
  const Segment* there = cluster.segment(number);
  if (there == nullptr || !there->gone || there->id == id) return;
  while (tend()) continue;
  for (u32 index = 1; index < table.end(); ++index)
    if (table.live(index)) objects.pruned(index);
  cluster.forget(number);
}

bool Replay::tend() {
  constexpr u32 slice = 2'048;
  if (swept_.empty()) return false;
  if (cursor_ <= 1) forgetting_ = swept_;
  for (u32 i = 0; i < slice && cursor_ < table.end(); ++i, ++cursor_)
    if (table.live(cursor_)) objects.pruned(cursor_);
  if (cursor_ < table.end()) return true;
  // A segment that was swept before the walk began has no replica left here either.
  for (const u32 number : forgetting_) cluster.forget(number);
  swept_.erase(swept_.begin(), swept_.begin() + static_cast<std::ptrdiff_t>(forgetting_.size()));
  forgetting_.clear();
  cursor_ = 1;
  return !swept_.empty();
}

bool Replay::applyFolder(RecordReader& from) {
  const u32 number = from.get<u32>();
  const Uuid id = from.get<Uuid>();
  const std::string_view path = from.text();
  if (from.failed || number == 0 || number > Cluster::mostClients * 4) return false;
  makeWay(number, id);
  if (cluster.segment(number) == nullptr) folder.replay(number, id, path);
  return true;
}

}  // namespace svc
