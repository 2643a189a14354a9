// The operations that only our own client calls: extents are leased, returned and committed; and why a key is missing.
#include <algorithm>

#include "rpc/operations.h"

namespace svc {

Operations::Outcome Operations::leaseExtents(Invocation& call) {
  const auto& args = arguments<wire::LeaseExtents>(call);
  if (call.in.failed) return Outcome::answered;
  const bool fits = takePolicy(args.policy, 1);
  policy_.avoided = args.avoidedEndpoints;
  i32 outcome = call.allowed() && !fits ? i32{code::invalidParams} : call.barred;
  const u32 client = outcome == code::ok ? store_.holders.clientOf(args.client) : 0;
  if (outcome == code::ok) outcome = store_.extents.lease(client, call.tenant, args.size, static_cast<u32>(std::min<u64>(args.count, Extents::most)), policy_, extents_);
  if (mayWait && client != 0 && outcome == code::noHandle) return Outcome::later;
  count(call.op(), outcome);
  std::size_t largest = outcome == code::ok ? extents_.size() : 0;
  if (outcome == code::ok)
    for (const u64 extent : extents_)
      store_.extents.eachRange(extent, [&](const Segment& segment, u32) { largest = std::max({largest, segment.protocol.size(), segment.endpoint.size()}); });
  WireWriter to = begin(call, std::max<std::size_t>(largest, Space::mostReplicas));
  to.done(outcome);
  if (outcome == code::ok) {
    to.length(extents_.size());
    for (const u64 extent : extents_) {
      std::size_t ranges = 0;
      store_.extents.eachRange(extent, [&](const Segment&, u32) { ++ranges; });
      to.put(extent);
      to.length(ranges);
      store_.extents.eachRange(extent, [&](const Segment& segment, u32 node) {
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

void Operations::returnExtents(Invocation& call) {
  const auto& args = arguments<wire::ReturnExtents>(call);
  if (call.in.failed) return;
  results_.assign(1, call.barred);
  // An extent that expired meanwhile counts as returned.
  for (std::size_t i = 0; i < args.extents.size() && call.allowed(); ++i) store_.extents.giveBack(args.client, args.extents[i], args.failed);
  outcomes(call, false);
}

void Operations::commitPuts(Invocation& call) {
  const auto& args = arguments<wire::CommitPuts>(call);
  if (call.in.failed) return;
  if (!takePolicy(args.policy, args.commits.size()) && call.allowed()) call.barred = code::invalidParams;
  runEach(call, args.commits, [&](const wire::Commit& each, std::size_t i) {
    return store_.extents.commit(args.client, call.tenant, each.key, each.extent, {each.checksum, args.fingerprint}, policy_, groupOf(i), args.replace);
  });
  outcomes(call, true);
}

void Operations::whyMissing(Invocation& call) {
  const auto& args = arguments<wire::WhyMissing>(call);
  if (call.in.failed) return;
  WireWriter to = begin(call, args.keys.size());
  to.length(args.keys.size());
  for (const std::string_view key : args.keys) {
    u64 unixMs = 0;
    const Gone why = call.allowed() ? store_.objects.whyMissing(call.tenant, key, args.fingerprint, unixMs) : Gone::unknown;
    count(call.op(), call.barred);
    to.put(static_cast<i32>(why));
    to.put(static_cast<i64>(unixMs));
  }
  to.end();
}

}  // namespace svc
