// The tcp route to peers: connections that callers drive themselves, and lanes that the event loop drives.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "event_loop.h"
#include "net.h"
#include "options.h"
#include "tcp_pipe.h"
#include "transport.h"

namespace svc {

class TcpLane;
class TcpTransport;

/** All connections to one peer's data port. */
class TcpPeer : public Route {
 public:
  TcpPeer(std::shared_ptr<TcpTransport> transport, const RouteRequest& to, EventLoop& loop, Address address);
  ~TcpPeer() override;

  Path path() const override { return Path::Tcp; }
  uint64_t inFlight() const override { return queued_.load(std::memory_order_relaxed); }
  bool servesUnpublished() const override { return true; }
  Unfinished take(std::vector<Slice>& slices, Drive drive, uint64_t deadlineNs) override;
  void close(const std::string& why) override;
  std::string explain(const PublishedBuffer* buffer, std::string& passed) override;

  std::string who() const { return joinHostPort(address_.host(), address_.port()); }
  /** Gives up requests past their deadline, and lanes that were writing one. Loop thread only. */
  void tick();
  /** Closes every connection; slices in flight come back with this reason. */
  void closeConnections(const std::string& trouble);
  /** True after closeConnections(), when the peer cannot be used any more. */
  bool closed() {
    std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  friend class TcpLane;
  static constexpr size_t IDLE_PIPES = 16;
  /** Runs in the calling thread. Returns what is left if the connection broke or the deadline passed. */
  Unfinished run(std::vector<Slice> slices, uint64_t deadlineNs);
  /** Spreads slices over the lanes; their tasks end later, or come back through giveUp. */
  void submit(const std::vector<Slice>& slices, bool lingers);
  void giveUp(Unfinished left);
  std::unique_ptr<TcpPipe> checkOut(uint64_t deadlineNs, Unfinished& left);
  void giveBack(std::unique_ptr<TcpPipe> pipe);

  EventLoop& loop_;
  const Options& options_;
  Metrics& metrics_;
  RouteOwner& owner_;
  const SegmentID id_;
  const Address address_;
  /** The file segment of these connections, and the engine that owns it; empty for the peer's memory. */
  const std::string file_, fileOwner_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<std::unique_ptr<TcpPipe>> idle_;
  /** Connections in use by callers; closeConnections() ends them as well. */
  std::set<int> busy_;
  size_t out_ = 0;
  bool closed_ = false;
  std::vector<std::shared_ptr<TcpLane>> lanes_;
  std::atomic<uint64_t> queued_{0};
};

}  // namespace svc
