// The operations on keys, single and in batches: exist, read, put, upsert and remove.
#include <algorithm>

#include "rpc/operations.h"

namespace svc {

std::span<const std::string_view> Operations::keysOf(Invocation& call) {
  if (call.isBatch()) return arguments<wire::BatchExistKey>(call).keys;
  return {&arguments<wire::ExistKey>(call).key, 1};
}

void Operations::exist(Invocation& call) {
  const bool probes = call.op() == Op::probeKey || call.op() == Op::batchProbeKey;
  // The leases that a probe takes: 0 none, 1 those of the last group of `candidates` keys that all exist.
  u8 kind = 0;
  u64 candidates = 0;
  std::span<const std::string_view> keys;
  if (call.op() == Op::batchProbeKey) {
    const auto& args = arguments<wire::BatchProbeKey>(call);
    kind = static_cast<u8>(args.policy.kind);
    candidates = args.policy.candidates;
    keys = args.keys;
  } else {
    keys = keysOf(call);
  }
  if (call.in.failed) return;
  if (call.allowed() && (kind > 1 || (kind == 1 && candidates == 0))) call.barred = code::invalidParams;
  runEach(call, keys, [&](std::string_view key, std::size_t) {
    const i32 found = store_.objects.exist(call.tenant, key, !probes);
    if (found == 0) store_.objects.missed(call.tenant, key);
    return found;
  });
  if (kind == 1 && call.allowed()) leaseLastHit(call.tenant, keys, candidates);
  WireWriter to = begin(call, call.isBatch() ? keys.size() : 0);
  if (call.isBatch()) to.length(keys.size());
  for (const i32 found : results_) {
    to.done(call.barred);
    if (call.allowed()) to.put(static_cast<u8>(found));
    count(call.op(), call.barred);
  }
  to.end();
}

// Leases the last group of `candidates` consecutive keys that all exist; an incomplete group at the end does not count.
void Operations::leaseLastHit(u16 tenant, std::span<const std::string_view> keys, u64 candidates) {
  for (std::size_t end = keys.size() / candidates * candidates; end >= candidates; end -= candidates) {
    const auto begin = results_.begin() + static_cast<std::ptrdiff_t>(end - candidates), last = results_.begin() + static_cast<std::ptrdiff_t>(end);
    if (std::find(begin, last, 0) != last) continue;
    for (const std::string_view key : keys.subspan(end - candidates, candidates)) store_.objects.exist(tenant, key, true);
    return;
  }
}

void Operations::read(Invocation& call) {
  const Op op = call.op();
  // An administrator's lookup takes no lease and counts as neither hit nor miss.
  const bool looks = op == Op::getReplicaListForAdmin || op == Op::batchGetReplicaListForAdmin;
  const bool asList = call.isBatch() || op == Op::readObjects;
  std::span<const std::string_view> keys;
  std::string_view fingerprint;
  if (op == Op::readObjects) {
    const auto& args = arguments<wire::ReadObjects>(call);
    keys = args.keys;
    fingerprint = args.fingerprint;
  } else {
    keys = keysOf(call);
  }
  if (call.in.failed) return;
  found_.assign(keys.size(), 0);
  std::size_t largest = asList ? keys.size() : 0;
  runEach(call, keys, [&](std::string_view key, std::size_t i) {
    const i32 outcome = store_.objects.read(call.tenant, key, !looks, found_[i], fingerprint);
    if (outcome != code::ok && !looks) store_.objects.missed(call.tenant, key, fingerprint);
    if (outcome != code::ok) return outcome;
    largest = std::max(largest, widest(found_[i]));
    if (!looks) store_.disks.hit(found_[i]);
    return outcome;
  });
  WireWriter to = begin(call, largest);
  if (asList) to.length(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    count(op, results_[i]);
    to.done(results_[i]);
    if (results_[i] != code::ok) continue;
    descriptors(to, found_[i], true);
    to.put(store_.settings.leaseMs);
    const Object& object = store_.table[found_[i]];
    const Extra* extra = object.extra == 0 ? nullptr : &store_.table.extras[object.extra];
    const bool sum = extra != nullptr && extra->hasChecksum;
    to.put(static_cast<u8>(sum));
    if (sum) to.put(extra->checksum);
  }
  to.end();
}

bool Operations::takePolicy(const wire::ReplicateConfig& config, std::size_t keys) {
  policy_.replicas = config.replicas;
  policy_.nofReplicas = config.nofReplicas;
  policy_.dfsReplicas = config.dfsReplicas;
  policy_.softPin = config.softPinAction;
  policy_.softPinMs = config.softPinTtlMs;
  policy_.hardPin = config.hardPin;
  policy_.preferred.clear();
  if (!config.preferredSegment.empty()) policy_.preferred.push_back(config.preferredSegment);
  policy_.preferred.insert(policy_.preferred.end(), config.preferredSegments.begin(), config.preferredSegments.end());
  policy_.preferredNof = config.preferredNofSegments;
  policy_.avoided.clear();
  policy_.sameNode = config.preferSameNode;
  policy_.dataType = config.dataType;
  policy_.hostID = config.hostID;
  groups_ = {};
  if (!config.groupIDs) return true;
  groups_ = *config.groupIDs;
  return groups_.size() == keys && std::ranges::all_of(groups_, [](std::string_view group) { return group.size() <= KeyArena::longest; });
}

Operations::Outcome Operations::start(Invocation& call) {
  const bool batch = call.isBatch(), upsert = call.op() == Op::upsertStart || call.op() == Op::batchUpsertStart;
  Uuid id;
  std::span<const std::string_view> keys;
  std::span<const u64> sizes;
  bool fits = true;
  if (batch) {
    const auto& args = arguments<wire::BatchPutStart>(call);
    id = args.client;
    keys = args.keys;
    sizes = args.sizes;
    fits = takePolicy(args.policy, keys.size()) && sizes.size() == keys.size();
  } else {
    const auto& args = arguments<wire::PutStart>(call);
    id = args.client;
    keys = {&args.key, 1};
    sizes = {&args.size, 1};
    fits = takePolicy(args.policy, 1);
  }
  if (call.in.failed) return Outcome::answered;
  if (call.allowed() && !fits) call.barred = code::invalidParams;
  found_.assign(keys.size(), 0);
  std::size_t largest = batch ? keys.size() : 0;
  bool later = false;
  const u32 client = call.allowed() ? store_.holders.clientOf(id) : 0;
  runEach(call, keys, [&](std::string_view key, std::size_t i) {
    if (later) return i32{code::noHandle};
    const i32 outcome = upsert ? store_.puts.startUpsert(client, call.tenant, key, sizes[i], policy_, groupOf(i), found_[i])
                               : store_.puts.start(client, call.tenant, key, sizes[i], policy_, groupOf(i), found_[i]);
    if (outcome == code::ok) largest = std::max(largest, widest(found_[i]));
    // A batch waits only if its first key finds no space: once one has begun, the call must be answered.
    later = i == 0 && mayWait && client != 0 && outcome == code::noHandle;
    return outcome;
  });
  if (later) return Outcome::later;
  WireWriter to = begin(call, largest);
  if (batch) to.length(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    count(call.op(), results_[i]);
    // If an upsert names a key twice, the later entry has replaced the earlier one's record.
    const bool there = results_[i] == code::ok && store_.table.live(found_[i]) && store_.table.keyOf(found_[i]) == keys[i];
    const i32 outcome = results_[i] == code::ok && !there ? code::invalidParams : results_[i];
    to.done(outcome);
    if (outcome == code::ok) descriptors(to, found_[i], false);
  }
  to.end();
  return Outcome::answered;
}

void Operations::end(Invocation& call, const Uuid& client, std::span<const wire::ObjectMeta> metas, ReplicaType type) {
  if (call.in.failed) return;
  runEach(call, metas, [&](const wire::ObjectMeta& meta, std::size_t) { return store_.puts.end(client, call.tenant, meta.key, meta.checksum, type); });
  outcomes(call, call.isBatch());
}

void Operations::revoke(Invocation& call, const Uuid& client, std::span<const std::string_view> keys, ReplicaType type) {
  if (call.in.failed) return;
  runEach(call, keys, [&](std::string_view key, std::size_t) { return store_.puts.revoke(client, call.tenant, key, type); });
  outcomes(call, call.isBatch());
}

void Operations::remove(Invocation& call, std::span<const std::string_view> keys, bool force) {
  if (call.in.failed) return;
  runEach(call, keys, [&](std::string_view key, std::size_t) { return store_.puts.remove(call.tenant, key, force); });
  outcomes(call, call.isBatch());
}

}  // namespace svc
