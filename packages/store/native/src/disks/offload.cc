// From memory to a disk: which objects wait for one, what its owner is ordered to store, and when their memory is freed.
#include <algorithm>

#include "disks/disks.h"

namespace svc {

Segment* Disks::diskFor(u32 index, bool evicting) {
  Segment* found = nullptr;
  const Object& object = table[index];
  const auto takes = [&](const Segment& segment) {
    const Disk& disk = *segment.disk;
    if (!segment.readable() || !disk.enabled || object.size > disk.capacity) return false;
    if (!segment.cold()) return settings.offload && settings.offloadOnEvict == evicting;
    // A cold device never evicts, so an object that does not fit is evicted as if the device did not exist.
    const bool asked = evicting ? disk.fills != Disk::Fills::asked : disk.fills == Disk::Fills::stored;
    return asked && disk.fits(object.size) && (disk.tenant.empty() || tenants[object.tenant].name == disk.tenant);
  };
  table.eachReplica(index, [&](const Replica& replica) {
    const Segment* memory = cluster.segment(replica.segment);
    if (found != nullptr || !where.readable(replica) || !memory->inMemory()) return;
    for (const u32 each : cluster.client(memory->client).segments) {
      Segment* segment = cluster.segment(each);
      if (segment->onDisk() && takes(*segment) && (found == nullptr || found->cold())) found = segment;
    }
  });
  return found;
}

void Disks::queue(u32 index, bool evicting) {
  if ((table[index].flags & (flag::queued | flag::unfinished)) || where.anyOwned(index)) return;
  Segment* disk = diskFor(index, evicting);
  if (disk == nullptr) return;
  if (disk->disk->offload.size() >= settings.offloadQueue) {
    // The scan for objects that are on no disk finds it later.
    ++counters.offloadsSkipped;
    disk->disk->cursor = std::min(disk->disk->cursor, index);
    return;
  }
  table[index].flags |= flag::queued;
  disk->disk->offload.push_back({table[index].tenant, std::string(table.keyOf(index))});
}

Disks::Fate Disks::leave(u32 index, u32& queued) {
  if (!offloads() || where.anyElse(index, Tier::memory) || diskFor(index, true) == nullptr) return Fate::evicted;
  const bool waits = (table[index].flags & flag::queued) != 0;
  const auto most = static_cast<u32>(settings.offloadCapRatio * settings.offloadQueue);
  if (waits || queued < most) {
    if (!waits) {
      queue(index, true);
      ++queued;
    }
    if (table[index].flags & flag::queued) {
      table[index].flags |= flag::leaving;
      return Fate::leaving;
    }
  }
  return settings.offloadForceEvict ? Fate::evicted : Fate::kept;
}

std::vector<Disk::Offload> Disks::takeOffloads(Segment& disk, u32 most) {
  std::vector<Disk::Offload> out;
  auto& queue = disk.disk->offload;
  while (!queue.empty() && out.size() < most) {
    const Disk::Key item = std::move(queue.front());
    queue.pop_front();
    const u32 index = objects.find(item.tenant, item.key);
    if (index == 0) continue;
    Object& object = table[index];
    object.flags &= static_cast<u8>(~flag::queued);
    if ((object.flags & flag::unfinished) || (disk.cold() ? where.anyCold(index) : where.anyOwned(index)) || (object.extra != 0 && table.extras[object.extra].task != TaskKind::none)) continue;
    u64 address = 0;
    bool found = false;
    table.eachReplica(index, [&](const Replica& replica) {
      const Segment* memory = cluster.segment(replica.segment);
      if (found || !where.readable(replica) || !memory->inMemory() || memory->client != disk.client) return;
      found = true;
      address = memory->base + memory->allocator.offsetOf(replica.node);
    });
    if (!found) continue;
    lastOffload_ = lastOffload_ >= unknownTask - 1 ? 1 : lastOffload_ + 1;
    objects.beginTask(index, TaskKind::offload, disk.client, lastOffload_);
    out.push_back({index, lastOffload_, address});
  }
  return out;
}

bool Disks::endOffload(Segment& disk, u32 index, u32 task) {
  if (table[index].extra == 0) return false;
  const Extra& extra = table.extras[table[index].extra];
  if (extra.task != TaskKind::offload || extra.taskClient != disk.client || extra.taskSource != task) return false;
  objects.cancelOffload(index);
  return true;
}

i32 Disks::failOffload(Segment& disk, u16 tenant, std::string_view key, u32 task) {
  const u32 index = objects.find(tenant, key);
  if (index == 0 || !endOffload(disk, index, task)) return code::noTask;
  ++counters.offloadsFailed;
  // Eviction does not wait for this disk again, unless the disk accepts objects the next time.
  table[index].flags &= static_cast<u8>(~flag::leaving);
  return code::ok;
}

void Disks::tend(u32 budget) {
  for (u32 number = 1; number < cluster.segmentEnd(); ++number) {
    Segment* segment = cluster.segment(number);
    if (segment == nullptr || !segment->onDisk() || !segment->readable() || !segment->disk->enabled) continue;
    Disk& disk = *segment->disk;
    if (segment->cold() ? disk.fills != Disk::Fills::stored : !settings.offload || settings.offloadOnEvict) continue;
    for (u32 left = budget; left > 0 && disk.cursor < table.end() && disk.offload.size() < settings.offloadQueue / 2; --left) {
      const u32 index = disk.cursor++;
      if (table.live(index) && diskFor(index, false) == segment) queue(index, false);
    }
  }
}

}  // namespace svc
