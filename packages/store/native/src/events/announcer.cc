// Compares what subscribers know about a key with what is there, and makes dumps of all keys.
#include "events/announcer.h"

#include <algorithm>

namespace svc {

namespace {
constexpr u8 flagOf(u8 medium) { return medium == KvEvents::cpu ? flag::announced : flag::announcedDisk; }
}  // namespace

KvEvents::Object Announcer::described(u32 index, u8 medium) const {
  const Object& object = table[index];
  return {object.tenant, tenants[object.tenant].name, table.keyOf(index), groups.nameOf(object), medium};
}

void Announcer::setAnnounced(Object& object, u8 medium, bool announced) {
  if (setFlag(object, flagOf(medium), announced)) tenants[object.tenant].announced[medium] += announced ? 1 : ~u64{0};
}

void Announcer::announce(u32 index, bool again) {
  if (holdersListen) notifyHolders(index);
  announceOn(index, KvEvents::cpu, again);
  announceOn(index, KvEvents::disk, false);
}

void Announcer::announceOn(u32 index, u8 medium, bool again) {
  Object& object = table[index];
  const bool known = (object.flags & flagOf(medium)) != 0, there = where.lies(index, medium == KvEvents::disk);
  // An upsert in place gets no event until it ends, with readable bytes or an erased object; a file is never written in place.
  const bool inPlace = medium == KvEvents::cpu && (object.flags & flag::unfinished) != 0;
  if (!there && (!known || inPlace)) return;
  if (there && known && !again) return;
  setAnnounced(object, medium, there);
  if (!events.on() || quiet_) return;
  if (there) events.stored(described(index, medium), unixMs());
  else events.removed(described(index, medium), unixMs());
}

void Announcer::retract(u32 index) {
  Object& object = table[index];
  for (u8 medium = 0; medium < KvEvents::media; ++medium) {
    if (!(object.flags & flagOf(medium))) continue;
    setAnnounced(object, medium, false);
    if (events.on() && !quiet_) events.removed(described(index, medium), unixMs());
  }
}

void Announcer::notifyHolders(u32 index) {
  table.eachReplica(index, [&](const Replica& replica) {
    const Segment* segment = cluster.segment(replica.segment);
    if (segment == nullptr || !segment->inMemory() || replica.status != ReplicaStatus::complete) return;
    if (const auto& holdings = cluster.client(segment->client).holdings) holdings->came(index);
  });
}

// After a replay: every announced object has had a number, and events that were never published leave a gap in the numbers.
void Announcer::settle() {
  quiet_ = false;
  for (u32 index = 1; index < table.end(); ++index) {
    if (!table.live(index)) continue;
    for (u8 medium = 0; medium < KvEvents::media; ++medium) {
      const bool disk = medium == KvEvents::disk;
      if (!(table[index].flags & flagOf(medium)) || where.lies(index, disk)) continue;
      bool swept = true;
      table.eachReplica(index, [&](const Replica& replica) {
        const Segment* segment = cluster.segment(replica.segment);
        if (segment == nullptr || segment->inMemory() != disk) swept = swept && segment != nullptr && segment->swept;
      });
      // It was erased before the restart, and subscribers were notified.
      if (swept) setAnnounced(table[index], medium, false);
    }
  }
  // While nothing is published, earlier subscribers miss what happens.
  if (forgot || (!events.on() && events.next() > 0)) events.skip();
  if (!events.on()) return;
  events.atLeast((table.end() - 1 + KvEvents::perBatch - 1) / KvEvents::perBatch);
  for (u32 tenant = 0; tenant < tenants.size(); ++tenant)
    for (u8 medium = 0; medium < KvEvents::media; ++medium) {
      u64& id = events.idOf(static_cast<u16>(tenant), medium);
      id = std::max(id, tenants[tenant].announced[medium]);
    }
}

Dump Announcer::beginDump() {
  Dump dump;
  dump.end = table.end();
  const u64 wanted = (dump.end - 1 + KvEvents::perBatch - 1) / KvEvents::perBatch;
  dump.batches = static_cast<u32>(std::min(wanted, events.dumpEnd()));
  dump.first = events.dumpEnd() - dump.batches;
  for (u32 tenant = 0; tenant < tenants.size(); ++tenant)
    for (u8 medium = 0; medium < KvEvents::media; ++medium) {
      const u64 next = events.idOf(static_cast<u16>(tenant), medium);
      dump.ids.push_back({next - std::min(next, tenants[tenant].announced[medium]), next});
    }
  return dump;
}

bool Announcer::nextOf(Dump& dump, std::string& payload) {
  if (dump.made == dump.batches) return false;
  const auto from = [&](u32 batch) { return 1 + static_cast<u32>(u64{dump.end - 1} * batch / dump.batches); };
  std::string maps;
  u32 count = 0;
  for (u32 index = from(dump.made); index < from(dump.made + 1); ++index) {
    if (!table.live(index)) continue;
    for (u8 medium = 0; medium < KvEvents::media; ++medium) {
      const u32 stream = u32{table[index].tenant} * KvEvents::media + medium;
      if (!(table[index].flags & flagOf(medium)) || stream >= dump.ids.size()) continue;
      // There are more keys than when the dump began: later events get the numbers from here on, and one of them announces this key again.
      auto& [id, end] = dump.ids[stream];
      const bool numbered = id < end;
      if (!events.describe(described(index, medium), numbered ? id : KvEvents::noID, unixMs(), maps)) continue;
      id += numbered ? 1 : 0;
      ++count;
    }
  }
  payload = KvEvents::payloadOf(unixMs(), count, maps);
  ++dump.made;
  return true;
}

}  // namespace svc
