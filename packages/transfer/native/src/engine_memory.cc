// Memory registration: the table of buffers, and the published record.
#include "engine.h"
#include "topology.h"

namespace svc {

namespace {
/** Copies of peers on this host end within milliseconds, but a process that is stopped during one may never continue. */
constexpr uint64_t REVOKE_WAIT_MS = 1000;
}  // namespace

int Engine::registerMemory(const std::vector<BufferEntry>& list, const std::string& location, bool remote, bool publishNow) {
  if (!started_) return failWith(ERR_INVALID_ARGUMENT, "registerLocalMemory: call init first");
  if (list.empty()) return failWith(ERR_INVALID_ARGUMENT, "registerLocalMemory: the list is empty");
  if (!isLocation(location)) return failWith(ERR_INVALID_ARGUMENT, "registerLocalMemory: location \"" + location + "\": expected *, cpu:<index> or another <device>:<index>");
  std::lock_guard lock(memoryMutex_);
  const auto transports = installed();
  std::vector<BufferRef> done;
  int code = 0;
  for (const auto& entry : list) {
    auto buffer = std::make_shared<Buffer>();
    buffer->address = reinterpret_cast<uint64_t>(entry.addr);
    buffer->length = entry.length;
    buffer->location = location;
    buffer->remoteAccessible = remote;
    buffer->published = publishNow;
    if (code = registry.add(buffer); code != 0) break;
    done.push_back(buffer);
    if (location == "*") {
      if (std::string found = locationOf(entry.addr); !found.empty()) buffer->location = found;
      else logLine(LogLevel::Warning, "the device of " + rangeText(buffer->address, buffer->length) + " was not recognized; all network devices serve it alike");
    }
    for (const auto& each : transports)
      if (!each->registerBuffer(*buffer)) code = ERR_CONTEXT;
    if (code != 0) break;
  }
  if (code == 0 && publishNow) {
    withdrawn_ = false;
    code = publish();
  }
  if (code == 0) return 0;
  std::string why = lastError();
  if (release(done) != 0) why += "; " + lastError();
  describe();
  return failWith(code, why);
}

int Engine::release(const std::vector<BufferRef>& buffers) {
  const auto transports = installed();
  for (const auto& buffer : buffers) {
    buffer->shut();
    // The slot may already be closed if shm was uninstalled, but it stays allocated until no copy is running.
    if (buffer->slot >= 0) control_->close(buffer->slot);
    for (const auto& each : transports) each->unregisterBuffer(*buffer);
  }
  int code = 0;
  std::string why;
  const uint64_t deadline = nowNs() + REVOKE_WAIT_MS * NS_PER_MS;
  for (const auto& buffer : buffers) {
    buffer->drain();
    std::string who;
    if (buffer->slot >= 0 && !control_->giveBack(buffer->slot, deadline, who)) {
      code = ERR_BATCH_BUSY;
      why = "unregistering " + rangeText(buffer->address, buffer->length) + ": " + who + " has begun a copy and does not go on; the range is closed to new requests: call again once that process runs on or has ended, and keep the memory until then";
      continue;
    }
    buffer->slot = -1;
    // While the engine stops, a device may still return a request that has pinned the buffer.
    if (buffer->pins() == 0) registry.remove(buffer);
  }
  return code == 0 ? 0 : failWith(code, why);
}

int Engine::unregisterMemory(const std::vector<uint64_t>& addresses, bool publishNow) {
  std::lock_guard lock(memoryMutex_);
  int first = 0;
  std::string why;
  auto note = [&](int code) {
    if (code == 0 || first != 0) return;
    first = code;
    why = lastError();
  };
  std::vector<BufferRef> closed;
  for (uint64_t address : addresses) {
    BufferRef buffer = registry.find(address);
    if (!buffer) note(failWith(ERR_ADDRESS_NOT_REGISTERED, "unregistering " + hexAddress(address) + ": no buffer starts there"));
    else if (registry.close(buffer)) closed.push_back(buffer);
    else note(failWith(ERR_BATCH_BUSY, "unregistering " + rangeText(buffer->address, buffer->length) + ": " + std::to_string(buffer->pins()) + " requests in flight use it"));
  }
  note(release(closed));
  if (publishNow && started_ && !stopping_) {
    if (int code = publish(); code != 0 && first == 0) return code;
  }
  return first == 0 ? 0 : failWith(first, why);
}

SegmentDescriptor Engine::ownRecord() {
  SegmentDescriptor record;
  record.serverName = name;
  record.protocol = "tcp";
  record.timestamp = timestamp_;
  record.instance = instance_;
  record.priorityMatrix = priorityMatrix_;
  const auto transports = installed();
  for (const auto& each : transports) each->describe(record);
  record.servesFiles = record.tcpPort != 0 && files() != nullptr;
  for (const auto& buffer : registry.all()) {
    if (!buffer->remoteAccessible || !buffer->published || buffer->revoked()) continue;
    PublishedBuffer entry;
    entry.location = buffer->location;
    entry.address = buffer->address;
    entry.length = buffer->length;
    for (const auto& each : transports) each->describe(*buffer, entry);
    record.buffers.push_back(std::move(entry));
  }
  return record;
}

void Engine::describe() {
  std::lock_guard memory(memoryMutex_);
  const SegmentDescriptor record = ownRecord();
  Json json = record.toJson();
  if (!record.devices.empty() && json["priority_matrix"].members().empty()) {
    if (auto found = Json::parse(topology()->toJson())) json.set("priority_matrix", *found);
  }
  std::lock_guard lock(recordMutex_);
  record_ = json.dump();
}

std::string Engine::recordText() {
  std::lock_guard lock(recordMutex_);
  return record_;
}

int Engine::publish() {
  std::lock_guard memory(memoryMutex_);
  describe();
  if (withdrawn_) return 0;
  if (displaced_) return failWith(ERR_METADATA, "publishing the buffers of " + name + ": another engine has taken the name");
  if (!store_ || stopping_ || store_->set(segmentKey(name), recordText())) return 0;
  metrics.metadataFailures.fetch_add(1);
  return failWith(ERR_METADATA, "publishing the buffers of " + name + ": " + lastError());
}

}  // namespace svc
