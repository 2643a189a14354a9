// Builds a segment's routes whenever its record is read, and explains which one a range takes.
#include "engine.h"

namespace svc {

namespace {
/** Routes are tried in this order. */
constexpr Path ORDER[] = {Path::File, Path::Shm, Path::Rdma, Path::Tcp};
/** The transport's name for installTransport, and its title in explanations. */
const char* protocolOf(Path path) { return path == Path::File ? "nvmeof" : path == Path::Shm ? "shm" : path == Path::Rdma ? "rdma" : "tcp"; }
const char* titleOf(Path path) { return path == Path::File ? "file" : path == Path::Shm ? "shm or process_vm" : path == Path::Rdma ? "rdma" : "tcp"; }
}  // namespace

bool sameEngine(const SegmentView& one, const SegmentView& other) {
  const SegmentDescriptor &a = one.owner ? *one.owner : *one.record, &b = other.owner ? *other.owner : *other.record;
  if (a.instance != b.instance || a.timestamp != b.timestamp || bool(one.owner) != bool(other.owner)) return false;
  return !one.record->isFile() || one.record->toJson().dump() == other.record->toJson().dump();
}

RouteRef SegmentView::route(Path path) const {
  for (const auto& way : ways)
    if (way.path == path && way.route && way.route->usable()) return way.route;
  return nullptr;
}

bool SegmentView::reachable() const {
  return std::any_of(ways.begin(), ways.end(), [](const Way& way) { return way.route && way.route->usable(); });
}

std::string SegmentView::whyNot(Path path) const {
  for (const auto& way : ways)
    if (way.path == path && !way.why.empty()) return way.why;
  return "transport " + std::string(protocolOf(path)) + " is not installed";
}

std::string SegmentView::whyNot() const {
  std::string all;
  for (const auto& way : ways)
    if (!way.why.empty()) all += (all.empty() ? "" : "; ") + way.why;
  return all;
}

std::shared_ptr<SegmentView> Engine::makeView(Segment& segment, SegmentDescriptor record, const ViewRef& before) {
  auto view = std::make_shared<SegmentView>();
  auto kept = std::make_shared<const SegmentDescriptor>(std::move(record));
  view->record = kept;
  std::string ownerWhy;
  // A broken mount must be reported, not bypassed by another path.
  if (kept->isFile() && find("nvmeof") && !mountedOn(*kept, name)) {
    auto owner = fetch(kept->serverName);
    if (!owner) ownerWhy = "its owner cannot be asked for " + segment.name + ": " + lastError();
    else if (!owner->servesFiles) ownerWhy = "the engine of its owner " + kept->serverName + " serves no files: it needs the transports nvmeof and tcp";
    else view->owner = std::make_shared<const SegmentDescriptor>(std::move(*owner));
  }
  bool same = before && sameEngine(*before, *view);
  if (before && !same) metrics.peerRestarts.fetch_add(1, std::memory_order_relaxed);

  RouteRequest to{segment.id, segment.name, *kept, view->owner.get(), nullptr, [&](const Json& payload, std::string& why) { return exchange(segment.name, payload, why); }};
  for (Path path : ORDER) {
    const bool concerned = kept->isFile() ? path == Path::File || (path == Path::Tcp && view->owner) : path != Path::File;
    if (!concerned) continue;
    auto& way = view->ways.emplace_back(SegmentView::Way{path, nullptr, ""});
    auto transport = find(protocolOf(path));
    if (!transport) {
      way.why = "transport " + std::string(protocolOf(path)) + " is not installed";
      continue;
    }
    // Routes of an earlier installation of the same transport are not reused.
    RouteRef old = same ? before->route(path) : nullptr;
    to.before = old && old->transport == transport ? old : nullptr;
    way.route = transport->route(to, way.why);
  }
  if (!ownerWhy.empty()) view->ways.push_back({Path::Tcp, nullptr, ownerWhy});
  return view;
}

std::optional<Json> Engine::exchange(const std::string& segmentName, const Json& payload, std::string& why) {
  auto peer = rpcAddressOf(segmentName);
  if (!peer) return why = lastError(), std::nullopt;
  Json request(Json::Object{{"local_nic_path", name}, {"peer_nic_path", segmentName}, {"local_lid", 0}, {"local_gid", ""}, {"qp_num", Json::array()}, {"reply_msg", ""}, {"payload", payload.dump()}});
  auto answer = callPeer(*peer, wire::RPC_CONNECTION, request, options.connectTimeoutMs, RPC_MS);
  auto theirs = answer ? Json::parse((*answer)["payload"].text()) : std::nullopt;
  if (!theirs) why = "the peer took no part in the endpoint exchange";
  return theirs;
}

std::string Engine::explain(SegmentID id, uint64_t offset, uint64_t length) {
  if (id == LOCAL_SEGMENT_ID) return "local: the segment is this engine's own";
  SegmentRef known = segment(id);
  if (!known) return "none: " + std::to_string(id) + " is not an open segment";
  ViewRef view = known->current();
  const PublishedBuffer* buffer = view->record->isFile() ? nullptr : view->record->holding(offset, length);
  std::string passed;
  for (const auto& way : view->ways) {
    std::string why, how;
    if (!way.route) why = "not " + std::string(titleOf(way.path)) + " (" + way.why + ")";
    else if (!way.route->usable()) why = "not " + std::string(titleOf(way.path)) + " (its transport was uninstalled)";
    else how = way.route->explain(buffer, why);
    if (!how.empty()) return how + (passed.empty() ? "" : "; " + passed);
    passed += (passed.empty() ? "" : ", ") + why;
  }
  return "none: " + passed;
}

}  // namespace svc
