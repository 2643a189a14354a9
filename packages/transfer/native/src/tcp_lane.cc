// One connection that the event loop drives, under a mutex that submitters share.
#include "tcp_lane.h"

namespace svc {

void TcpLane::submit(const std::vector<Slice>& slices, bool lingers) {
  std::optional<Unfinished> failed;
  {
    std::lock_guard lock(mutex_);
    lingers = lingers && pipe_ && !connecting_ && !lingering_ && pipe_->empty();
    if (!pipe_) failed = connect(slices);
    if (!failed) {
      uint64_t bytes = 0;
      for (const auto& slice : slices) {
        pipe_->push(slice);
        bytes += slice.length + 1;
      }
      queuedBytes_.fetch_add(bytes, std::memory_order_relaxed);
      peer_.queued_.fetch_add(slices.size(), std::memory_order_relaxed);
      peer_.loop_.tickBy(pipe_->nextDeadlineNs());
      if (!connecting_) {
        // We write in the submitting thread, since a hop to the loop would cost more than the write. A break is reported to onEvents.
        pipe_->send();
        lingers = lingers && !pipe_->wantsWrite();
        // While another submitter lingers, it reads the answers; the loop takes over when it stops.
        if (!lingering_) loopReads_ = !lingers;
        lingering_ = lingering_ || lingers;
        watch();
      }
    }
  }
  if (failed) peer_.giveUp(std::move(*failed));
  if (lingers) linger();
}

std::optional<Unfinished> TcpLane::connect(const std::vector<Slice>& slices) {
  Fd fd = closed_ ? Fd() : beginConnect(peer_.address_);
  if (!fd) {
    Unfinished failed;
    failed.slices = slices;
    failed.trouble = closed_ ? "the connection was closed here" : "connecting to " + peer_.who() + ": " + errnoText();
    failed.connectFailed = true;
    return failed;
  }
  peer_.metrics_.connectionsOpened.fetch_add(1, std::memory_order_relaxed);
  pipe_ = std::make_unique<TcpPipe>(std::move(fd), peer_.file_);
  connecting_ = true;
  connectDeadlineNs_ = nowNs() + peer_.options_.connectTimeoutMs * NS_PER_MS;
  loopReads_ = true;
  watched_ = EPOLLOUT;
  peer_.loop_.add(pipe_->fd(), watched_, this);
  return std::nullopt;
}

void TcpLane::linger() {
  spin_.until([this] {
    onEvents(EPOLLIN);
    return queuedBytes() == 0;
  });
  std::lock_guard lock(mutex_);
  lingering_ = false;
  if (!pipe_ || connecting_ || pipe_->empty()) return;
  loopReads_ = true;
  watch();
}

void TcpLane::watch() {
  uint32_t wanted = (loopReads_ ? uint32_t(EPOLLIN) : uint32_t(EPOLLRDHUP)) | (pipe_->wantsWrite() ? uint32_t(EPOLLOUT) : 0);
  if (wanted != watched_) peer_.loop_.change(pipe_->fd(), watched_ = wanted, this);
}

void TcpLane::onEvents(uint32_t events) {
  std::vector<Slice> through;
  std::optional<Unfinished> broken;
  // The last task to end may release the peer, so we hold references.
  std::shared_ptr<TcpLane> self = shared_from_this();
  std::shared_ptr<Route> peer = peer_.weak_from_this().lock();
  if (!peer) return;
  {
    std::lock_guard lock(mutex_);
    if (!pipe_) return;
    if (connecting_) {
      int error = 0;
      socklen_t size = sizeof error;
      getsockopt(pipe_->fd(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) {
        broken = breakUp("connecting to " + peer_.who() + ": " + errnoText(error));
        broken->connectFailed = true;
      } else if ((events & EPOLLOUT) == 0) {
        return;
      } else {
        fitSendBuffer(pipe_->fd());
      }
      connecting_ = false;
    }
    if (!broken) {
      auto done = [&](const Slice& slice) { through.push_back(slice); };
      TcpPipe::Step step = TcpPipe::Step::Moved;
      bool sendBroken = false;
      for (int round = 0; round < 8 && step == TcpPipe::Step::Moved; round++) {
        size_t before = through.size();
        step = (events & ~uint32_t(EPOLLOUT)) != 0 || round > 0 ? pipe_->receive(done, false) : TcpPipe::Step::Moved;
        // Once all answers have arrived, another read would find nothing.
        if (step != TcpPipe::Step::Broken && pipe_->wantsWrite() && pipe_->send() == TcpPipe::Step::Broken) sendBroken = true;
        if (step == TcpPipe::Step::Moved && (pipe_->empty() || (through.size() != before && through.size() < 16))) break;
      }
      if (step == TcpPipe::Step::Broken || (sendBroken && step != TcpPipe::Step::Moved)) broken = breakUp(pipe_->trouble());
      else watch();
    }
    uint64_t bytes = 0;
    for (const auto& slice : through) bytes += slice.length + 1;
    if (pipe_) queuedBytes_.fetch_sub(bytes, std::memory_order_relaxed);
  }
  peer_.queued_.fetch_sub(through.size(), std::memory_order_relaxed);
  for (const auto& slice : through) finishSlice(*slice.task, slice.length, nullptr);
  if (broken) peer_.giveUp(std::move(*broken));
}

Unfinished TcpLane::breakUp(std::string trouble) {
  Unfinished left;
  left.trouble = std::move(trouble);
  left.refused = pipe_->refused();
  left.connectFailed = pipe_->unopened();
  left.acknowledged = pipe_->acknowledged();
  peer_.loop_.remove(pipe_->fd());
  left.slices = pipe_->takeSlices();
  pipe_.reset();
  queuedBytes_ = 0;
  peer_.queued_.fetch_sub(left.slices.size(), std::memory_order_relaxed);
  peer_.metrics_.connectionsBroken.fetch_add(1, std::memory_order_relaxed);
  // The events that the loop has fetched may contain this handler.
  peer_.loop_.post([self = shared_from_this(), peer = peer_.shared_from_this()] {});
  return left;
}

void TcpLane::tick() {
  std::optional<Unfinished> broken;
  Unfinished late;
  {
    std::lock_guard lock(mutex_);
    if (!pipe_) return;
    uint64_t now = nowNs(), bytes = 0;
    const bool begunIsLate = pipe_->expire(now, late.slices);
    for (const auto& slice : late.slices) bytes += slice.length + 1;
    queuedBytes_.fetch_sub(bytes, std::memory_order_relaxed);
    peer_.queued_.fetch_sub(late.slices.size(), std::memory_order_relaxed);
    late.timedOut = true;
    late.trouble = "no answer from " + peer_.who() + " in time";
    if (begunIsLate) {
      broken = breakUp(late.trouble);
      broken->timedOut = true;
    } else if (connecting_ && now >= connectDeadlineNs_) {
      broken = breakUp("connecting to " + peer_.who() + ": no answer within " + std::to_string(peer_.options_.connectTimeoutMs) + " ms");
      broken->connectFailed = true;
    }
    if (pipe_) peer_.loop_.tickBy(pipe_->nextDeadlineNs());
  }
  if (!late.slices.empty()) peer_.giveUp(std::move(late));
  if (broken) peer_.giveUp(std::move(*broken));
}

void TcpLane::close(const std::string& trouble) {
  std::optional<Unfinished> broken;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    if (!pipe_) return;
    broken = breakUp(trouble);
    broken->connectFailed = true;
  }
  if (!broken->slices.empty()) peer_.giveUp(std::move(*broken));
}

}  // namespace svc
