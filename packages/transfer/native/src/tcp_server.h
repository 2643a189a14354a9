// The data port: serves peers' reads and writes of registered memory, in Mooncake's framing.
#pragma once
#include <memory>
#include <unordered_map>

#include "event_loop.h"
#include "memory_registry.h"
#include "metrics.h"
#include "net.h"
#include "tcp_file_session.h"

namespace svc {

class TcpServerConnection;

/** Belongs to one event loop; every method except the constructor runs there. */
class TcpServer : public EventHandler {
 public:
  /** Above this limit the connection that has been silent longest is closed, if it was idle for IDLE_EVICT_MS. */
  static constexpr size_t MAX_CONNECTIONS = 4096;
  static constexpr uint64_t IDLE_EVICT_MS = 5000;
  /** Each session may hold a chunk. */
  static constexpr size_t MAX_FILE_SESSIONS = 256;
  /** Small enough to stay in the processor's cache between the read and the copy. */
  static constexpr size_t SCRATCH_BYTES = 64 << 10;

  TcpServer(EventLoop& loop, Fd listener, const MemoryRegistry& registry, Metrics& metrics, FileService files);
  ~TcpServer() override;
  void start();
  void onEvents(uint32_t events) override;
  void tick();
  void closeAll();

 private:
  friend class TcpServerConnection;
  void drop(TcpServerConnection* connection);
  bool evictIdle();
  EventLoop& loop_;
  Fd listener_;
  const MemoryRegistry& registry_;
  Metrics& metrics_;
  const FileService files_;
  size_t fileSessions_ = 0;
  std::unordered_map<TcpServerConnection*, std::shared_ptr<TcpServerConnection>> connections_;
  /** Shared by the loop's connections: an unparsed rest is shorter than a header and is stored separately. */
  std::vector<char> scratch_ = std::vector<char>(SCRATCH_BYTES);
};

}  // namespace svc
