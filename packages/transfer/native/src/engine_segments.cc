// Segments of peers: opened by name, read again when they change, let go when nobody uses them.
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
  // A name with a slash carries its protocol; the engine's own may hold any text but is a ram segment.
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
  std::string why = "the record is no JSON";
  auto record = json ? SegmentDescriptor::read(*json, why) : std::nullopt;
  if (!record) setLastError("segment " + segment + ": " + why);
  if (record && record->tcpPort != 0 && record->tcpHost.empty()) {
    if (auto peer = rpcAddressOf(segment)) record->tcpHost = peer->host();
  }
  return record;
}

bool sameEngine(const SegmentView& one, const SegmentView& other) {
  const SegmentDescriptor &a = one.owner ? *one.owner : *one.record, &b = other.owner ? *other.owner : *other.record;
  if (a.instance != b.instance || a.timestamp != b.timestamp || bool(one.owner) != bool(other.owner)) return false;
  return !one.record->isFile() || one.record->toJson().dump() == other.record->toJson().dump();
}

std::string whyNot(const SegmentView& view) {
  std::string all;
  for (const auto* why : {&view.fileWhy, &view.hostWhy, &view.rdmaWhy, &view.tcpWhy})
    if (!why->empty()) all += (all.empty() ? "" : "; ") + *why;
  return all;
}

std::shared_ptr<TcpPeer> Engine::tcpPeer(Segment& segment, const Address& address, const std::string& file) {
  auto onBroken = [this, weak = std::weak_ptr<Segment>(this->segment(segment.id))](std::shared_ptr<TcpPeer> peer, Leftover left) { broke(weak.lock(), peer, std::move(left)); };
  auto made = std::make_shared<TcpPeer>(*io_[segment.id % io_.size()].loop, options, metrics, address, file, std::move(onBroken));
  std::lock_guard lock(peerMutex_);
  peers_.insert(made);
  return made;
}

std::shared_ptr<SegmentView> Engine::makeView(Segment& segment, SegmentDescriptor record, const ViewRef& before) {
  auto view = std::make_shared<SegmentView>();
  auto kept = std::make_shared<const SegmentDescriptor>(std::move(record));
  view->record = kept;
  if (kept->isFile()) viewFile(*view, segment.name);
  bool same = before && sameEngine(*before, *view);
  if (before && !same) metrics.peerRestarts.fetch_add(1, std::memory_order_relaxed);
  if (kept->isFile() && !view->owner) return view;
  const SegmentDescriptor& serving = view->owner ? *view->owner : *kept;
  if (!tcp_) view->tcpWhy = "transport tcp is not installed";
  else if (serving.tcpPort == 0) view->tcpWhy = "the peer serves no tcp";
  else if (serving.tcpVersion < 2) view->tcpWhy = "the peer speaks only the framing without acknowledgements, in which lost writes look complete";
  else if (auto address = resolveHost(serving.tcpHost, serving.tcpPort); !address) view->tcpWhy = lastError();
  else if (same && before->tcp && !before->tcp->closed() && joinHostPort(address->host(), address->port()) == before->tcp->who()) view->tcp = before->tcp;
  else view->tcp = tcpPeer(segment, *address, view->owner ? segment.name : "");
  if (view->owner) return view;
  if (!shm_) view->hostWhy = "transport shm is not installed";
  else if (!kept->host) view->hostWhy = "the peer offers no memory on its host";
  else if (same && before->host) view->host = before->host;
  else view->host = HostPeer::open(*kept->host, options.processVm, view->hostWhy);

  std::shared_ptr<RdmaTransport> rdma;
  {
    std::lock_guard lock(transportMutex_);
    rdma = rdma_;
  }
  view->rdmaTransport = rdma;
  if (!rdma) view->rdmaWhy = "transport rdma is not installed";
  else if (kept->devices.empty()) view->rdmaWhy = "the peer has no rdma device";
  else if (same && before->rdma && before->rdmaTransport == rdma && !before->rdma->gone) view->rdma = before->rdma;
  else if (auto peer = rpcAddressOf(segment.name); !peer) view->rdmaWhy = lastError();
  else {
    Json request(Json::Object{{"local_nic_path", name}, {"peer_nic_path", segment.name}, {"local_lid", 0}, {"local_gid", ""}, {"qp_num", Json::array()}, {"reply_msg", ""}, {"payload", rdma->endpoint().dump()}});
    auto answer = callPeer(*peer, wire::RPC_CONNECTION, request, options.connectTimeoutMs, RPC_MS);
    auto payload = answer ? Json::parse((*answer)["payload"].text()) : std::nullopt;
    if (payload) view->rdma = rdma->connect(*payload, view->rdmaWhy);
    else view->rdmaWhy = "the peer took no part in the endpoint exchange";
  }
  return view;
}

