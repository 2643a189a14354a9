// What becomes of requests whose connection broke: the one to blame fails, the others go on over a new connection.
#include "engine.h"

namespace svc {

namespace {
/** Connections in a row that broke without one acknowledgement; past it the peer is not worth another. */
constexpr int MAX_EMPTY_CONNECTIONS = 3;
/** A peer's record is not read more often than this while its connections break. */
constexpr uint64_t REFRESH_EVERY_MS = 50;
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
