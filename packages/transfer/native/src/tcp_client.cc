// Connections to one peer: a pool for callers that wait, and lanes for asynchronous ones.
#include "tcp_client.h"

#include <netinet/tcp.h>
#include <poll.h>

#include "tcp_lane.h"
#include "tcp_transport.h"

namespace svc {

namespace {
/** Requests longer than this are spread over the lanes. */
constexpr uint64_t SPREAD_BYTES = 4 << 20;
/** A submitter waits for completions by spinning only for requests up to this size; longer ones outlast its wait. */
constexpr uint64_t LINGER_BYTES = 64 << 10;
/** Blocking reads return after this time to check the deadline. */
constexpr uint64_t READ_WAIT_MS = 1000;
}  // namespace

TcpPeer::TcpPeer(std::shared_ptr<TcpTransport> made, const RouteRequest& to, EventLoop& loop, Address address)
    : Route(made, to.segmentName),
      loop_(loop),
      options_(made->options_),
      metrics_(made->metrics_),
      owner_(made->owner_),
      id_(to.id),
      address_(address),
      file_(to.owner != nullptr ? to.segmentName : ""),
      fileOwner_(to.owner != nullptr ? to.owner->serverName : "") {
  for (uint64_t i = 0; i < options_.lanesPerPeer; i++) lanes_.push_back(std::make_shared<TcpLane>(*this, options_.pollUs));
}

TcpPeer::~TcpPeer() = default;

Unfinished TcpPeer::take(std::vector<Slice>& slices, Drive drive, uint64_t deadlineNs) {
  uint64_t requests = 0, bytes = 0;
  for (auto& slice : slices) {
    if (std::exchange(slice.counted, true)) continue;
    requests++;
    bytes += slice.length;
  }
  metrics_.count(Path::Tcp, requests, bytes);
  std::vector<Slice> taken = std::exchange(slices, {});
  if (drive != Drive::Caller) return submit(taken, drive == Drive::Lingering), Unfinished{};
  Unfinished left = run(std::move(taken), deadlineNs);
  if (!left.slices.empty()) left.trouble = who() + ": " + left.trouble;
  return left;
}

void TcpPeer::giveUp(Unfinished left) {
  left.trouble = who() + ": " + left.trouble;
  owner_.broke(id_, shared_from_this(), std::move(left));
}

void TcpPeer::close(const std::string& why) { static_cast<TcpTransport&>(*transport).drop(std::static_pointer_cast<TcpPeer>(shared_from_this()), why); }

std::string TcpPeer::explain(const PublishedBuffer*, std::string&) { return "tcp: " + who() + (file_.empty() ? "" : " of its owner " + fileOwner_); }

std::unique_ptr<TcpPipe> TcpPeer::checkOut(uint64_t deadlineNs, Unfinished& left) {
  std::unique_lock lock(mutex_);
  while (idle_.empty() && out_ >= options_.syncConnectionsPerPeer && !closed_) {
    uint64_t now = nowNs();
    if (now >= deadlineNs) {
      left.timedOut = true;
      left.trouble = "all " + std::to_string(out_) + " connections to " + who() + " are in use";
      return nullptr;
    }
    returned_.wait_for(lock, std::chrono::nanoseconds(deadlineNs - now));
  }
  out_++;
  if (!idle_.empty()) {
    auto pipe = std::move(idle_.back());
    idle_.pop_back();
    busy_.insert(pipe->fd());
    return pipe;
  }
  lock.unlock();
  uint64_t now = nowNs();
  uint64_t leftMs = now >= deadlineNs ? 1 : (deadlineNs - now) / NS_PER_MS + 1;
  Fd fd = connectWithin(address_, std::min(options_.connectTimeoutMs, leftMs));
  if (!fd) {
    left.connectFailed = true;
    left.trouble = lastError();
    giveBack(nullptr);
    return nullptr;
  }
  timeval wait{long(READ_WAIT_MS / 1000), long(READ_WAIT_MS % 1000 * 1000)};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  fitSendBuffer(fd.get());
  metrics_.connectionsOpened.fetch_add(1, std::memory_order_relaxed);
  lock.lock();
  if (closed_) {
    out_--;
    left.connectFailed = true;
    left.trouble = "the connection was closed here";
    return nullptr;
  }
  busy_.insert(fd.get());
  return std::make_unique<TcpPipe>(std::move(fd), file_, options_.pollUs);
}

void TcpPeer::giveBack(std::unique_ptr<TcpPipe> pipe) {
  std::lock_guard lock(mutex_);
  out_--;
  if (pipe) busy_.erase(pipe->fd());
  if (pipe && !closed_ && idle_.size() < IDLE_PIPES) idle_.push_back(std::move(pipe));
  returned_.notify_one();
}

Unfinished TcpPeer::run(std::vector<Slice> slices, uint64_t deadlineNs) {
  Unfinished left;
  auto pipe = checkOut(deadlineNs, left);
  if (!pipe) {
    left.slices = std::move(slices);
    return left;
  }
  uint64_t before = pipe->acknowledged();
  for (const auto& slice : slices) pipe->push(slice);
  auto done = [](const Slice& slice) { finishSlice(*slice.task, slice.length, nullptr); };
  bool sendBroken = false;
  while (!pipe->empty()) {
    TcpPipe::Step sent = sendBroken ? TcpPipe::Step::Blocked : pipe->send();
    if (sent == TcpPipe::Step::Broken) {
      sendBroken = true;
      left.trouble = pipe->trouble();
    }
    uint64_t now = nowNs();
    if (now >= deadlineNs) {
      left.timedOut = true;
      left.trouble = "no answer from " + who() + " in time";
      break;
    }
    bool writable = !sendBroken && pipe->wantsWrite();
    // A blocking read saves the poll, which is a third of a short request's time.
    bool mayBlock = !writable && !sendBroken && deadlineNs - now > 2 * READ_WAIT_MS * NS_PER_MS;
    TcpPipe::Step got = TcpPipe::Step::Blocked;
    auto answered = [&] { return (got = pipe->receive(done, false)) != TcpPipe::Step::Blocked; };
    if (writable || sendBroken || !pipe->spin().until(answered)) got = pipe->receive(done, mayBlock);
    if (got == TcpPipe::Step::Broken) {
      if (!sendBroken || pipe->refused()) left.trouble = pipe->trouble();
      left.refused = pipe->refused();
      left.connectFailed = pipe->unopened();
      sendBroken = true;
      break;
    }
    if (got != TcpPipe::Step::Blocked || mayBlock) continue;
    if (sendBroken) break;
    short events = POLLIN;
    if (writable) events |= POLLOUT;
    waitFor(pipe->fd(), events, deadlineNs);
  }
  if (pipe->empty()) {
    giveBack(std::move(pipe));
    return left;
  }
  left.acknowledged = pipe->acknowledged() - before;
  left.slices = pipe->takeSlices();
  metrics_.connectionsBroken.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  // We erase it before the descriptor is closed, so that close() cannot hit another connection with the same number.
  busy_.erase(pipe->fd());
  pipe.reset();
  out_--;
  returned_.notify_one();
  // The idle connections lead to the same instance of the peer and are probably stale, too.
  if (!left.timedOut && !left.refused) idle_.clear();
  return left;
}

void TcpPeer::submit(const std::vector<Slice>& slices, bool lingers) {
  std::vector<std::vector<Slice>> shares(lanes_.size());
  std::vector<uint64_t> load;
  for (const auto& lane : lanes_) load.push_back(lane->queuedBytes());
  auto lightest = [&] { return size_t(std::min_element(load.begin(), load.end()) - load.begin()); };
  // Small batches stay on one lane, so that one write carries them all.
  uint64_t total = 0;
  for (const auto& slice : slices) total += slice.length;
  size_t lane = lightest();
  if (lingers && slices.size() == 1 && total <= LINGER_BYTES) return lanes_[lane]->submit(slices, true);
  for (const auto& slice : slices) {
    if (total > SPREAD_BYTES) lane = lightest();
    if (slice.length <= SPREAD_BYTES || lanes_.size() == 1) {
      shares[lane].push_back(slice);
      load[lane] += slice.length + 1;
      continue;
    }
    uint64_t count = (slice.length + SPREAD_BYTES - 1) / SPREAD_BYTES;
    // The count is raised before the first part is sent, so that the task cannot end with it.
    slice.task->slicesLeft.fetch_add(uint32_t(count - 1), std::memory_order_relaxed);
    for (uint64_t at = 0; at < slice.length; at += SPREAD_BYTES) {
      Slice part = slice;
      part.local += at;
      part.remote += at;
      part.length = std::min(SPREAD_BYTES, slice.length - at);
      lane = lightest();
      shares[lane].push_back(part);
      load[lane] += part.length + 1;
    }
  }
  for (size_t i = 0; i < shares.size(); i++)
    if (!shares[i].empty()) lanes_[i]->submit(shares[i], false);
}

void TcpPeer::tick() {
  for (auto& lane : lanes_) lane->tick();
}

void TcpPeer::closeConnections(const std::string& trouble) {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    idle_.clear();
    for (int fd : busy_) shutdown(fd, SHUT_RDWR);
    returned_.notify_all();
  }
  for (auto& lane : lanes_) lane->close(trouble);
}

}  // namespace svc
