// The C interface; it only converts types.
#include "svc/transfer_engine_c.h"

#include <cstring>
#include <new>

#include "base.h"
#include "svc/transfer_engine.h"

using svc::Status;
using svc::TransferRequest;

struct svc_engine {
  svc::TransferEngine engine;
};

namespace {

int code(const Status& status) {
  if (status.ok()) return 0;
  return svc::failWith(-status.code(), status.message());
}

std::string text(const char* value) { return value == nullptr ? "" : value; }

int copyOut(const std::string& value, char* out, size_t size) {
  if (value.size() + 1 > size) return svc::failWith(svc::ERR_INVALID_ARGUMENT, "the answer takes " + std::to_string(value.size() + 1) + " bytes, there is room for " + std::to_string(size));
  memcpy(out, value.c_str(), value.size() + 1);
  return int(value.size());
}

std::vector<TransferRequest> convert(const svc_request* requests, size_t count) {
  std::vector<TransferRequest> list(count);
  for (size_t i = 0; i < count; i++)
    list[i] = {TransferRequest::OpCode(requests[i].opcode), requests[i].source, requests[i].target_id, requests[i].target_offset, size_t(requests[i].length), requests[i].advise_retry_cnt};
  return list;
}

}  // namespace

extern "C" {

svc_engine* svc_create_engine(const char* connection, const char* name, const char* host, uint64_t port, int discover) {
  auto* made = new (std::nothrow) svc_engine{svc::TransferEngine(discover != 0)};
  if (made == nullptr || made->engine.init(text(connection), text(name), text(host), port) == 0) return made;
  std::string why = svc::lastError();
  delete made;
  svc::setLastError(why);
  return nullptr;
}
void svc_destroy_engine(svc_engine* engine) { delete engine; }
const char* svc_last_error(void) { return svc::lastError().c_str(); }
int svc_get_local_ip_and_port(svc_engine* engine, char* out, size_t size) { return copyOut(engine->engine.getLocalIpAndPort(), out, size); }
int svc_discover_topology(svc_engine* engine, char* out, size_t size) { return copyOut(engine->engine.getLocalTopology()->toJson(), out, size); }

int svc_install_transport(svc_engine* engine, const char* proto, const char* matrix) {
  void* args[] = {const_cast<char*>(matrix)};
  return engine->engine.installTransport(text(proto), args) != nullptr ? 0 : svc::ERR_NOT_SUPPORTED_TRANSPORT;
}
int svc_uninstall_transport(svc_engine* engine, const char* proto) { return engine->engine.uninstallTransport(text(proto)); }

int svc_register_local_memory(svc_engine* engine, void* addr, uint64_t length, const char* location, int remote) {
  return engine->engine.registerLocalMemory(addr, length, location == nullptr ? "*" : location, remote != 0);
}
int svc_unregister_local_memory(svc_engine* engine, void* addr) { return engine->engine.unregisterLocalMemory(addr); }
int svc_register_local_memory_batch(svc_engine* engine, const svc_buffer* buffers, size_t count, const char* location) {
  std::vector<svc::BufferEntry> list;
  for (size_t i = 0; i < count; i++) list.push_back({buffers[i].addr, size_t(buffers[i].length)});
  return engine->engine.registerLocalMemoryBatch(list, location == nullptr ? "*" : location);
}
int svc_unregister_local_memory_batch(svc_engine* engine, void* const* addresses, size_t count) {
  return engine->engine.unregisterLocalMemoryBatch(std::vector<void*>(addresses, addresses + count));
}

uint64_t svc_open_segment(svc_engine* engine, const char* name) { return engine->engine.openSegment(text(name)); }
int svc_close_segment(svc_engine* engine, uint64_t segment) { return engine->engine.closeSegment(segment); }
int svc_remove_local_segment(svc_engine* engine, const char* name) { return engine->engine.removeLocalSegment(text(name)); }
int svc_check_segment_status(svc_engine* engine, uint64_t segment) { return code(engine->engine.CheckSegmentStatus(segment)); }
int svc_sync_segment_cache(svc_engine* engine, const char* name) { return engine->engine.syncSegmentCache(text(name)); }

uint64_t svc_allocate_batch_id(svc_engine* engine, size_t size) { return engine->engine.allocateBatchID(size); }
int svc_submit_transfer(svc_engine* engine, uint64_t batch, const svc_request* requests, size_t count) { return code(engine->engine.submitTransfer(batch, convert(requests, count))); }
int svc_submit_transfer_with_notify(svc_engine* engine, uint64_t batch, const svc_request* requests, size_t count, const char* name, const char* msg) {
  return code(engine->engine.submitTransferWithNotify(batch, convert(requests, count), {text(name), text(msg)}));
}
int svc_get_transfer_status(svc_engine* engine, uint64_t batch, size_t task, svc_transfer_status* status) {
  svc::TransferStatus found;
  Status result = engine->engine.getTransferStatus(batch, task, found);
  *status = {int(found.s), found.transferred_bytes};
  return code(result);
}
int svc_get_batch_transfer_status(svc_engine* engine, uint64_t batch, svc_transfer_status* status) {
  svc::TransferStatus found;
  Status result = engine->engine.getBatchTransferStatus(batch, found);
  *status = {int(found.s), found.transferred_bytes};
  return code(result);
}
int svc_wait_batch(svc_engine* engine, uint64_t batch, uint64_t timeout) {
  svc::TransferStatus status;
  if (svc::Status known = engine->engine.getBatchTransferStatus(batch, status); !known.ok()) return svc::failWith(-known.code(), known.message());
  return engine->engine.waitBatch(batch, timeout) ? 0 : svc::failWith(svc::ERR_BATCH_BUSY, "requests are in flight after " + std::to_string(timeout) + " ms");
}
int svc_free_batch_id(svc_engine* engine, uint64_t batch) { return code(engine->engine.freeBatchID(batch)); }
int svc_transfer_sync(svc_engine* engine, const svc_request* requests, size_t count, uint64_t timeout) { return code(engine->engine.transferSync(convert(requests, count), timeout)); }

svc_notify* svc_get_notifies(svc_engine* engine, size_t* count) {
  std::vector<svc::NotifyDesc> list;
  engine->engine.getNotifies(list);
  *count = list.size();
  if (list.empty()) return nullptr;
  auto* out = new svc_notify[list.size()];
  for (size_t i = 0; i < list.size(); i++) out[i] = {strdup(list[i].name.c_str()), strdup(list[i].msg.c_str())};
  return out;
}
void svc_free_notifies(svc_notify* list, size_t count) {
  for (size_t i = 0; i < count; i++) {
    free(list[i].name);
    free(list[i].msg);
  }
  delete[] list;
}
int svc_send_notify(svc_engine* engine, uint64_t segment, const char* name, const char* msg) { return engine->engine.sendNotifyByID(segment, {text(name), text(msg)}); }

}  // extern "C"
