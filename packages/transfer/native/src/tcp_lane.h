// One connection that the event loop drives: submitters write directly, and the loop or a lingering submitter reads the answers.
#pragma once
#include "tcp_client.h"

namespace svc {

class TcpLane : public EventHandler, public std::enable_shared_from_this<TcpLane> {
 public:
  TcpLane(TcpPeer& peer, uint64_t pollUs) : peer_(peer), spin_(pollUs * 1000) {}
  /** Takes the slices, and connects first if necessary. `lingers` polls for their answers briefly if nothing else is in flight. */
  void submit(const std::vector<Slice>& slices, bool lingers);
  void onEvents(uint32_t events) override;
  void tick();
  void close(const std::string& trouble);
  uint64_t queuedBytes() const { return queuedBytes_.load(std::memory_order_relaxed); }

 private:
  /** Requires mutex_. Starts connecting; returns the slices if that fails at once. */
  std::optional<Unfinished> connect(const std::vector<Slice>& slices);
  /** Requires mutex_. Returns the slices in flight; the lane then has no connection. */
  Unfinished breakUp(std::string trouble);
  /** Requires mutex_. The end of a connection wakes the loop even if answers do not. */
  void watch();
  void linger();
  TcpPeer& peer_;
  std::mutex mutex_;
  /** True after close(). A caller with an old view may still submit; its slices come back, because a closed lane has no timer. */
  bool closed_ = false;
  std::unique_ptr<TcpPipe> pipe_;
  bool connecting_ = false;
  uint64_t connectDeadlineNs_ = 0;
  uint32_t watched_ = 0;
  bool lingering_ = false;
  /** False while a lingering submitter reads the answers. */
  bool loopReads_ = true;
  /** Used by the lingering submitter. */
  Spin spin_;
  std::atomic<uint64_t> queuedBytes_{0};
};

}  // namespace svc
