// Writes one record of each kind.
#include "log/journal.h"

namespace svc {

void Journal::begin(Record kind) {
  ++count;
  ++nextLsn;
  put(static_cast<u8>(kind));
}

void Journal::client(u32 number, const Uuid& id) {
  begin(Record::client);
  put(number);
  put(id);
}

void Journal::clientGone(u32 number) {
  begin(Record::clientGone);
  put(number);
}

void Journal::segment(const Segment& segment) {
  begin(Record::segment);
  put(segment.number);
  put(segment.client);
  put(segment.id);
  put(segment.base);
  put(segment.size);
  put(static_cast<i32>(segment.state));
  put(segment.unmountAtMs == 0 ? u64{0} : epochMs + segment.unmountAtMs);
  text(segment.name);
  text(segment.endpoint);
  text(segment.protocol);
  text(segment.hostID);
}

void Journal::disk(const Segment& segment) {
  begin(Record::disk);
  put(segment.number);
  put(segment.client);
  put(segment.id);
  put(segment.disk->label);
  put(static_cast<u8>(segment.disk->ours));
  put(segment.disk->capacity);
  text(segment.endpoint);
}

void Journal::folder(const Segment& segment) {
  begin(Record::folder);
  put(segment.number);
  put(segment.id);
  text(segment.disk->folder->path);
}

void Journal::fileGone(u32 disk, u64 file) {
  begin(Record::fileGone);
  put(disk);
  put(file);
}

void Journal::fileSwept(u32 disk, u64 file) {
  begin(Record::fileSwept);
  put(disk);
  put(file);
}

void Journal::segmentGone(u32 number) {
  begin(Record::segmentGone);
  put(number);
}

void Journal::pins(const Extra* extra, u8 what) {
  put(what);
  if (what & has::checksum) put(extra->checksum);
  if (what & has::softPinUntil) put(epochMs + u64{extra->softPinUntil} * tickMs);
  if (what & has::softPinMs) put(extra->softPinMs);
}

void Journal::object(const Table& table, u32 index, std::string_view group, std::string_view fingerprint, const Cluster& cluster) {
  const Object& object = table[index];
  const Extra* extra = object.extra == 0 ? nullptr : &table.extras[object.extra];
  begin(Record::object);
  put(object.tenant);
  text(table.keyOf(index));
  put(object.size);
  put(object.client);
  put(static_cast<u8>(object.flags & flag::kept));
  put(object.dataType);
  const bool hasTask = extra != nullptr && extra->task != TaskKind::none && extra->task != TaskKind::offload;
  u8 what = 0;
  if (extra != nullptr) {
    what = static_cast<u8>((extra->hasChecksum ? has::checksum : 0) | (extra->softPinUntil != 0 ? has::softPinUntil : 0) |
                           (extra->softPinMs != 0 ? has::softPinMs : 0) | (extra->group != 0 ? has::group : 0) |
                           (hasTask ? has::task : 0) | (extra->fingerprint != 0 ? has::fingerprint : 0));
  }
  pins(extra, what);
  if (what & has::group) text(group);
  if (what & has::fingerprint) text(fingerprint);
  if (what & has::task) {
    put(static_cast<u8>(extra->task));
    put(extra->taskClient);
  }
  u8 replicas = 0;
  for (const Replica* each = &object.first;; each = &table.more[each->next]) {
    if (each->status != ReplicaStatus::none) ++replicas;
    if (each->next == 0) break;
  }
  put(replicas);
  for (const Replica* each = &object.first;; each = &table.more[each->next]) {
    if (each->status != ReplicaStatus::none) {
      const Segment* segment = cluster.segment(each->segment);
      put(each->segment);
      put(segment == nullptr ? u64{0} : segment->allocator.offsetOf(each->node));
      const bool source = hasTask && extra->taskSource == each->node;
      put(static_cast<u8>(static_cast<u8>(each->status) | (source ? 0x80 : 0)));
    }
    if (each->next == 0) break;
  }
}

void Journal::complete(const Table& table, u32 index) {
  const Object& object = table[index];
  const Extra* extra = object.extra == 0 ? nullptr : &table.extras[object.extra];
  begin(Record::complete);
  put(object.tenant);
  text(table.keyOf(index));
  pins(extra, extra == nullptr ? u8{0} : static_cast<u8>((extra->hasChecksum ? has::checksum : 0) | (extra->softPinUntil != 0 ? has::softPinUntil : 0)));
}

void Journal::erased(u16 tenant, std::string_view key, Gone why, u64 unixMs) {
  begin(why == Gone::unknown ? Record::erased : Record::erasedWhy);
  put(tenant);
  text(key);
  if (why == Gone::unknown) return;
  put(static_cast<u8>(why));
  put(unixMs);
}

void Journal::cooling(u32 segment, u64 offset, u64 size, bool forReaders) {
  if (forReaders) cooling(segment, offset, 0);
  begin(Record::cooling);
  put(segment);
  put(offset);
  put(size);
}

void Journal::freed(u32 segment, u64 offset) {
  begin(Record::freed);
  put(segment);
  put(offset);
}

void Journal::tenant(u16 number, std::string_view name) {
  begin(Record::tenant);
  put(number);
  text(name);
}

void Journal::quota(u16 number, bool registered, u64 bytes) {
  begin(Record::quota);
  put(number);
  put(static_cast<u8>(registered));
  put(bytes);
}

void Journal::published(u64 next) {
  begin(Record::published);
  put(next);
}

void Journal::publishedID(u16 tenant, u8 medium, u64 next) {
  begin(Record::publishedID);
  put(tenant);
  put(medium);
  put(next);
}

void Journal::segmentSwept(u32 number) {
  begin(Record::segmentSwept);
  put(number);
}

void Journal::note(u8 kind, const Uuid& id, std::string_view text) {
  begin(Record::note);
  put(kind);
  put(id);
  put(static_cast<u32>(text.size()));
  pending.append(text);
}

void Journal::noteGone(const Uuid& id) {
  begin(Record::noteGone);
  put(id);
}

void Journal::lineage(u64 lineage) {
  begin(Record::lineage);
  put(lineage);
}

void Journal::recent(u64 hash, Gone why, u64 unixMs) {
  begin(Record::recent);
  put(hash);
  put(static_cast<u8>(why));
  put(unixMs);
}

void Journal::end(u64 objects) {
  begin(Record::end);
  put(objects);
}

}  // namespace svc
