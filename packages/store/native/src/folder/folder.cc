// Assigns files in the shared folder, takes their outcome, and evicts and sweeps them.
#include "folder/folder.h"

#include <algorithm>
#include <cstdio>

namespace svc {

Segment& Folder::create(u32 number, const Uuid& id, std::string_view path) {
  auto segment = std::make_unique<Segment>(nodes, u64{1});
  segment->number = number_ = number;
  segment->id = id;
  segment->disk = std::make_unique<Disk>();
  segment->disk->ours = true;
  segment->disk->enabled = false;
  segment->disk->folder = std::make_unique<SharedFolder>();
  segment->disk->folder->path = path;
  return cluster.add(std::move(segment));
}

void Folder::open() {
  Segment* there = segment();
  if (there != nullptr && there->disk->folder->path != settings.folder) {
    // Its files stay, since it is unknown where that folder is mounted now.
    holders.dropSegment(*there);
    there = nullptr;
    number_ = 0;
  }
  if (there == nullptr && !settings.folder.empty()) {
    there = &create(cluster.nextSegment(), {unixMs() << 16 | (common.startID & 0xffff), common.startID | 1}, settings.folder);
    journal.folder(*there);
  }
  if (there == nullptr) return;
  there->disk->capacity = ~u64{0};
  there->disk->folder->evicts = settings.folderEvicts;
}

// The folder's id keeps the names apart from those of another master that uses it, or used it before its log was lost.
std::string Folder::nameOf(const Segment& folder, u64 file) const {
  char name[64];
  std::snprintf(name, sizeof name, "%016llx/%02x/%016llx", static_cast<unsigned long long>(folder.id.first), static_cast<u32>((file ^ file >> 16) & 0xff), static_cast<unsigned long long>(file));
  return name;
}

void Folder::add(u32 index) {
  Segment* segment = this->segment();
  if (segment == nullptr || segment->gone) return;
  Disk& disk = *segment->disk;
  const u64 size = table[index].size;
  if (disk.dropped.size() >= Disk::mostOrders || !evictFor(*segment, size, index)) {
    ++counters.filesRefused;
    return;
  }
  // The number also grows across restarts, so that the oldest file has the least one.
  lastFile_ = std::max(lastFile_ + 1, unixMs() << 16);
  const u32 node = nodes.take();
  nodes[node].offset = lastFile_;
  objects.addReplica(index, {segment->number, node}, ReplicaStatus::processing);
  disk.used += size;
  ++disk.files;
  objects.setFiling(table[index], true);
}

bool Folder::evictFor(Segment& segment, u64 size, u32 spared) {
  constexpr u32 mostLooked = 1'024;
  Disk& disk = *segment.disk;
  if (size > disk.capacity) return false;
  u32 left = disk.folder->evicts ? mostLooked : 0;
  for (auto at = disk.folder->objects.begin(); disk.used > disk.capacity - size && left > 0 && at != disk.folder->objects.end(); --left) {
    const u32 index = at->second;
    ++at;
    const Object& object = table[index];
    if (index == spared || (object.flags & flag::filing) || objects.busy(object)) continue;
    // A file may be evicted if another replica exists, or if no reader may be using it.
    const bool only = !where.lies(index, false) && !where.anyOwned(index) && !where.anyNof(index);
    if (only && ((object.flags & flag::hardPin) || objects.leased(object))) continue;
    ++counters.filesEvicted;
    drop(index, Gone::evicted);
  }
  return disk.used <= disk.capacity - size;
}

void Folder::drop(u32 index, Gone why) {
  objects.setFiling(table[index], false);
  objects.dropOrErase(index, [&](const Replica& replica) { return where.onShared(replica); }, 0, why);
}

i32 Folder::end(u32 index, bool whole) {
  Replica* file = where.sharedOf(index);
  if (file == nullptr) return code::invalidWrite;
  if (table[index].client != 0) cluster.client(table[index].client).unfiled = 0;
  if (file->status == ReplicaStatus::complete) return whole ? code::ok : code::invalidWrite;
  if (!whole) {
    ++counters.filesFailed;
    drop(index, Gone::expired);
    return code::ok;
  }
  file->status = ReplicaStatus::complete;
  objects.setFiling(table[index], false);
  ++counters.filedObjects;
  announcer.announce(index);
  objects.log(index);
  return code::ok;
}

i32 Folder::startFile(const Uuid& client, u16 tenant, std::string_view key, u64 size, u64 checksum, u64& file) {
  u32 index = 0;
  if (const i32 wrong = objects.findOwn(client, tenant, key, index); wrong != code::ok) return wrong;
  Object& object = table[index];
  if (object.flags & flag::unfinished) return code::notReady;
  // The same client has stored other bytes under that key since.
  const Extra* extra = object.extra == 0 ? nullptr : &table.extras[object.extra];
  if (object.size != size || extra == nullptr || !extra->hasChecksum || extra->checksum != checksum) return code::exists;
  const Replica* there = where.sharedOf(index);
  if (there != nullptr && there->status == ReplicaStatus::complete) return code::replicaExists;
  if (there == nullptr) {
    if (objects.busy(object)) return code::hasTask;
    add(index);
    there = where.sharedOf(index);
    if (there == nullptr) return code::noHandle;
    object.started = tick();
    objects.log(index);
  }
  file = nodes[there->node].offset;
  return code::ok;
}

i32 Folder::endFile(const Uuid& client, u16 tenant, std::string_view key, u64 file, bool whole) {
  u32 index = 0;
  if (const i32 wrong = objects.findOwn(client, tenant, key, index); wrong != code::ok) return wrong;
  const Replica* there = where.sharedOf(index);
  if (there == nullptr || nodes[there->node].offset != file) return code::replicaNotFound;
  return end(index, whole);
}

i32 Folder::evictFile(u16 tenant, std::string_view key) {
  const u32 index = objects.find(tenant, key);
  if (index == 0) return code::notFound;
  const Replica* there = where.sharedOf(index);
  if (there == nullptr || there->status != ReplicaStatus::complete) return code::replicaNotFound;
  ++counters.filesEvicted;
  drop(index, Gone::evicted);
  return code::ok;
}

std::vector<u64> Folder::sweepable(u32 most) const {
  std::vector<u64> out;
  const Segment* segment = this->segment();
  if (segment == nullptr || segment->gone) return out;
  const SharedFolder& folder = *segment->disk->folder;
  for (const u64 file : segment->disk->dropped) {
    if (out.size() >= most) break;
    const auto writer = folder.writers.find(file);
    if (writer == folder.writers.end() || writer->second <= tick()) out.push_back(file);
  }
  return out;
}

void Folder::swept(const std::vector<u64>& files) {
  Segment* segment = this->segment();
  if (segment == nullptr || segment->gone) return;
  for (const u64 file : files) {
    if (segment->disk->dropped.erase(file) == 0) continue;
    segment->disk->folder->writers.erase(file);
    journal.fileSwept(segment->number, file);
  }
}

}  // namespace svc
