// An engine's name in a metadata service: one engine at a time owns it, and only the owner renews or deletes its records.
#include "engine.h"

namespace svc {

namespace {
/** The engine in the record must answer within this time; one that is silent may be stopped, and one that refuses connections is gone. */
constexpr uint64_t OTHER_ANSWERS_MS = 2000;
}  // namespace

std::string Engine::rpcRecord() const { return Json(Json::Object{{"ip_or_host_name", host_}, {"rpc_port", uint64_t(rpcPort_)}, {"instance", instance_}}).dump(); }

bool Engine::isOwn(const std::string& record) const {
  auto json = Json::parse(record);
  if (!json) return false;
  std::string instance = (*json)["instance"].text();
  if (!instance.empty()) return instance == instance_;
  return (*json)["ip_or_host_name"].text() == host_ && (*json)["rpc_port"].number() == uint64_t(rpcPort_);
}

int Engine::claimName() {
  std::string text;
  Lookup found = store_->get(rpcKey(name), text);
  if (found == Lookup::Failed) return failWith(ERR_METADATA, "init: looking up " + name + ": " + lastError());
  if (found == Lookup::Missing || isOwn(text)) return 0;
  auto json = Json::parse(text);
  const uint64_t port = json ? (*json)["rpc_port"].number().value_or(0) : 0;
  const std::string host = json ? (*json)["ip_or_host_name"].text() : "", who = joinHostPort(host, port);
  // We have bound the recorded port ourselves, so that engine is gone.
  if (port == 0 || port > 65535 || (host == host_ && port == rpcPort_)) return 0;
  auto address = resolveHost(host, uint16_t(port));
  if (address && answersAs(*address)) {
    return failWith(ERR_INVALID_ARGUMENT, "init: an engine named " + name + " is running at " + who + ", and local_server_name must be unique in the cluster; stop that engine first, or use another name");
  }
  logLine(LogLevel::Warning, "the record of " + name + " names " + who + ", where no such engine is any more; this engine takes the name over");
  return 0;
}

bool Engine::answersAs(const Address& address) {
  WaitsUntil bound(nowNs() + OTHER_ANSWERS_MS * NS_PER_MS);
  if (!connectWithin(address, OTHER_ANSWERS_MS)) return false;
  const uint64_t asked = nowMs();
  if (auto answer = callPeer(address, wire::RPC_METADATA, Json::object(), OTHER_ANSWERS_MS, OTHER_ANSWERS_MS)) {
    std::string why;
    auto record = SegmentDescriptor::read(*answer, why);
    // The port may belong to a different engine by now.
    return !record || record->serverName == name;
  }
  // A stopped process accepts the connection but stays silent; it still owns its name.
  if (nowMs() - asked >= OTHER_ANSWERS_MS / 2) return true;
  auto probed = callPeer(address, wire::RPC_PROBE, Json::object(), OTHER_ANSWERS_MS, OTHER_ANSWERS_MS);
  return probed && (*probed)["status"].text() == "success";
}

bool Engine::hasName() {
  std::string text;
  if (store_->get(rpcKey(name), text) != Lookup::Found || isOwn(text)) {
    displaced_ = false;
    return true;
  }
  if (!displaced_.exchange(true)) logLine(LogLevel::Error, "another engine has taken the name " + name + " and its record: " + text + "; this one is not found by peers any more");
  return false;
}

bool Engine::removeOwn(const std::string& key) {
  std::string text;
  Lookup found = store_->get(key, text);
  if (found == Lookup::Found && isOwn(text)) return store_->remove(key);
  return found != Lookup::Failed;
}

}  // namespace svc
