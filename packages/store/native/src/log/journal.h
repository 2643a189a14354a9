// Serializes every change as a record, in the form of the log and the snapshots.
#pragma once
#include "holders/cluster.h"
#include "objects/recent.h"
#include "objects/table.h"

namespace svc {

//  Each record is a state, not a step, so applying it twice changes nothing: a snapshot can be taken while the log is written.
enum class Record : u8 {
  client = 1,       // number u32, id
  clientGone = 2,   // number u32
  segment = 3,      // number u32, client u32, id, base u64, size u64, state i32, unmount at u64 (unix ms), name, endpoint, protocol, host id
  segmentGone = 4,  // number u32
  object = 5,       // tenant u16, key, size u64, client u32, flags u8, data type u8, bits of `has` u8, ..., replicas
  complete = 6,     // tenant u16, key, bits of `has` u8, ...: all replicas being written are complete, except one in the shared folder
  erased = 7,       // tenant u16, key
  cooling = 8,         // segment u32, offset u64, size u64: cooling down, as an old writer may still write there; size 0: only readers use the next one
  tenant = 9,       // number u16, name
  quota = 10,       // number u16, registered u8, bytes u64
  end = 11,         // objects u64: the snapshot is complete
  published = 12,   // number of the next batch of KV events u64
  publishedID = 13,  // tenant u16, medium u8 (0 cpu, 1 disk), its next event id u64
  segmentSwept = 14,  // number u32: a gone segment has no objects any more, and their events are numbered
  freed = 15,       // segment u32, offset u64: no longer cooling down
  note = 16,        // kind u8, id, bytes u32, text: kept for JavaScript
  noteGone = 17,    // id
  disk = 18,        // number u32, client u32, id, label u32, ours u8, capacity u64, endpoint
  fileGone = 19,    // number u32, file u64: no object has it any more; its owner may not know yet
  fileSwept = 20,   // number u32, file u64: its owner removed it
  lineage = 21,     // u64: identifies what this log and its copies know
  erasedWhy = 22,   // tenant u16, key, why u8, when u64 (unix ms)
  recent = 23,      // hash u64, why u8, when u64 (unix ms): of a key that is gone
  folder = 24,      // number u32, id, path
};

namespace has {
inline constexpr u8 checksum = 1, softPinUntil = 2, softPinMs = 4, group = 8, task = 16, fingerprint = 32;
}

class Journal {
 public:
  std::string pending;
  u32 count = 0;
  u64 nextLsn = 1;
  // Milliseconds since 1970 at the zero of the store's clock; they convert its times to ones that outlive this process.
  u64 epochMs = 0;

  void client(u32 number, const Uuid& id);
  void clientGone(u32 number);
  void segment(const Segment& segment);
  void segmentGone(u32 number);
  void disk(const Segment& segment);
  void folder(const Segment& segment);
  void fileGone(u32 disk, u64 file);
  void fileSwept(u32 disk, u64 file);
  void object(const Table& table, u32 index, std::string_view group, std::string_view fingerprint, const Cluster& cluster);
  void complete(const Table& table, u32 index);
  void erased(u16 tenant, std::string_view key, Gone why, u64 unixMs);
  // With `forReaders`, a record of size 0 precedes it; releases that do not know this form read both as one range.
  void cooling(u32 segment, u64 offset, u64 size, bool forReaders = false);
  void freed(u32 segment, u64 offset);
  void tenant(u16 number, std::string_view name);
  void quota(u16 number, bool registered, u64 bytes);
  void end(u64 objects);
  void lineage(u64 lineage);
  void recent(u64 hash, Gone why, u64 unixMs);
  void published(u64 next);
  void publishedID(u16 tenant, u8 medium, u64 next);
  void segmentSwept(u32 number);
  void note(u8 kind, const Uuid& id, std::string_view text);
  void noteGone(const Uuid& id);
  void clear() {
    pending.clear();
    count = 0;
  }

 private:
  void begin(Record kind);
  template <typename T>
  void put(T value) {
    pending.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    put(static_cast<u16>(value.size()));
    pending.append(value);
  }
  void pins(const Extra* extra, u8 what);
};

// Reads what a Journal wrote; any read past the end sets `failed`.
class RecordReader {
 public:
  RecordReader(const char* at, std::size_t size) : at_(at), end_(at + size) {}
  bool failed = false;
  bool more() const { return !failed && at_ < end_; }
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
  template <typename T>
  T get() {
    T value{};
    if (static_cast<std::size_t>(end_ - at_) < sizeof value) {
      failed = true;
      at_ = end_;
      return value;
    }
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  void skip(std::size_t bytes) { textOf(static_cast<u32>(bytes)); }
  std::string_view text() { return textOf(get<u16>()); }
  std::string_view longText() { return textOf(get<u32>()); }

 private:
  std::string_view textOf(u32 size) {
    if (failed || static_cast<std::size_t>(end_ - at_) < size) {
      failed = true;
      at_ = end_;
      return {};
    }
    at_ += size;
    return {at_ - size, size};
  }

  const char *at_, *end_;
};

}  // namespace svc
