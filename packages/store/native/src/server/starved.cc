// Runs one call from its frame to its answer; puts that found no space are retried once some was freed.
#include "server/server.h"

namespace svc {

void Server::serve(u32 slot, const Request& request, const char* body, u64 starvedUntilMs) {
  Connection& connection = conns_[slot];
  const std::size_t before = connection.out.size();
  const u64 now = nowMs();
  operations.barred = replication_.leased(now) ? code::ok : code::notNow;
  operations.mayWait = starvedUntilMs > 0 ? now < starvedUntilMs
                                          : store.settings.putWaitMs > 0 && now >= starvesAgainMs_ && request.bodyBytes <= mostStarvedBytes && starved_.size() < mostStarved;
  const std::string* tenant = connection.rights == Rights::tenant ? &connection.tenant : nullptr;
  switch (const Operations::Outcome outcome = operations.run(request, body, serving() ? &log_ : nullptr, connection.out, tenant)) {
    case Operations::Outcome::answered:
      appended(slot, connection.out.size() - before, operations.barred != code::ok);
      break;
    case Operations::Outcome::refused:
      refuseCall(slot, request, Access::otherTenantError, access.otherTenant);
      break;
    case Operations::Outcome::later:
      starved_.push_back({slot, connection.generation, starvedUntilMs > 0 ? starvedUntilMs : now + store.settings.putWaitMs, request, std::string(body, request.bodyBytes)});
      return;
    default:
      handOver(slot, request, body, outcome == Operations::Outcome::script ? EventKind::request : EventKind::unknown);
  }
  if (starvedUntilMs > 0 && now >= starvedUntilMs) starvesAgainMs_ = now + refusesForMs;
}

void Server::serveStarved() {
  if (starved_.empty() || (store.counters.freedRanges == freedSeen_ && nowMs() < starved_.front().untilMs)) return;
  const u64 before = freedSeen_ = store.counters.freedRanges;
  for (std::size_t left = starved_.size(); left > 0; --left) {
    const Starved starved = std::move(starved_.front());
    starved_.pop_front();
    const Connection& connection = conns_[starved.slot];
    if (connection.fd >= 0 && connection.generation == starved.generation) serve(starved.slot, starved.request, starved.body.data(), starved.untilMs);
  }
  if (!starved_.empty() && store.counters.freedRanges != before) more_ = true;
}

}  // namespace svc
