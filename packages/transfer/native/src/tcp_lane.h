// One connection that the loop drives: submitters write to it at once, the loop reads the answers.
#pragma once
#include "tcp_client.h"

namespace svc {

class TcpLane : public EventHandler, public std::enable_shared_from_this<TcpLane> {
 public:
  explicit TcpLane(TcpPeer& peer) : peer_(peer) {}
  /** Takes the slices; connects first when there is no connection. */
  void submit(const std::vector<Slice>& slices);
  void onEvents(uint32_t events) override;
  void tick();
  void close(const std::string& trouble);
  uint64_t queuedBytes() const { return queuedBytes_.load(std::memory_order_relaxed); }

 private:
  /** Under mutex_: what was in flight, after which the lane has no connection. */
  Unfinished breakUp(std::string trouble);
  void watch();
  TcpPeer& peer_;
  std::mutex mutex_;
  /** Who still has the peer of an older view hands slices in: they come back, since nobody times such a lane or keeps it. */
  bool closed_ = false;
  std::unique_ptr<TcpPipe> pipe_;
  bool connecting_ = false;
  uint64_t connectDeadlineNs_ = 0;
  uint32_t watched_ = 0;
  std::atomic<uint64_t> queuedBytes_{0};
};

}  // namespace svc
