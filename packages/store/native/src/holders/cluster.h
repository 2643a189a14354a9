// The clients that ping, and the segments that they mounted.
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "objects/allocator.h"
#include "disks/disk.h"
#include "holders/holdings.h"

namespace svc {

enum class SegmentState : i32 { undefined = 0, ok = 1, draining = 2, drained = 3, gracefullyUnmounting = 4, unmounting = 5 };

// The medium of an allocated range: memory, or a file or device behind NVMe over Fabrics.
enum class Tier : u8 { memory = 0, nof = 1 };
inline constexpr u32 tiers = 2;
// Returns the tier of a segment with that protocol of the transfer engine.
constexpr Tier tierOf(std::string_view protocol) { return protocol == "nvmeof" ? Tier::nof : Tier::memory; }
// Returns the bytes that an object occupies: on a device it gets whole 4 KiB blocks, so that no block belongs to two objects.
constexpr u64 rangeBytes(u64 bytes, Tier tier) { return tier == Tier::nof ? (bytes + 4095) & ~u64{4095} : bytes; }

struct Client {
  Uuid id;
  u64 seenMs = 0;
  u32 objects = 0;  // references to it: objects that it wrote, extents that it leased, tasks that it runs
  u32 tasks = 0;    // queued for it
  bool known = false;   // mounted or remounted something since this master started
  bool silent = false;  // missed pings
  bool used = false;
  u32 unfiled = 0;  // files of the shared folder that it was assigned in a row and did not finish
  std::vector<u32> segments;
  std::unique_ptr<Holdings> holdings;  // set once it subscribed to changes of its memory
};

struct Segment {
  Segment(Pool<Node>& nodes, u64 size) : size(size), allocator(nodes, size) {}
  u32 number = 0, client = 0;
  Uuid id;
  std::string name, endpoint, protocol, hostID;
  u64 base = 0, size;
  Tier tier = Tier::memory;
  SegmentState state = SegmentState::ok;
  bool awaiting = false;     // known from the log; its holder has not mounted it again yet
  bool silent = false;       // its holder misses pings
  bool unreachable = false;  // our own connect to its endpoint failed
  bool gone = false;         // unmounted or lost; its replicas are being dropped
  bool swept = false;        // during replay: gone, and no object was left on it
  bool restoring = false;    // its holder is reporting the objects on it; nothing else is allocated there meanwhile
  u64 suspectedMs = 0, unmountAtMs = 0, restoringUntilMs = 0;
  Allocator allocator;
  // Set for a client's own disk, which has files instead of ranges: a replica's node then holds the file's number.
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

  // Returns the client's number, assigned on first use; 0 when there are too many clients.
  u32 clientOf(const Uuid& id);
  u32 findClient(const Uuid& id) const;
  Client& client(u32 number) { return clients_[number]; }
  const Client& client(u32 number) const { return clients_[number]; }
  u32 clientEnd() const { return static_cast<u32>(clients_.size()); }
  void dropClient(u32 number);
  // Restores a client under the number that the log gave it.
  void restoreClient(u32 number, const Uuid& id);

  Segment* segment(u32 number) { return number < segments_.size() ? segments_[number].get() : nullptr; }
  const Segment* segment(u32 number) const { return number < segments_.size() ? segments_[number].get() : nullptr; }
  Segment* findSegment(const Uuid& id);
  u32 segmentEnd() const { return static_cast<u32>(segments_.size()); }
  // Numbers are never reused.
  u32 nextSegment() const { return segmentEnd(); }
  Segment& add(std::unique_ptr<Segment> segment);
  // Removes the segment from lookups by name and id; `forget` frees it once no replica refers to it.
  void hide(Segment& segment);
  void forget(u32 number) { segments_[number].reset(); }
  // Gives the segment to another process, which serves it at its own endpoint.
  void handOver(Segment& segment, u32 client, std::string_view name, std::string_view endpoint);

  // Must be called after any change of what may be allocated.
  void refresh();
  const std::vector<u32>& open(Tier tier) const { return open_[static_cast<u32>(tier)]; }
  // Returns the segments of that name, without hidden ones.
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
