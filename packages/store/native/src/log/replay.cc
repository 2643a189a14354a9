// Applies records of the log and of snapshots; afterwards the allocators are rebuilt around what they name.
#include <algorithm>

#include "store.h"

namespace svc {

namespace {
Tick tickFrom(u64 unixMs, u64 epochMs) { return unixMs <= epochMs ? 1 : tickOf(unixMs - epochMs) + 1; }
}  // namespace

bool Store::replay(RecordReader& from) {
  replaying_ = true;
  const auto readers = std::exchange(replayedReaders_, {});
  switch (static_cast<Record>(from.get<u8>())) {
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
    case Record::segment: {
      const u32 number = from.get<u32>(), client = from.get<u32>();
      const Uuid id = from.get<Uuid>();
      const u64 base = from.get<u64>(), size = from.get<u64>();
      const auto state = static_cast<SegmentState>(from.get<i32>());
      const u64 unmountAt = from.get<u64>();
      const std::string_view name = from.text(), endpoint = from.text(), protocol = from.text(), hostID = from.text();
      if (from.failed || number == 0 || number > Cluster::mostClients * 4 || size == 0) return false;
      if (client == 0 || client >= cluster.clientEnd()) return true;
      Segment* there = cluster.segment(number);
      // A leader that never knew the segment that is gone reuses its number.
      if (there != nullptr && there->gone && !(there->id == id)) {
        while (tendReplayed()) continue;
        for (u32 index = 1; index < table.end(); ++index)
          if (table.live(index)) pruned(index);
        cluster.forget(number);
        there = nullptr;
      }
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
    case Record::disk:
      return replayDisk(from);
    case Record::folder:
      return replayFolder(from);
    case Record::fileGone: {
      Segment* segment = cluster.segment(from.get<u32>());
      const u64 file = from.get<u64>();
      if (from.failed || segment == nullptr || !segment->onDisk()) return !from.failed;
      segment->disk->dropped.insert(file);
      // A snapshot does not say whether the file was complete, so it may have a late writer.
      if (segment->shared()) segment->disk->folder->writers[file] = tickOf(nowMs_ + settings.releaseMs) + 1;
      return !from.failed;
    }
    case Record::fileSwept: {
      Segment* segment = cluster.segment(from.get<u32>());
      const u64 file = from.get<u64>();
      if (from.failed || segment == nullptr || !segment->onDisk()) return !from.failed;
      segment->disk->dropped.erase(file);
      if (segment->shared()) segment->disk->folder->writers.erase(file);
      return !from.failed;
    }
    case Record::segmentGone: {
      Segment* segment = cluster.segment(from.get<u32>());
      if (segment != nullptr && !segment->gone) cluster.hide(*segment);
      return !from.failed;
    }
    case Record::object:
      replayObject(from);
      return !from.failed;
    case Record::complete: {
      const u16 tenant = from.get<u16>();
      const std::string_view key = from.text();
      const u32 index = from.failed || tenant >= tenants.size() ? 0 : table.find(tenant, key, table.hashOf(tenant, key));
      replayPins(from, index, from.get<u8>());
      if (from.failed || index == 0) return !from.failed;
      Object& object = table[index];
      setProcessing(object, false);
      for (Replica* at = &object.first;; at = &table.more[at->next]) {
        if (at->status == ReplicaStatus::processing && !onShared(*at)) at->status = ReplicaStatus::complete;
        if (at->next == 0) break;
      }
      for (u8 medium = 0; medium < KvEvents::media; ++medium)
        if (lies(index, medium == KvEvents::disk)) setAnnounced(object, medium, true);
      return true;
    }
    case Record::erased:
      return replayErased(from, false);
    case Record::erasedWhy:
      return replayErased(from, true);
    case Record::recent: {
      const u64 hash = from.get<u64>();
      const auto why = static_cast<Gone>(from.get<u8>());
      const u64 at = from.get<u64>();
      if (!from.failed) recent_.note(hash, why, at);
      return !from.failed;
    }
    case Record::lineage:
      lineage_ = from.get<u64>();
      return !from.failed;
    case Record::cooling: {
      const u32 segment = from.get<u32>();
      const u64 offset = from.get<u64>(), size = from.get<u64>();
      if (from.failed) return false;
      const std::pair<u32, u64> range{segment, offset};
      replayedCooling_[range] = {size, readers == range};
      if (size == 0) replayedReaders_ = range;
      return true;
    }
    case Record::freed: {
      const u32 segment = from.get<u32>();
      replayedCooling_.erase({segment, from.get<u64>()});
      return !from.failed;
    }
    case Record::tenant: {
      const u16 number = from.get<u16>();
      const std::string_view name = from.text();
      while (!from.failed && tenants.size() <= number) tenants.emplace_back();
      if (from.failed) return false;
      tenants[number].name = name;
      tenantByName_[std::string(name)] = number;
      return true;
    }
    case Record::quota: {
      const u16 number = from.get<u16>();
      const bool registered = from.get<u8>() != 0;
      const u64 bytes = from.get<u64>();
      if (from.failed || number >= tenants.size()) return false;
      assignQuota(number, registered, bytes);
      return true;
    }
    case Record::published: {
      events.restore(from.get<u64>());
      return !from.failed;
    }
    case Record::publishedID: {
      const u16 tenant = from.get<u16>();
      const u8 medium = from.get<u8>();
      const u64 id = from.get<u64>();
      if (!from.failed && tenant < tenants.size() && medium < KvEvents::media) events.restoreID(tenant, medium, id);
      return !from.failed;
    }
    case Record::segmentSwept: {
      Segment* segment = cluster.segment(from.get<u32>());
      if (segment != nullptr) {
        segment->swept = true;
        replayedSwept_.push_back(segment->number);
      }
      return !from.failed;
    }
    case Record::note: {
      const u8 kind = from.get<u8>();
      const Uuid id = from.get<Uuid>();
      const std::string_view text = from.longText();
      if (!from.failed) notes_[id] = {kind, std::string(text)};
      return !from.failed;
    }
    case Record::noteGone: {
      notes_.erase(from.get<Uuid>());
      return !from.failed;
    }
    case Record::end:
      from.get<u64>();
      return !from.failed;
  }
  return false;
}

bool Store::replayErased(RecordReader& from, bool says) {
  const u16 tenant = from.get<u16>();
  const std::string_view key = from.text();
  const Gone why = says ? static_cast<Gone>(from.get<u8>()) : Gone::unknown;
  const u64 at = says ? from.get<u64>() : 0;
  const u32 index = from.failed || tenant >= tenants.size() ? 0 : table.find(tenant, key, table.hashOf(tenant, key));
  if (says && !from.failed) recent_.note(Recent::hashOf(tenant, key), why, at);
  if (index != 0) erase(index, 0, false);
  return !from.failed;
}

void Store::replayPins(RecordReader& from, u32 index, u8 what) {
  const u64 checksum = what & has::checksum ? from.get<u64>() : 0;
  const u64 until = what & has::softPinUntil ? from.get<u64>() : 0;
  const u32 pinMs = what & has::softPinMs ? from.get<u32>() : 0;
  if (index == 0 || from.failed || (what & (has::checksum | has::softPinUntil | has::softPinMs)) == 0) return;
  Extra& extra = extraOf(index);
  extra.hasChecksum = (what & has::checksum) != 0;
  extra.checksum = checksum;
  extra.softPinUntil = until == 0 ? 0 : tickFrom(until, journal.epochMs);
  extra.softPinMs = pinMs;
}

void Store::replayObject(RecordReader& from) {
  const u16 tenant = from.get<u16>();
  const std::string_view key = from.text();
  const u64 size = from.get<u64>();
  const u32 client = from.get<u32>();
  const u8 flags = from.get<u8>(), dataType = from.get<u8>(), what = from.get<u8>();
  u32 index = 0;
  if (!from.failed && tenant < tenants.size()) {
    const u64 hash = table.hashOf(tenant, key);
    index = table.find(tenant, key, hash);
    if (index != 0) erase(index, 0, false);
    index = table.insert(tenant, key, hash);
  }
  replayPins(from, index, what);
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
    if (client != 0 && client < cluster.clientEnd()) setOwner(object, client);
    if (!group.empty()) joinGroup(index, tenant, group);
    if (const u32 number = fingerprintOf(fingerprint); number != 0) extraOf(index).fingerprint = number;
  }
  for (u32 i = 0; i < replicas && !from.failed; ++i) {
    const u32 segment = from.get<u32>();
    const u64 offset = from.get<u64>();
    const u8 status = from.get<u8>();
    if (from.failed || index == 0) continue;
    if (!replayedCooling_.empty()) replayedCooling_.erase({segment, offset});
    const u32 node = nodes.take();
    nodes[node].offset = offset;
    addReplica(index, {segment, node}, static_cast<ReplicaStatus>(status & 0x7f));
    if ((status & 0x80) != 0) extraOf(index).taskSource = node;
    const Segment* known = cluster.segment(segment);
    if (known != nullptr && known->shared() && static_cast<ReplicaStatus>(status & 0x7f) == ReplicaStatus::processing) setFiling(table[index], true);
  }
  if (index == 0) return;
  if (flags & flag::unfinished) setProcessing(table[index], true);
  bool complete[KvEvents::media] = {(flags & flag::announced) != 0, (flags & flag::announcedDisk) != 0};
  eachReplica(index, [&](const Replica& replica) {
    if (replica.status == ReplicaStatus::complete) complete[inMemory(replica) ? KvEvents::cpu : KvEvents::disk] = true;
  });
  for (u8 medium = 0; medium < KvEvents::media; ++medium) setAnnounced(table[index], medium, complete[medium]);
  if (task == TaskKind::none || taskClient == 0 || taskClient >= cluster.clientEnd()) return;
  Extra& extra = extraOf(index);
  extra.task = task;
  extra.taskClient = taskClient;
  ++cluster.client(taskClient).objects;
}

void Store::forgetObjects() {
  forgot_ = true;
  for (u32 index = 1; index < table.end(); ++index)
    if (table.live(index)) erase(index, 0, false);
  replayedCooling_.clear();
  // The rest of the log is incomplete, and holders may remember more objects: the next lineage is a new one, so that they restore them.
  lineage_ = 0;
  recent_.markIncomplete();
}

}  // namespace svc
