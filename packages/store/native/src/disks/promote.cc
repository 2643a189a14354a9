// From a client's disk back to memory: objects that are read often and are not in memory.
#include "store.h"

namespace svc {

void Store::hit(u32 index) {
  if (!settings.promoteOnHit || inMemory(index)) return;
  const u64 hash = table.hashOf(table[index].tenant, table.keyOf(index));
  if (hits_.add(hash) < settings.promoteThreshold) return;
  Segment* disk = nullptr;
  eachReplica(index, [&](const Replica& replica) {
    if (disk == nullptr && readable(replica) && onDisk(replica) && !onShared(replica)) disk = cluster.segment(replica.segment);
  });
  if (disk == nullptr || (table[index].flags & flag::queued) || disk->disk->promote.size() >= settings.promoteQueue) return;
  table[index].flags |= flag::queued;
  disk->disk->promote.push_back({table[index].tenant, std::string(table.keyOf(index))});
}

std::vector<u32> Store::takePromotions(Segment& disk, u32 most) {
  std::vector<u32> out;
  auto& queue = disk.disk->promote;
  while (!queue.empty() && out.size() < most) {
    const Disk::Key item = std::move(queue.front());
    queue.pop_front();
    const u32 index = find(item.tenant, item.key);
    if (index == 0) continue;
    table[index].flags &= static_cast<u8>(~flag::queued);
    if (!inMemory(index) && fileOn(index, disk) != nullptr) out.push_back(index);
  }
  return out;
}

i32 Store::promoteStart(const Uuid& client, u16 tenant, std::string_view key, u64 size, std::span<const std::string_view> preferred, u32& index) {
  const u32 number = cluster.findClient(client);
  if (number == 0) return code::clientNotFound;
  index = find(tenant, key);
  if (index == 0 || table[index].size != size) return code::notFound;
  if (inMemory(index)) return code::replicaExists;
  if (table[index].flags & flag::filing) return code::notReady;
  bool own = false;
  eachReplica(index, [&](const Replica& replica) { own = own || (readable(replica) && cluster.segment(replica.segment)->client == number); });
  if (!own) return code::replicaNotFound;
  if (table[index].extra != 0 && table.extras[table[index].extra].task != TaskKind::none) return code::hasTask;
  if (const i32 wrong = overQuota(tenant, size, {}, index); wrong != code::ok) return wrong;
  PutPolicy policy;
  policy.preferred.assign(preferred.begin(), preferred.end());
  Placed placed[1];
  // A promotion that finds no space must not cause an eviction.
  const bool hadSpace = !usage_[0].noSpace;
  if (place(size, 1, policy, Tier::memory, placed) == 0) {
    if (hadSpace) usage_[0].noSpace = false;
    return code::noHandle;
  }
  addReplica(index, placed[0], ReplicaStatus::processing);
  Extra& extra = extraOf(index);
  extra.task = TaskKind::promote;
  extra.taskClient = number;
  extra.taskSource = 0;
  extra.taskStarted = tick();
  extra.taskTargets = 1;
  ++cluster.client(number).objects;
  log(index);
  return code::ok;
}

}  // namespace svc
