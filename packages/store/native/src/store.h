// The master's rules: objects, their replicas and leases, the clients that hold memory, and everything that happens to them.
#pragma once
#include "log/replay.h"
#include "objects/copies.h"

namespace svc {

//  what all share   common.h: settings, clock, table, cluster, journal, events, counters
//  locations, groups, space, tenants  <  announcer  <  objects  <  holders  <  disks, folder  <  eviction  <  puts, extents, copies
//  Each part knows those before it. The server's lock guards all of them.
class Store : public Common {
 public:
  Store(const Settings& settings, u64 seed) : Common(settings, seed) {}
  Store(const Store&) = delete;

  // Runs a slice of background work; true while there is more to do at once.
  bool tend(u32 budget) {
    constexpr u32 most = 512;
    holders.watch();
    space.tend(most);
    extents.tend(most);
    if (disks.offloads()) disks.tend(most);
    return eviction.tend(budget);
  }

  Locations where{*this};
  Groups groups{*this};
  Space space{*this};
  Tenants tenants{*this, space};
  Announcer announcer{*this, where, groups, tenants};
  Objects objects{*this, where, groups, tenants, space, announcer};
  Holders holders{*this, objects, space};
  Restores restores{*this, where, groups, tenants, space, announcer, objects, holders};
  Disks disks{*this, where, groups, tenants, announcer, objects, holders};
  Folder folder{*this, where, announcer, objects, holders};
  Eviction eviction{*this, where, groups, tenants, space, objects, holders, disks, folder};
  Puts puts{*this, where, groups, space, announcer, objects, disks, folder, eviction};
  Extents extents{*this, groups, space, announcer, objects, disks, eviction, puts};
  Copies copies{*this, where, space, announcer, objects, holders, disks, eviction};
  Notes notes{*this};
  Replay replay{*this, where, groups, tenants, space, announcer, objects, restores, disks, folder, extents, notes};
};

}  // namespace svc
