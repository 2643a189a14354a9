// Segments of peers: opened by name, updated when their records change, released when unused.
#include "engine.h"

namespace svc {

namespace {
constexpr size_t MAX_SEGMENTS = 1 << 20;

std::string withoutSlashes(std::string text) {
  text.erase(0, std::min(text.find_first_not_of('/'), text.size()));
  return text;
}
}  // namespace

std::string Engine::rpcKey(const std::string& server) const {
  return options.brand + "/" + (options.clusterID.empty() ? "" : options.clusterID + "/") + "rpc_meta/" + server;
}

std::string Engine::segmentKey(const std::string& segment) const {
  // A name with a slash already contains its protocol. The engine's own name may contain a slash, but it is a RAM segment.
  bool bare = segment.find('/') == std::string::npos;
  return options.brand + "/" + (options.clusterID.empty() ? "" : options.clusterID + "/") + (bare ? "ram/" : "") + segment;
}

std::optional<Address> Engine::rpcAddressOf(const std::string& server) {
  if (handshake_ || server == name) {
    auto where = splitHostPort(server == name ? localAddress() : server);
    if (where && where->second != 0) return resolveHost(where->first, where->second);
    setLastError("segment " + server + ": with a handshake the name of a peer is its host:port");
    return std::nullopt;
  }
  if (!store_) return setLastError("segment " + server + ": call init first"), std::nullopt;
  std::string text;
  Lookup found = store_->get(rpcKey(server), text);
  if (found == Lookup::Missing) setLastError("peer " + server + ": there is no key " + rpcKey(server) + "; the peer is not running, or uses another prefix");
  if (found != Lookup::Found) return std::nullopt;
  auto json = Json::parse(text);
  uint64_t port = json ? (*json)["rpc_port"].number().value_or(0) : 0;
  if (port == 0 || port > 65535) {
    setLastError("peer " + server + ": key " + rpcKey(server) + " holds no address");
    return std::nullopt;
  }
  return resolveHost((*json)["ip_or_host_name"].text(), uint16_t(port));
}

std::optional<SegmentDescriptor> Engine::fetch(const std::string& segment, uint64_t answerMs) {
  metrics.descriptorFetches.fetch_add(1, std::memory_order_relaxed);
  std::optional<Json> json;
  if (const std::string owner = folderOwner(segment); !owner.empty() && started_) {
    auto record = fetchFolder(segment, owner, answerMs);
    if (record || handshake_ || owner == name) return record;
  }
  if (handshake_) {
    auto peer = rpcAddressOf(segment);
    if (!peer) return std::nullopt;
    json = callPeer(*peer, wire::RPC_METADATA, Json::object(), options.connectTimeoutMs, answerMs);
    if (!json) return std::nullopt;
  } else if (!store_) {
    return setLastError("segment " + segment + ": call init first"), std::nullopt;
  } else {
    std::string text;
    Lookup found = store_->get(segmentKey(segment), text);
    if (found == Lookup::Failed) metrics.metadataFailures.fetch_add(1, std::memory_order_relaxed);
    if (found == Lookup::Missing) setLastError("segment " + segment + ": there is no key " + segmentKey(segment) + "; the peer is not running, or uses another prefix");
    if (found != Lookup::Found) return std::nullopt;
    json = Json::parse(text);
  }
  std::string why = "the record is not valid JSON";
  auto record = json ? SegmentDescriptor::read(*json, why) : std::nullopt;
  if (!record) setLastError("segment " + segment + ": " + why);
  if (record && record->tcpPort != 0 && record->tcpHost.empty()) {
    if (auto peer = rpcAddressOf(segment)) record->tcpHost = peer->host();
  }
  return record;
}

SegmentHandle Engine::open(std::string segmentName) {
  if (!started_) return failWith(ERR_INVALID_ARGUMENT, "openSegment: call init first"), INVALID_SEGMENT_ID;
  segmentName = withoutSlashes(segmentName);
  if (segmentName.empty()) return failWith(ERR_INVALID_ARGUMENT, "openSegment: the name is empty"), INVALID_SEGMENT_ID;
  if (segmentName == name) return LOCAL_SEGMENT_ID;
  SegmentRef segment;
  uint64_t maxAgeMs = 0;
  std::unique_lock lock(segmentMutex_);
  if (auto found = segmentIDs_.find(segmentName); found != segmentIDs_.end()) {
    segment = segments_[found->second];
    segment->references++;
    if (segment->current()) return segment->id;
    // Another thread is opening the segment. Both can use its record; if it fails, this thread tries again.
    maxAgeMs = ~uint64_t{0};
  } else {
    if (segments_.size() >= MAX_SEGMENTS) return failWith(ERR_TOO_MANY_REQUESTS, "openSegment: " + std::to_string(MAX_SEGMENTS) + " segments are open"), INVALID_SEGMENT_ID;
    segment = std::make_shared<Segment>();
    segment->id = nextSegment_++;
    segment->name = segmentName;
    segments_[segment->id] = segment;
    segmentIDs_[segmentName] = segment->id;
  }
  lock.unlock();
  if (refresh(*segment, maxAgeMs)) return segment->id;
  std::string why = lastError();
  close(segment->id);
  return failWith(ERR_METADATA, "openSegment " + segmentName + ": " + why), INVALID_SEGMENT_ID;
}

bool TimedMutex::take(uint64_t deadlineNs) {
  std::unique_lock lock(mutex_);
  const auto isFree = [&] { return !taken_; };
  if (deadlineNs == 0) given_.wait(lock, isFree);
  else if (uint64_t now = nowNs(); !given_.wait_for(lock, std::chrono::nanoseconds(deadlineNs > now ? deadlineNs - now : 0), isFree)) return false;
  return taken_ = true;
}

void TimedMutex::give() {
  {
    std::lock_guard lock(mutex_);
    taken_ = false;
  }
  given_.notify_one();
}

bool Engine::refresh(Segment& segment, uint64_t maxAgeMs, uint64_t answerMs, uint64_t deadlineNs) {
  WaitsUntil bound(deadlineNs);
  if (!segment.refreshing.take(deadlineNs)) return setLastError("segment " + segment.name + ": its record was not read in time"), false;
  std::unique_ptr<TimedMutex, decltype([](TimedMutex* mutex) { mutex->give(); })> held(&segment.refreshing);
  if (maxAgeMs != 0 && segment.current() && nowMs() - segment.fetchedAtMs < maxAgeMs) return true;
  auto record = fetch(segment.name, answerMs);
  if (!record) return false;
  segment.fetchedAtMs = nowMs();
  ViewRef before = segment.current();
  ViewRef view = makeView(segment, std::move(*record), before);
  {
    std::lock_guard lock(segment.mutex);
    segment.view = view;
  }
  for (const auto& way : before ? before->ways : std::vector<SegmentView::Way>{})
    if (way.route && way.route != view->route(way.path)) way.route->close("the peer started anew, or moved");
  return true;
}

SegmentRef Engine::segment(SegmentID id) {
  std::lock_guard lock(segmentMutex_);
  auto found = segments_.find(id);
  return found == segments_.end() ? nullptr : found->second;
}

int Engine::close(SegmentID id) {
  if (id == LOCAL_SEGMENT_ID) return 0;
  SegmentRef gone;
  {
    std::lock_guard lock(segmentMutex_);
    auto found = segments_.find(id);
    if (found == segments_.end()) return failWith(ERR_INVALID_ARGUMENT, "closeSegment: " + std::to_string(id) + " is not an open segment");
    if (--found->second->references > 0) return 0;
    gone = found->second;
    segmentIDs_.erase(gone->name);
    segments_.erase(found);
  }
  ViewRef view = gone->current();
  for (const auto& way : view ? view->ways : std::vector<SegmentView::Way>{})
    if (way.route) way.route->close("the segment was closed");
  return 0;
}

int Engine::forget(std::string segmentName) {
  segmentName = withoutSlashes(segmentName);
  if (segmentName.empty()) return failWith(ERR_INVALID_ARGUMENT, "removeLocalSegment: the name is empty");
  // For the engine's own name: peers no longer find the segment until the next registration publishes it again.
  if (segmentName == name) {
    std::lock_guard memory(memoryMutex_);
    withdrawn_ = true;
    return !store_ || removeOwn(segmentKey(name)) ? 0 : ERR_METADATA;
  }
  SegmentRef known;
  {
    std::lock_guard lock(segmentMutex_);
    auto found = segmentIDs_.find(segmentName);
    if (found == segmentIDs_.end()) return 0;
    known = segments_[found->second];
    known->references = 1;
  }
  return close(known->id);
}

Status Engine::check(SegmentID id) {
  if (id == LOCAL_SEGMENT_ID) return started_ ? Status::OK() : Status(1, "call init first");
  SegmentRef known = segment(id);
  if (!known) return {1, std::to_string(id) + " is not an open segment"};
  if (!refresh(*known, 0)) return {200, lastError()};
  ViewRef view = known->current();
  if (view->route(Path::File)) return Status::OK();
  if (view->record->isFile() && !view->reachable()) return {201, "segment " + known->name + ": " + view->whyNot()};
  if (probe(view->owner ? view->owner->serverName : known->name) != 0) return {201, lastError()};
  if (!view->reachable()) return {8, "segment " + known->name + ": " + view->whyNot()};
  return Status::OK();
}

int Engine::sync(const std::string& segmentName) {
  std::vector<SegmentRef> list;
  {
    std::lock_guard lock(segmentMutex_);
    for (const auto& [id, known] : segments_)
      if (segmentName.empty() || known->name == withoutSlashes(segmentName)) list.push_back(known);
  }
  if (!segmentName.empty() && list.empty()) return failWith(ERR_INVALID_ARGUMENT, "syncSegmentCache: segment " + segmentName + " is not open");
  int code = 0;
  std::string why;
  for (const auto& known : list) {
    if (refresh(*known, 0)) continue;
    code = ERR_METADATA;
    why = "syncSegmentCache: " + lastError();
  }
  return code == 0 ? 0 : failWith(code, why);
}

}  // namespace svc
