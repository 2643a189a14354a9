// Pings, mounting and unmounting, silence and loss, and the results of our own probes.
#include "holders/holders.h"

#include <algorithm>

namespace svc {

u32 Holders::clientOf(const Uuid& id) {
  const u32 known = cluster.findClient(id);
  if (known != 0) return known;
  const u32 number = cluster.clientOf(id);
  if (number == 0) return 0;
  cluster.client(number).seenMs = nowMs();
  journal.client(number, id);
  return number;
}

i32 Holders::ping(const Uuid& id, i32& status) {
  constexpr i32 fine = 1, needsRemount = 2;
  status = needsRemount;
  const u32 number = cluster.findClient(id);
  if (number == 0) return code::ok;
  Client& client = cluster.client(number);
  client.seenMs = nowMs();
  bool awaiting = false;
  // A disk is mounted again by a call of its own.
  for (const u32 each : client.segments) awaiting = awaiting || (cluster.segment(each)->awaiting && !cluster.segment(each)->onDisk());
  if (client.silent) {
    client.silent = false;
    for (const u32 each : client.segments) {
      Segment& segment = *cluster.segment(each);
      segment.silent = false;
      // Objects that were stored meanwhile are not queued for the disk yet.
      if (segment.onDisk()) segment.disk->cursor = 1;
    }
    cluster.refresh();
    if (common.onClient) common.onClient(number, "heard again");
  }
  if (client.known && !awaiting) status = fine;
  return code::ok;
}

i32 Holders::checkMount(const SegmentSpec& spec, u32 number) const {
  const Tier tier = tierOf(spec.protocol);
  if (tier == Tier::nof && !settings.nof) return code::notSupported;
  // A NOF segment needs an endpoint, since overlaps are checked per endpoint.
  if (tier == Tier::nof && spec.endpoint.empty()) return code::invalidParams;
  for (const u32 each : cluster.client(number).segments) {
    const Segment& other = *cluster.segment(each);
    if (other.onDisk() || other.id == spec.id || other.tier != tier || (tier == Tier::nof && other.endpoint != spec.endpoint)) continue;
    if (spec.base < other.base + other.size && other.base < spec.base + spec.sizeBytes) return code::segmentExists;
  }
  return code::ok;
}

bool Holders::takeOver(Segment& segment, const SegmentSpec& spec, u32 number) {
  if (!segment.nof() || tierOf(spec.protocol) != Tier::nof || segment.base != spec.base || segment.size != spec.sizeBytes) return false;
  // A holder that is heard keeps its segment.
  if (!segment.awaiting && !segment.silent && !segment.unreachable) return false;
  cluster.handOver(segment, number, spec.name, spec.endpoint);
  segment.hostID = spec.hostID;
  segment.awaiting = segment.silent = segment.unreachable = false;
  segment.suspectedMs = 0;
  cluster.client(number).known = true;
  cluster.refresh();
  journal.segment(segment);
  if (common.onSuspect) common.onSuspect(segment.number);
  return true;
}

i32 Holders::mount(const SegmentSpec& spec, const Uuid& id) {
  if (spec.sizeBytes == 0 || spec.name.empty() || spec.base > ~u64{0} - spec.sizeBytes) return code::invalidParams;
  const u32 number = clientOf(id);
  if (number == 0) return code::noHandle;
  Client& client = cluster.client(number);
  client.seenMs = nowMs();
  if (const i32 wrong = checkMount(spec, number); wrong != code::ok) return wrong;
  if (Segment* there = cluster.findSegment(spec.id); there != nullptr) {
    if (there->client != number && takeOver(*there, spec, number)) return code::ok;
    if (there->client != number || there->base != spec.base || there->size != spec.sizeBytes) return code::segmentExists;
    client.known = true;
    if (there->awaiting) {
      // The process that had it before our restart still has it, so what we know of its bytes is true.
      there->awaiting = false;
      cluster.refresh();
    }
    return code::ok;
  }
  // Another process answers at the endpoint of a holder that is silent, so that holder's memory is gone.
  for (u32 each = 1; each < cluster.segmentEnd(); ++each) {
    Segment* other = cluster.segment(each);
    if (other == nullptr || other->gone || other->client == number || other->endpoint != spec.endpoint || spec.endpoint.empty()) continue;
    if (other->awaiting || other->silent || other->unreachable) dropSegment(*other);
  }
  auto segment = std::make_unique<Segment>(nodes, spec.sizeBytes);
  segment->number = cluster.nextSegment();
  segment->client = number;
  segment->id = spec.id;
  segment->base = spec.base;
  segment->name = spec.name;
  segment->endpoint = spec.endpoint;
  segment->protocol = spec.protocol;
  segment->tier = tierOf(spec.protocol);
  segment->hostID = spec.hostID;
  const Segment& added = cluster.add(std::move(segment));
  cluster.client(number).known = true;
  space.usageOf(added.tier).capacity += added.size;
  cluster.refresh();
  journal.segment(added);
  if (common.onSuspect) common.onSuspect(added.number);
  return code::ok;
}

i32 Holders::remount(std::span<const SegmentSpec> specs, const Uuid& id) {
  const u32 number = clientOf(id);
  if (number == 0) return code::noHandle;
  i32 first = code::ok;
  for (const SegmentSpec& spec : specs) {
    const i32 outcome = mount(spec, id);
    // A later process has the segment: this one, which was silent, gets none of its objects back.
    if (outcome == code::segmentExists && tierOf(spec.protocol) == Tier::nof) continue;
    if (outcome == code::segmentExists) {
      // The same id has another address now, so what we know of the segment is wrong.
      if (Segment* there = cluster.findSegment(spec.id); there != nullptr && there->client == number) {
        dropSegment(*there);
        if (mount(spec, id) == code::ok) continue;
      }
    }
    if (first == code::ok) first = outcome;
  }
  // Segments that it had before and does not name any more were unmounted while no master listened.
  std::vector<u32> lost;
  for (const u32 each : cluster.client(number).segments)
    if (cluster.segment(each)->awaiting && !cluster.segment(each)->onDisk()) lost.push_back(each);
  for (const u32 each : lost) dropSegment(*cluster.segment(each));
  Client& client = cluster.client(number);
  client.known = true;
  client.seenMs = nowMs();
  return first;
}

bool Holders::holds(std::span<const SegmentSpec> specs, const Uuid& id) const {
  const u32 number = cluster.findClient(id);
  if (number == 0) return false;
  const auto named = [&](const Segment& there) {
    return std::ranges::any_of(specs, [&](const SegmentSpec& spec) { return spec.id == there.id && spec.base == there.base && spec.sizeBytes == there.size; });
  };
  std::size_t mounted = 0;
  for (const u32 each : cluster.client(number).segments) {
    const Segment& there = *cluster.segment(each);
    if (there.gone || there.onDisk()) continue;
    if (!named(there)) return false;
    ++mounted;
  }
  return mounted == specs.size();
}

i32 Holders::unmount(const Uuid& id, const Uuid& client, u64 graceMs) {
  Segment* segment = cluster.findSegment(id);
  // Unmounting it twice succeeds; only a grace period needs a segment to wait for.
  if (segment == nullptr) return graceMs == 0 ? code::ok : code::segmentNotFound;
  if (cluster.findClient(client) != segment->client) return code::invalidParams;
  if (graceMs == 0) {
    dropSegment(*segment);
    return code::ok;
  }
  segment->state = SegmentState::gracefullyUnmounting;
  segment->unmountAtMs = nowMs() + graceMs;
  cluster.refresh();
  journal.segment(*segment);
  return code::ok;
}

i32 Holders::setState(u32 number, SegmentState state) {
  Segment* segment = cluster.segment(number);
  if (segment == nullptr || segment->gone) return code::segmentNotFound;
  segment->state = state;
  cluster.refresh();
  journal.segment(*segment);
  return code::ok;
}

bool Holders::probed(u32 number, bool reached) {
  Segment* segment = cluster.segment(number);
  if (segment == nullptr || segment->gone) return false;
  if (segment->unreachable == !reached) return true;
  segment->unreachable = !reached;
  cluster.refresh();
  return true;
}

void Holders::forgetOrders(Segment& disk) {
  for (const Disk::Key& item : disk.disk->offload) {
    const u32 index = table.find(item.tenant, item.key, table.hashOf(item.tenant, item.key));
    if (index != 0) table[index].flags &= static_cast<u8>(~(flag::queued | flag::leaving));
  }
  disk.disk->offload.clear();
  disk.disk->promote.clear();
}

void Holders::dropSegment(Segment& segment) {
  journal.segmentGone(segment.number);
  if (segment.onDisk()) {
    forgetOrders(segment);
  } else {
    space.usageOf(segment.tier).used -= segment.allocator.used();
    space.usageOf(segment.tier).capacity -= segment.size;
  }
  hidden.push_back(segment.number);
  cluster.hide(segment);
}

void Holders::lose(u32 number) {
  const std::vector<u32> segments = cluster.client(number).segments;
  for (const u32 each : segments) dropSegment(*cluster.segment(each));
  Client& client = cluster.client(number);
  if (client.known || !segments.empty()) {
    ++counters.clientsLost;
    if (common.onClient) common.onClient(number, "lost");
  }
  client.known = false;
  client.silent = true;
  client.holdings.reset();
  // Objects may still name it as their writer, so its number must not be reused.
  if (client.objects > 0) return;
  journal.clientGone(number);
  cluster.dropClient(number);
}

void Holders::markSilent(u32 number) {
  Client& client = cluster.client(number);
  client.silent = true;
  for (const u32 each : client.segments) cluster.segment(each)->silent = true;
  cluster.refresh();
  if (common.onClient) common.onClient(number, "silent");
}

i32 Holders::endRestore(const Uuid& id) {
  const u32 number = cluster.findClient(id);
  if (number == 0) return code::clientNotFound;
  for (const u32 each : cluster.client(number).segments) cluster.segment(each)->restoring = false;
  cluster.refresh();
  bool any = false;
  for (u32 each = 1; each < cluster.segmentEnd(); ++each) any = any || (cluster.segment(each) != nullptr && cluster.segment(each)->restoring);
  if (!any) objects.restored.clear();
  return code::ok;
}

void Holders::watch() {
  constexpr u64 everyMs = 200;
  if (nowMs() < watchAtMs_) return;
  watchAtMs_ = nowMs() + everyMs;
  for (u32 number = 1; number < cluster.clientEnd(); ++number) {
    Client& client = cluster.client(number);
    if (!client.used) continue;
    const u64 silence = nowMs() - std::min(nowMs(), client.seenMs);
    if (silence > settings.clientTtlMs) {
      if (client.known || !client.segments.empty() || client.objects == 0) lose(number);
    } else if (silence > settings.suspectMs && client.known && !client.silent) {
      markSilent(number);
    }
  }
  for (u32 number = 1; number < cluster.segmentEnd(); ++number) {
    Segment* segment = cluster.segment(number);
    if (segment == nullptr || segment->gone) continue;
    if (segment->unmountAtMs != 0 && nowMs() >= segment->unmountAtMs) dropSegment(*segment);
    else if (segment->restoring && nowMs() >= segment->restoringUntilMs) endRestore(cluster.client(segment->client).id);
  }
}

}  // namespace svc
