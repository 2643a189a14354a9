// Chooses the segments of new replicas, and keeps freed ranges unused while they cool down.
#include "objects/space.h"

#include <algorithm>

namespace svc {

namespace {
constexpr u32 mostProbes = 100, sampledPerReplica = 6;
}  // namespace

bool Space::placeIn(u32 number, u64 size, Placed* out, u32& placed) {
  Segment* segment = cluster.segment(number);
  if (segment == nullptr || !segment->allocatable()) return false;
  // Two replicas with one holder would be lost together.
  for (u32 i = 0; i < placed; ++i)
    if (cluster.segment(out[i].segment)->client == segment->client) return false;
  // This also keeps a size from wrapping around when it is rounded up.
  if (size > segment->size) return false;
  const u64 bytes = segment->rangeBytes(size);
  const u32 node = segment->allocator.take(bytes);
  if (node == 0) return false;
  usageOf(segment->tier).used += bytes;
  out[placed++] = {number, node};
  return true;
}

u32 Space::place(u64 size, u64 wanted, const PutPolicy& policy, Tier tier, Placed* out) {
  const std::vector<u32>& open = cluster.open(tier);
  const u32 count = static_cast<u32>(std::min<u64>(wanted, mostReplicas));
  const u32 segments = static_cast<u32>(open.size());
  u32 placed = 0;
  mayFit_ = false;
  if (segments == 0 || count == 0) return 0;
  // A writer that cannot reach a holder is not sent there again; other writers are.
  const auto placeIn = [&](u32 number, u64 size, Placed* out, u32& placed) {
    const Segment* segment = policy.avoided.empty() ? nullptr : cluster.segment(number);
    if (segment != nullptr && std::find(policy.avoided.begin(), policy.avoided.end(), segment->endpoint) != policy.avoided.end()) return false;
    if (this->placeIn(number, size, out, placed)) return true;
    const Segment* full = cluster.segment(number);
    mayFit_ = mayFit_ || (full != nullptr && full->allocatable() && size <= full->size);
    return false;
  };
  for (const std::string_view name : tier == Tier::nof ? policy.preferredNof : policy.preferred)
    for (const u32 number : cluster.named(name)) {
      if (placed == count) return placed;
      if (cluster.segment(number)->tier != tier) continue;
      if (placeIn(number, size, out, placed)) break;
    }
  const u32 start = static_cast<u32>(common.random() % segments);
  const auto at = [&](u32 i) { return open[(start + i) % segments]; };
  if ((policy.sameNode || settings.strategy == Strategy::localFirst) && !policy.hostID.empty())
    for (u32 i = 0; i < std::min(segments, mostProbes) && placed < count; ++i)
      if (cluster.segment(at(i))->hostID == policy.hostID) placeIn(at(i), size, out, placed);
  if (settings.strategy == Strategy::freeRatioFirst && placed < count) {
    const u32 sampled = std::min({segments, sampledPerReplica * (count - placed), mostProbes});
    std::pair<double, u32> ratios[mostProbes];
    for (u32 i = 0; i < sampled; ++i) {
      const Allocator& allocator = cluster.segment(at(i))->allocator;
      ratios[i] = {static_cast<double>(allocator.used()) / static_cast<double>(allocator.capacity()), at(i)};
    }
    std::sort(ratios, ratios + sampled);
    for (u32 i = 0; i < sampled && placed < count; ++i) placeIn(ratios[i].second, size, out, placed);
  }
  for (u32 i = 0; i < std::min(segments, mostProbes) && placed < count; ++i) placeIn(at(i), size, out, placed);
  // If all segments are avoided or smaller than the object, eviction would not help: a freed range would not be used either.
  if (placed == 0 && mayFit_) usageOf(tier).noSpace = true;
  return placed;
}

void Space::free(u32 number, u32 node) {
  Segment* segment = cluster.segment(number);
  const u64 size = segment->allocator.sizeOf(node);
  segment->allocator.give(node);
  ++counters.freedRanges;
  if (!segment->gone) usageOf(segment->tier).used -= size;
}

void Space::freeCooling(u32 number, u32 node) {
  journal.freed(number, cluster.segment(number)->allocator.offsetOf(node));
  free(number, node);
}

void Space::cool(u32 segment, u32 node, u64 forMs, bool forReaders) {
  cooling_.push_back({tickOf(nowMs() + forMs) + 1, segment, node, forReaders});
  std::push_heap(cooling_.begin(), cooling_.end());
}

void Space::tend(u32 most) {
  for (; most > 0 && !cooling_.empty() && cooling_.front().until <= tick(); --most) {
    std::pop_heap(cooling_.begin(), cooling_.end());
    const Cooling range = cooling_.back();
    cooling_.pop_back();
    if (cluster.segment(range.segment) != nullptr) freeCooling(range.segment, range.node);
  }
}

void Space::recount() {
  for (TierUsage& usage : usage_) usage.used = usage.capacity = 0;
  for (u32 number = 1; number < cluster.segmentEnd(); ++number) {
    const Segment* segment = cluster.segment(number);
    if (segment == nullptr || segment->onDisk()) continue;
    usageOf(segment->tier).used += segment->allocator.used();
    usageOf(segment->tier).capacity += segment->size;
  }
}

}  // namespace svc
