// Applies the records of the log and of snapshots to the store's parts, and writes their state as a snapshot.
#pragma once
#include "holders/restores.h"
#include "log/notes.h"
#include "objects/extents.h"

namespace svc {

// Owns what records say and the parts need only afterwards: cooling ranges, and segments without objects. The thread that recovers owns it until
// recovery has ended; then the server's lock guards it.
class Replay : Part {
 public:
  Replay(Common& common, Locations& where, Groups& groups, Tenants& tenants, Space& space, Announcer& announcer, Objects& objects, Restores& restores,
         Disks& disks, Folder& folder, Extents& extents, Notes& notes)
      : Part(common), where(where), groups(groups), tenants(tenants), space(space), announcer(announcer), objects(objects), restores(restores),
        disks(disks), folder(folder), extents(extents), notes(notes) {}

  // Applies a record; false if it is malformed.
  bool apply(RecordReader& from);
  // Between replicated records: drops objects whose only replicas were on lost clients, as the leader did. True while there is more.
  bool tend();
  void forgetObjects();
  // Ends a replay: rebuilds the allocators, and gives every holder a client_ttl to come back. `takenOver`: the records came from a leader
  // until just now, so holders still have their memory.
  void end(bool takenOver = false);
  // Writes the head of a snapshot, then its objects from a cursor on; returns the next cursor, 0 at the end.
  void snapshotHead(Journal& to) const;
  u32 snapshotSome(Journal& to, u32 cursor, u32 records = 2'000) const;

 private:
  bool applySegment(RecordReader& from);
  bool applyFolder(RecordReader& from);
  bool applyFile(RecordReader& from, bool swept);
  void applyObject(RecordReader& from);
  bool applyErased(RecordReader& from, bool says);
  void applyPins(RecordReader& from, u32 index, u8 what);
  // A leader that never knew a segment that is gone reuses its number.
  void makeWay(u32 segment, const Uuid& id);

  Locations& where;
  Groups& groups;
  Tenants& tenants;
  Space& space;
  Announcer& announcer;
  Objects& objects;
  Restores& restores;
  Disks& disks;
  Folder& folder;
  Extents& extents;
  Notes& notes;
  // Ranges that cool down, by segment and offset. A record of size 0 says that only readers use the next one's range.
  std::unordered_map<std::pair<u32, u64>, CoolingRange, RangeHash> cooling_;
  std::pair<u32, u64> readers_{};
  std::vector<u32> swept_, forgetting_;
  u32 cursor_ = 1;
};

}  // namespace svc
