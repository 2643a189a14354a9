// One connection that the loop drives: submitters write to it at once, the loop reads the answers, or a submitter that lingers.
#pragma once
#include "tcp_client.h"

namespace svc {

class TcpLane : public EventHandler, public std::enable_shared_from_this<TcpLane> {
 public:
  TcpLane(TcpPeer& peer, uint64_t pollUs) : peer_(peer), spin_(pollUs * 1000) {}
  /** Takes the slices; connects first when there is no connection. `lingers`: looks for their answers for a moment where nothing else is on its way. */
  void submit(const std::vector<Slice>& slices, bool lingers);
  void onEvents(uint32_t events) override;
  void tick();
  void close(const std::string& trouble);
  uint64_t queuedBytes() const { return queuedBytes_.load(std::memory_order_relaxed); }

 private:
  /** Under mutex_. Begins; the slices come back where that fails at once. */
  std::optional<Unfinished> connect(const std::vector<Slice>& slices);
  /** Under mutex_: what was in flight, after which the lane has no connection. */
  Unfinished breakUp(std::string trouble);
  /** Under mutex_. The end of a connection wakes the loop even where answers do not. */
  void watch();
  void linger();
  TcpPeer& peer_;
  std::mutex mutex_;
  /** Who still has the peer of an older view hands slices in: they come back, since nobody times such a lane or keeps it. */
  bool closed_ = false;
  std::unique_ptr<TcpPipe> pipe_;
  bool connecting_ = false;
  uint64_t connectDeadlineNs_ = 0;
  uint32_t watched_ = 0;
  bool lingering_ = false;
  /** False from a submitter that lingers to the next whose answer it does not see. */
  bool loopReads_ = true;
  /** Of the submitter that lingers. */
  Spin spin_;
  std::atomic<uint64_t> queuedBytes_{0};
};

}  // namespace svc
