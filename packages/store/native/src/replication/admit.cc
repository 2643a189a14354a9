// How a standby joins: it is refused, gets what it missed, or gets the whole state in slices.
#include "replication/replication.h"

namespace svc {

namespace {
// The most unsent bytes to a syncing standby before the walk over the state pauses.
constexpr std::size_t aheadBytes = 4 << 20;
}  // namespace

void Replication::admit(u64 id, std::string_view self, bool mayResume, u64 nowMs) {
  Peer* peer = peerOf(id);
  if (peer == nullptr || peer->state != Peer::State::asking) return;
  peer->heardMs = nowMs;
  if (mayResume && resume(*peer, self)) return flush();
  // The standby starts from nothing, whatever it had.
  peer->nextLsn = 0;
  peer->state = Peer::State::syncing;
  StreamHead head;
  head.type = Message::begin;
  head.epoch = epoch_;
  head.lsn = store_.journal.nextLsn;
  head.sentMs = log_.term();
  peer->stream.say(head, self);
  Journal journal;
  journal.epochMs = store_.journal.epochMs;
  store_.replay.snapshotHead(journal);
  head.type = Message::part;
  head.records = journal.count;
  peer->stream.say(head, journal.pending);
  flush();
}

// If the standby's log is a prefix of this one and the rest is still in memory, it gets the rest.
bool Replication::resume(Peer& peer, std::string_view self) {
  if (peer.nextLsn == 0 || !log_.continues(peer.term, peer.nextLsn)) return false;
  const u64 next = store_.journal.nextLsn;
  if (!tail_.from(peer.nextLsn, next, [](std::string_view) {})) return false;
  StreamHead head;
  head.type = Message::resume;
  head.epoch = epoch_;
  head.lsn = peer.nextLsn;
  head.sentMs = log_.term();
  peer.stream.say(head, self);
  head = {};
  head.type = Message::frame;
  head.epoch = epoch_;
  tail_.from(peer.nextLsn, next, [&](std::string_view frame) { peer.stream.say(head, frame); });
  head.type = Message::whole;
  head.lsn = lastLsn();
  peer.stream.say(head);
  peer.state = Peer::State::saving;
  return true;
}

void Replication::refuse(u64 id, std::string_view why) {
  Peer* peer = peerOf(id);
  if (peer == nullptr) return;
  StreamHead head;
  head.type = Message::refused;
  head.epoch = epoch_;
  peer->stream.say(head, why);
  peer->stream.flush();
  // The peer is not read any more; a standby closes by itself when it is refused.
  lose(*peer, "it was refused");
}

// Sends the next slice of the state; true while there is more of it.
bool Replication::slice(Peer& peer) {
  if (peer.stream.unsent() > aheadBytes) return false;
  Journal journal;
  journal.epochMs = store_.journal.epochMs;
  peer.cursor = store_.replay.snapshotSome(journal, peer.cursor);
  StreamHead head;
  head.epoch = epoch_;
  head.type = Message::part;
  head.records = journal.count;
  if (journal.count > 0) peer.stream.say(head, journal.pending);
  if (peer.cursor != 0) return true;
  head.type = Message::whole;
  head.records = 0;
  head.lsn = lastLsn();
  peer.stream.say(head);
  peer.state = Peer::State::saving;
  return false;
}

}  // namespace svc
