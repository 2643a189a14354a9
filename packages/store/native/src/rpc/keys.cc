// The operations on keys, single and in batches: exist, read, put, upsert and remove.
#include <algorithm>

#include "rpc/operations.h"

namespace svc {

namespace {

void readKeys(WireReader& in, bool batch, std::vector<std::string_view>& keys) {
  keys.clear();
  const std::size_t count = batch ? in.length(1) : 1;
  keys.reserve(count);
  for (std::size_t i = 0; i < count && !in.failed; ++i) keys.push_back(in.text());
}

// The memory layout of the client's struct: which leases a probe takes, and how many keys form a group.
struct LeasePolicy {
  u8 kind = 0;  // 0: none; 1: the last group whose keys all exist
  u8 unused[7] = {};
  u64 candidates = 0;
};
static_assert(sizeof(LeasePolicy) == 16);

}  // namespace

void Operations::exist(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out) {
  const bool probes = declared.op == Op::probeKey || declared.op == Op::batchProbeKey;
  const bool batch = declared.op == Op::batchExistKey || declared.op == Op::batchProbeKey;
  LeasePolicy policy;
  if (declared.op == Op::batchProbeKey) policy = in.get<LeasePolicy>();
  readKeys(in, batch, keys_);
  const u16 tenant = tenantOf(in, barred);
  if (in.failed) return;
  if (barred == code::ok && (policy.kind > 1 || (policy.kind == 1 && policy.candidates == 0))) barred = code::invalidParams;
  if (barred == code::ok) prefetch(tenant);
  found_.assign(keys_.size(), 0);
  for (std::size_t i = 0; i < keys_.size() && barred == code::ok; ++i) found_[i] = static_cast<u32>(store_.exist(tenant, keys_[i], !probes));
  if (policy.kind == 1 && barred == code::ok) leaseLastHit(tenant, policy.candidates);
  WireWriter to(out);
  to.frame(request.seq, 0);
  to.body(declared.resultHash, batch ? keys_.size() : 0, declared.literal);
  if (batch) to.length(keys_.size());
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    to.done(barred);
    if (barred == code::ok) to.put(static_cast<u8>(found_[i]));
    count(declared.op, barred);
  }
  to.end();
}

// Leases the last group of `candidates` consecutive keys that all exist; an incomplete group at the end does not count.
void Operations::leaseLastHit(u16 tenant, u64 candidates) {
  for (std::size_t end = keys_.size() / candidates * candidates; end >= candidates; end -= candidates) {
    const std::size_t begin = end - candidates;
    if (std::find(found_.begin() + begin, found_.begin() + end, 0u) != found_.begin() + end) continue;
    for (std::size_t i = begin; i < end; ++i) store_.exist(tenant, keys_[i], true);
    return;
  }
}

