// After the log was read: allocators around the ranges in use, leases for all, holders awaited; and the same state as a snapshot.
#include <algorithm>
#include <unordered_set>

#include "store.h"

namespace svc {

void Store::recovered() {
  std::vector<std::vector<std::pair<u32, u64>>> ranges(cluster.segmentEnd());
  replaying_ = true;
  for (u32 index = 1; index < table.end(); ++index) {
    if (!table.live(index) || pruned(index) == 0) continue;
    Object& object = table[index];
    eachReplica(index, [&](const Replica& replica) { ranges[replica.segment].push_back({replica.node, object.size}); });
    object.started = tick();
    // Readers may hold a lease that was granted just before the end.
    object.lease = tickOf(nowMs_ + settings.leaseMs) + 1;
  }
  std::vector<std::vector<std::pair<u32, u64>>> held(cluster.segmentEnd());
  for (const Range& range : replayedHeld_) {
    const Segment* segment = cluster.segment(range.segment);
    if (segment == nullptr || segment->gone) nodes.give(range.node);
    else held[range.segment].push_back({range.node, range.size});
  }
  replayedHeld_.clear();
  std::vector<std::pair<u32, u32>> crossed;
  for (u32 number = 1; number < cluster.segmentEnd(); ++number) {
    Segment* segment = cluster.segment(number);
    if (segment == nullptr) continue;
    if (segment->gone) {
      cluster.forget(number);
      continue;
    }
    std::vector<std::pair<u32, u64>>& live = ranges[number];
    std::sort(live.begin(), live.end(), [&](const auto& a, const auto& b) { return nodes[a.first].offset < nodes[b.first].offset; });
    const std::size_t known = live.size();
    std::unordered_set<u32> holding;
    std::vector<std::pair<u32, u64>> kept;
    for (const auto& [node, size] : held[number]) {
      // Where an object lies now, the time to hold back is over.
      const u64 from = nodes[node].offset;
      const auto end = live.begin() + static_cast<std::ptrdiff_t>(known);
      const auto after = std::upper_bound(live.begin(), end, from, [&](u64 offset, const auto& range) { return offset < nodes[range.first].offset; });
      const bool crossesAfter = after != end && nodes[after->first].offset < from + size;
      const bool crossesBefore = after != live.begin() && nodes[(after - 1)->first].offset + (after - 1)->second > from;
      if (crossesAfter || crossesBefore) {
        nodes.give(node);
        continue;
      }
      holding.insert(node);
      kept.push_back({node, size});
    }
    live.insert(live.end(), kept.begin(), kept.end());
    for (const u32 node : segment->allocator.restore(live)) {
      if (holding.erase(node) > 0) nodes.give(node);
      else crossed.push_back({number, node});
    }
    for (const u32 node : holding) held_.push_back({tickOf(nowMs_ + settings.releaseMs) + 1, number, node});
  }
  std::make_heap(held_.begin(), held_.end());
  // Two objects on the same bytes: one of them must be wrong, and nobody can say which.
  for (u32 index = 1; !crossed.empty() && index < table.end(); ++index) {
    if (!table.live(index)) continue;
    const auto lost = [&](const Replica& replica) { return std::find(crossed.begin(), crossed.end(), std::pair(replica.segment, replica.node)) != crossed.end(); };
    if (!dropReplicas(index, lost, 0)) erase(index, 0, false);
  }
  replaying_ = false;
  used_ = capacity_ = 0;
  for (u32 number = 1; number < cluster.segmentEnd(); ++number) {
    const Segment* segment = cluster.segment(number);
    if (segment == nullptr) continue;
    used_ += segment->allocator.used();
    capacity_ += segment->size;
  }
  for (u32 number = 1; number < cluster.clientEnd(); ++number) {
    Client& client = cluster.client(number);
    if (!client.used) continue;
    client.seenMs = nowMs_;
    client.known = false;
  }
  for (u32 index = 1; index < table.end(); ++index)
    if (table.live(index) && table[index].extra != 0) table.extras[table[index].extra].taskStarted = tick();
  cluster.refresh();
}

void Store::snapshotHead(Journal& to) const {
  for (u16 number = 0; number < tenants.size(); ++number) {
    to.tenant(number, tenants[number].name);
    to.quota(number, tenants[number].registered, tenants[number].quota);
  }
  for (u32 number = 1; number < cluster.clientEnd(); ++number)
    if (cluster.client(number).used) to.client(number, cluster.client(number).id);
  for (u32 number = 1; number < cluster.segmentEnd(); ++number) {
    const Segment* segment = cluster.segment(number);
    if (segment != nullptr && !segment->gone) to.segment(*segment);
  }
  for (const Held& each : held_) {
    const Segment* segment = cluster.segment(each.segment);
    if (segment != nullptr && !segment->gone) to.held(each.segment, segment->allocator.offsetOf(each.node), segment->allocator.sizeOf(each.node));
  }
}

u32 Store::snapshotSome(Journal& to, u32 cursor, u32 records) const {
  for (; cursor < table.end() && records > 0; ++cursor, --records) {
    if (!table.live(cursor)) continue;
    to.object(table, cursor, groupName(table[cursor]), cluster);
  }
  return cursor < table.end() ? cursor : 0;
}

}  // namespace svc
