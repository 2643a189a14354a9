// The leader's side: admits standbys, sends them the state and then each frame, and tracks how far the required ones are.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "replication/replication.h"

namespace svc {

void Replication::configure(const ReplicationTimes& times, bool sync, u64 snapshotBytes, int epoll, Emit emit) {
  times_ = times;
  tail_.bound(times.resumeBytes);
  sync_ = sync;
  snapshotBytes_ = snapshotBytes;
  epoll_ = epoll;
  emit_ = std::move(emit);
  on_ = true;
  log_.onFrame = [this](std::string_view frame) { ship(frame); };
}

void Replication::watch(int fd, u32 slot, bool out, bool add) {
  epoll_event event{};
  event.events = static_cast<u32>(EPOLLIN) | (out ? static_cast<u32>(EPOLLOUT) : 0u);
  event.data.u32 = slot;
  epoll_ctl(epoll_, add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
}

Replication::Peer* Replication::peerOf(u64 id) {
  for (const auto& peer : peers_)
    if (peer && peer->id == id) return peer.get();
  return nullptr;
}

const Replication::Peer* Replication::peerOf(u64 id) const { return const_cast<Replication*>(this)->peerOf(id); }

void Replication::accept(u64 nowMs) {
  while (true) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    const int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    auto free = std::find(peers_.begin(), peers_.end(), nullptr);
    if (free == peers_.end() && peers_.size() < mostPeers) free = peers_.emplace(peers_.end(), nullptr);
    if (free == peers_.end()) {
      close(fd);
      continue;
    }
    *free = std::make_unique<Peer>();
    Peer& peer = **free;
    peer.id = ++lastPeer_;
    peer.stream.take(fd);
    peer.heardMs = nowMs;
    watch(fd, peerSlots + static_cast<u32>(free - peers_.begin()), false, true);
  }
}

void Replication::onEvent(u32 slot, u32 events, u64 nowMs) {
  if (slot == listenSlot) return accept(nowMs);
  if (slot == followSlot) {
    if (!leader_.open()) return;
    heardMs_ = nowMs;
    // Everything that the leader sent before the stream closed is applied, but not acknowledged any more.
    const bool alive = leader_.receive([&](const StreamHead& head, std::string_view payload) { return fromLeader(head, payload, nowMs); });
    log_.flush();
    if (!alive) return leave("the leader closed the stream");
    acknowledge();
    return;
  }
  Peer* peer = slot - peerSlots < peers_.size() ? peers_[slot - peerSlots].get() : nullptr;
  if (peer == nullptr || !peer->stream.open()) return;
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
    peer->heardMs = nowMs;
    const u64 id = peer->id;
    const bool alive = peer->stream.receive([&](const StreamHead& head, std::string_view payload) { return fromStandby(*peer, head, payload, nowMs); });
    if (!alive && peerOf(id) != nullptr) return lose(*peer, "it closed the stream");
  }
  flush();
}

bool Replication::fromStandby(Peer& peer, const StreamHead& head, std::string_view payload, u64 nowMs) {
  switch (head.type) {
    case Message::hello:
      if (peer.state != Peer::State::greeting) return false;
      peer.state = Peer::State::asking;
      peer.nextLsn = head.lsn;
      peer.term = static_cast<u32>(head.sentMs);
      emit_(Notice::peer, peer.id, std::string(payload));
      return true;
    case Message::ready:
      if (peer.state != Peer::State::saving) return false;
      peer.state = Peer::State::live;
      ++(peer.nextLsn != 0 ? resumes : wholes);
      // From here on no answer is sent without it; etcd is notified once it has everything that was acknowledged before.
      peer.required = true;
      peer.requiredFrom = peer.markLsn = lastLsn();
      peer.markMs = nowMs;
      peer.echoMs = nowMs;
      caughtUp(peer);
      return true;
    case Message::ack:
      if (head.epoch != epoch_) return false;
      peer.acked = std::max(peer.acked, head.lsn);
      peer.echoMs = std::max(peer.echoMs, std::min(head.sentMs, nowMs));
      caughtUp(peer);
      return true;
    default:
      return false;
  }
}

void Replication::caughtUp(Peer& peer) {
  if (!peer.required || peer.reported || peer.acked < peer.requiredFrom) return;
  peer.reported = true;
  emit_(Notice::caughtUp, peer.id, {});
}

