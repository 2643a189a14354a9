// The public class: checks arguments, calls the engine, and converts results to Mooncake's return values.
#include "svc/transfer_engine.h"

#include <sched.h>

#include "engine.h"

namespace svc {

TransferEngine::TransferEngine(bool auto_discover) : TransferEngine(auto_discover, {}) {}
TransferEngine::TransferEngine(bool auto_discover, const std::vector<std::string>& filter) : engine_(std::make_unique<Engine>(auto_discover, filter)) {}
TransferEngine::~TransferEngine() = default;
TransferEngine::TransferEngine(TransferEngine&&) noexcept = default;
TransferEngine& TransferEngine::operator=(TransferEngine&&) noexcept = default;

int TransferEngine::setOption(std::string_view name, std::string_view value) {
  if (engine_->started()) return failWith(ERR_INVALID_ARGUMENT, "option " + std::string(name) + ": set it before init");
  return engine_->options.set(name, value);
}
int TransferEngine::init(const std::string& connection, const std::string& name, const std::string& host, uint64_t rpcPort) { return engine_->init(connection, name, host, rpcPort); }
int TransferEngine::freeEngine() { return engine_->stop(); }

Transport* TransferEngine::installTransport(const std::string& proto, void** args) {
  return engine_->install(proto, args != nullptr && args[0] != nullptr ? static_cast<const char*>(args[0]) : "");
}
int TransferEngine::uninstallTransport(const std::string& proto) { return engine_->uninstall(proto); }
Transport* TransferEngine::getTransport(const std::string& proto) { return engine_->transport(proto); }

int TransferEngine::registerLocalMemory(void* addr, size_t length, const std::string& location, bool remote, bool publish) {
  return engine_->registerMemory({{addr, length}}, location, remote, publish);
}
int TransferEngine::unregisterLocalMemory(void* addr, bool publish) { return engine_->unregisterMemory({reinterpret_cast<uint64_t>(addr)}, publish); }
int TransferEngine::registerLocalMemoryBatch(const std::vector<BufferEntry>& list, const std::string& location) { return engine_->registerMemory(list, location, true, true); }
int TransferEngine::unregisterLocalMemoryBatch(const std::vector<void*>& list) {
  std::vector<uint64_t> addresses;
  for (void* address : list) addresses.push_back(reinterpret_cast<uint64_t>(address));
  return engine_->unregisterMemory(addresses, true);
}
bool TransferEngine::checkOverlap(void* addr, uint64_t length) { return engine_->registry.overlaps(reinterpret_cast<uint64_t>(addr), length); }

SegmentHandle TransferEngine::openSegment(const std::string& name) { return engine_->open(name); }
int TransferEngine::closeSegment(SegmentHandle id) { return engine_->close(id); }
std::string TransferEngine::serveFolder(const std::string& label, const std::string& path) { return engine_->serveFolder(label, path); }
std::string TransferEngine::serveFile(const std::string& label, const std::string& path) { return engine_->serveFile(label, path); }
int TransferEngine::stopFolder(const std::string& label) { return engine_->stopFolder(label); }
int TransferEngine::removeLocalSegment(const std::string& name) { return engine_->forget(name); }
Status TransferEngine::CheckSegmentStatus(SegmentID id) { return engine_->check(id); }
int TransferEngine::syncSegmentCache(const std::string& name) { return engine_->sync(name); }

BatchID TransferEngine::allocateBatchID(size_t size) { return engine_->batches.allocate(size); }

namespace {
Status unknownBatch(BatchID id) { return {1, "batch " + hexAddress(id) + " is not allocated, or was freed before"}; }
}  // namespace

Status TransferEngine::submitTransfer(BatchID id, const std::vector<TransferRequest>& entries) {
  Batch* batch = engine_->batches.find(id);
  return batch == nullptr ? unknownBatch(id) : engine_->submit(*batch, entries, Drive::Engine, 0, nullptr);
}

Status TransferEngine::submitTransferWithNotify(BatchID id, const std::vector<TransferRequest>& entries, NotifyDesc message) {
  Batch* batch = engine_->batches.find(id);
  if (batch == nullptr) return unknownBatch(id);
  if (entries.empty()) return {1, "submitTransferWithNotify: there are no entries, so nobody to notify"};
  SegmentRef target = engine_->segment(entries[0].target_id);
  std::string name = target ? target->name : engine_->name;
  // The notification is sent when the last request completes, whether or not a caller queries the status.
  auto notify = [engine = engine_.get(), name, message, key = entries[0].target_id](Batch& done) {
    if (done.failedTasks.load() != 0) return;
    engine->pool.post(key, [engine, name, message] {
      if (engine->notifySegment(name, message) != 0) logLine(LogLevel::Warning, "notification for " + name + " was not delivered: " + lastError());
    });
  };
  return engine_->submit(*batch, entries, Drive::Engine, 0, notify);
}

Status TransferEngine::getTransferStatus(BatchID id, size_t task, TransferStatus& status) {
  Batch* batch = engine_->batches.find(id);
  if (batch == nullptr) return unknownBatch(id);
  std::lock_guard lock(batch->mutex);
  if (task >= batch->tasks.size()) return {1, "task " + std::to_string(task) + " of a batch with " + std::to_string(batch->tasks.size()) + " requests"};
  status.s = batch->stateOf(batch->tasks[task]);
  status.transferred_bytes = batch->tasks[task].bytes.load(std::memory_order_relaxed);
  return Status::OK();
}

Status TransferEngine::getBatchTransferStatus(BatchID id, TransferStatus& status) {
  Batch* batch = engine_->batches.find(id);
  if (batch == nullptr) return unknownBatch(id);
  uint32_t left = batch->tasksOpen.load(std::memory_order_acquire);
  status.s = batch->failedTasks.load(std::memory_order_acquire) != 0 ? FAILED : left == 0 ? COMPLETED : WAITING;
  // A caller that polls in a loop must not starve the thread that moves the bytes on this core.
  if (left != 0) sched_yield();
  status.transferred_bytes = batch->completedBytes.load(std::memory_order_relaxed);
  return Status::OK();
}

Status TransferEngine::freeBatchID(BatchID id) { return engine_->batches.free(id); }

std::string TransferEngine::getTransferError(BatchID id, size_t task) {
  Batch* batch = engine_->batches.find(id);
  if (batch == nullptr) return "";
  std::lock_guard lock(batch->mutex);
  return task < batch->tasks.size() && batch->tasks[task].state.load() == FAILED ? batch->tasks[task].error : "";
}

bool TransferEngine::waitBatch(BatchID id, uint64_t timeoutMs) {
  Batch* batch = engine_->batches.find(id);
  if (batch == nullptr) return setLastError("batch " + hexAddress(id) + " is not allocated, or was freed before"), false;
  return batch->wait(nowNs() + timeoutMs * NS_PER_MS);
}
Status TransferEngine::transferSync(const std::vector<TransferRequest>& entries, uint64_t timeoutMs) { return engine_->transferSync(entries, timeoutMs); }
void TransferEngine::transferAsync(const std::vector<TransferRequest>& entries, std::function<void(Status)> done, uint64_t timeoutMs, bool lingers) {
  engine_->transferAsync(entries, std::move(done), timeoutMs, lingers);
}

int TransferEngine::getNotifies(std::vector<NotifyDesc>& list) { return engine_->getNotifies(list); }
int TransferEngine::sendNotifyByID(SegmentID id, NotifyDesc message) {
  if (id == LOCAL_SEGMENT_ID) return engine_->notifySegment(engine_->name, message);
  SegmentRef target = engine_->segment(id);
  if (!target) return failWith(ERR_METADATA, "sendNotifyByID: " + std::to_string(id) + " is not an open segment");
  return engine_->notifySegment(target->name, message);
}
int TransferEngine::sendNotifyByName(const std::string& agent, NotifyDesc message) { return engine_->notifySegment(agent, message); }
int TransferEngine::probePeerAliveByID(SegmentID id) {
  if (id == LOCAL_SEGMENT_ID) return 0;
  SegmentRef target = engine_->segment(id);
  return target ? engine_->probe(target->name) : failWith(ERR_INVALID_ARGUMENT, "probePeerAliveByID: " + std::to_string(id) + " is not an open segment");
}

std::shared_ptr<TransferMetadata> TransferEngine::getMetadata() { return std::shared_ptr<TransferMetadata>(new TransferMetadata(*engine_)); }
std::string TransferMetadata::segmentDescriptor(const std::string& name) {
  if (name == engine_.name) return engine_.recordText();
  auto record = engine_.fetch(name);
  return record ? record->toJson().dump() : "";
}
std::string TransferMetadata::segmentKey(const std::string& name) const { return engine_.segmentKey(name); }
std::string TransferMetadata::rpcKey(const std::string& name) const { return engine_.rpcKey(name); }

void TransferEngine::setAutoDiscover(bool discover) { engine_->autoDiscover = discover; }
void TransferEngine::setWhitelistFilters(std::vector<std::string>&& filters) { engine_->filters = std::move(filters); }
int TransferEngine::numContexts() const { return engine_->contexts(); }
std::shared_ptr<Topology> TransferEngine::getLocalTopology() { return engine_->topology(); }
std::string TransferEngine::getLocalIpAndPort() { return engine_->localAddress(); }
int TransferEngine::getRpcPort() { return engine_->started() ? engine_->rpcPort() : failWith(ERR_INVALID_ARGUMENT, "getRpcPort: call init first"); }
std::string TransferEngine::getServerName() { return engine_->name; }
std::string TransferEngine::explainPath(SegmentID id, uint64_t offset, size_t length) { return engine_->explain(id, offset, length); }
std::string TransferEngine::metrics() const { return engine_->metrics.text(); }

}  // namespace svc
