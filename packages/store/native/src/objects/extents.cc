// Leases extents, takes them back, and makes objects of them.
#include "objects/extents.h"

#include <algorithm>

namespace svc {

i32 Extents::lease(u32 client, u16 tenant, u64 size, u32 count, const PutPolicy& policy, std::vector<u64>& out) {
  out.clear();
  if (const i32 wrong = puts.checkPolicy(tenant, "-", size, policy); wrong != code::ok) return wrong;
  if (client == 0) return code::noHandle;
  if (const i32 wrong = eviction.overQuota(tenant, policy.replicas == 0 ? 0 : size); wrong != code::ok) return wrong;
  const u64 replicas[tiers] = {std::min<u64>(policy.replicas, Space::mostReplicas), std::min<u64>(policy.nofReplicas, Space::mostReplicas)};
  const auto ahead = [&](Tier tier) {
    const TierUsage& usage = space.usageOf(tier);
    const u64 more = size * replicas[static_cast<u32>(tier)];
    const auto share = [&](double ratio) { return static_cast<u64>(ratio * static_cast<double>(usage.capacity)); };
    return more > 0 && (bytes_ + more > share(settings.aheadRatio) || usage.used + more > share(eviction.watermarkOf(tier)));
  };
  for (u32 i = 0; i < std::min(count, most); ++i) {
    // One extent is what any put takes. More are leased ahead of need, and must not cause evictions.
    if (i > 0 && (ahead(Tier::memory) || ahead(Tier::nof))) break;
    Extent extent{client, tenant, size, tickOf(nowMs() + settings.discardMs), std::vector<Placed>(replicas[0] + replicas[1])};
    const bool noSpace[tiers] = {space.usageOf(Tier::memory).noSpace, space.usageOf(Tier::nof).noSpace};
    u32 placed = i > 0 ? space.place(size, replicas[0], policy, Tier::memory, extent.ranges.data()) : eviction.place(size, policy, Tier::memory, extent.ranges.data());
    placed += i > 0 ? space.place(size, replicas[1], policy, Tier::nof, extent.ranges.data() + placed) : eviction.place(size, policy, Tier::nof, extent.ranges.data() + placed, placed > 0);
    extent.ranges.resize(placed);
    for (const Tier tier : {Tier::memory, Tier::nof})
      if (i > 0) space.usageOf(tier).noSpace = noSpace[static_cast<u32>(tier)];
    if (extent.ranges.empty()) {
      if (i > 0) break;
      return puts.refuseForSpace();
    }
    for (const Placed& range : extent.ranges) {
      journal.cooling(range.segment, cluster.segment(range.segment)->allocator.offsetOf(range.node), size);
      bytes_ += size;
    }
    ++cluster.client(client).objects;
    const u64 id = ++last_;
    ends_.push_back(id);
    extents_.emplace(id, std::move(extent));
    out.push_back(id);
  }
  return code::ok;
}

i32 Extents::giveBack(const Uuid& client, u64 id, bool failed) {
  const auto found = extents_.find(id);
  const u32 number = cluster.findClient(client);
  if (found == extents_.end() || found->second.client != number) return code::notFound;
  if (failed && common.onSuspect)
    for (const Placed& range : found->second.ranges) objects.suspectSegment(range.segment);
  end(id, failed ? settings.releaseMs : 0);
  return code::ok;
}

void Extents::end(u64 id, u64 coolMs) {
  const Extent extent = forget(id);
  for (const Placed& range : extent.ranges) {
    const Segment* segment = cluster.segment(range.segment);
    if (segment == nullptr) continue;
    if (coolMs == 0) space.freeCooling(range.segment, range.node);
    else space.cool(range.segment, range.node, coolMs);
  }
}

Extent Extents::forget(u64 id) {
  auto node = extents_.extract(id);
  --cluster.client(node.mapped().client).objects;
  bytes_ -= node.mapped().size * node.mapped().ranges.size();
  return std::move(node.mapped());
}

void Extents::tend(u32 budget) {
  for (; budget > 0 && !ends_.empty(); --budget) {
    const auto found = extents_.find(ends_.front());
    if (found != extents_.end()) {
      if (found->second.until > tick()) return;
      ++counters.discarded;
      // Its client may be suspended in the middle of a write.
      end(found->first, settings.releaseMs);
    }
    ends_.pop_front();
  }
}

i32 Extents::commit(const Uuid& id, u16 tenant, std::string_view key, u64 extentID, const Ended& ended, const PutPolicy& policy, std::string_view group, bool replace) {
  const auto found = extents_.find(extentID);
  const u32 client = cluster.findClient(id);
  // The extent was leased before a restart or has expired, so its bytes may be another object's by the time they are read.
  if (found == extents_.end() || client == 0 || found->second.client != client || found->second.until <= tick()) return code::invalidWrite;
  const u64 size = found->second.size;
  if (const i32 wrong = puts.checkPolicy(tenant, key, size, policy); wrong != code::ok) return wrong;
  const auto usable = [&](const Placed& range) {
    const Segment* segment = cluster.segment(range.segment);
    return segment != nullptr && !segment->gone && !segment->awaiting && segment->state == SegmentState::ok;
  };
  if (std::none_of(found->second.ranges.begin(), found->second.ranges.end(), usable)) return code::segmentNotFound;
  const u32 fingerprint = objects.fingerprintOf(ended.fingerprint);
  if (fingerprint == 0 && !ended.fingerprint.empty()) return code::invalidParams;
  std::string kept(group);
  Tick pinned = 0;
  if (const u32 there = objects.find(tenant, key); there != 0 && replace) {
    const Object& old = table[there];
    const bool offloading = old.extra != 0 && table.extras[old.extra].task == TaskKind::offload;
    objects.cancelOffload(there);
    const Extra* extra = old.extra == 0 ? nullptr : &table.extras[old.extra];
    if (objects.busy(old)) return code::hasTask;
    if (!group.empty() && group != groups.nameOf(old)) return code::invalidParams;
    kept = groups.nameOf(old);
    pinned = extra != nullptr && policy.softPin == 0 ? extra->softPinUntil : 0;
    if (const i32 wrong = eviction.overQuota(tenant, size > old.size ? size - old.size : 0, {}, there); wrong != code::ok) return wrong;
    objects.erase(there, (old.flags & flag::unfinished) ? settings.releaseMs : objects.leased(old) || offloading ? settings.leaseMs : 0);
  } else {
    if (const i32 taken = puts.makeWay(tenant, key); taken != code::ok) return taken;
    if (const i32 wrong = eviction.overQuota(tenant, size, key); wrong != code::ok) return wrong;
  }
  const u32 index = objects.create(client, tenant, key, size, policy.dataType, policy.hardPin);
  if (index == 0) return code::noHandle;
  const Extent extent = forget(extentID);
  for (const Placed& range : extent.ranges) {
    if (usable(range)) objects.addReplica(index, range, ReplicaStatus::complete);
    else if (cluster.segment(range.segment) != nullptr) space.freeCooling(range.segment, range.node);
  }
  if (!kept.empty()) groups.join(index, tenant, kept);
  if (policy.softPin == 1) pinned = tickOf(nowMs() + puts.pinMs(policy)) + 1;
  if (pinned != 0) table.extraOf(index).softPinUntil = pinned;
  objects.describe(index, ended, fingerprint);
  announcer.announce(index);
  objects.log(index);
  if (disks.offloads()) disks.queue(index, false);
  return code::ok;
}

}  // namespace svc
