// Who holds memory: the clients that ping, and the segments they mounted.
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "allocator.h"
#include "disk.h"
#include "holdings.h"

namespace svc {

enum class SegmentState : i32 { undefined = 0, ok = 1, draining = 2, drained = 3, gracefullyUnmounting = 4, unmounting = 5 };

// Where the bytes of an allocated range lie: memory, or a file or device behind NVMe over Fabrics.
enum class Tier : u8 { memory = 0, nof = 1 };
inline constexpr u32 tiers = 2;
// A segment of that protocol of the transfer engine.
constexpr Tier tierOf(std::string_view protocol) { return protocol == "nvmeof" ? Tier::nof : Tier::memory; }
// What an object of that size takes: blocks of a device are nobody's half.
constexpr u64 rangeBytes(u64 bytes, Tier tier) { return tier == Tier::nof ? (bytes + 4095) & ~u64{4095} : bytes; }

struct Client {
  Uuid id;
  u64 seenMs = 0;
  u32 objects = 0;  // that name it as their writer, and extents that it holds
  u32 tasks = 0;    // queued for it
  bool known = false;   // mounted or remounted something in this life of the master
  bool silent = false;  // missed pings
  bool used = false;
  u32 unfiled = 0;  // files of the shared folder that it was given in a row and did not end
  std::vector<u32> segments;
  std::unique_ptr<Holdings> holdings;  // where it asked for them
};

struct Segment {
  Segment(Pool<Node>& nodes, u64 size) : size(size), allocator(nodes, size) {}
  u32 number = 0, client = 0;
  Uuid id;
  std::string name, endpoint, protocol, hostID;
  u64 base = 0, size;
  Tier tier = Tier::memory;
  SegmentState state = SegmentState::ok;
  bool awaiting = false;     // known from the log; its holder was not heard yet
  bool silent = false;       // its holder misses pings
  bool unreachable = false;  // our own connect to its endpoint failed
  bool gone = false;         // unmounted or lost; its replicas are being dropped
  bool swept = false;        // while the log is read: gone, and no object was left on it
  bool restoring = false;    // its holder says what lies there; nothing else is put there meanwhile
  u64 suspectedMs = 0, unmountAtMs = 0, restoringUntilMs = 0;
  Allocator allocator;
  // Of a client's own disk, which has files in place of ranges: a replica's node then holds its file's number.
  std::unique_ptr<Disk> disk;

  bool onDisk() const { return disk != nullptr; }
  bool inMemory() const { return !onDisk() && tier == Tier::memory; }
  bool nof() const { return tier == Tier::nof; }
  u64 rangeBytes(u64 bytes) const { return svc::rangeBytes(bytes, tier); }
  bool cold() const { return onDisk() && disk->cold(); }
  bool shared() const { return onDisk() && disk->folder != nullptr; }
  bool readable() const { return !gone && !awaiting && !silent && !unreachable && state != SegmentState::unmounting; }
  bool allocatable() const { return readable() && state == SegmentState::ok && !onDisk() && !restoring; }
};

class Cluster {
 public:
  static constexpr u32 mostClients = 1 << 20;

  // The client's number, made when it is new; 0 when there are too many.
  u32 clientOf(const Uuid& id);
  u32 findClient(const Uuid& id) const;
  Client& client(u32 number) { return clients_[number]; }
  const Client& client(u32 number) const { return clients_[number]; }
  u32 clientEnd() const { return static_cast<u32>(clients_.size()); }
  void dropClient(u32 number);
  // As the log numbered it.
  void restoreClient(u32 number, const Uuid& id);

  Segment* segment(u32 number) { return number < segments_.size() ? segments_[number].get() : nullptr; }
  const Segment* segment(u32 number) const { return number < segments_.size() ? segments_[number].get() : nullptr; }
  Segment* findSegment(const Uuid& id);
  u32 segmentEnd() const { return static_cast<u32>(segments_.size()); }
  // Numbers are never used twice.
  u32 nextSegment() const { return segmentEnd(); }
  Segment& add(std::unique_ptr<Segment> segment);
  // No longer found by name or id, from now on; `forget` frees it when no replica names it any more.
  void hide(Segment& segment);
  void forget(u32 number) { segments_[number].reset(); }
  // Another process holds it from now on, and serves it at an endpoint of its own.
  void handOver(Segment& segment, u32 client, std::string_view name, std::string_view endpoint);

  // After any change of what may be allocated.
  void refresh();
  const std::vector<u32>& open(Tier tier) const { return open_[static_cast<u32>(tier)]; }
  // Segments of that name, hidden ones left out.
  const std::vector<u32>& named(std::string_view name) const;

 private:
  std::vector<Client> clients_ = std::vector<Client>(1);
  std::vector<u32> freeClients_;
  std::unordered_map<Uuid, u32, UuidHash> clientByID_;
  std::vector<std::unique_ptr<Segment>> segments_ = std::vector<std::unique_ptr<Segment>>(1);
  std::unordered_map<Uuid, u32, UuidHash> segmentByID_;
  std::unordered_map<std::string, std::vector<u32>> byName_;
  std::vector<u32> open_[tiers];
};

}  // namespace svc
