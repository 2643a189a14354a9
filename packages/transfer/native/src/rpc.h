// The handshake port: descriptors, notifications, probes and endpoint exchange, one frame in each direction.
#pragma once
#include <memory>
#include <unordered_map>

#include "event_loop.h"
#include "json.h"
#include "net.h"
#include "wire.h"

namespace svc {

/** The engine's answers. They run on the event loop, so none may block. */
struct RpcAnswers {
  /** The reply of type 1: the engine's own record, already serialized, or that of the file segment in the request. */
  std::function<std::string(const std::string& segment)> descriptor;
  /** Returns an empty text if the message was accepted, otherwise the reason. */
  std::function<std::string(const std::string& name, const std::string& message)> notify;
  std::function<Json(const Json& request)> connection;
};

class RpcConnection;

class RpcServer : public EventHandler {
 public:
  static constexpr size_t MAX_CONNECTIONS = 1024;
  /** The time from accepting a connection to the client's close. */
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

/**
 * One exchange with a peer's handshake port. Returns nothing, with lastError(), without an answer or if it does not speak this protocol.
 */
std::optional<Json> callPeer(const Address& peer, uint8_t type, const Json& request, uint64_t connectTimeoutMs, uint64_t timeoutMs);

}  // namespace svc
