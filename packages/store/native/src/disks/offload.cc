// From memory to a client's disk: which objects wait for it, what its owner is ordered to store, and when their memory is freed.
#include <algorithm>

#include "store.h"

namespace svc {

//  put, or about to be evicted ──> queued ──handed out──> offload task ──stored──> a file next to the memory, or instead of it
//                                     └──gone, changed──> (nothing)   └──a writer, a failure, a timeout──> as before

bool Store::busy(const Object& object) const {
  const TaskKind task = object.extra == 0 ? TaskKind::none : table.extras[object.extra].task;
  return task != TaskKind::none && task != TaskKind::offload;
}

Segment* Store::diskFor(u32 index, bool evicting) {
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
  eachReplica(index, [&](const Replica& replica) {
    const Segment* memory = cluster.segment(replica.segment);
    if (found != nullptr || !readable(replica) || !memory->inMemory()) return;
    for (const u32 each : cluster.client(memory->client).segments) {
      Segment* segment = cluster.segment(each);
      if (segment->onDisk() && takes(*segment) && (found == nullptr || found->cold())) found = segment;
    }
  });
  return found;
}

void Store::queueOffload(u32 index, bool evicting) {
  if ((table[index].flags & (flag::queued | flag::unfinished)) || anyOwned(index)) return;
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

bool Store::leaveToDisk(u32 index) {
  if (!offloads() || anyElse(index, Tier::memory) || diskFor(index, true) == nullptr) return false;
  const bool waits = (table[index].flags & flag::queued) != 0;
  const auto most = static_cast<u32>(settings.offloadCapRatio * settings.offloadQueue);
  if (waits || evictQueued_ < most) {
    if (!waits) {
      queueOffload(index, true);
      ++evictQueued_;
    }
    if (table[index].flags & flag::queued) {
      table[index].flags |= flag::leaving;
      // Its memory is freed a little later.
      evicted_ += table[index].size;
      return true;
    }
  }
  return !settings.offloadForceEvict;
}

std::vector<Disk::Offload> Store::takeOffloads(Segment& disk, u32 most) {
  std::vector<Disk::Offload> out;
  auto& queue = disk.disk->offload;
  while (!queue.empty() && out.size() < most) {
    const Disk::Key item = std::move(queue.front());
    queue.pop_front();
    const u32 index = find(item.tenant, item.key);
    if (index == 0) continue;
    Object& object = table[index];
    object.flags &= static_cast<u8>(~flag::queued);
    if ((object.flags & flag::unfinished) || (disk.cold() ? anyCold(index) : anyOwned(index)) || (object.extra != 0 && table.extras[object.extra].task != TaskKind::none)) continue;
    u64 address = 0;
    bool found = false;
    eachReplica(index, [&](const Replica& replica) {
      const Segment* memory = cluster.segment(replica.segment);
      if (found || !readable(replica) || !memory->inMemory() || memory->client != disk.client) return;
      found = true;
      address = memory->base + memory->allocator.offsetOf(replica.node);
    });
    if (!found) continue;
    Extra& extra = extraOf(index);
    extra.task = TaskKind::offload;
    extra.taskClient = disk.client;
    lastOffload_ = lastOffload_ >= unknownTask - 1 ? 1 : lastOffload_ + 1;
    extra.taskSource = lastOffload_;
    extra.taskStarted = tick();
    ++cluster.client(disk.client).objects;
    out.push_back({index, lastOffload_, address});
  }
  return out;
}

bool Store::endOffload(Segment& disk, u32 index, u32 task) {
  if (table[index].extra == 0) return false;
  Extra& extra = table.extras[table[index].extra];
  if (extra.task != TaskKind::offload || extra.taskClient != disk.client || extra.taskSource != task) return false;
  cancelOffload(index);
  return true;
}

void Store::cancelOffload(u32 index) {
  if (table[index].extra == 0 || table.extras[table[index].extra].task != TaskKind::offload) return;
  Extra& extra = table.extras[table[index].extra];
  --cluster.client(extra.taskClient).objects;
  extra.task = TaskKind::none;
  extra.taskClient = extra.taskSource = 0;
}

i32 Store::failOffload(Segment& disk, u16 tenant, std::string_view key, u32 task) {
  const u32 index = find(tenant, key);
  if (index == 0 || !endOffload(disk, index, task)) return code::noTask;
  ++counters.offloadsFailed;
  // Eviction does not wait for this disk again, unless the disk accepts objects the next time.
  table[index].flags &= static_cast<u8>(~flag::leaving);
  return code::ok;
}

// Queues objects that are on no disk, since it was mounted later, its queue was full, or the master was restarted.
void Store::fillOffloads(u32 budget) {
  for (u32 number = 1; number < cluster.segmentEnd(); ++number) {
    Segment* segment = cluster.segment(number);
    if (segment == nullptr || !segment->onDisk() || !segment->readable() || !segment->disk->enabled) continue;
    Disk& disk = *segment->disk;
    if (segment->cold() ? disk.fills != Disk::Fills::stored : !settings.offload || settings.offloadOnEvict) continue;
    for (u32 left = budget; left > 0 && disk.cursor < table.end() && disk.offload.size() < settings.offloadQueue / 2; --left) {
      const u32 index = disk.cursor++;
      if (table.live(index) && diskFor(index, false) == segment) queueOffload(index, false);
    }
  }
}

void Store::forgetOrders(Segment& disk) {
  for (const Disk::Key& item : disk.disk->offload) {
    const u32 index = table.find(item.tenant, item.key, table.hashOf(item.tenant, item.key));
    if (index != 0) table[index].flags &= static_cast<u8>(~(flag::queued | flag::leaving));
  }
  disk.disk->offload.clear();
  disk.disk->promote.clear();
}

}  // namespace svc
