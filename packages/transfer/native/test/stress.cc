// Threads of two engines run concurrently over every path of a host, with registrations, refusals and notifications; every byte is checked.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "svc/transfer_engine.h"

using namespace svc;

namespace {

constexpr size_t SLICE = 1 << 20;
constexpr int THREADS = 8;
std::atomic<int> failures{0};

void expect(bool truth, const char* what, const std::string& why = "") {
  if (truth) return;
  failures++;
  fprintf(stderr, "%s: %s\n", what, why.c_str());
}

/** One thread: writes and reads back within its own slice, with every form of transfer. */
void work(TransferEngine& engine, SegmentHandle target, char* local, uint64_t remote, int seed, int rounds) {
  std::mt19937 random{unsigned(seed)};
  std::vector<char> model(SLICE);
  for (int round = 0; round < rounds; round++) {
    size_t pieces = random() % 4 == 0 ? 1 : 1 + random() % 64, size = 1 + random() % (SLICE / 2 / pieces);
    std::vector<TransferRequest> writes, reads;
    for (size_t i = 0; i < pieces * size; i++) local[i] = model[i] = char(random());
    for (size_t i = 0; i < pieces; i++) {
      writes.push_back({TransferRequest::WRITE, local + i * size, target, remote + i * size, size});
      reads.push_back({TransferRequest::READ, local + SLICE / 2 + i * size, target, remote + i * size, size});
    }
    auto run = [&](const std::vector<TransferRequest>& list) {
      switch (random() % 3) {
        case 0: return engine.transferSync(list);
        case 1: {
          std::atomic<bool> done{false};
          Status result;
          auto end = [&](Status status) {
            result = status;
            done = true;
            done.notify_all();
          };
          engine.transferAsync(list, end, 0, random() % 2 == 0);
          done.wait(false);
          return result;
        }
        default: {
          BatchID batch = engine.allocateBatchID(list.size());
          Status status = random() % 8 == 0 ? engine.submitTransferWithNotify(batch, list, {"stress", "done"}) : engine.submitTransfer(batch, list);
          if (!status.ok()) return status;
          expect(engine.waitBatch(batch, 60'000), "a batch did not end");
          TransferStatus found;
          engine.getBatchTransferStatus(batch, found);
          if (found.s != COMPLETED) status = {1, engine.getTransferError(batch, 0)};
          expect(engine.freeBatchID(batch).ok(), "a batch that had ended was not freed");
          return status;
        }
      }
    };
    Status status = run(writes);
    expect(status.ok(), "write", status.ToString());
    memset(local + SLICE / 2, 0, SLICE / 2);
    status = run(reads);
    expect(status.ok(), "read", status.ToString());
    expect(memcmp(local + SLICE / 2, model.data(), pieces * size) == 0, "the bytes read back differ");
    if (round % 16 == 5) expect(!engine.transferSync({{TransferRequest::WRITE, local, target, 4096, 100}}).ok(), "a range of nobody was taken");
  }
}

/** Registers and unregisters during the other threads' transfers. */
void churn(TransferEngine& engine, std::atomic<bool>& stop) {
  std::vector<char> memory(1 << 16);
  while (!stop) {
    expect(engine.registerLocalMemory(memory.data(), memory.size(), "cpu:0") == 0, "registering", lastError());
    expect(engine.checkOverlap(memory.data() + 5, 1), "overlap");
    expect(engine.unregisterLocalMemory(memory.data()) == 0, "unregistering", lastError());
    std::vector<NotifyDesc> list;
    engine.getNotifies(list);
  }
}

void runPair(bool shm, bool shared, int rounds) {
  TransferEngine here, there;
  for (auto* engine : {&here, &there}) {
    engine->setOption("log_level", "0");
    expect(engine->init("P2PHANDSHAKE", "127.0.0.1") == 0, "init", lastError());
    expect(engine->installTransport("tcp") != nullptr, "tcp", lastError());
    if (shm) expect(engine->installTransport("shm") != nullptr, "shm", lastError());
  }
  size_t size = THREADS * SLICE;
  std::vector<char> local(size), plain(shared ? 0 : size);
  char* remote = shared ? static_cast<char*>(allocateShared(size)) : plain.data();
  here.registerLocalMemory(local.data(), size);
  there.registerLocalMemory(remote, size);
  SegmentHandle target = here.openSegment(there.getServerName());
  expect(target != INVALID_SEGMENT_ID, "open", lastError());
  std::atomic<bool> stop{false};
  std::thread churner([&] { churn(there, stop); });
  std::vector<std::thread> threads;
  for (int i = 0; i < THREADS; i++) threads.emplace_back([&, i] { work(here, target, local.data() + i * SLICE, reinterpret_cast<uint64_t>(remote) + i * SLICE, i + 1, rounds); });
  for (auto& thread : threads) thread.join();
  stop = true;
  churner.join();
  // Transfers in flight must end when the engine is freed, and touch nothing afterwards.
  for (int i = 0; i < THREADS; i++) here.transferAsync({{TransferRequest::WRITE, local.data() + i * SLICE, target, reinterpret_cast<uint64_t>(remote) + i * SLICE, SLICE}}, [](Status) {});
  here.freeEngine();
  there.freeEngine();
  if (shared) freeShared(remote);
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 40;
  for (auto [shm, shared] : {std::pair(false, false), {true, false}, {true, true}}) runPair(shm, shared, rounds);
  if (failures == 0) puts("every byte as it should be");
  return failures == 0 ? 0 : 1;
}
