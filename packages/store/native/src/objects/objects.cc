// The basics of all rules: lookups, leases, groups, owners, and removing replicas.
#include <algorithm>

#include "store.h"

namespace svc {

Store::Store(const Settings& settings, u64 seed) : StoreState(settings, seed) {
  groups_.emplace_back();
  tenants.push_back({"default", !settings.multiTenant, 0, 0});
  tenantByName_["default"] = 0;
}

bool Store::leased(const Object& object) const {
  if (object.leaseEndMs() > nowMs_) return true;
  return object.extra != 0 && table.extras[object.extra].group != 0 && groups_[table.extras[object.extra].group].leaseEndMs > nowMs_;
}

void Store::grant(Object& object) {
  const u64 end = nowMs_ + settings.leaseMs;
  if (end > object.leaseEndMs()) object.leaseUntil(end);
  // A group has a lease of its own, so refreshing it refreshes every member.
  if (object.extra != 0 && table.extras[object.extra].group != 0) {
    Group& group = groups_[table.extras[object.extra].group];
    group.leaseEndMs = std::max(group.leaseEndMs, end);
  }
}

bool Store::softPinned(const Object& object) const { return object.extra != 0 && table.extras[object.extra].softPinUntil > tick(); }

bool Store::readable(const Replica& replica) const {
  if (replica.status != ReplicaStatus::complete) return false;
  const Segment* segment = cluster.segment(replica.segment);
  return segment != nullptr && segment->readable();
}

bool Store::anyStatus(u32 index, ReplicaStatus status) const {
  bool found = false;
  eachReplica(index, [&](const Replica& replica) { found = found || replica.status == status; });
  return found;
}

u32 Store::find(u16 tenant, std::string_view key) {
  if (tenant == noTenant || key.empty()) return 0;
  const u32 index = table.find(tenant, key, table.hashOf(tenant, key));
  return index == 0 ? 0 : pruned(index);
}

u32 Store::pruned(u32 index) {
  const auto dead = [&](const Replica& replica) {
    const Segment* segment = cluster.segment(replica.segment);
    return segment == nullptr || segment->gone;
  };
  bool any = false;
  eachReplica(index, [&](const Replica& replica) { any = any || dead(replica); });
  if (!any) return index;
  if (dropReplicas(index, dead, 0)) {
    // The lost replicas may have been the only ones being written.
    if (!writing(index)) setProcessing(table[index], false);
    if (!anyStatus(index, ReplicaStatus::processing)) setFiling(table[index], false);
    announce(index);
    return index;
  }
  erase(index, 0, false, Gone::holderLost);
  return 0;
}

i32 Store::exist(u16 tenant, std::string_view key, bool lease) {
  u32 index = 0;
  return read(tenant, key, lease, index) == code::ok ? 1 : 0;
}

i32 Store::read(u16 tenant, std::string_view key, bool lease, u32& index, std::string_view fingerprint) {
  index = find(tenant, key);
  if (index == 0 || (!fingerprint.empty() && fingerprintOf(table[index]) != fingerprint)) return code::notFound;
  bool reachable = false;
  eachReplica(index, [&](const Replica& replica) { reachable = reachable || readable(replica); });
  if (!reachable) return anyStatus(index, ReplicaStatus::processing) ? code::notReady : code::notFound;
  if (lease) grant(table[index]);
  return code::ok;
}

Extra& Store::extraOf(u32 index) {
  Object& object = table[index];
  if (object.extra == 0) object.extra = table.extras.take();
  return table.extras[object.extra];
}

std::string_view Store::groupName(const Object& object) const {
  return object.extra == 0 ? std::string_view() : std::string_view(groups_[table.extras[object.extra].group].name);
}

u32 Store::groupOf(u16 tenant, std::string_view name) {
  const auto [found, fresh] = groupByName_.try_emplace(std::to_string(tenant) + "/" + std::string(name), 0);
  if (!fresh) return found->second;
  if (freeGroups_.empty()) {
    found->second = static_cast<u32>(groups_.size());
    groups_.emplace_back();
  } else {
    found->second = freeGroups_.back();
    freeGroups_.pop_back();
  }
  groups_[found->second] = {std::string(name), tenant, 0, 0, 0};
  return found->second;
}

void Store::joinGroup(u32 index, u16 tenant, std::string_view name) {
  Extra& extra = extraOf(index);
  extra.group = groupOf(tenant, name);
  Group& group = groups_[extra.group];
  extra.groupBefore = 0;
  extra.groupAfter = group.first;
  if (group.first != 0) table.extras[table[group.first].extra].groupBefore = index;
  group.first = index;
  ++group.members;
}

void Store::leaveGroup(u32 index) {
  Extra& extra = table.extras[table[index].extra];
  if (extra.group == 0) return;
  Group& group = groups_[extra.group];
  if (extra.groupBefore != 0) table.extras[table[extra.groupBefore].extra].groupAfter = extra.groupAfter;
  else group.first = extra.groupAfter;
  if (extra.groupAfter != 0) table.extras[table[extra.groupAfter].extra].groupBefore = extra.groupBefore;
  if (--group.members == 0) {
    groupByName_.erase(std::to_string(group.tenant) + "/" + group.name);
    group = {};
    freeGroups_.push_back(extra.group);
  }
  extra.group = 0;
}

void Store::setOwner(Object& object, u32 client) {
  if (object.client != 0) --cluster.client(object.client).objects;
  object.client = client;
  if (client != 0) ++cluster.client(client).objects;
}

void Store::setProcessing(Object& object, bool processing) {
  const bool was = (object.flags & flag::unfinished) != 0;
  if (was == processing) return;
  object.flags = static_cast<u8>(processing ? object.flags | flag::unfinished : object.flags & ~flag::unfinished);
  unfinished_ += processing ? 1 : u32(-1);
}

void Store::setReplicas(u32 index, const Placed* placed, u32 count, ReplicaStatus status) {
  for (u32 i = 0; i < count; ++i) addReplica(index, placed[i], status);
}

void Store::addReplica(u32 index, const Placed& placed, ReplicaStatus status) {
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

bool Store::dropReplicas(u32 index, const std::function<bool(const Replica&)>& gone, u64 coolMs) {
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

void Store::release(const Replica& replica, u16 tenant, u64 size, u64 coolMs) {
  Segment* segment = cluster.segment(replica.segment);
  if (segment != nullptr && segment->onDisk()) {
    Disk& disk = *segment->disk;
    if (!replaying_) {
      disk.used -= std::min(disk.used, size);
      disk.files -= std::min<u64>(disk.files, 1);
    }
    if (disk.folder) {
      disk.folder->objects.erase(nodes[replica.node].offset);
      if (replica.status != ReplicaStatus::complete) disk.folder->writers[nodes[replica.node].offset] = tickOf(nowMs_ + settings.releaseMs) + 1;
    }
    if (disk.ours && disk.dropped.size() < Disk::mostOrders) disk.dropped.insert(nodes[replica.node].offset);
    nodes.give(replica.node);
    return;
  }
  if (segment == nullptr || segment->inMemory()) tenants[tenant].charged -= std::min(tenants[tenant].charged, size);
  if (holdersListen_ && segment != nullptr && segment->inMemory() && !replaying_)
    if (const auto& holdings = cluster.client(segment->client).holdings) holdings->went(segment->base + segment->allocator.offsetOf(replica.node));
  if (segment == nullptr || replaying_) {
    nodes.give(replica.node);
  } else if (coolMs == 0 || segment->gone) {
    free(replica.segment, replica.node);
  } else {
    const bool forReaders = replica.status == ReplicaStatus::complete;
    cooling_.push_back({tickOf(nowMs_ + coolMs) + 1, replica.segment, replica.node, forReaders});
    std::push_heap(cooling_.begin(), cooling_.end());
    journal.cooling(replica.segment, segment->allocator.offsetOf(replica.node), size, forReaders);
  }
}

void Store::free(u32 number, u32 node) {
  Segment* segment = cluster.segment(number);
  const u64 size = segment->allocator.sizeOf(node);
  segment->allocator.give(node);
  ++counters.freedRanges;
  if (!segment->gone) usageOf(segment->tier).used -= size;
}

void Store::freeCooling(u32 number, u32 node) {
  journal.freed(number, cluster.segment(number)->allocator.offsetOf(node));
  free(number, node);
}

void Store::erase(u32 index, u64 coolMs, bool logged, Gone why) {
  Object& object = table[index];
  // During a replay the logged times count, and an object that a later record replaces is not gone.
  const u64 at = replaying_ ? 0 : unixMs();
  if (!replaying_ || why != Gone::unknown) recent_.note(Recent::hashOf(object.tenant, table.keyOf(index)), why, at);
  if (logged) journal.erased(object.tenant, table.keyOf(index), why, at);
  if (!restored_.empty()) restored_.erase(index);
  retract(index);
  dropReplicas(index, [](const Replica&) { return true; }, coolMs);
  setProcessing(object, false);
  setFiling(object, false);
  setOwner(object, 0);
  if (object.extra != 0) {
    leaveGroup(index);
    if (table.extras[object.extra].task != TaskKind::none) --cluster.client(table.extras[object.extra].taskClient).objects;
    table.extras.give(object.extra);
    object.extra = 0;
  }
  table.erase(index);
}

void Store::suspect(u32 index) {
  if (!onSuspect) return;
  eachReplica(index, [&](const Replica& replica) { suspectSegment(replica.segment); });
}

void Store::suspectSegment(u32 number) {
  constexpr u64 againMs = 250;
  Segment* segment = cluster.segment(number);
  if (segment == nullptr || nowMs_ < segment->suspectedMs + againMs) return;
  segment->suspectedMs = nowMs_;
  onSuspect(number);
}

}  // namespace svc
