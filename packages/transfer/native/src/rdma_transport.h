// One-sided reads and writes over libfabric, loaded at run time: verbs and efa, other providers only when they are named.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "descriptor.h"
#include "memory_registry.h"
#include "svc/transfer_engine.h"
#include "tcp_pipe.h"

namespace svc {

struct FabricDevice;

/** A peer's endpoint per device of ours. */
struct RdmaPeer {
  /** Our device, its address handle of the peer, and which of the peer's devices that is. */
  struct Route {
    size_t device = 0;
    uint64_t handle = 0;
    size_t remoteDevice = 0;
    bool virtualAddress = true;
  };
  std::vector<Route> routes;
  /** When a request ended last, or the first began: silence is what makes the engine ask whether the peer is still there. */
  std::atomic<uint64_t> inFlight{0}, movedAtMs{0};
  std::atomic<bool> gone{false};
  /** Requests whose device gave them up, until the engine has looked for the peer's next start. */
  std::mutex mutex;
  std::vector<std::pair<TcpPiece, std::string>> stranded;

  bool silent(uint64_t now, uint64_t forMs) const { return inFlight.load(std::memory_order_relaxed) != 0 && now > movedAtMs.load(std::memory_order_relaxed) + forMs; }
};

class RdmaTransport {
 public:
  /** Null with lastError(): no libfabric, or no device of a provider that is allowed. */
  static std::shared_ptr<RdmaTransport> open(const std::string& provider, const std::vector<std::string>& filters);
  ~RdmaTransport();

  /** Location to devices near it: as discovered, unless the installation gave another. Before the first request. */
  void setTopology(Topology topology) { topology_ = std::move(topology); }

  size_t devices() const { return devices_.size(); }
  std::vector<std::string> deviceNames() const;
  /** Keys for peers and descriptors for ourselves, one per device; false with lastError(). */
  bool registerBuffer(Buffer& buffer);
  void unregisterBuffer(Buffer& buffer);

  /** The payload of the endpoint exchange: what a peer needs to reach us. */
  Json endpoint() const;
  /** Takes a peer's payload in. Null with `why`. */
  std::shared_ptr<RdmaPeer> connect(const Json& payload, std::string& why);
  /** For a peer that calls us first: manual progress needs its address too. */
  void accept(const Json& payload);

  /** Posts one request. `done(error)` runs on a thread of the transport, or here when it cannot be posted. */
  void post(const std::shared_ptr<RdmaPeer>& peer, const std::string& location, const PublishedBuffer& buffer, const TcpPiece& piece, void* const* descriptors,
            std::function<void(const std::string* error)> done);
  /** Fails what is in flight to this start of the peer, on this thread, and what is posted to it from now on. */
  void abandon(RdmaPeer& peer, const std::string& why);
  void stop();

 private:
  RdmaTransport() = default;
  std::vector<std::unique_ptr<FabricDevice>> devices_;
  Topology topology_;
  std::atomic<uint64_t> next_{0};
};

}  // namespace svc