void Replication::lose(Peer& peer, const char* why) {
  if (peer.state == Peer::State::gone) return;
  peer.state = Peer::State::gone;
  peer.stream.close();
  const u64 id = peer.id;
  // A required peer counts until etcd has removed it from the set.
  if (!peer.required) forget(id);
  emit_(Notice::peerLost, id, why);
}

void Replication::forget(u64 id) {
  for (auto& peer : peers_)
    if (peer && peer->id == id) peer.reset();
}

void Replication::ship(std::string_view frame) {
  tail_.add(frame);
  StreamHead head;
  head.type = Message::frame;
  head.epoch = epoch_;
  for (const auto& peer : peers_)
    if (peer && (peer->state == Peer::State::syncing || peer->state == Peer::State::saving || peer->state == Peer::State::live)) peer->stream.say(head, frame);
}

void Replication::flush() {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Peer* peer = peers_[i].get();
    if (peer == nullptr || !peer->stream.open()) continue;
    if (!peer->stream.flush()) {
      lose(*peer, "its connection broke");
      continue;
    }
    const bool blocked = peer->stream.unsent() > 0;
    if (blocked == peer->watchesOut) continue;
    peer->watchesOut = blocked;
    watch(peer->stream.fd(), peerSlots + static_cast<u32>(i), blocked, false);
  }
}

bool Replication::tick(u64 nowMs) {
  if (!on_) return false;
  return leads_ ? leaderTick(nowMs) : standbyTick(nowMs);
}

bool Replication::leaderTick(u64 nowMs) {
  bool more = false;
  const bool sendsHeartbeat = nowMs >= heartbeatAtMs_;
  if (sendsHeartbeat) heartbeatAtMs_ = nowMs + times_.heartbeatMs;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Peer* peer = peers_[i].get();
    if (peer == nullptr || !peer->stream.open()) continue;
    if (peer->state == Peer::State::syncing) more = slice(*peer) || more;
    if (sendsHeartbeat && peer->state != Peer::State::greeting && peer->state != Peer::State::asking) {
      StreamHead head;
      head.type = Message::heartbeat;
      head.epoch = epoch_;
      head.lsn = lastLsn();
      head.sentMs = nowMs;
      peer->stream.say(head);
    }
    if (peer->state == Peer::State::live && peer->acked >= peer->markLsn) {
      peer->markLsn = lastLsn();
      peer->markMs = nowMs;
    }
    if (nowMs > peer->heardMs + times_.standbyMs * (peer->state == Peer::State::live ? 1 : 10)) lose(*peer, "it said nothing for too long");
    else if (peer->state == Peer::State::live && nowMs > peer->markMs + times_.standbyMs) lose(*peer, "it is behind");
    else if (peer->stream.unsent() > times_.unsentBytes + times_.resumeBytes) lose(*peer, "too much waited to be sent to it");
  }
  flush();
  return more;
}

void Replication::lead(u64 epoch, u64 nowMs, u64 holdMs) {
  unfollow();
  epoch_ = epoch;
  leads_ = true;
  contactMs_ = nowMs;
  holdLsn_ = lastLsn();
  holdUntilMs_ = nowMs + holdMs;
}

bool Replication::hasAll(u64 id) const {
  const Peer* peer = peerOf(id);
  return peer != nullptr && peer->state == Peer::State::live && peer->acked >= lastLsn();
}

void Replication::handOver(u64 id, u64 epoch) {
  Peer* peer = peerOf(id);
  if (peer == nullptr || !peer->stream.open()) return;
  StreamHead head;
  head.type = Message::lead;
  head.epoch = epoch;
  peer->stream.say(head);
  flush();
}

u64 Replication::committed(u64 durable, u64 nowMs) const {
  if (!on_) return durable;
  u64 least = durable;
  for (const auto& peer : peers_)
    if (sync_ && peer && peer->required) least = std::min(least, peer->acked);
  return nowMs < holdUntilMs_ ? std::min(least, holdLsn_) : least;
}

u64 Replication::contactAgeMs(u64 nowMs) const {
  u64 heard = nowMs;
  for (const auto& peer : peers_)
    if (peer && peer->required) heard = std::min(heard, peer->echoMs);
  return nowMs - std::max(heard, std::min(nowMs, contactMs_));
}

// Only a member of the set can take the lead, so a leader that is alone in it keeps its lease.
bool Replication::leased(u64 nowMs) const { return !on_ || (!retired_ && contactAgeMs(nowMs) < times_.leaseMs); }

}  // namespace svc
