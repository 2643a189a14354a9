// The handshake port: descriptors, notifications, probes and endpoint exchange, one frame each way.
#pragma once
#include <memory>
#include <unordered_map>

#include "event_loop.h"
#include "json.h"
#include "net.h"
#include "wire.h"

namespace svc {

/** What the engine answers; runs on the loop, so none of it may block. */
struct RpcAnswers {
  /** The type 1 reply: the engine's own record, ready made, or that of the file segment that the request names. */
  std::function<std::string(const std::string& segment)> descriptor;
  /** Empty: taken; else why not. */
  std::function<std::string(const std::string& name, const std::string& message)> notify;
  std::function<Json(const Json& request)> connection;
};

class RpcConnection;

class RpcServer : public EventHandler {
 public:
  static constexpr size_t MAX_CONNECTIONS = 1024;
  /** From connect to the client's close. */
  static constexpr uint64_t CONNECTION_MS = 5000;

  RpcServer(EventLoop& loop, Fd listener, RpcAnswers answers);
  ~RpcServer() override;
  void start();
  void onEvents(uint32_t events) override;
  void tick();
  void closeAll();

 private:
  friend class RpcConnection;
  void drop(RpcConnection* connection);
  EventLoop& loop_;
  Fd listener_;
  RpcAnswers answers_;
  std::unordered_map<RpcConnection*, std::shared_ptr<RpcConnection>> connections_;
};

/** One exchange with a peer's handshake port. Nothing with lastError() set: no answer, or none of this protocol. */
std::optional<Json> callPeer(const Address& peer, uint8_t type, const Json& request, uint64_t connectTimeoutMs, uint64_t timeoutMs);

}  // namespace svc
