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

std::string about(const Piece& piece) {
  return (piece.segment != nullptr ? "peer " + piece.segment->name + ", " : "") + (piece.wire.write ? "write" : "read") + " of " + rangeText(piece.wire.remote, piece.wire.length) + ": ";
}
}  // namespace

void Engine::failPiece(const TcpPiece& piece, Path path, const std::string& error) {
  metrics.of(path).failures.fetch_add(1, std::memory_order_relaxed);
  finishPiece(*piece.task, 0, &error);
}

void Engine::failLate(std::vector<Piece>& pieces, Path path, const std::string& trouble) {
  const uint64_t now = nowNs();
  std::erase_if(pieces, [&](const Piece& piece) {
    if (now < piece.wire.deadlineNs) return false;
    metrics.timeouts.fetch_add(1, std::memory_order_relaxed);
    failPiece(piece.wire, path, about(piece) + "timed out: " + trouble);
    return true;
  });
}

std::shared_ptr<WaitingPieces> Engine::waitWith(std::vector<Piece> pieces, Path path, std::string trouble, std::vector<SegmentRef> segments) {
  auto waiting = std::make_shared<WaitingPieces>();
  waiting->segments = std::move(segments);
  waiting->pieces = std::move(pieces);
  waiting->path = path;
  waiting->trouble = std::move(trouble);
  std::lock_guard lock(waitingMutex_);
  waiting_.push_back(waiting);
  return waiting;
}

void Engine::expireWaiting() {
  std::vector<std::shared_ptr<WaitingPieces>> all;
  {
    std::lock_guard lock(waitingMutex_);
    std::erase_if(waiting_, [&](const auto& weak) {
      auto one = weak.lock();
      if (one) all.push_back(one);
      return one == nullptr;
    });
  }
  for (const auto& waiting : all) {
    std::vector<Piece> late;
    {
      std::lock_guard lock(waiting->mutex);
      const uint64_t now = nowNs();
      std::erase_if(waiting->pieces, [&](const Piece& piece) {
        if (now >= piece.wire.deadlineNs) late.push_back(piece);
        return now >= piece.wire.deadlineNs;
      });
    }
    failLate(late, waiting->path, waiting->trouble);
  }
}

void Engine::broke(const SegmentRef& segment, const std::shared_ptr<TcpPeer>& peer, Leftover left) {
  std::vector<Piece> pieces;
  for (auto& piece : left.pieces) pieces.push_back({segment.get(), nullptr, piece});
  left.pieces.clear();
  if (!pieces.empty()) pieces.front().wire.atHead = true;
  left.trouble = peer->who() + ": " + left.trouble;
  failLate(pieces, Path::Tcp, left.trouble);
  if (pieces.empty()) return;
  auto waiting = waitWith(std::move(pieces), Path::Tcp, left.trouble, {segment});
  auto work = [this, segment, peer, left = std::move(left), waiting] { recover(segment, peer, left, waiting); };
  if (!segment || !pool.post(segment->id, work)) work();
}

std::vector<Piece> Engine::judge(Segment& segment, const TcpPeer& peer, const Leftover& left, const std::shared_ptr<WaitingPieces>& waiting, uint64_t deadlineNs) {
  ViewRef before = segment.current();
  bool fresh = !stopping_ && refresh(segment, left.timedOut ? 1000 : REFRESH_EVERY_MS, RPC_MS, deadlineNs);
  ViewRef view = segment.current();
  bool moved = fresh && view->tcp && (view->tcp.get() != &peer || !sameEngine(*view, *before));
  std::vector<Piece> pieces = waiting->take(), again;
  failLate(pieces, Path::Tcp, left.trouble);
  for (auto& piece : pieces) {
    auto say = [&](const std::string& why) { failPiece(piece.wire, Path::Tcp, about(piece) + why); };
    const bool first = std::exchange(piece.wire.atHead, false);
    uint8_t &attempts = piece.wire.attempts, maxAttempts = piece.wire.maxAttempts;
    if (!view->tcp || stopping_) say(stopping_ ? "the engine is stopping" : view->tcpWhy);
    // A peer that started anew is another peer: what failed with the old one says nothing about it.
    else if (moved && attempts < maxAttempts) {
      if (first) attempts++;
      again.push_back(piece);
    } else if (left.connectFailed) {
      if (++attempts >= maxAttempts || maxAttempts <= 2) say(left.trouble);
      else again.push_back(piece);
    } else if (first && (left.refused || ++attempts >= maxAttempts)) say(left.trouble);
    else again.push_back(piece);
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
  std::vector<std::shared_ptr<RdmaPeer>> all;
  {
    std::lock_guard lock(segmentMutex_);
    for (const auto& [id, known] : segments_) {
      ViewRef view = known->current();
      if (!view || !view->rdma) continue;
      all.push_back(view->rdma);
      if (view->rdma->silent(nowMs(), FABRIC_SILENCE_MS)) silent.emplace_back(known, view);
    }
  }
  for (const auto& rdma : all) {
    std::vector<std::pair<TcpPiece, std::string>> late;
    {
      std::lock_guard lock(rdma->mutex);
      const uint64_t now = nowNs();
      std::erase_if(rdma->stranded, [&](const auto& each) {
        if (now >= each.first.deadlineNs) late.push_back(each);
        return now >= each.first.deadlineNs;
      });
    }
    for (const auto& [piece, why] : late) failPiece(piece, Path::Rdma, why);
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

void Engine::recover(const SegmentRef& segment, const std::shared_ptr<TcpPeer>& peer, const Leftover& left, const std::shared_ptr<WaitingPieces>& waiting) {
  if (!segment) {
    for (const auto& piece : waiting->take()) failPiece(piece.wire, Path::Tcp, about(piece) + left.trouble);
    return;
  }
  std::deque<TcpPiece> again;
  for (auto& piece : judge(*segment, *peer, left, waiting, 0)) again.push_back(piece.wire);
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
    pieces.clear();
    if (left.pieces.empty()) return;
    empty = left.acknowledged == 0 && !left.refused ? empty + 1 : 0;
    left.trouble = peer->who() + ": " + left.trouble;
    std::vector<Piece> list;
    for (auto& piece : left.pieces) list.push_back({&segment, nullptr, piece});
    list.front().wire.atHead = true;
    failLate(list, Path::Tcp, left.trouble);
    if (list.empty()) return;
    auto again = judge(segment, *peer, left, waitWith(std::move(list), Path::Tcp, left.trouble, {segment.shared_from_this()}), deadlineNs);
    for (auto& piece : again) {
      if (empty < MAX_EMPTY_CONNECTIONS) pieces.push_back(piece.wire);
      else failPiece(piece.wire, Path::Tcp, about(piece) + left.trouble);
    }
  }
}

}  // namespace svc
