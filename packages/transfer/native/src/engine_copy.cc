// Paths that this process walks by itself: copies within its own memory, and to and from other processes of the host.
#include "engine.h"

namespace svc {

void Engine::account(Path path, uint64_t requests, uint64_t bytes) {
  auto& counters = metrics.of(path);
  counters.requests.fetch_add(requests, std::memory_order_relaxed);
  counters.bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void Engine::copyOwn(Piece& piece) {
  Buffer* target = registry.pinTarget(piece.wire.remote, piece.wire.length);
  if (target == nullptr) return failPiece(piece.wire, Path::Local, "range " + rangeText(piece.wire.remote, piece.wire.length) + " lies in no registered buffer of this engine");
  auto* here = reinterpret_cast<char*>(piece.wire.local);
  auto* there = reinterpret_cast<char*>(piece.wire.remote);
  // The two may overlap.
  if (piece.wire.write) memmove(there, here, piece.wire.length);
  else memmove(here, there, piece.wire.length);
  target->unpin();
  account(Path::Local, 1, piece.wire.length);
  finishPiece(*piece.wire.task, piece.wire.length, nullptr);
}

void Engine::copyOnHost(Segment& segment, const ViewRef& view, std::vector<Piece>& pieces, std::vector<Piece>& rest) {
  HostPeer& host = *view->host;
  std::string why;
  if (!host.alive()) {
    // Its tcp side, if there is one, says so in its own words, and heals when the peer starts anew.
    metrics.of(Path::Shm).fallbacks.fetch_add(pieces.size(), std::memory_order_relaxed);
    rest.swap(pieces);
    return;
  }
  std::vector<HostCopy> run;
  std::vector<Piece*> owners;
  auto flush = [&] {
    size_t through = host.copyByKernel(run, why);
    uint64_t bytes = 0;
    for (size_t i = 0; i < run.size(); i++) {
      if (i >= through) {
        metrics.of(Path::ProcessVm).fallbacks.fetch_add(1, std::memory_order_relaxed);
        rest.push_back(*owners[i]);
        continue;
      }
      bytes += run[i].length;
    }
    account(Path::ProcessVm, through, bytes);
    for (size_t i = 0; i < through; i++) finishPiece(*owners[i]->wire.task, run[i].length, nullptr);
    run.clear();
    owners.clear();
  };
  for (auto& piece : pieces) {
    if (piece.buffer == nullptr || !piece.buffer->slot) {
      rest.push_back(piece);
      continue;
    }
    HostCopy copy{piece.wire.local, piece.wire.remote, piece.wire.length, piece.wire.write, piece.buffer};
    if (!piece.buffer->mapPath.empty()) {
      if (host.copyMapped(copy, why)) {
        account(Path::Shm, 1, copy.length);  // first: who waited for the piece may ask
        finishPiece(*piece.wire.task, copy.length, nullptr);
        continue;
      }
      metrics.of(Path::Shm).fallbacks.fetch_add(1, std::memory_order_relaxed);
    }
    if (!host.processVm()) {
      rest.push_back(piece);
      continue;
    }
    if (!run.empty() && run.back().write != copy.write) flush();
    run.push_back(copy);
    owners.push_back(&piece);
  }
  if (!run.empty()) flush();
  (void)segment;
}

}  // namespace svc
