// What becomes of requests whose connection broke: the one to blame fails, the others go on over a new connection.
#include "engine.h"

namespace svc {

namespace {
/** Connections in a row that broke without one acknowledgement; past it the peer is not worth another. */
constexpr int MAX_EMPTY_CONNECTIONS = 3;
/** A peer's record is not read more often than this while its connections break. */
constexpr uint64_t REFRESH_EVERY_MS = 50;
/** Of a device that has requests for a peer: some providers never tell of a peer that is gone. */
constexpr uint64_t FABRIC_SILENCE_MS = 200;
/** A live peer answers the question within this; of one that does not, it is asked again later: it may be stopped for long. */
constexpr uint64_t FABRIC_ANSWER_MS = 500, FABRIC_ASK_AGAIN_MS = 2000;
/** A device needs this long to see that a connection broke and to open another. */
constexpr uint64_t FABRIC_RECONNECT_MS = 50;
}  // namespace

void Engine::failPiece(const TcpPiece& piece, Path path, const std::string& error) {
  metrics.of(path).failures.fetch_add(1, std::memory_order_relaxed);
  finishPiece(*piece.task, 0, &error);
}

std::deque<TcpPiece> Engine::judge(Segment& segment, const TcpPeer& peer, Leftover left) {
  auto say = [&](const TcpPiece& piece, const std::string& why) {
    failPiece(piece, Path::Tcp, "peer " + segment.name + " (" + peer.who() + "), " + (piece.write ? "write" : "read") + " of " + rangeText(piece.remote, piece.length) + ": " + why);
  };
  std::deque<TcpPiece> again;
  uint64_t now = nowNs();
  ViewRef before = segment.current();
  if (stopping_) left.trouble = "the engine is stopping";
  bool fresh = !stopping_ && refresh(segment, left.timedOut ? 1000 : REFRESH_EVERY_MS);
  ViewRef view = segment.current();
  bool moved = fresh && view->tcp && (view->tcp.get() != &peer || !sameEngine(*view, *before));
  bool head = true;
  for (auto& piece : left.pieces) {
    bool first = std::exchange(head, false);
    if (now >= piece.deadlineNs) {
      metrics.timeouts.fetch_add(1, std::memory_order_relaxed);
      say(piece, "timed out: " + left.trouble);
      continue;
    }
    if (!view->tcp || stopping_) {
      say(piece, view->tcp ? left.trouble : view->tcpWhy);
      continue;
    }
    // A peer that started anew is another peer: what failed with the old one says nothing about it.
    if (moved && piece.attempts < piece.maxAttempts) {
      if (first) piece.attempts++;
      again.push_back(piece);
      continue;
    }
    if (left.connectFailed) {
      if (++piece.attempts >= piece.maxAttempts || piece.maxAttempts <= 2) say(piece, left.trouble);
      else again.push_back(piece);
      continue;
    }
    if (first && (left.refused || ++piece.attempts >= piece.maxAttempts)) {
      say(piece, left.trouble);
      continue;
    }
    again.push_back(piece);
  }
  return again;
}

void Engine::reread(const SegmentRef& segment) {
  if (segment->rereading.exchange(true)) return;
  auto work = [this, segment] {
    refresh(*segment, REFRESH_EVERY_MS);
    segment->rereading = false;
  };
  if (!pool.post(segment->id, work)) segment->rereading = false;
}

void Engine::endRdma(SegmentID id, const ViewRef& view, const TcpPiece& piece, const std::string* error) {
  if (error == nullptr) {
    account(Path::Rdma, 1, piece.length);
    return finishPiece(*piece.task, piece.length, nullptr);
  }
  SegmentRef segment = stopping_ ? nullptr : this->segment(id);
  std::string why = "peer " + (segment ? segment->name : view->record->serverName) + ", " + rangeText(piece.remote, piece.length) + ": " + *error;
  if (!segment || nowNs() >= piece.deadlineNs) return failPiece(piece, Path::Rdma, why);
  if (auto next = segment->current()->tcp) {
    metrics.of(Path::Rdma).fallbacks.fetch_add(1, std::memory_order_relaxed);
    account(Path::Tcp, 1, piece.length);
    reread(segment);
    return next->submit({piece});
  }
  {
    std::lock_guard lock(view->rdma->mutex);
    view->rdma->stranded.emplace_back(piece, why);
    if (view->rdma->stranded.size() > 1) return;
  }
  auto work = [this, segment, view] { recoverRdma(segment, view); };
  if (!pool.post(segment->id, work)) work();
}

void Engine::recoverRdma(const SegmentRef& segment, const ViewRef& before) {
  bool fresh = !stopping_ && refresh(*segment, REFRESH_EVERY_MS);
  if (fresh && !stopping_ && segment->current()->rdma == before->rdma) usleep(FABRIC_RECONNECT_MS * 1000);
  std::vector<std::pair<TcpPiece, std::string>> stranded;
  {
    std::lock_guard lock(before->rdma->mutex);
    stranded.swap(before->rdma->stranded);
  }
  // The peer may have started anew, or lost the connection by another's request, which takes all in flight along.
  bool there = fresh && segment->current()->rdma != nullptr;
  std::vector<Piece> again;
  for (auto& [piece, why] : stranded) {
    if (there && ++piece.attempts < piece.maxAttempts) again.push_back({segment.get(), nullptr, piece});
    else failPiece(piece, Path::Rdma, why);
  }
  if (!again.empty()) dispatch(again, Drive::Engine, again.front().wire.deadlineNs, false);
}

void Engine::watchFabric() {
  if (!fabric_) return;
  std::vector<std::pair<SegmentRef, ViewRef>> silent;
  {
    std::lock_guard lock(segmentMutex_);
    for (const auto& [id, known] : segments_)
      if (ViewRef view = known->current(); view && view->rdma && view->rdma->silent(nowMs(), FABRIC_SILENCE_MS)) silent.emplace_back(known, view);
  }
  for (const auto& [segment, view] : silent) {
    if (segment->rereading.exchange(true)) continue;
    auto work = [this, segment = segment, view = view] {
      std::string gone;
      auto where = rpcAddressOf(segment->name);
      bool answered = false;
      // Whoever serves its handshake port is asked which start of it he is; he may also be stopped, and then nothing is known.
      if (where && !connectWithin(*where, options.connectTimeoutMs)) gone = "the peer is gone: " + lastError();
      else answered = refresh(*segment, REFRESH_EVERY_MS, FABRIC_ANSWER_MS);
      view->rdma->movedAtMs = nowMs() + (answered ? 0 : FABRIC_ASK_AGAIN_MS);
      segment->rereading = false;
      if (!gone.empty()) view->rdmaTransport->abandon(*view->rdma, gone);
    };
    if (!pool.post(segment->id, work)) segment->rereading = false;
  }
}

void Engine::recover(const SegmentRef& segment, const std::shared_ptr<TcpPeer>& peer, Leftover left) {
  if (!segment) {
    for (const auto& piece : left.pieces) failPiece(piece, Path::Tcp, "peer " + peer->who() + ", " + rangeText(piece.remote, piece.length) + ": " + left.trouble);
    return;
  }
  std::deque<TcpPiece> again = judge(*segment, *peer, std::move(left));
  if (again.empty()) return;
  if (auto next = segment->current()->tcp) return next->submit(std::move(again));
  for (const auto& piece : again) failPiece(piece, Path::Tcp, "peer " + segment->name + ": it serves no tcp any more");
}

void Engine::runTcp(Segment& segment, std::deque<TcpPiece> pieces, uint64_t deadlineNs) {
  int empty = 0;
  while (!pieces.empty()) {
    std::shared_ptr<TcpPeer> peer = segment.current()->tcp;
    if (!peer) {
      for (const auto& piece : pieces) failPiece(piece, Path::Tcp, "peer " + segment.name + ": " + segment.current()->tcpWhy);
      return;
    }
    Leftover left = peer->run(std::move(pieces), deadlineNs);
    if (left.pieces.empty()) return;
    empty = left.acknowledged == 0 && !left.refused ? empty + 1 : 0;
    std::string trouble = left.trouble;
    pieces = judge(segment, *peer, std::move(left));
    if (empty < MAX_EMPTY_CONNECTIONS) continue;
    for (const auto& piece : pieces) failPiece(piece, Path::Tcp, "peer " + segment.name + " (" + peer->who() + "): " + trouble);
    return;
  }
}

}  // namespace svc
