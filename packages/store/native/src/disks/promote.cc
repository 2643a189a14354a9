// From a disk back to memory: objects that are read often and are not in memory.
#include "disks/disks.h"

namespace svc {

void Disks::hit(u32 index) {
  if (!settings.promoteOnHit || where.inMemory(index)) return;
  const u64 hash = table.hashOf(table[index].tenant, table.keyOf(index));
  if (hits_.add(hash) < settings.promoteThreshold) return;
  Segment* disk = nullptr;
  table.eachReplica(index, [&](const Replica& replica) {
    if (disk == nullptr && where.readable(replica) && where.onDisk(replica) && !where.onShared(replica)) disk = cluster.segment(replica.segment);
  });
  if (disk == nullptr || (table[index].flags & flag::queued) || disk->disk->promote.size() >= settings.promoteQueue) return;
  table[index].flags |= flag::queued;
  disk->disk->promote.push_back({table[index].tenant, std::string(table.keyOf(index))});
}

std::vector<u32> Disks::takePromotions(Segment& disk, u32 most) {
  std::vector<u32> out;
  auto& queue = disk.disk->promote;
  while (!queue.empty() && out.size() < most) {
    const Disk::Key item = std::move(queue.front());
    queue.pop_front();
    const u32 index = objects.find(item.tenant, item.key);
    if (index == 0) continue;
    table[index].flags &= static_cast<u8>(~flag::queued);
    if (!where.inMemory(index) && where.fileOn(index, disk) != nullptr) out.push_back(index);
  }
  return out;
}

}  // namespace svc
