// The tcp side of requests to peers: connections that callers drive themselves, and lanes that the loop drives.
#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "event_loop.h"
#include "metrics.h"
#include "net.h"
#include "options.h"
#include "tcp_pipe.h"

namespace svc {

/** Pieces that did not get through, and what is known about the reason. */
struct Leftover {
  std::deque<TcpPiece> pieces;
  std::string trouble;
  bool refused = false;
  bool connectFailed = false;
  bool timedOut = false;
  uint64_t acknowledged = 0;
};

class TcpLane;

/** All connections to one peer's data port. */
class TcpPeer : public std::enable_shared_from_this<TcpPeer> {
 public:
  using OnBroken = std::function<void(std::shared_ptr<TcpPeer>, Leftover)>;
  TcpPeer(EventLoop& loop, const Options& options, Metrics& metrics, Address address, std::string file, OnBroken onBroken);
  ~TcpPeer();

  std::string who() const { return joinHostPort(address_.host(), address_.port()); }
  const Address& address() const { return address_; }

  /** In the calling thread: all pieces, or what is left of them when the connection broke or the deadline passed. */
  Leftover run(std::deque<TcpPiece> pieces, uint64_t deadlineNs);
  /** Spreads pieces over the lanes; their tasks end later, or come back through onBroken. */
  void submit(std::deque<TcpPiece> pieces);
  /** Gives up what is past its deadline, and lanes that had begun to write it. Loop thread. */
  void tick();
  /** Closes every connection; pieces in flight come back through onBroken with this trouble. */
  void close(const std::string& trouble);
  /** After close() it is of no more use. */
  bool closed() {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  uint64_t queuedPieces() const { return queued_.load(std::memory_order_relaxed); }

 private:
  friend class TcpLane;
  static constexpr size_t IDLE_PIPES = 16;
  std::unique_ptr<TcpPipe> checkOut(uint64_t deadlineNs, Leftover& left);
  void giveBack(std::unique_ptr<TcpPipe> pipe);

  EventLoop& loop_;
  const Options& options_;
  Metrics& metrics_;
  Address address_;
  /** The file segment that the connections are for; empty for the peer's memory. */
  std::string file_;
  OnBroken onBroken_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<std::unique_ptr<TcpPipe>> idle_;
  /** With callers; close() ends them as well. */
  std::set<int> busy_;
  size_t out_ = 0;
  bool closed_ = false;
  std::vector<std::shared_ptr<TcpLane>> lanes_;
  std::atomic<uint64_t> queued_{0};
};

}  // namespace svc