void Engine::dropTcp(const std::shared_ptr<TcpPeer>& peer, const std::string& why) {
  {
    std::lock_guard lock(peerMutex_);
    if (peers_.erase(peer) == 0) return;
  }
  peer->close(why);
  // The loop may hold events of its lanes.
  for (auto& io : io_) io.loop->post([peer] {});
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
    // Another thread is opening it: its record serves both, and where it fails this one tries for itself.
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

bool Engine::refresh(Segment& segment, uint64_t maxAgeMs, uint64_t answerMs, uint64_t deadlineNs) {
  WaitsUntil bound(deadlineNs);
  std::unique_lock one(segment.refreshMutex, std::defer_lock);
  if (deadlineNs == 0) one.lock();
  else if (uint64_t now = nowNs(); !one.try_lock_for(std::chrono::nanoseconds(deadlineNs > now ? deadlineNs - now : 0)))
    return setLastError("segment " + segment.name + ": its record was not read in time"), false;
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
  if (before && before->tcp && before->tcp != view->tcp) dropTcp(before->tcp, "the peer started anew, or moved");
  if (before && before->rdma && before->rdma != view->rdma) before->rdmaTransport->abandon(*before->rdma, "the peer started anew, or moved");
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
    if (found == segments_.end()) return failWith(ERR_INVALID_ARGUMENT, "closeSegment: " + std::to_string(id) + " is no open segment");
    if (--found->second->references > 0) return 0;
    gone = found->second;
    segmentIDs_.erase(gone->name);
    segments_.erase(found);
  }
  ViewRef view = gone->current();
  if (view && view->tcp) dropTcp(view->tcp, "the segment was closed");
  if (view && view->rdma) view->rdmaTransport->abandon(*view->rdma, "the segment was closed");
  return 0;
}

int Engine::forget(std::string segmentName) {
  segmentName = withoutSlashes(segmentName);
  if (segmentName.empty()) return failWith(ERR_INVALID_ARGUMENT, "removeLocalSegment: the name is empty");
  // The engine's own entries: peers find them no more until the next registration publishes them again.
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
  if (!known) return {1, std::to_string(id) + " is no open segment"};
  if (!refresh(*known, 0)) return {200, lastError()};
  ViewRef view = known->current();
  if (view->record->isFile() && view->file) return Status::OK();
  if (view->record->isFile() && !view->tcp) return Status(201, "segment " + known->name + ": " + whyNot(*view));
  if (view->owner && probe(view->owner->serverName) != 0) return {201, lastError()};
  if (view->owner) return Status::OK();
  if (probe(known->name) != 0) return {201, lastError()};
  if (!view->tcp && !view->host && !view->rdma) return {8, "segment " + known->name + ": " + whyNot(*view)};
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

std::string Engine::explain(SegmentID id, uint64_t offset, uint64_t length) {
  if (id == LOCAL_SEGMENT_ID) return "local: the segment is this engine's own";
  SegmentRef known = segment(id);
  if (!known) return "none: " + std::to_string(id) + " is no open segment";
  ViewRef view = known->current();
  if (view->record->isFile() && view->file) return "file: " + view->file->parts()[0].path;
  if (view->record->isFile() && view->tcp) return "tcp: " + view->tcp->who() + " of its owner " + view->owner->serverName + "; not file (" + view->fileWhy + ")";
  if (view->record->isFile()) return "none: " + whyNot(*view);
  const PublishedBuffer* buffer = view->record->holding(offset, length);
  std::string passed, why = view->hostWhy;
  if (view->host && buffer != nullptr) {
    if (view->host->map(*buffer, why) != nullptr) return "shm: the peer's buffer is mapped";
    passed += "not shm (" + why + ")";
    if (view->host->processVm() && buffer->slot) return "process_vm: " + passed;
    passed += ", not process_vm (" + (buffer->slot ? view->host->processVmRefusal() : "the buffer has no slot") + ")";
  } else {
    passed += "not shm or process_vm (" + (buffer == nullptr && view->host ? "the range is in no published buffer" : why) + ")";
  }
  if (view->rdma && buffer != nullptr && !buffer->remoteKeys.empty()) return "rdma: " + passed;
  passed += ", not rdma (" + (view->rdma ? "the buffer has no key" : view->rdmaWhy) + ")";
  if (view->tcp) return "tcp: " + view->tcp->who() + "; " + passed;
  return "none: " + passed + ", not tcp (" + view->tcpWhy + ")";
}

}  // namespace svc
