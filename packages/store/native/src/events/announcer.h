// Tells subscribers of KV events which keys became readable or are gone, and holders what their memory has.
#pragma once
#include "objects/groups.h"
#include "objects/locations.h"
#include "tenants/tenants.h"

namespace svc {

// The progress of a dump of every readable key, as batches of KV events whose numbers end right before the next one's.
struct Dump {
  u64 first = 0;
  u32 batches = 0, made = 0, end = 0;
  // Per tenant and medium: the next event's number, and the first that no longer belongs to the dump.
  std::vector<std::pair<u64, u64>> ids;
};

// Owns which objects are announced: two flags of each object, and their counts per tenant. The server's lock guards it.
class Announcer : Part {
 public:
  Announcer(Common& common, const Locations& where, const Groups& groups, Tenants& tenants)
      : Part(common), where(where), groups(groups), tenants(tenants), events(common.events) {}

  // Publishes what changed about a key: it became readable (or is so `again`), or it is gone.
  void announce(u32 index, bool again = false);
  void retract(u32 index);
  void setAnnounced(Object& object, u8 medium, bool announced);
  // Ends the silence of a replay.
  void settle();
  // Begins a dump of every readable key as batches of KV events, whose numbers end right before the next batch's or a last, empty one's.
  Dump beginDump();
  // Makes the next batch's payload; false once all were made.
  bool nextOf(Dump& dump, std::string& payload);

  bool holdersListen = false;  // some holder is notified of what its memory has
  bool forgot = false;         // objects were lost whose keys are unknown

 private:
  KvEvents::Object described(u32 index, u8 medium) const;
  void announceOn(u32 index, u8 medium, bool again);
  void notifyHolders(u32 index);

  const Locations& where;
  const Groups& groups;
  Tenants& tenants;
  KvEvents& events;
  bool quiet_ = true;  // during replay: its events were published before
};

}  // namespace svc
