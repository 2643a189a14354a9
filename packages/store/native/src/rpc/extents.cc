// The operations that only our own client calls: extents are leased, returned and committed; and why a key is missing.
#include <algorithm>

#include "rpc/operations.h"

namespace svc {

Operations::Outcome Operations::lease(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out) {
  const Uuid id = in.get<Uuid>();
  const u64 size = in.get<u64>(), count = in.get<u64>();
  const bool fits = readPolicy(in, 1);
  policy_.avoided.clear();
  for (std::size_t left = in.length(1); left > 0 && !in.failed; --left) policy_.avoided.push_back(in.text());
  const u16 tenant = tenantOf(in, barred);
  if (in.failed) return Outcome::answered;
  i32 outcome = barred != code::ok ? barred : fits ? code::ok : code::invalidParams;
  const u32 client = outcome == code::ok ? store_.clientOf(id) : 0;
  if (outcome == code::ok) outcome = store_.leaseExtents(client, tenant, size, static_cast<u32>(std::min<u64>(count, Store::mostExtents)), policy_, extents_);
  if (mayWait && client != 0 && outcome == code::noHandle) return Outcome::later;
  this->count(declared.op, outcome);
  std::size_t largest = outcome == code::ok ? extents_.size() : 0;
  if (outcome == code::ok)
    for (const u64 extent : extents_)
      store_.eachRange(extent, [&](const Segment& segment, u32) { largest = std::max({largest, segment.protocol.size(), segment.endpoint.size()}); });
  WireWriter to(out);
  to.frame(request.seq, 0);
  to.body(declared.resultHash, std::max<std::size_t>(largest, Store::mostReplicas), declared.literal);
  to.done(outcome);
  if (outcome == code::ok) {
    to.length(extents_.size());
    for (const u64 extent : extents_) {
      std::size_t ranges = 0;
      store_.eachRange(extent, [&](const Segment&, u32) { ++ranges; });
      to.put(extent);
      to.length(ranges);
      store_.eachRange(extent, [&](const Segment& segment, u32 node) {
        to.put(segment.base + segment.allocator.offsetOf(node));
        to.text(segment.endpoint);
        to.text(segment.protocol);
      });
    }
    to.put(store_.settings.discardMs);
  }
  to.end();
  return Outcome::answered;
}

void Operations::giveBack(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out) {
  const Uuid id = in.get<Uuid>();
  extents_.clear();
  for (std::size_t left = in.length(sizeof(u64)); left > 0 && !in.failed; --left) extents_.push_back(in.get<u64>());
  const bool failed = in.flag();
  if (in.failed) return;
  results_.assign(1, barred);
  // An extent that expired meanwhile counts as returned.
  for (std::size_t i = 0; i < extents_.size() && barred == code::ok; ++i) store_.returnExtent(id, extents_[i], failed);
  outcomes(declared, request, false, out);
}

void Operations::commit(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out) {
  const Uuid id = in.get<Uuid>();
  keys_.clear();
  extents_.clear();
  checksums_.clear();
  for (std::size_t left = in.length(sizeof(u64) + 2); left > 0 && !in.failed; --left) {
    extents_.push_back(in.get<u64>());
    keys_.push_back(in.text());
    checksums_.push_back(in.flag() ? std::optional<u64>(in.get<u64>()) : std::nullopt);
  }
  if (!readPolicy(in, keys_.size()) && barred == code::ok) barred = code::invalidParams;
  const std::string_view fingerprint = in.text();
  const bool replace = in.flag();
  const u16 tenant = tenantOf(in, barred);
  if (in.failed) return;
  if (barred == code::ok) prefetch(tenant);
  results_.assign(keys_.size(), barred);
  for (std::size_t i = 0; i < keys_.size() && barred == code::ok; ++i) {
    const std::string_view group = groups_.empty() ? std::string_view() : groups_[i];
    results_[i] = store_.commitPut(id, tenant, keys_[i], extents_[i], {checksums_[i], fingerprint}, policy_, group, replace);
  }
  outcomes(declared, request, true, out);
}

void Operations::whyMissing(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out) {
  keys_.clear();
  for (std::size_t left = in.length(1); left > 0 && !in.failed; --left) keys_.push_back(in.text());
  const std::string_view fingerprint = in.text();
  const u16 tenant = tenantOf(in, barred);
  if (in.failed) return;
  WireWriter to(out);
  to.frame(request.seq, 0);
  to.body(declared.resultHash, keys_.size(), declared.literal);
  to.length(keys_.size());
  for (const std::string_view key : keys_) {
    u64 unixMs = 0;
    const Gone why = barred == code::ok ? store_.whyMissing(tenant, key, fingerprint, unixMs) : Gone::unknown;
    count(declared.op, barred);
    to.put(static_cast<i32>(why));
    to.put(static_cast<i64>(unixMs));
  }
  to.end();
}

}  // namespace svc
