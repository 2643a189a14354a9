// Records what clients have in their memory: changes for subscribers, and objects that are restored after the master lost its state.
#pragma once
#include "holders/holders.h"
#include "holders/holdings.h"

namespace svc {

//  lineage   a new log gets a new one; standbys and snapshots keep that of their log; a damaged log that lost objects gets a new one
//  holder    remembers the lineage, and as of which record it had each object. It restores what no newer key, removal or range contradicts.

// Owns the lineage, which identifies one log and its copies. The server's lock guards it.
class Restores : Part {
 public:
  Restores(Common& common, const Locations& where, Groups& groups, Tenants& tenants, Space& space, Announcer& announcer, Objects& objects, Holders& holders)
      : Part(common), where(where), groups(groups), tenants(tenants), space(space), announcer(announcer), objects(objects), holders(holders) {}

  u64 lineage() const { return lineage_; }
  void setLineage(u64 lineage) { lineage_ = lineage; }
  void nameLineage();
  i32 takeChanges(const Uuid& client, bool fromStart, u32 most, Changes& out);
  // Returns whether another log than this one recorded a holder's objects.
  bool wants(u64 lineage) const { return lineage != 0 && lineage != lineage_; }
  // Mounts a holder's segments. If it remembers another lineage (`wanted`), its memory is kept free until it has reported its objects.
  i32 begin(const Uuid& client, u64 lineage, std::span<const SegmentSpec> specs, bool& wanted);
  i32 restore(const Uuid& client, const Restored& object);

 private:
  const Locations& where;
  Groups& groups;
  Tenants& tenants;
  Space& space;
  Announcer& announcer;
  Objects& objects;
  Holders& holders;
  u64 lineage_ = 0;
};

}  // namespace svc
