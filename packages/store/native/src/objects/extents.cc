// Memory leased ahead: a client writes ranges first, and gives them a key in a commit afterwards.
#include <algorithm>

#include "store.h"

namespace svc {

//  lease (logged as cooling down) → written by the client → commit (an object, complete at once)
//                                 → returned unwritten: free at once
//                                 → returned after a failed write, or expired: free after `releaseMs`

i32 Store::leaseExtents(u32 client, u16 tenant, u64 size, u32 count, const PutPolicy& policy, std::vector<u64>& out) {
  out.clear();
  if (const i32 wrong = checkPolicy(tenant, "-", size, policy); wrong != code::ok) return wrong;
  if (client == 0) return code::noHandle;
  if (const i32 wrong = overQuota(tenant, policy.replicas == 0 ? 0 : size); wrong != code::ok) return wrong;
  const u64 replicas[tiers] = {std::min<u64>(policy.replicas, mostReplicas), std::min<u64>(policy.nofReplicas, mostReplicas)};
  const auto ahead = [&](Tier tier) {
    const TierUsage& usage = usageOf(tier);
    const u64 more = size * replicas[static_cast<u32>(tier)];
    const auto share = [&](double ratio) { return static_cast<u64>(ratio * static_cast<double>(usage.capacity)); };
    return more > 0 && (extentBytes_ + more > share(settings.aheadRatio) || usage.used + more > share(watermarkOf(tier)));
  };
  for (u32 i = 0; i < std::min(count, mostExtents); ++i) {
    // One extent is what any put takes. More are leased ahead of need, and must not cause evictions.
    if (i > 0 && (ahead(Tier::memory) || ahead(Tier::nof))) break;
    Extent extent{client, tenant, size, tickOf(nowMs_ + settings.discardMs), std::vector<Placed>(replicas[0] + replicas[1])};
    const bool noSpace[tiers] = {usage_[0].noSpace, usage_[1].noSpace};
    u32 placed = i > 0 ? place(size, replicas[0], policy, Tier::memory, extent.ranges.data()) : placeEvicting(size, policy, Tier::memory, extent.ranges.data());
    placed += i > 0 ? place(size, replicas[1], policy, Tier::nof, extent.ranges.data() + placed) : placeEvicting(size, policy, Tier::nof, extent.ranges.data() + placed, placed > 0);
    extent.ranges.resize(placed);
    for (u32 tier = 0; i > 0 && tier < tiers; ++tier) usage_[tier].noSpace = noSpace[tier];
    if (extent.ranges.empty()) {
      if (i > 0) break;
      return refuseForSpace();
    }
    for (const Placed& range : extent.ranges) {
      journal.cooling(range.segment, cluster.segment(range.segment)->allocator.offsetOf(range.node), size);
      extentBytes_ += size;
    }
    ++cluster.client(client).objects;
    const u64 id = ++lastExtent_;
    extentEnds_.push_back(id);
    extents_.emplace(id, std::move(extent));
    out.push_back(id);
  }
  return code::ok;
}

i32 Store::returnExtent(const Uuid& client, u64 id, bool failed) {
  const auto found = extents_.find(id);
  const u32 number = cluster.findClient(client);
  if (found == extents_.end() || found->second.client != number) return code::notFound;
  if (failed && onSuspect)
    for (const Placed& range : found->second.ranges) suspectSegment(range.segment);
  endExtent(id, failed ? settings.releaseMs : 0);
  return code::ok;
}

void Store::endExtent(u64 id, u64 coolMs) {
  const Extent extent = forgetExtent(id);
  for (const Placed& range : extent.ranges) {
    const Segment* segment = cluster.segment(range.segment);
    if (segment == nullptr) continue;
    if (coolMs == 0) {
      freeCooling(range.segment, range.node);
    } else {
      cooling_.push_back({tickOf(nowMs_ + coolMs) + 1, range.segment, range.node});
      std::push_heap(cooling_.begin(), cooling_.end());
    }
  }
}

Extent Store::forgetExtent(u64 id) {
  auto node = extents_.extract(id);
  --cluster.client(node.mapped().client).objects;
  extentBytes_ -= node.mapped().size * node.mapped().ranges.size();
  return std::move(node.mapped());
}

void Store::endOldExtents(u32 most) {
  for (; most > 0 && !extentEnds_.empty(); --most) {
    const auto found = extents_.find(extentEnds_.front());
    if (found != extents_.end()) {
      if (found->second.until > tick()) return;
      ++counters.discarded;
      // Its client may be suspended in the middle of a write.
      endExtent(found->first, settings.releaseMs);
    }
    extentEnds_.pop_front();
  }
}

i32 Store::commitPut(const Uuid& id, u16 tenant, std::string_view key, u64 extentID, const Ended& ended, const PutPolicy& policy, std::string_view group, bool replace) {
  const auto found = extents_.find(extentID);
  const u32 client = cluster.findClient(id);
  // The extent was leased before a restart or has expired, so its bytes may be another object's by the time they are read.
  if (found == extents_.end() || client == 0 || found->second.client != client || found->second.until <= tick()) return code::invalidWrite;
  const u64 size = found->second.size;
  if (const i32 wrong = checkPolicy(tenant, key, size, policy); wrong != code::ok) return wrong;
  const auto usable = [&](const Placed& range) {
    const Segment* segment = cluster.segment(range.segment);
    return segment != nullptr && !segment->gone && !segment->awaiting && segment->state == SegmentState::ok;
  };
  if (std::none_of(found->second.ranges.begin(), found->second.ranges.end(), usable)) return code::segmentNotFound;
  const u32 fingerprint = fingerprintOf(ended.fingerprint);
  if (fingerprint == 0 && !ended.fingerprint.empty()) return code::invalidParams;
  std::string kept(group);
  Tick pinned = 0;
  if (const u32 there = find(tenant, key); there != 0 && replace) {
    const Object& old = table[there];
    const bool offloading = old.extra != 0 && table.extras[old.extra].task == TaskKind::offload;
    cancelOffload(there);
    const Extra* extra = old.extra == 0 ? nullptr : &table.extras[old.extra];
    if (busy(old)) return code::hasTask;
    if (!group.empty() && group != groupName(old)) return code::invalidParams;
    kept = groupName(old);
    pinned = extra != nullptr && policy.softPin == 0 ? extra->softPinUntil : 0;
    if (const i32 wrong = overQuota(tenant, size > old.size ? size - old.size : 0, {}, there); wrong != code::ok) return wrong;
    erase(there, (old.flags & flag::unfinished) ? settings.releaseMs : leased(old) || offloading ? settings.leaseMs : 0);
  } else {
    if (const i32 taken = makeWay(tenant, key); taken != code::ok) return taken;
    if (const i32 wrong = overQuota(tenant, size, key); wrong != code::ok) return wrong;
  }
  const u32 index = table.insert(tenant, key, table.hashOf(tenant, key));
  if (index == 0) return code::noHandle;
  const Extent extent = forgetExtent(extentID);
  Object& object = table[index];
  object.size = size;
  object.dataType = policy.dataType;
  object.flags = policy.hardPin ? flag::hardPin : 0;
  object.started = tick();
  object.leaseUntil(nowMs_);
  setOwner(object, client);
  for (const Placed& range : extent.ranges) {
    if (usable(range)) addReplica(index, range, ReplicaStatus::complete);
    else if (cluster.segment(range.segment) != nullptr) freeCooling(range.segment, range.node);
  }
  if (!kept.empty()) joinGroup(index, tenant, kept);
  if (policy.softPin == 1) pinned = tickOf(nowMs_ + policy.softPinMs.value_or(settings.softPinMs)) + 1;
  if (pinned != 0) extraOf(index).softPinUntil = pinned;
  note(index, ended, fingerprint);
  announce(index);
  log(index);
  if (offloads()) queueOffload(index, false);
  return code::ok;
}

void Store::note(u32 index, const Ended& ended, u32 fingerprint) {
  if (ended.checksum) {
    Extra& extra = extraOf(index);
    extra.checksum = *ended.checksum;
    extra.hasChecksum = true;
  }
  if (fingerprint != 0) extraOf(index).fingerprint = fingerprint;
}

u32 Store::fingerprintOf(std::string_view text) {
  if (text.empty()) return 0;
  const auto known = fingerprintByName_.find(std::string(text));
  if (known != fingerprintByName_.end()) return known->second;
  if (text.size() > longestFingerprint || fingerprints_.size() > mostFingerprints) return 0;
  const u32 number = static_cast<u32>(fingerprints_.size());
  fingerprints_.emplace_back(text);
  fingerprintByName_.emplace(text, number);
  return number;
}

std::string_view Store::fingerprintOf(const Object& object) const {
  return object.extra == 0 ? std::string_view() : std::string_view(fingerprints_[table.extras[object.extra].fingerprint]);
}

Gone Store::whyMissing(u16 tenant, std::string_view key, std::string_view fingerprint, u64& unixMs) {
  unixMs = 0;
  if (tenant == noTenant) return Gone::tenant;
  const u32 index = find(tenant, key);
  if (index != 0 && !fingerprint.empty() && fingerprintOf(table[index]) != fingerprint) return Gone::fingerprint;
  if (index != 0) {
    bool reachable = false;
    eachReplica(index, [&](const Replica& replica) { reachable = reachable || readable(replica); });
    if (reachable) return Gone::stored;
    // A known object that is complete and unreadable: its holder is silent, or has not come back since a restart, and still may.
    return anyStatus(index, ReplicaStatus::complete) ? Gone::holderAway : Gone::unfinished;
  }
  return recent_.find(Recent::hashOf(tenant, key), unixMs);
}

}  // namespace svc
