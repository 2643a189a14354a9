// The end of a replay: allocators are rebuilt around the ranges in use, objects get leases, holders are awaited. And the state as a snapshot.
#include <algorithm>
#include <unordered_set>

#include "log/replay.h"

namespace svc {

void Replay::end(bool takenOver) {
  std::vector<std::vector<std::pair<u32, u64>>> ranges(cluster.segmentEnd());
  common.replaying = true;
  swept_.clear();
  forgetting_.clear();
  cursor_ = 1;
  // With offload disabled, no owner would mount its disks again.
  for (u32 number = 1; number < cluster.segmentEnd() && !settings.offload; ++number)
    if (Segment* segment = cluster.segment(number); segment != nullptr && segment->onDisk() && !segment->cold() && !segment->shared() && !segment->gone) cluster.hide(*segment);
  for (u32 number = 1; number < cluster.segmentEnd() && !settings.nof; ++number)
    if (Segment* segment = cluster.segment(number); segment != nullptr && segment->nof() && !segment->gone) cluster.hide(*segment);
  announcer.settle();
  for (u32 index = 1; index < table.end(); ++index) {
    if (!table.live(index) || objects.pruned(index) == 0) continue;
    Object& object = table[index];
    table.eachReplica(index, [&](const Replica& replica) {
      Segment& segment = *cluster.segment(replica.segment);
      if (!segment.onDisk()) return ranges[replica.segment].push_back({replica.node, segment.rangeBytes(object.size)});
      segment.disk->used += object.size;
      ++segment.disk->files;
    });
    object.started = tick();
    // Readers may have a lease that was granted just before the restart.
    object.leaseUntil(nowMs() + settings.leaseMs);
  }
  std::vector<std::vector<std::pair<u32, u64>>> cooling(cluster.segmentEnd());
  std::unordered_set<u32> forReaders;
  for (const auto& [at, range] : cooling_) {
    const Segment* segment = cluster.segment(at.first);
    if (segment == nullptr || segment->gone) continue;
    const u32 node = nodes.take();
    nodes[node].offset = at.second;
    cooling[at.first].push_back({node, segment->rangeBytes(range.size)});
    if (range.forReaders) forReaders.insert(node);
  }
  cooling_.clear();
  std::vector<std::pair<u32, u32>> crossed;
  for (u32 number = 1; number < cluster.segmentEnd(); ++number) {
    Segment* segment = cluster.segment(number);
    if (segment == nullptr) continue;
    if (segment->gone) {
      cluster.forget(number);
      continue;
    }
    if (segment->onDisk()) continue;
    std::vector<std::pair<u32, u64>>& live = ranges[number];
    std::sort(live.begin(), live.end(), [&](const auto& a, const auto& b) { return nodes[a.first].offset < nodes[b.first].offset; });
    const std::size_t known = live.size();
    std::unordered_set<u32> holding;
    std::vector<std::pair<u32, u64>> kept;
    for (const auto& [node, size] : cooling[number]) {
      // A range where an object lies now does not cool down any more.
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
    for (const u32 node : holding) {
      const bool readers = forReaders.contains(node);
      space.cool(number, node, readers ? settings.leaseMs : settings.releaseMs, readers);
    }
  }
  // Two objects overlap, so one of them must be wrong, and it is unknown which.
  for (u32 index = 1; !crossed.empty() && index < table.end(); ++index) {
    if (!table.live(index)) continue;
    const auto lost = [&](const Replica& replica) { return std::find(crossed.begin(), crossed.end(), std::pair(replica.segment, replica.node)) != crossed.end(); };
    if (!objects.dropReplicas(index, lost, 0)) objects.erase(index, 0, false);
  }
  common.replaying = false;
  for (u32 number = 1; number < cluster.segmentEnd() && takenOver; ++number)
    if (Segment* segment = cluster.segment(number); segment != nullptr) segment->awaiting = false;
  space.recount();
  for (u32 number = 1; number < cluster.clientEnd(); ++number) {
    Client& client = cluster.client(number);
    if (!client.used) continue;
    // After a takeover holders are where they were; Mooncake's clients look for the next leader for as long as a client_ttl.
    client.seenMs = takenOver ? nowMs() + settings.clientTtlMs : nowMs();
    client.known = takenOver && !client.segments.empty();
  }
  for (u32 index = 1; index < table.end(); ++index)
    if (table.live(index) && table[index].extra != 0) table.extras[table[index].extra].taskStarted = tick();
  cluster.refresh();
}

void Replay::snapshotHead(Journal& to) const {
  for (u16 number = 0; number < tenants.size(); ++number) {
    to.tenant(number, tenants[number].name);
    to.quota(number, tenants[number].registered, tenants[number].quota);
  }
  common.events.record(to);
  if (restores.lineage() != 0) to.lineage(restores.lineage());
  objects.recent.each([&](u64 hash, Gone why, u64 at) { to.recent(hash, why, at); });
  for (const auto& [id, each] : notes.all()) to.note(each.kind, id, each.text);
  for (u32 number = 1; number < cluster.clientEnd(); ++number)
    if (cluster.client(number).used) to.client(number, cluster.client(number).id);
  for (u32 number = 1; number < cluster.segmentEnd(); ++number) {
    const Segment* segment = cluster.segment(number);
    if (segment == nullptr || segment->gone) continue;
    if (!segment->onDisk()) {
      to.segment(*segment);
      continue;
    }
    if (segment->shared()) to.folder(*segment);
    else to.disk(*segment);
    for (const u64 file : segment->disk->dropped) to.fileGone(number, file);
  }
  const auto hold = [&](u32 number, u32 node, bool forReaders = false) {
    const Segment* segment = cluster.segment(number);
    if (segment != nullptr && !segment->gone) to.cooling(number, segment->allocator.offsetOf(node), segment->allocator.sizeOf(node), forReaders);
  };
  for (const Cooling& each : space.cooling()) hold(each.segment, each.node, each.forReaders);
  // A standby's ranges are not in its allocators yet.
  for (const auto& [at, range] : cooling_) to.cooling(at.first, at.second, range.size, range.forReaders);
  for (const auto& [id, extent] : extents.all())
    for (const Placed& range : extent.ranges) hold(range.segment, range.node);
}

u32 Replay::snapshotSome(Journal& to, u32 cursor, u32 records) const {
  for (; cursor < table.end() && records > 0; ++cursor, --records) {
    if (!table.live(cursor)) continue;
    to.object(table, cursor, groups.nameOf(table[cursor]), objects.fingerprintOf(table[cursor]), cluster);
  }
  return cursor < table.end() ? cursor : 0;
}

}  // namespace svc
