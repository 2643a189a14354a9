// The settings, the clock and the tables that all parts of the store use.
#pragma once
#include <array>
#include <functional>
#include <span>
#include <vector>

#include "base/settings.h"
#include "events/kv_events.h"
#include "objects/ranges.h"

namespace svc {

struct Counters {
  u64 evictedObjects = 0, evictedBytes = 0, evictions = 0, allocationFailures = 0, discarded = 0, clientsLost = 0, replicasLost = 0, restoredObjects = 0;
  u64 offloadedObjects = 0, offloadedBytes = 0, offloadsFailed = 0, offloadsSkipped = 0, promotedObjects = 0, promotionsFailed = 0, damagedFiles = 0;
  u64 freedRanges = 0;  // a put that found no space is retried once it changes
  u64 nofEvictedObjects = 0, nofEvictedBytes = 0, nofDamaged = 0;
  u64 filedObjects = 0, filesFailed = 0, filesEvicted = 0, filesRefused = 0;
  std::array<u64, 16> missed{};  // clients' lookups that found nothing, by Gone
};

// The lock of the server (Server::with, Server::change) guards this and every part: one caller at a time runs anything of the store. Until
// recovery has ended, the recovering thread owns the store instead, and all other callers are refused.
class Common {
 public:
  Settings settings;
  Pool<Node> nodes;
  Table table;
  Cluster cluster;
  Journal journal;
  KvEvents events;
  Counters counters;
  // Called when a holder may have failed, so that its segment is probed.
  std::function<void(u32 segment)> onSuspect;
  std::function<void(u32 client, const char* what)> onClient;
  // True while records are applied: allocators and the usage of disks are rebuilt afterwards.
  bool replaying = false;
  // Differs from that of every other start, so that no number of a former start is mistaken for a current one.
  const u64 startID;

  // Sets the clock: milliseconds since some moment in the past, never 0.
  void at(u64 nowMs) { nowMs_ = nowMs; }
  u64 nowMs() const { return nowMs_; }
  Tick tick() const { return tickOf(nowMs_); }
  u64 unixMs() const { return journal.epochMs + nowMs_; }
  u64 random() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return random_;
  }

 protected:
  Common(const Settings& settings, u64 seed) : settings(settings), nodes(u32{1} << 29), table(seed), startID(seed * 0x9E3779B97F4A7C15ull), random_(seed | 1) {}

 private:
  u64 nowMs_ = tickMs, random_;
};

// A part of the store, by its access to what all of them share.
class Part {
 protected:
  explicit Part(Common& common)
      : common(common), settings(common.settings), nodes(common.nodes), table(common.table), cluster(common.cluster), journal(common.journal), counters(common.counters) {}
  u64 nowMs() const { return common.nowMs(); }
  Tick tick() const { return common.tick(); }
  u64 unixMs() const { return common.unixMs(); }

  Common& common;
  const Settings& settings;
  Pool<Node>& nodes;
  Table& table;
  Cluster& cluster;
  Journal& journal;
  Counters& counters;
};

}  // namespace svc
