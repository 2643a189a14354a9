// Answers holders that remember their objects, and takes objects back from them.
#include "holders/restores.h"

#include <algorithm>

namespace svc {

namespace {
constexpr u32 lookedAt = 16'384, mostChanges = 4'096;
constexpr std::size_t mostBytes = 1 << 20;
// How long a holder that restores objects may be silent before its memory is open for allocation.
constexpr u64 restoreMs = 10'000;
}  // namespace

void Restores::nameLineage() {
  if (lineage_ != 0) return;
  lineage_ = (common.startID ^ unixMs()) | 1;
  journal.lineage(lineage_);
}

i32 Restores::takeChanges(const Uuid& id, bool fromStart, u32 most, Changes& out) {
  const u32 number = cluster.findClient(id);
  if (number == 0 || !cluster.client(number).known) return code::clientNotFound;
  auto& holdings = cluster.client(number).holdings;
  announcer.holdersListen = true;
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
    table.eachReplica(index, [&](const Replica& replica) {
      const Segment* segment = cluster.segment(replica.segment);
      if (segment == nullptr || segment->gone || !segment->inMemory() || segment->client != number || replica.status != ReplicaStatus::complete) return;
      out.held.push_back({index, segment->base + segment->allocator.offsetOf(replica.node)});
      bytes += object.keyBytes + groups.nameOf(object).size() + objects.fingerprintOf(object).size();
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

i32 Restores::begin(const Uuid& id, u64 lineage, std::span<const SegmentSpec> specs, bool& wanted) {
  wanted = wants(lineage);
  if (!wanted) return code::ok;
  if (const i32 wrong = holders.remount(specs, id); wrong != code::ok) return wrong;
  for (const SegmentSpec& spec : specs) {
    Segment* segment = cluster.findSegment(spec.id);
    if (segment == nullptr || !segment->inMemory() || segment->state != SegmentState::ok) continue;
    segment->restoring = true;
    segment->restoringUntilMs = nowMs() + restoreMs;
  }
  cluster.refresh();
  return code::ok;
}

i32 Restores::restore(const Uuid& id, const Restored& said) {
  const u32 number = cluster.findClient(id);
  if (number == 0) return code::clientNotFound;
  // The client is busy with this, and may be late with its pings.
  cluster.client(number).seenMs = nowMs();
  const u16 tenant = tenants.numberOf(said.tenant);
  if (tenant == Tenants::none || (settings.multiTenant && !tenants[tenant].registered)) return code::tenantUnknown;
  if (said.key.empty() || said.sizeBytes == 0 || said.group.size() > KeyArena::longest) return code::invalidParams;
  Segment* segment = nullptr;
  for (const u32 each : cluster.client(number).segments) {
    Segment* other = cluster.segment(each);
    if (other->restoring && said.address >= other->base && said.address - other->base < other->size) segment = other;
  }
  if (segment == nullptr) return code::segmentNotFound;
  segment->restoringUntilMs = nowMs() + restoreMs;
  const u64 offset = said.address - segment->base;
  const u32 fingerprint = objects.fingerprintOf(said.fingerprint);
  if (fingerprint == 0 && !said.fingerprint.empty()) return code::invalidParams;
  u32 index = objects.find(tenant, said.key);
  bool isNewer = false;
  if (index != 0) {
    const Object& object = table[index];
    const Extra* extra = object.extra == 0 ? nullptr : &table.extras[object.extra];
    const bool same = extra != nullptr && extra->hasChecksum && extra->checksum == said.checksum && object.size == said.sizeBytes && extra->fingerprint == fingerprint;
    const auto before = objects.restored.find(index);
    isNewer = !same && before != objects.restored.end() && before->second < said.asOf;
    // An object that was stored here since, or that another holder saw later, is newer.
    if ((object.flags & flag::unfinished) || objects.busy(object) || (!same && !isNewer)) return code::exists;
    bool here = false;
    table.eachReplica(index, [&](const Replica& replica) { here = here || (where.inMemory(replica) && cluster.segment(replica.segment)->client == number); });
    if (same && here) return code::replicaExists;
  } else if (objects.recent.mayBeGone(Recent::hashOf(tenant, said.key))) {
    return code::notFound;
  }
  if (settings.multiTenant && tenants[tenant].charged + said.sizeBytes > tenants.quotaOf(tenant)) return code::tenantQuota;
  const u32 node = segment->allocator.takeAt(offset, said.sizeBytes);
  if (node == 0) return code::noHandle;
  space.usageOf(segment->tier).used += said.sizeBytes;
  if (isNewer) {
    objects.erase(index, objects.leased(table[index]) ? settings.leaseMs : 0);
    index = 0;
  }
  if (index == 0) {
    index = objects.create(number, tenant, said.key, said.sizeBytes, said.dataType, said.hardPin);
    if (index == 0) {
      space.free(segment->number, node);
      return code::noHandle;
    }
    if (!said.group.empty()) groups.join(index, tenant, said.group);
    objects.describe(index, {said.checksum, {}}, fingerprint);
    if (said.softPinUntilMs > unixMs()) table.extraOf(index).softPinUntil = tickOf(said.softPinUntilMs - journal.epochMs) + 1;
  }
  u64& asOf = objects.restored[index];
  asOf = std::max(asOf, said.asOf);
  objects.addReplica(index, {segment->number, node}, ReplicaStatus::complete);
  ++counters.restoredObjects;
  announcer.announce(index);
  objects.log(index);
  return code::ok;
}

}  // namespace svc
