// Records what clients have in their memory: changes for subscribers, and objects that are restored after the master lost its state.
#include <algorithm>

#include "store.h"

namespace svc {

namespace {
constexpr u32 lookedAt = 16'384, mostChanges = 4'096;
constexpr std::size_t mostBytes = 1 << 20;
// How long a holder that restores objects may be silent before its memory is open for allocation.
constexpr u64 restoreMs = 10'000;
}  // namespace

//  lineage   a new log gets a new one; standbys and snapshots keep that of their log; a damaged log that lost objects gets a new one
//  holder    remembers the lineage, and as of which record it had each object. It restores what no newer key, removal or range contradicts.

void Store::nameLineage() {
  if (lineage_ != 0) return;
  lineage_ = (lastExtent_ ^ unixMs()) | 1;
  journal.lineage(lineage_);
}

void Store::notifyHolders(u32 index) {
  eachReplica(index, [&](const Replica& replica) {
    const Segment* segment = cluster.segment(replica.segment);
    if (segment == nullptr || !segment->inMemory() || replica.status != ReplicaStatus::complete) return;
    if (const auto& holdings = cluster.client(segment->client).holdings) holdings->came(index);
  });
}

i32 Store::takeChanges(const Uuid& id, bool fromStart, u32 most, Changes& out) {
  const u32 number = cluster.findClient(id);
  if (number == 0 || !cluster.client(number).known) return code::clientNotFound;
  auto& holdings = cluster.client(number).holdings;
  holdersListen_ = true;
  if (holdings == nullptr || fromStart) {
    holdings = std::make_unique<Holdings>();
    holdings->start();
  }
  out.begins = holdings->begins;
  holdings->begins = false;
  most = std::min(most, mostChanges);
  std::size_t bytes = 0;
  const auto fits = [&] { return out.gone.size() + out.held.size() < most && bytes < mostBytes; };
  const auto look = [&](u32 index) {
    const Object& object = table[index];
    // Bytes without a checksum cannot be verified later, so they are not remembered.
    if (!table.live(index) || object.extra == 0 || !table.extras[object.extra].hasChecksum) return;
    eachReplica(index, [&](const Replica& replica) {
      const Segment* segment = cluster.segment(replica.segment);
      if (segment == nullptr || segment->gone || !segment->inMemory() || segment->client != number || replica.status != ReplicaStatus::complete) return;
      out.held.push_back({index, segment->base + segment->allocator.offsetOf(replica.node)});
      bytes += object.keyBytes + groupName(object).size() + fingerprintOf(object).size();
    });
  };
  while (!holdings->empty() && fits()) {
    u64 value = 0;
    if (holdings->next(value)) out.gone.push_back(value);
    else if (value < table.end()) look(static_cast<u32>(value));
  }
  if (holdings->empty() && holdings->cursor != 0) {
    u32& cursor = holdings->cursor;
    for (u32 left = lookedAt; left > 0 && cursor < table.end() && fits(); --left, ++cursor) look(cursor);
    if (cursor >= table.end()) {
      cursor = 0;
      out.isWhole = true;
    }
  }
  out.more = !holdings->empty() || holdings->cursor != 0;
  return code::ok;
}

i32 Store::beginRestore(const Uuid& id, u64 lineage, std::span<const SegmentSpec> specs, bool& wanted) {
  wanted = wantsRestore(lineage);
  if (!wanted) return code::ok;
  if (const i32 wrong = remount(specs, id); wrong != code::ok) return wrong;
  for (const SegmentSpec& spec : specs) {
    Segment* segment = cluster.findSegment(spec.id);
    if (segment == nullptr || !segment->inMemory() || segment->state != SegmentState::ok) continue;
    segment->restoring = true;
    segment->restoringUntilMs = nowMs_ + restoreMs;
  }
  cluster.refresh();
  return code::ok;
}

i32 Store::endRestore(const Uuid& id) {
  const u32 number = cluster.findClient(id);
  if (number == 0) return code::clientNotFound;
  for (const u32 each : cluster.client(number).segments) cluster.segment(each)->restoring = false;
  cluster.refresh();
  bool any = false;
  for (u32 each = 1; each < cluster.segmentEnd(); ++each) any = any || (cluster.segment(each) != nullptr && cluster.segment(each)->restoring);
  if (!any) restored_.clear();
  return code::ok;
}

i32 Store::restore(const Uuid& id, const Restored& said) {
  const u32 number = cluster.findClient(id);
  if (number == 0) return code::clientNotFound;
  // The client is busy with this, and may be late with its pings.
  cluster.client(number).seenMs = nowMs_;
  const u16 tenant = tenantOf(said.tenant);
  if (tenant == noTenant || (settings.multiTenant && !tenants[tenant].registered)) return code::tenantUnknown;
  if (said.key.empty() || said.sizeBytes == 0 || said.group.size() > KeyArena::longest) return code::invalidParams;
  Segment* segment = nullptr;
  for (const u32 each : cluster.client(number).segments) {
    Segment* other = cluster.segment(each);
    if (other->restoring && said.address >= other->base && said.address - other->base < other->size) segment = other;
  }
  if (segment == nullptr) return code::segmentNotFound;
  segment->restoringUntilMs = nowMs_ + restoreMs;
  const u64 offset = said.address - segment->base;
  const u32 fingerprint = fingerprintOf(said.fingerprint);
  if (fingerprint == 0 && !said.fingerprint.empty()) return code::invalidParams;
  u32 index = find(tenant, said.key);
  bool isNewer = false;
  if (index != 0) {
    const Object& object = table[index];
    const Extra* extra = object.extra == 0 ? nullptr : &table.extras[object.extra];
    const bool same = extra != nullptr && extra->hasChecksum && extra->checksum == said.checksum && object.size == said.sizeBytes && extra->fingerprint == fingerprint;
    const auto before = restored_.find(index);
    isNewer = !same && before != restored_.end() && before->second < said.asOf;
    // An object that was stored here since, or that another holder saw later, is newer.
    if ((object.flags & flag::unfinished) || busy(object) || (!same && !isNewer)) return code::exists;
    bool here = false;
    eachReplica(index, [&](const Replica& replica) { here = here || (inMemory(replica) && cluster.segment(replica.segment)->client == number); });
    if (same && here) return code::replicaExists;
  } else if (recent_.mayBeGone(Recent::hashOf(tenant, said.key))) {
    return code::notFound;
  }
  if (settings.multiTenant && tenants[tenant].charged + said.sizeBytes > quotaOf(tenant)) return code::tenantQuota;
  const u32 node = segment->allocator.takeAt(offset, said.sizeBytes);
  if (node == 0) return code::noHandle;
  usageOf(segment->tier).used += said.sizeBytes;
  if (isNewer) {
    erase(index, leased(table[index]) ? settings.leaseMs : 0);
    index = 0;
  }
  if (index == 0) {
    index = table.insert(tenant, said.key, table.hashOf(tenant, said.key));
    if (index == 0) {
      free(segment->number, node);
      return code::noHandle;
    }
    Object& object = table[index];
    object.size = said.sizeBytes;
    object.dataType = said.dataType;
    object.flags = said.hardPin ? flag::hardPin : 0;
    object.started = tick();
    object.leaseUntil(nowMs_);
    setOwner(object, number);
    if (!said.group.empty()) joinGroup(index, tenant, said.group);
    note(index, {said.checksum, {}}, fingerprint);
    if (said.softPinUntilMs > unixMs()) extraOf(index).softPinUntil = tickOf(said.softPinUntilMs - journal.epochMs) + 1;
  }
  u64& asOf = restored_[index];
  asOf = std::max(asOf, said.asOf);
  addReplica(index, {segment->number, node}, ReplicaStatus::complete);
  ++counters.restoredObjects;
  announce(index);
  log(index);
  return code::ok;
}

}  // namespace svc
