// Lookups, leases, owners and tasks, and how replicas are added and removed.
#include "objects/objects.h"

#include <algorithm>

namespace svc {

bool Objects::leased(const Object& object) const {
  return object.leaseEndMs() > nowMs() || groups.leaseEndMs(object) > nowMs();
}

void Objects::grant(Object& object) {
  const u64 end = nowMs() + settings.leaseMs;
  if (end > object.leaseEndMs()) object.leaseUntil(end);
  // A group has a lease of its own, so refreshing it refreshes every member.
  groups.lease(object, end);
}

bool Objects::softPinned(const Object& object) const { return object.extra != 0 && table.extras[object.extra].softPinUntil > tick(); }

u32 Objects::find(u16 tenant, std::string_view key) {
  if (tenant == Tenants::none || key.empty()) return 0;
  const u32 index = table.find(tenant, key, table.hashOf(tenant, key));
  return index == 0 ? 0 : pruned(index);
}

i32 Objects::findOwn(const Uuid& client, u16 tenant, std::string_view key, u32& index) {
  index = find(tenant, key);
  if (index == 0) return code::notFound;
  const u32 number = cluster.findClient(client);
  return number == 0 || table[index].client != number ? i32{code::illegalClient} : i32{code::ok};
}

u32 Objects::create(u32 owner, u16 tenant, std::string_view key, u64 size, u8 dataType, bool hardPin) {
  const u32 index = table.insert(tenant, key, table.hashOf(tenant, key));
  if (index == 0) return 0;
  Object& object = table[index];
  object.size = size;
  object.dataType = dataType;
  object.flags = hardPin ? flag::hardPin : 0;
  object.started = tick();
  object.leaseUntil(nowMs());
  setOwner(object, owner);
  return index;
}

u32 Objects::pruned(u32 index) {
  const auto dead = [&](const Replica& replica) {
    const Segment* segment = cluster.segment(replica.segment);
    return segment == nullptr || segment->gone;
  };
  if (!where.any(index, dead)) return index;
  if (dropReplicas(index, dead, 0)) {
    // The lost replicas may have been the only ones being written.
    if (!where.writing(index)) setProcessing(table[index], false);
    if (!where.anyStatus(index, ReplicaStatus::processing)) setFiling(table[index], false);
    announcer.announce(index);
    return index;
  }
  erase(index, 0, false, Gone::holderLost);
  return 0;
}

i32 Objects::exist(u16 tenant, std::string_view key, bool lease) {
  u32 index = 0;
  return read(tenant, key, lease, index) == code::ok ? 1 : 0;
}

i32 Objects::read(u16 tenant, std::string_view key, bool lease, u32& index, std::string_view fingerprint) {
  index = find(tenant, key);
  if (index == 0 || (!fingerprint.empty() && fingerprintOf(table[index]) != fingerprint)) return code::notFound;
  if (!where.anyReadable(index)) return where.anyStatus(index, ReplicaStatus::processing) ? code::notReady : code::notFound;
  if (lease) grant(table[index]);
  return code::ok;
}

Gone Objects::whyMissing(u16 tenant, std::string_view key, std::string_view fingerprint, u64& unixMs) {
  unixMs = 0;
  if (tenant == Tenants::none) return Gone::tenant;
  const u32 index = find(tenant, key);
  if (index == 0) return recent.find(Recent::hashOf(tenant, key), unixMs);
  if (!fingerprint.empty() && fingerprintOf(table[index]) != fingerprint) return Gone::fingerprint;
  if (where.anyReadable(index)) return Gone::stored;
  // A complete object that is unreadable: its holder is silent, or has not come back since a restart, and still may.
  return where.anyStatus(index, ReplicaStatus::complete) ? Gone::holderAway : Gone::unfinished;
}

void Objects::setOwner(Object& object, u32 client) {
  if (object.client != 0) --cluster.client(object.client).objects;
  object.client = client;
  if (client != 0) ++cluster.client(client).objects;
}

void Objects::setProcessing(Object& object, bool processing) {
  if (setFlag(object, flag::unfinished, processing)) unfinished_ += processing ? 1 : u32(-1);
}

void Objects::setFiling(Object& object, bool filing) {
  if (setFlag(object, flag::filing, filing)) filing_ += filing ? 1 : u32(-1);
}

u32 Objects::fingerprintOf(std::string_view text) {
  if (text.empty()) return 0;
  const auto known = fingerprintByName_.find(std::string(text));
  if (known != fingerprintByName_.end()) return known->second;
  if (text.size() > longestFingerprint || fingerprints_.size() > mostFingerprints) return 0;
  const u32 number = static_cast<u32>(fingerprints_.size());
  fingerprints_.emplace_back(text);
  fingerprintByName_.emplace(text, number);
  return number;
}

std::string_view Objects::fingerprintOf(const Object& object) const {
  return object.extra == 0 ? std::string_view() : std::string_view(fingerprints_[table.extras[object.extra].fingerprint]);
}

void Objects::describe(u32 index, const Ended& ended, u32 fingerprint) {
  if (ended.checksum) {
    Extra& extra = table.extraOf(index);
    extra.checksum = *ended.checksum;
    extra.hasChecksum = true;
  }
  if (fingerprint != 0) table.extraOf(index).fingerprint = fingerprint;
}

bool Objects::busy(const Object& object) const {
  const TaskKind task = object.extra == 0 ? TaskKind::none : table.extras[object.extra].task;
  return task != TaskKind::none && task != TaskKind::offload;
}

void Objects::beginTask(u32 index, TaskKind kind, u32 client, u32 source, u32 targets) {
  Extra& extra = table.extraOf(index);
  extra.task = kind;
  extra.taskClient = client;
  extra.taskSource = source;
  extra.taskStarted = tick();
  extra.taskTargets = static_cast<u8>(targets);
  ++cluster.client(client).objects;
}

void Objects::leaveTask(u32 index) {
  Extra& extra = table.extras[table[index].extra];
  --cluster.client(extra.taskClient).objects;
  extra.task = TaskKind::none;
  extra.taskClient = extra.taskSource = 0;
}

void Objects::endTask(u32 index) {
  leaveTask(index);
  dropReplicas(index, [](const Replica& replica) { return replica.status == ReplicaStatus::processing; }, settings.releaseMs);
  log(index);
}

void Objects::cancelOffload(u32 index) {
  if (table[index].extra != 0 && table.extras[table[index].extra].task == TaskKind::offload) leaveTask(index);
}

void Objects::setReplicas(u32 index, const Placed* placed, u32 count, ReplicaStatus status) {
  for (u32 i = 0; i < count; ++i) addReplica(index, placed[i], status);
}

void Objects::addReplica(u32 index, const Placed& placed, ReplicaStatus status) {
  Object& object = table[index];
  Segment* segment = cluster.segment(placed.segment);
  // A quota counts memory only.
  if (segment == nullptr || segment->inMemory()) tenants[object.tenant].charged += object.size;
  if (segment != nullptr && segment->onDisk()) segment->disk->dropped.erase(nodes[placed.node].offset);
  if (segment != nullptr && segment->shared()) {
    segment->disk->folder->objects[nodes[placed.node].offset] = index;
    segment->disk->folder->writers.erase(nodes[placed.node].offset);
  }
  if (object.first.status == ReplicaStatus::none) {
    object.first = {placed.segment, placed.node, 0, status};
    return;
  }
  const u32 more = table.more.take();
  table.more[more] = {placed.segment, placed.node, object.first.next, status};
  object.first.next = more;
}

bool Objects::dropReplicas(u32 index, const std::function<bool(const Replica&)>& gone, u64 coolMs) {
  Object& object = table[index];
  const auto leave = [&](const Replica& replica) { release(replica, object.tenant, object.size, coolMs); };
  for (u32* link = &object.first.next; *link != 0;) {
    const u32 at = *link;
    if (!gone(table.more[at])) {
      link = &table.more[at].next;
      continue;
    }
    leave(table.more[at]);
    *link = table.more[at].next;
    table.more.give(at);
  }
  if (object.first.status != ReplicaStatus::none && gone(object.first)) {
    leave(object.first);
    const u32 next = object.first.next;
    if (next == 0) {
      object.first = {};
    } else {
      object.first = table.more[next];
      table.more.give(next);
    }
  }
  return object.first.status != ReplicaStatus::none;
}

bool Objects::dropOrErase(u32 index, const std::function<bool(const Replica&)>& gone, u64 coolMs, Gone why) {
  if (!dropReplicas(index, gone, coolMs)) {
    erase(index, 0, true, why);
    return true;
  }
  announcer.announce(index);
  log(index);
  return false;
}

bool Objects::dropUnfinished(u32 index, ReplicaType type, u64 coolMs, Gone why) {
  if (!dropReplicas(index, [&](const Replica& replica) { return replica.status == ReplicaStatus::processing && where.isOf(replica, type); }, coolMs)) {
    erase(index, 0, true, why);
    return true;
  }
  setProcessing(table[index], where.writing(index));
  announcer.announce(index);
  log(index);
  return false;
}

bool Objects::discard(u32 index) {
  ++counters.discarded;
  // Complete replicas stay readable; an object that has none is erased.
  if (where.anyStatus(index, ReplicaStatus::complete)) return dropUnfinished(index, ReplicaType::all, settings.releaseMs, Gone::expired);
  erase(index, settings.releaseMs, true, Gone::expired);
  return true;
}

void Objects::release(const Replica& replica, u16 tenant, u64 size, u64 coolMs) {
  Segment* segment = cluster.segment(replica.segment);
  if (segment != nullptr && segment->onDisk()) {
    Disk& disk = *segment->disk;
    if (!common.replaying) {
      disk.used -= std::min(disk.used, size);
      disk.files -= std::min<u64>(disk.files, 1);
    }
    if (disk.folder) {
      disk.folder->objects.erase(nodes[replica.node].offset);
      if (replica.status != ReplicaStatus::complete) disk.folder->writers[nodes[replica.node].offset] = tickOf(nowMs() + settings.releaseMs) + 1;
    }
    if (disk.ours && disk.dropped.size() < Disk::mostOrders) disk.dropped.insert(nodes[replica.node].offset);
    nodes.give(replica.node);
    return;
  }
  if (segment == nullptr || segment->inMemory()) tenants[tenant].charged -= std::min(tenants[tenant].charged, size);
  if (announcer.holdersListen && segment != nullptr && segment->inMemory() && !common.replaying)
    if (const auto& holdings = cluster.client(segment->client).holdings) holdings->went(segment->base + segment->allocator.offsetOf(replica.node));
  if (segment == nullptr || common.replaying) {
    nodes.give(replica.node);
  } else if (coolMs == 0 || segment->gone) {
    space.free(replica.segment, replica.node);
  } else {
    const bool forReaders = replica.status == ReplicaStatus::complete;
    space.cool(replica.segment, replica.node, coolMs, forReaders);
    journal.cooling(replica.segment, segment->allocator.offsetOf(replica.node), size, forReaders);
  }
}

void Objects::erase(u32 index, u64 coolMs, bool logged, Gone why) {
  Object& object = table[index];
  // During a replay the logged times count, and an object that a later record replaces is not gone.
  const u64 at = common.replaying ? 0 : unixMs();
  if (!common.replaying || why != Gone::unknown) recent.note(Recent::hashOf(object.tenant, table.keyOf(index)), why, at);
  if (logged) journal.erased(object.tenant, table.keyOf(index), why, at);
  if (!restored.empty()) restored.erase(index);
  announcer.retract(index);
  dropReplicas(index, [](const Replica&) { return true; }, coolMs);
  setProcessing(object, false);
  setFiling(object, false);
  setOwner(object, 0);
  if (object.extra != 0) {
    groups.leave(index);
    if (table.extras[object.extra].task != TaskKind::none) --cluster.client(table.extras[object.extra].taskClient).objects;
    table.extras.give(object.extra);
    object.extra = 0;
  }
  table.erase(index);
}

void Objects::suspect(u32 index) {
  if (!common.onSuspect) return;
  table.eachReplica(index, [&](const Replica& replica) { suspectSegment(replica.segment); });
}

void Objects::suspectSegment(u32 number) {
  constexpr u64 againMs = 250;
  Segment* segment = cluster.segment(number);
  if (segment == nullptr || nowMs() < segment->suspectedMs + againMs) return;
  segment->suspectedMs = nowMs();
  common.onSuspect(number);
}

}  // namespace svc
