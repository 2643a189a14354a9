// One-sided reads and writes over libfabric, loaded at run time: verbs and efa, other providers only when they are named.
#pragma once
#include "transport.h"

namespace svc {

struct FabricDevice;

class RdmaTransport;

/** A peer's endpoint per device of ours. */
class RdmaPeer : public Route {
 public:
  /** Our device, its address handle of the peer, and which of the peer's devices that is. */
  struct Link {
    size_t device = 0;
    uint64_t handle = 0;
    size_t remoteDevice = 0;
    bool virtualAddress = true;
  };
  RdmaPeer(std::shared_ptr<RdmaTransport> transport, const std::string& segmentName, SegmentID id, std::vector<Link> links);

  Path path() const override { return Path::Rdma; }
  uint64_t inFlight() const override { return inFlight_.load(std::memory_order_relaxed); }
  Unfinished take(std::vector<Slice>& slices, Drive drive, uint64_t deadlineNs) override;
  void close(const std::string& why) override;
  std::string explain(const PublishedBuffer* buffer, std::string& passed) override;
  bool silent(uint64_t now, uint64_t forMs) const override { return inFlight() != 0 && now > movedAtMs_.load(std::memory_order_relaxed) + forMs; }
  void heard(uint64_t atMs) override { movedAtMs_ = atMs; }
  /** This start of the peer is over: requests for it are refused. */
  bool gone() const { return gone_; }

 private:
  void post(const Slice& slice);
  /** Of a slice's parts the last one ended. */
  void ended(const Slice& slice, const std::string* error);
  RdmaTransport& rdma_;
  const SegmentID id_;
  const std::vector<Link> links_;
  /** movedAtMs_: when a request ended last, or the first began. Silence makes the engine ask whether the peer is still there. */
  std::atomic<uint64_t> inFlight_{0}, movedAtMs_{0};
  std::atomic<bool> gone_{false};
};

class RdmaTransport : public InstalledTransport {
 public:
  /** Null with lastError(): no libfabric, or no device of a provider that is allowed. */
  static std::shared_ptr<RdmaTransport> open(const std::string& provider, const std::vector<std::string>& filters, Metrics& metrics, RouteOwner& owner);
  ~RdmaTransport() override;

  /** Location to devices near it: as discovered, unless the installation gave another. Before the first request. */
  void setTopology(Topology topology) { topology_ = std::move(topology); }

  int contexts() const override { return int(devices_.size()); }
  Path path() const override { return Path::Rdma; }
  RouteRef route(const RouteRequest& to, std::string& why) override;
  /** Keys for peers and descriptors for ourselves, one per device; false with lastError(). */
  bool registerBuffer(Buffer& buffer) override;
  void unregisterBuffer(Buffer& buffer) override;
  void describe(SegmentDescriptor& record) const override;
  void describe(const Buffer& buffer, PublishedBuffer& entry) const override { entry.remoteKeys = buffer.remoteKeys; }
  /** Takes the address of a peer that calls us first in, which manual progress needs, too, and gives ours. */
  std::optional<Json> answerExchange(const Json& payload) override;
  bool watched() const override { return true; }
  void end() override;

 private:
  friend class RdmaPeer;
  RdmaTransport(Metrics& metrics, RouteOwner& owner);
  /** What a peer needs to reach us. */
  Json endpoint() const;
  /** Empty: the peer has no device of our provider. */
  std::vector<RdmaPeer::Link> connect(const Json& payload);
  Metrics& metrics_;
  RouteOwner& owner_;
  std::vector<std::unique_ptr<FabricDevice>> devices_;
  Topology topology_;
  std::atomic<uint64_t> next_{0};
};

}  // namespace svc
