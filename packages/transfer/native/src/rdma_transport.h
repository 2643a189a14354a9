// One-sided reads and writes over libfabric, loaded at run time: verbs and efa, and other providers only by name.
#pragma once
#include "transport.h"

namespace svc {

struct FabricDevice;

class RdmaTransport;

/** The route to one peer, with an endpoint for each of our devices. */
class RdmaPeer : public Route {
 public:
  /** Our device, the peer's address handle on it, and the peer's device behind that address. */
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
  /** True once this instance of the peer has ended: its requests are refused. */
  bool gone() const { return gone_; }

 private:
  void post(const Slice& slice);
  /** Called when the last part of a slice has ended. */
  void ended(const Slice& slice, const std::string* error);
  RdmaTransport& rdma_;
  const SegmentID id_;
  const std::vector<Link> links_;
  /** movedAtMs_ is when a request last ended, or the first began. After a silence the engine probes the peer. */
  std::atomic<uint64_t> inFlight_{0}, movedAtMs_{0};
  std::atomic<bool> gone_{false};
};

class RdmaTransport : public InstalledTransport {
 public:
  /** Returns null with lastError() without libfabric, or without a device of an allowed provider. */
  static std::shared_ptr<RdmaTransport> open(const std::string& provider, const std::vector<std::string>& filters, Metrics& metrics, RouteOwner& owner);
  ~RdmaTransport() override;

  /** Sets the devices near each location, as discovered or as given at installation. Must be called before the first request. */
  void setTopology(Topology topology) { topology_ = std::move(topology); }

  int contexts() const override { return int(devices_.size()); }
  Path path() const override { return Path::Rdma; }
  RouteRef route(const RouteRequest& to, std::string& why) override;
  /** Obtains keys for peers and descriptors for ourselves, one per device; returns false with lastError(). */
  bool registerBuffer(Buffer& buffer) override;
  void unregisterBuffer(Buffer& buffer) override;
  void describe(SegmentDescriptor& record) const override;
  void describe(const Buffer& buffer, PublishedBuffer& entry) const override { entry.remoteKeys = buffer.remoteKeys; }
  /** Inserts the calling peer's address, which manual progress requires as well, and returns ours. */
  std::optional<Json> answerExchange(const Json& payload) override;
  bool watched() const override { return true; }
  void end() override;

 private:
  friend class RdmaPeer;
  RdmaTransport(Metrics& metrics, RouteOwner& owner);
  /** The data that a peer needs to reach us. */
  Json endpoint() const;
  /** Returns an empty list if the peer has no device of our provider. */
  std::vector<RdmaPeer::Link> connect(const Json& payload);
  Metrics& metrics_;
  RouteOwner& owner_;
  std::vector<std::unique_ptr<FabricDevice>> devices_;
  Topology topology_;
  std::atomic<uint64_t> next_{0};
};

}  // namespace svc
