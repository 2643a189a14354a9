// The shared folder: which object has which file, which files are evicted when space is needed, and which are to be removed.
#include <algorithm>
#include <cstdio>

#include "store.h"

namespace svc {

//  put ──> processing ──ended by its writer──> complete ──evicted, removed, replaced──> dropped ──removed by the leader──> swept
//              └──revoked, or expired──> dropped, but not removed for `releaseMs`, in which a late writer may still create it

void Store::openFolder() {
  Segment* there = folder();
  if (there != nullptr && there->disk->folder->path != settings.folder) {
    // Its files stay, since it is unknown where that folder is mounted now.
    dropSegment(*there);
    there = nullptr;
    folder_ = 0;
  }
  if (there == nullptr && !settings.folder.empty()) {
    auto segment = std::make_unique<Segment>(nodes, u64{1});
    segment->number = cluster.nextSegment();
    segment->id = {unixMs() << 16 | (lastExtent_ & 0xffff), lastExtent_ | 1};
    segment->disk = std::make_unique<Disk>();
    segment->disk->ours = true;
    segment->disk->enabled = false;
    segment->disk->folder = std::make_unique<SharedFolder>();
    segment->disk->folder->path = settings.folder;
    folder_ = segment->number;
    there = &cluster.add(std::move(segment));
    journal.folder(*there);
  }
  if (there == nullptr) return;
  there->disk->capacity = ~u64{0};
  there->disk->folder->evicts = settings.folderEvicts;
}

bool Store::replayFolder(RecordReader& from) {
  const u32 number = from.get<u32>();
  const Uuid id = from.get<Uuid>();
  const std::string_view path = from.text();
  if (from.failed || number == 0 || number > Cluster::mostClients * 4) return false;
  Segment* there = cluster.segment(number);
  // A leader that never knew the segment that is gone reuses its number.
  if (there != nullptr && there->gone && !(there->id == id)) {
    while (tendReplayed()) continue;
    for (u32 index = 1; index < table.end(); ++index)
      if (table.live(index)) pruned(index);
    cluster.forget(number);
    there = nullptr;
  }
  if (there != nullptr) return true;
  auto segment = std::make_unique<Segment>(nodes, u64{1});
  segment->number = number;
  segment->id = id;
  segment->disk = std::make_unique<Disk>();
  segment->disk->ours = true;
  segment->disk->enabled = false;
  segment->disk->folder = std::make_unique<SharedFolder>();
  segment->disk->folder->path = path;
  folder_ = number;
  cluster.add(std::move(segment));
  return true;
}

// The folder's id keeps the names apart from those of another master that uses it, or used it before its log was lost.
std::string Store::nameOf(const Segment& folder, u64 file) const {
  char name[64];
  std::snprintf(name, sizeof name, "%016llx/%02x/%016llx", static_cast<unsigned long long>(folder.id.first), static_cast<u32>((file ^ file >> 16) & 0xff), static_cast<unsigned long long>(file));
  return name;
}

bool Store::onShared(const Replica& replica) const {
  const Segment* segment = cluster.segment(replica.segment);
  return segment != nullptr && segment->shared();
}

bool Store::anyOwned(u32 index) const {
  bool found = false;
  eachReplica(index, [&](const Replica& replica) { found = found || (onDisk(replica) && !onShared(replica)); });
  return found;
}

bool Store::writing(u32 index) const {
  bool found = false;
  eachReplica(index, [&](const Replica& replica) { found = found || (replica.status == ReplicaStatus::processing && !onShared(replica)); });
  return found;
}

Replica* Store::sharedOf(u32 index) {
  for (Replica* at = &table[index].first;; at = &table.more[at->next]) {
    if (at->status != ReplicaStatus::none && onShared(*at)) return at;
    if (at->next == 0) return nullptr;
  }
}

void Store::setFiling(Object& object, bool filing) {
  if (((object.flags & flag::filing) != 0) == filing) return;
  object.flags = static_cast<u8>(filing ? object.flags | flag::filing : object.flags & ~flag::filing);
  filing_ += filing ? 1 : u32(-1);
}

void Store::addShared(u32 index) {
  Segment* segment = folder();
  if (segment == nullptr || segment->gone) return;
  Disk& disk = *segment->disk;
  const u64 size = table[index].size;
  if (disk.dropped.size() >= Disk::mostOrders || !evictShared(*segment, size, index)) {
    ++counters.filesRefused;
    return;
  }
  // The number also grows across restarts, so that the oldest file has the least one.
  lastFile_ = std::max(lastFile_ + 1, unixMs() << 16);
  const u32 node = nodes.take();
  nodes[node].offset = lastFile_;
  addReplica(index, {segment->number, node}, ReplicaStatus::processing);
  disk.used += size;
  ++disk.files;
  setFiling(table[index], true);
}

bool Store::evictShared(Segment& segment, u64 size, u32 spared) {
  constexpr u32 mostLooked = 1'024;
  Disk& disk = *segment.disk;
  if (size > disk.capacity) return false;
  u32 left = disk.folder->evicts ? mostLooked : 0;
  for (auto at = disk.folder->objects.begin(); disk.used > disk.capacity - size && left > 0 && at != disk.folder->objects.end(); --left) {
    const u32 index = at->second;
    ++at;
    const Object& object = table[index];
    if (index == spared || (object.flags & flag::filing) || busy(object)) continue;
    // A file may be evicted if another replica exists, or if no reader may be using it.
    const bool only = !lies(index, false) && !anyOwned(index) && !anyNof(index);
    if (only && ((object.flags & flag::hardPin) || leased(object))) continue;
    ++counters.filesEvicted;
    dropShared(index, Gone::evicted);
  }
  return disk.used <= disk.capacity - size;
}

void Store::dropShared(u32 index, Gone why) {
  const bool others = dropReplicas(index, [&](const Replica& replica) { return onShared(replica); }, 0);
  setFiling(table[index], false);
  if (!others) {
    erase(index, 0, true, why);
    return;
  }
  announce(index);
  log(index);
}

i32 Store::endShared(u32 index, bool whole) {
  Replica* file = sharedOf(index);
  if (file == nullptr) return code::invalidWrite;
  if (table[index].client != 0) cluster.client(table[index].client).unfiled = 0;
  if (file->status == ReplicaStatus::complete) return whole ? code::ok : code::invalidWrite;
  if (!whole) {
    ++counters.filesFailed;
    dropShared(index, Gone::expired);
    return code::ok;
  }
  file->status = ReplicaStatus::complete;
  setFiling(table[index], false);
  ++counters.filedObjects;
  announce(index);
  log(index);
  return code::ok;
}

i32 Store::startFile(const Uuid& client, u16 tenant, std::string_view key, u64 size, u64 checksum, u64& file) {
  const u32 index = find(tenant, key);
  if (index == 0) return code::notFound;
  Object& object = table[index];
  const u32 number = cluster.findClient(client);
  if (number == 0 || object.client != number) return code::illegalClient;
  if (object.flags & flag::unfinished) return code::notReady;
  // The same client has stored other bytes under that key since.
  const Extra* extra = object.extra == 0 ? nullptr : &table.extras[object.extra];
  if (object.size != size || extra == nullptr || !extra->hasChecksum || extra->checksum != checksum) return code::exists;
  const Replica* there = sharedOf(index);
  if (there != nullptr && there->status == ReplicaStatus::complete) return code::replicaExists;
  if (there == nullptr) {
    if (busy(object)) return code::hasTask;
    addShared(index);
    there = sharedOf(index);
    if (there == nullptr) return code::noHandle;
    object.started = tick();
    log(index);
  }
  file = nodes[there->node].offset;
  return code::ok;
}

i32 Store::endFile(const Uuid& client, u16 tenant, std::string_view key, u64 file, bool whole) {
  const u32 index = find(tenant, key);
  if (index == 0) return code::notFound;
  const u32 number = cluster.findClient(client);
  if (number == 0 || table[index].client != number) return code::illegalClient;
  const Replica* there = sharedOf(index);
  if (there == nullptr || nodes[there->node].offset != file) return code::replicaNotFound;
  return endShared(index, whole);
}

i32 Store::evictFile(u16 tenant, std::string_view key) {
  const u32 index = find(tenant, key);
  if (index == 0) return code::notFound;
  const Replica* there = sharedOf(index);
  if (there == nullptr || there->status != ReplicaStatus::complete) return code::replicaNotFound;
  ++counters.filesEvicted;
  dropShared(index, Gone::evicted);
  return code::ok;
}

std::vector<u64> Store::sweepable(u32 most) const {
  std::vector<u64> out;
  const Segment* segment = folder();
  if (segment == nullptr || segment->gone) return out;
  const SharedFolder& folder = *segment->disk->folder;
  for (const u64 file : segment->disk->dropped) {
    if (out.size() >= most) break;
    const auto writer = folder.writers.find(file);
    if (writer == folder.writers.end() || writer->second <= tick()) out.push_back(file);
  }
  return out;
}

void Store::swept(const std::vector<u64>& files) {
  Segment* segment = folder();
  if (segment == nullptr || segment->gone) return;
  for (const u64 file : files) {
    if (segment->disk->dropped.erase(file) == 0) continue;
    segment->disk->folder->writers.erase(file);
    journal.fileSwept(segment->number, file);
  }
}

}  // namespace svc
