// A small program on the public header, as a user of the installed library writes it: two engines, a write, a read, a refusal.
#include <svc/transfer_engine.h>
#include <svc/transfer_engine_c.h>

#include <cstdio>
#include <cstring>
#include <vector>

#define CHECK(condition)                                                                        \
  if (!(condition)) {                                                                           \
    fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, svc::lastError().c_str());       \
    return 1;                                                                                   \
  }

static int useClass() {
  svc::TransferEngine here, there;
  CHECK(here.init("P2PHANDSHAKE", "127.0.0.1") == 0);
  CHECK(there.init("P2PHANDSHAKE", "127.0.0.1") == 0);
  CHECK(here.installTransport("tcp") != nullptr && there.installTransport("tcp") != nullptr);
  std::vector<char> source(1 << 20), sink(1 << 20);
  for (size_t i = 0; i < source.size(); i++) source[i] = char(i * 31 + (i >> 8));
  CHECK(here.registerLocalMemory(source.data(), source.size(), "cpu:0") == 0);
  CHECK(there.registerLocalMemory(sink.data(), sink.size()) == 0);
  CHECK(there.registerLocalMemory(sink.data() + 10, 10) == svc::ERR_ADDRESS_OVERLAPPED);
  svc::SegmentHandle target = here.openSegment(there.getServerName());
  CHECK(target != svc::INVALID_SEGMENT_ID);
  auto at = reinterpret_cast<uint64_t>(sink.data());

  svc::BatchID batch = here.allocateBatchID(2);
  CHECK(batch != svc::INVALID_BATCH_ID);
  svc::TransferRequest write{svc::TransferRequest::WRITE, source.data(), target, at, source.size()};
  CHECK(here.submitTransferWithNotify(batch, {write}, {"name", "message"}).ok());
  svc::TransferStatus status;
  do {
    CHECK(here.getTransferStatus(batch, 0, status).ok());
  } while (status.s == svc::WAITING);
  CHECK(status.s == svc::COMPLETED && status.transferred_bytes == source.size());
  CHECK(memcmp(source.data(), sink.data(), sink.size()) == 0);
  CHECK(here.waitBatch(batch, 10'000) && here.freeBatchID(batch).ok());
  CHECK(here.freeBatchID(batch).code() == 1);
  CHECK(!here.waitBatch(batch, 10'000) && svc::lastError().find("freed before") != std::string::npos);

  CHECK(here.transferSync({{svc::TransferRequest::READ, source.data(), target, at + sink.size() - 10, 11}}).code() != 0);
  char stray[16];
  CHECK(here.transferSync({{svc::TransferRequest::READ, stray, target, at, sizeof stray}}).code() == 3);
  CHECK(here.CheckSegmentStatus(target).ok());
  std::vector<svc::NotifyDesc> notifies;
  while (notifies.empty()) CHECK(there.getNotifies(notifies) == 0);
  CHECK(notifies[0].name == "name" && notifies[0].msg == "message");
  CHECK(here.openSegment("127.0.0.1:1") == svc::INVALID_SEGMENT_ID);
  return 0;
}

static int useFlatInterface() {
  svc_engine* engine = svc_create_engine("P2PHANDSHAKE", "127.0.0.1", "127.0.0.1", 0, 0);
  CHECK(engine != nullptr);
  char memory[4096] = "abc", address[64];
  CHECK(svc_get_local_ip_and_port(engine, address, sizeof address) > 0);
  CHECK(svc_get_local_ip_and_port(engine, address, 3) < 0);
  CHECK(svc_register_local_memory(engine, memory, sizeof memory, nullptr, 1) == 0);
  svc_request request{1, memory, 0, reinterpret_cast<uint64_t>(memory) + 1000, 3, 0};
  CHECK(svc_transfer_sync(engine, &request, 1, 0) == 0);
  CHECK(memcmp(memory + 1000, "abc", 3) == 0);
  CHECK(svc_install_transport(engine, "smoke signals", nullptr) < 0 && strstr(svc_last_error(), "smoke signals") != nullptr);
  svc_destroy_engine(engine);
  CHECK(svc_create_engine("", "x", "", 0, 0) == nullptr);
  return 0;
}

int main() {
  int code = useClass();
  if (code == 0) code = useFlatInterface();
  if (code == 0) puts("every check passed");
  return code;
}
