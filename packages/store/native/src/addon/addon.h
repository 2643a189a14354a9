// The declarations that the addon's files share: the object behind the JavaScript class, and its methods.
#pragma once
#include <memory>

#include "report/report.h"
#include "server/server.h"
#include "addon/values.h"

namespace svc {

struct Addon {
  // It must outlive the server, whose thread calls it.
  napi_threadsafe_function events = nullptr;
  std::unique_ptr<Server> server;
  Dump dump;
};

// The recovering thread owns the store while it reads the log, so all other callers are refused.
inline Server& serving(Addon& addon) {
  if (!addon.server || !addon.server->serving()) throw std::runtime_error("the master is recovering");
  return *addon.server;
}

inline Uuid idAt(const Call& call, napi_value from) {
  Uuid id;
  if (!uuidOf(call.bytes(from), id)) throw std::invalid_argument("expected an id of 32 hexadecimal digits");
  return id;
}

template <typename Change>
napi_value changing(Addon& addon, const Call& call, Change change) {
  Server& server = serving(addon);
  const i32 outcome = server.change([&] { return server.canLog() ? change(server.store) : i32{code::persistFail}; });
  return call.of(static_cast<double>(outcome));
}

// Names of the metrics, and of the columns of an operation's metrics, in the order of their values.
std::vector<std::string> metricNames();
std::vector<std::string> operationMetricNames();

using Method = napi_value (*)(Addon&, const Call&);

napi_value reportDurable(Addon& addon, const Call& call);
napi_value mount(Addon& addon, const Call& call);
napi_value remount(Addon& addon, const Call& call);
napi_value unmount(Addon& addon, const Call& call);
napi_value setState(Addon& addon, const Call& call);
napi_value probed(Addon& addon, const Call& call);
napi_value setTasks(Addon& addon, const Call& call);
napi_value addTenant(Addon& addon, const Call& call);
napi_value setQuota(Addon& addon, const Call& call);
napi_value queryKey(Addon& addon, const Call& call);
napi_value descriptors(Addon& addon, const Call& call);
napi_value route(Addon& addon, const Call& call);
napi_value objectsOn(Addon& addon, const Call& call);
napi_value keepNotes(Addon& addon, const Call& call);
napi_value suspect(Addon& addon, const Call& call);
napi_value mountDisk(Addon& addon, const Call& call);
napi_value unmountDisks(Addon& addon, const Call& call);
napi_value unmountDisk(Addon& addon, const Call& call);
napi_value queueCold(Addon& addon, const Call& call);
napi_value fillCold(Addon& addon, const Call& call);
napi_value releaseCold(Addon& addon, const Call& call);
napi_value filesOn(Addon& addon, const Call& call);
napi_value dropFiles(Addon& addon, const Call& call);
napi_value failOffloads(Addon& addon, const Call& call);
napi_value mooncakeOrders(Addon& addon, const Call& call);
napi_value mooncakePromotions(Addon& addon, const Call& call);
napi_value keepMooncakeFiles(Addon& addon, const Call& call);
napi_value dropMooncakeFile(Addon& addon, const Call& call);
napi_value setCapacity(Addon& addon, const Call& call);
napi_value takeWipe(Addon& addon, const Call& call);
napi_value promoteStart(Addon& addon, const Call& call);
napi_value promoteEnd(Addon& addon, const Call& call);
napi_value reportWrongBytes(Addon& addon, const Call& call);
napi_value disks(Addon& addon, const Call& call);
napi_value sharedFolder(Addon& addon, const Call& call);
napi_value startFiles(Addon& addon, const Call& call);
napi_value endFiles(Addon& addon, const Call& call);
napi_value evictFiles(Addon& addon, const Call& call);
napi_value setFolderQuota(Addon& addon, const Call& call);
napi_value sweepable(Addon& addon, const Call& call);
napi_value swept(Addon& addon, const Call& call);
napi_value reportedFiles(Addon& addon, const Call& call);
napi_value dropFile(Addon& addon, const Call& call);
napi_value dropNotes(Addon& addon, const Call& call);
napi_value notes(Addon& addon, const Call& call);
napi_value listenHttp(Addon& addon, const Call& call);
napi_value guard(Addon& addon, const Call& call);
napi_value authorize(Addon& addon, const Call& call);
napi_value callerOf(Addon& addon, const Call& call);
napi_value entry(Addon& addon, const Call& call);
napi_value keys(Addon& addon, const Call& call);
napi_value objects(Addon& addon, const Call& call);
napi_value removeKeys(Addon& addon, const Call& call);
napi_value removeSome(Addon& addon, const Call& call);
napi_value clearKeys(Addon& addon, const Call& call);
napi_value holdersOf(Addon& addon, const Call& call);
napi_value segments(Addon& addon, const Call& call);
napi_value clients(Addon& addon, const Call& call);
napi_value tenants(Addon& addon, const Call& call);
napi_value metrics(Addon& addon, const Call& call);
napi_value operationMetrics(Addon& addon, const Call& call);
napi_value canLog(Addon& addon, const Call& call);
napi_value takeBatches(Addon& addon, const Call& call);
napi_value batchesFrom(Addon& addon, const Call& call);
napi_value beginDump(Addon& addon, const Call& call);
napi_value dumpSome(Addon& addon, const Call& call);
napi_value endDump(Addon& addon, const Call& call);
napi_value batchRange(Addon& addon, const Call& call);
napi_value configureReplication(Addon& addon, const Call& call);
napi_value listenPeers(Addon& addon, const Call& call);
napi_value startStandby(Addon& addon, const Call& call);
napi_value follow(Addon& addon, const Call& call);
napi_value lead(Addon& addon, const Call& call);
napi_value admitPeer(Addon& addon, const Call& call);
napi_value refusePeer(Addon& addon, const Call& call);
napi_value forgetPeer(Addon& addon, const Call& call);
napi_value retire(Addon& addon, const Call& call);
napi_value peerHasAll(Addon& addon, const Call& call);
napi_value handOver(Addon& addon, const Call& call);
napi_value contacted(Addon& addon, const Call& call);
napi_value replication(Addon& addon, const Call& call);
napi_value leased(Addon& addon, const Call& call);

}  // namespace svc
