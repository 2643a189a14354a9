// Counters of one engine, printed in Prometheus' text format; labels take few values.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace svc {

/** The paths of bytes, in the order in which they are tried. */
enum class Path { Local = 0, Shm, ProcessVm, Rdma, Tcp, File };
inline constexpr size_t PATH_COUNT = 6;
struct Metrics {
  struct PerPath {
    std::atomic<uint64_t> requests{0}, bytes{0}, failures{0}, fallbacks{0};
  };
  std::array<PerPath, PATH_COUNT> paths;
  std::atomic<uint64_t> connectionsOpened{0}, connectionsBroken{0}, servedBytes{0}, refusedByServer{0}, timeouts{0};
  std::atomic<uint64_t> descriptorFetches{0}, peerRestarts{0}, metadataFailures{0}, notifiesSent{0}, notifiesReceived{0}, notifiesDropped{0};

  PerPath& of(Path path) { return paths[size_t(path)]; }
  void count(Path path, uint64_t requests, uint64_t bytes) {
    of(path).requests.fetch_add(requests, std::memory_order_relaxed);
    of(path).bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  std::string text() const;
};

}  // namespace svc