void Operations::read(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out) {
  const bool batch = declared.op != Op::getReplicaList && declared.op != Op::replicaListForAdmin;
  // An administrator's lookup takes no lease and counts as no hit.
  const bool looks = declared.op == Op::replicaListForAdmin || declared.op == Op::batchReplicaListForAdmin;
  readKeys(in, batch, keys_);
  const std::string_view fingerprint = declared.op == Op::readObjects ? in.text() : std::string_view();
  const u16 tenant = tenantOf(in, barred);
  if (in.failed) return;
  if (barred == code::ok) prefetch(tenant);
  found_.assign(keys_.size(), 0);
  results_.assign(keys_.size(), barred);
  std::size_t largest = batch ? keys_.size() : 0;
  for (std::size_t i = 0; i < keys_.size() && barred == code::ok; ++i) {
    results_[i] = store_.read(tenant, keys_[i], !looks, found_[i], fingerprint);
    if (results_[i] != code::ok) continue;
    largest = std::max(largest, widest(found_[i]));
    if (!looks) store_.hit(found_[i]);
  }
  WireWriter to(out);
  to.frame(request.seq, 0);
  to.body(declared.resultHash, largest, declared.literal);
  if (batch) to.length(keys_.size());
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    count(declared.op, results_[i]);
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

bool Operations::readPolicy(WireReader& in, std::size_t keys) {
  policy_.replicas = in.get<u64>();
  policy_.nofReplicas = in.get<u64>();
  policy_.dfsReplicas = in.get<u64>();
  policy_.softPin = in.get<u8>();
  policy_.softPinMs.reset();
  if (in.flag()) policy_.softPinMs = in.get<u64>();
  policy_.hardPin = in.flag();
  policy_.preferred.clear();
  policy_.avoided.clear();
  for (std::size_t left = in.length(1); left > 0 && !in.failed; --left) policy_.preferred.push_back(in.text());
  if (const std::string_view first = in.text(); !first.empty()) policy_.preferred.insert(policy_.preferred.begin(), first);
  policy_.preferredNof.clear();
  for (std::size_t left = in.length(1); left > 0 && !in.failed; --left) policy_.preferredNof.push_back(in.text());
  policy_.sameNode = in.flag();
  policy_.dataType = in.get<u8>();
  policy_.hostID = in.text();
  groups_.clear();
  bool fits = true;
  if (in.flag()) {
    for (std::size_t left = in.length(1); left > 0 && !in.failed; --left) groups_.push_back(in.text());
    fits = groups_.size() == keys;
  }
  for (const std::string_view group : groups_) fits = fits && group.size() <= KeyArena::longest;
  return fits;
}

Operations::Outcome Operations::start(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out, bool upsert, bool batch) {
  const Uuid id = in.get<Uuid>();
  readKeys(in, batch, keys_);
  sizes_.clear();
  const std::size_t sizes = batch ? in.length(sizeof(u64)) : 1;
  for (std::size_t i = 0; i < sizes && !in.failed; ++i) sizes_.push_back(in.get<u64>());
  const bool fits = readPolicy(in, keys_.size()) && sizes_.size() == keys_.size();
  const u16 tenant = tenantOf(in, barred);
  if (in.failed) return Outcome::answered;
  if (barred == code::ok && !fits) barred = code::invalidParams;
  if (barred == code::ok) prefetch(tenant);
  found_.assign(keys_.size(), 0);
  results_.assign(keys_.size(), barred);
  std::size_t largest = batch ? keys_.size() : 0;
  const u32 client = barred == code::ok ? store_.clientOf(id) : 0;
  for (std::size_t i = 0; i < keys_.size() && barred == code::ok; ++i) {
    const std::string_view group = groups_.empty() ? std::string_view() : groups_[i];
    results_[i] = upsert ? store_.upsertStart(client, tenant, keys_[i], sizes_[i], policy_, group, found_[i])
                         : store_.putStart(client, tenant, keys_[i], sizes_[i], policy_, group, found_[i]);
    if (results_[i] == code::ok) largest = std::max(largest, widest(found_[i]));
    // A batch waits only if its first key finds no space: once one has begun, the call must be answered.
    if (i == 0 && mayWait && client != 0 && results_[i] == code::noHandle) return Outcome::later;
  }
  WireWriter to(out);
  to.frame(request.seq, 0);
  to.body(declared.resultHash, largest, declared.literal);
  if (batch) to.length(keys_.size());
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    count(declared.op, results_[i]);
    // If an upsert names a key twice, the later entry has replaced the earlier one's record.
    const bool there = results_[i] == code::ok && store_.table.live(found_[i]) && store_.table.keyOf(found_[i]) == keys_[i];
    const i32 outcome = results_[i] == code::ok && !there ? code::invalidParams : results_[i];
    to.done(outcome);
    if (outcome == code::ok) descriptors(to, found_[i], false);
  }
  to.end();
  return Outcome::answered;
}

void Operations::finish(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out) {
  const Op op = declared.op;
  const bool batch = op == Op::batchPutEnd || op == Op::batchUpsertEnd || op == Op::batchPutRevoke || op == Op::batchUpsertRevoke;
  const bool revoke = op == Op::putRevoke || op == Op::upsertRevoke || op == Op::batchPutRevoke || op == Op::batchUpsertRevoke;
  const bool typed = op != Op::batchUpsertEnd && op != Op::batchUpsertRevoke;
  const Uuid id = in.get<Uuid>();
  checksums_.clear();
  if (revoke) {
    readKeys(in, batch, keys_);
  } else {
    keys_.clear();
    const std::size_t count = batch ? in.length(2) : 1;
    for (std::size_t i = 0; i < count && !in.failed; ++i) {
      keys_.push_back(in.text());
      checksums_.push_back(in.flag() ? std::optional<u64>(in.get<u64>()) : std::nullopt);
    }
  }
  // Batches without a type concern all replicas but the file, which is written meanwhile.
  const auto type = typed ? static_cast<ReplicaType>(in.get<i32>()) : ReplicaType::all;
  const u16 tenant = tenantOf(in, barred);
  if (in.failed) return;
  if (barred == code::ok) prefetch(tenant);
  results_.assign(keys_.size(), barred);
  for (std::size_t i = 0; i < keys_.size() && barred == code::ok; ++i)
    results_[i] = revoke ? store_.putRevoke(id, tenant, keys_[i], type) : store_.putEnd(id, tenant, keys_[i], checksums_[i], type);
  outcomes(declared, request, batch, out);
}

void Operations::remove(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out) {
  const bool batch = declared.op == Op::batchRemove;
  readKeys(in, batch, keys_);
  const bool force = in.flag();
  const u16 tenant = tenantOf(in, barred);
  if (in.failed) return;
  if (barred == code::ok) prefetch(tenant);
  results_.assign(keys_.size(), barred);
  for (std::size_t i = 0; i < keys_.size() && barred == code::ok; ++i) results_[i] = store_.remove(tenant, keys_[i], force);
  outcomes(declared, request, batch, out);
}

}  // namespace svc
