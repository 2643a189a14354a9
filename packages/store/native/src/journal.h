// The records of every change, in the form in which the log and the snapshots keep them.
#pragma once
#include "cluster.h"
#include "table.h"

namespace svc {

//  Each record is a state and not a step, so that applying one twice changes nothing: a snapshot may be taken while the log goes on.
enum class Record : u8 {
  client = 1,       // number u32, id
  clientGone = 2,   // number u32
  segment = 3,      // number u32, client u32, id, base u64, size u64, state i32, unmount at u64 (unix ms), name, endpoint, protocol, host id
  segmentGone = 4,  // number u32
  object = 5,       // tenant u16, key, size u64, client u32, flags u8, data type u8, what it has u8, ..., replicas
  complete = 6,     // tenant u16, key, what it has u8, ...: every replica that was being written is whole
  erased = 7,       // tenant u16, key
  held = 8,         // segment u32, offset u64, size u64: free, but an old writer may still write there
  tenant = 9,       // number u16, name
  quota = 10,       // number u16, registered u8, bytes u64
  end = 11,         // objects u64: a snapshot is whole
};

namespace has {
inline constexpr u8 checksum = 1, softPinUntil = 2, softPinMs = 4, group = 8, task = 16;
}

class Journal {
 public:
  std::string pending;
  u32 count = 0;
  u64 nextLsn = 1;
  // Milliseconds since 1970 when the store's own clock said 0: what must outlive this process is kept by that clock.
  u64 epochMs = 0;

  void client(u32 number, const Uuid& id);
  void clientGone(u32 number);
  void segment(const Segment& segment);
  void segmentGone(u32 number);
  void object(const Table& table, u32 index, std::string_view group, const Cluster& cluster);
  void complete(const Table& table, u32 index);
  void erased(u16 tenant, std::string_view key);
  void held(u32 segment, u64 offset, u64 size);
  void tenant(u16 number, std::string_view name);
  void quota(u16 number, bool registered, u64 bytes);
  void end(u64 objects);
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

// Reads what a Journal wrote; `failed` once anything lay past the end.
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
  std::string_view text() {
    const u16 size = get<u16>();
    if (failed || static_cast<std::size_t>(end_ - at_) < size) {
      failed = true;
      at_ = end_;
      return {};
    }
    at_ += size;
    return {at_ - size, size};
  }

 private:
  const char *at_, *end_;
};

}  // namespace svc
