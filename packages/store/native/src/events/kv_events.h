// KV events: which keys became readable or are gone, in numbered batches that are published once the log holds their cause.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "log/journal.h"

namespace svc {

//  payload: msgpack [timestamp ms, [map...], 0], as the engines' batches are
class KvEvents {
 public:
  static constexpr u32 perBatch = 64;
  // A tenant's streams; each counts its own events.
  static constexpr u8 cpu = 0, disk = 1, media = 2;
  static constexpr std::size_t batchBytes = 64 << 10, queueBytes = 64 << 20;

  struct Settings {
    bool on = false, objectKey = true, legacy = true;
    std::string backend;
    u32 queueEvents = 65'536;
  };
  struct Batch {
    u64 sequence = 0, lsn = 0;
    u32 events = 0;
    std::string payload;
  };
  struct Object {
    u16 tenant = 0;
    std::string_view tenantName, key, group;
    u8 medium = 0;
  };

  void configure(const Settings& settings);
  bool on() const { return settings_.on; }

  void stored(const Object& object, u64 unixMs) { add(object, unixMs, stored_[object.medium]); }
  void removed(const Object& object, u64 unixMs) { add(object, unixMs, removed_[object.medium]); }
  // Numbers the events of this loop iteration, and logs the next numbers.
  void endIteration(Journal& journal);
  void record(Journal& journal) const;
  // Publishes an empty batch. After a change of leader its number shows subscribers whether they missed something; after a dump it is the
  // last batch that the dump's reader knows.
  void greet(u64 unixMs) {
    openMs_ = unixMs;
    greets_ = next_ > 0;
  }

  // Restores the numbers of the log.
  void restore(u64 next) { next_ = next; }
  void restoreID(u16 tenant, u8 medium, u64 id) { idOf(tenant, medium) = id; }
  // Skips a number: subscribers see the gap, and resynchronize.
  void skip() { ++next_; }
  void atLeast(u64 next) { next_ = std::max(next_, next); }
  u64 next() const { return next_; }
  u64& idOf(u16 tenant, u8 medium);

  // Returns the oldest batch that a subscriber can still get; `next` when there is none.
  u64 oldest() const { return queue_.empty() ? next_ : queue_.front().sequence; }
  const std::deque<Batch>& queue() const { return queue_; }
  // Returns the end of a dump's numbers. An empty last batch is not counted, so that it can follow the dump.
  u64 dumpEnd() const { return next_ - (!queue_.empty() && queue_.back().events == 0 ? 1 : 0); }
  // The socket accepted all batches before this number.
  void taken(u64 before);
  u64 wanted() const { return taken_; }

  // Marks an event of a dump that has no number of its own.
  static constexpr u64 noID = ~u64{0};
  // Appends a `stored` map to `out`, for a dump; false for a key that names no block and is not emitted.
  bool describe(const Object& object, u64 id, u64 unixMs, std::string& out) const;
  static std::string payloadOf(u64 unixMs, u32 events, std::string_view maps);

  u64 publishedBatches = 0, publishedEvents = 0, droppedEvents = 0, unparsedKeys = 0;

 private:
  // The constant parts of an event type's map, between the values that vary.
  struct Kind {
    std::string head, afterTime, afterTenant, afterGroup, tail;
  };
  void add(const Object& object, u64 unixMs, const Kind& kind);
  bool append(const Object& object, u64 id, u64 unixMs, const Kind& kind, std::string& out) const;
  void close();

  Settings settings_;
  Kind stored_[media], removed_[media];
  u64 next_ = 0, taken_ = 0, openMs_ = 0;
  std::vector<std::pair<u64, bool>> ids_;  // by tenant and medium: the next event's number, and whether this iteration advanced it
  std::vector<u32> moved_;
  std::string open_;
  u32 openEvents_ = 0;
  bool greets_ = false;
  std::deque<Batch> queue_;
  u64 queuedEvents_ = 0, queuedBytes_ = 0;
};

// Parses the number that a key spells, in decimal or 0x-prefixed hexadecimal digits.
bool hashOfKey(std::string_view key, u64& hash);

}  // namespace svc
