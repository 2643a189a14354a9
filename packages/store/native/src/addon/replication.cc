// JavaScript's control of replication: which leader to follow, when to lead, and which peers count.
#include "addon/addon.h"

namespace svc {

namespace {
Server& any(Addon& addon) {
  if (!addon.server) throw std::runtime_error("the master has stopped");
  return *addon.server;
}
u64 peerAt(const Call& call) { return static_cast<u64>(call.number(0)); }
}  // namespace

// ({ silenceMs, standbyMs, leaseMs, resumeBytes }, sync)
napi_value configureReplication(Addon& addon, const Call& call) {
  ReplicationTimes times;
  times.silenceMs = static_cast<u64>(call.number(call.member(0, "silenceMs")));
  times.standbyMs = static_cast<u64>(call.number(call.member(0, "standbyMs")));
  times.leaseMs = static_cast<u64>(call.number(call.member(0, "leaseMs")));
  times.resumeBytes = static_cast<u64>(call.number(call.member(0, "resumeBytes")));
  any(addon).configureReplication(times, call.flag(1));
  return call.undefined();
}

napi_value listenPeers(Addon& addon, const Call& call) {
  return call.of(static_cast<double>(any(addon).listenPeers(call.bytes(0), static_cast<u16>(call.number(1)))));
}

napi_value startStandby(Addon& addon, const Call& call) {
  any(addon).startStandby(call.flag(0), call.flag(1));
  return call.undefined();
}

// (numeric address, port, epoch, hello)
napi_value follow(Addon& addon, const Call& call) {
  any(addon).follow(call.bytes(0), static_cast<u16>(call.number(1)), static_cast<u64>(call.number(2)), call.bytes(3));
  return call.undefined();
}

// (epoch, ms before changes are answered, view)
napi_value lead(Addon& addon, const Call& call) {
  any(addon).lead(static_cast<u64>(call.number(0)), static_cast<u64>(call.number(1)), static_cast<i64>(call.number(2)));
  return call.undefined();
}

// (peer, our description, whether it may resume from what it has)
napi_value admitPeer(Addon& addon, const Call& call) {
  const std::string self = call.bytes(1);
  serving(addon).withReplication([&](Replication& replication, u64 nowMs) { replication.admit(peerAt(call), self, call.flag(2), nowMs); });
  return call.undefined();
}

// (peer, why)
napi_value refusePeer(Addon& addon, const Call& call) {
  const std::string why = call.bytes(1);
  any(addon).withReplication([&](Replication& replication, u64) { replication.refuse(peerAt(call), why); });
  return call.undefined();
}

napi_value forgetPeer(Addon& addon, const Call& call) {
  any(addon).withReplication([&](Replication& replication, u64) { replication.forget(peerAt(call)); });
  return call.undefined();
}

napi_value retire(Addon& addon, const Call& call) {
  any(addon).withReplication([&](Replication& replication, u64) { replication.retire(call.flag(0)); });
  return call.undefined();
}

napi_value peerHasAll(Addon& addon, const Call& call) {
  return call.of(any(addon).withReplication([&](Replication& replication, u64) { return replication.hasAll(peerAt(call)); }));
}

// (peer, epoch)
napi_value handOver(Addon& addon, const Call& call) {
  any(addon).withReplication([&](Replication& replication, u64) { replication.handOver(peerAt(call), static_cast<u64>(call.number(1))); });
  return call.undefined();
}

// (ms since etcd was asked and confirmed that we lead)
napi_value contacted(Addon& addon, const Call& call) {
  const u64 ageMs = static_cast<u64>(call.number(0));
  any(addon).withReplication([&](Replication& replication, u64 nowMs) { replication.contacted(nowMs - std::min(nowMs, ageMs)); });
  return call.undefined();
}

napi_value replication(Addon& addon, const Call& call) {
  const std::string text = any(addon).withReplication([&](Replication& replication, u64 nowMs) { return replication.describe(nowMs); });
  return call.of(std::string_view(text));
}

napi_value leased(Addon& addon, const Call& call) { return call.of(addon.server && addon.server->leased()); }

}  // namespace svc
