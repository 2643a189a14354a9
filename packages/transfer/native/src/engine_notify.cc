// Notifications and probes: short messages between engines over the handshake port.
#include "engine.h"

namespace svc {

namespace {
/** The limit of all messages that wait to be collected. */
constexpr uint64_t MAX_NOTIFY_BYTES = 64 << 20;
}

std::string Engine::takeNotify(const std::string& from, const std::string& message) {
  std::lock_guard lock(notifyMutex_);
  uint64_t bytes = from.size() + message.size();
  if (notifies_.size() >= options.maxNotifies || notifyBytes_ + bytes > MAX_NOTIFY_BYTES) {
    metrics.notifiesDropped.fetch_add(1, std::memory_order_relaxed);
    return std::to_string(notifies_.size()) + " notifications wait to be collected";
  }
  notifyBytes_ += bytes;
  notifies_.push_back({from, message});
  metrics.notifiesReceived.fetch_add(1, std::memory_order_relaxed);
  return "";
}

int Engine::getNotifies(std::vector<NotifyDesc>& list) {
  std::lock_guard lock(notifyMutex_);
  list.assign(notifies_.begin(), notifies_.end());
  notifies_.clear();
  notifyBytes_ = 0;
  return 0;
}

int Engine::notifySegment(const std::string& target, const NotifyDesc& message) {
  if (!started_) return failWith(ERR_INVALID_ARGUMENT, "sendNotify: call init first");
  if (target == name) {
    std::string refusal = takeNotify(message.name, message.msg);
    return refusal.empty() ? 0 : failWith(ERR_TOO_MANY_REQUESTS, refusal);
  }
  auto peer = rpcAddressOf(target);
  if (!peer) return ERR_METADATA;
  Json request(Json::Object{{"name", message.name}, {"notify_msg", message.msg}});
  auto answer = callPeer(*peer, wire::RPC_NOTIFY, request, options.connectTimeoutMs, RPC_MS);
  if (!answer) return ERR_SOCKET;
  if ((*answer)["notify_msg"].text() != "success") return failWith(ERR_REJECT_HANDSHAKE, "peer " + target + " refused the notification: " + (*answer)["error"].text("without a reason"));
  metrics.notifiesSent.fetch_add(1, std::memory_order_relaxed);
  return 0;
}

int Engine::probe(const std::string& target) {
  auto peer = rpcAddressOf(target);
  if (!peer) return ERR_METADATA;
  auto answer = callPeer(*peer, wire::RPC_PROBE, Json::object(), options.connectTimeoutMs, RPC_MS);
  if (!answer) return ERR_SOCKET;
  if ((*answer)["status"].text() == "success") return 0;
  return failWith(ERR_REJECT_HANDSHAKE, "peer " + target + " answered the probe with " + answer->dump().substr(0, 200));
}

}  // namespace svc
