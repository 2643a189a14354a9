// What the addon's files share: the object behind the class, and the methods that look into the store.
#pragma once
#include <memory>

#include "report.h"
#include "server.h"
#include "values.h"

namespace svc {

struct Addon {
  // Outlives the server, whose thread calls it.
  napi_threadsafe_function events = nullptr;
  std::unique_ptr<Server> server;
};

using Method = napi_value (*)(Addon&, const Call&);

napi_value tellDurable(Addon& addon, const Call& call);
napi_value mount(Addon& addon, const Call& call);
napi_value remount(Addon& addon, const Call& call);
napi_value unmount(Addon& addon, const Call& call);
napi_value setState(Addon& addon, const Call& call);
napi_value probed(Addon& addon, const Call& call);
napi_value setTasks(Addon& addon, const Call& call);
napi_value addTenant(Addon& addon, const Call& call);
napi_value setQuota(Addon& addon, const Call& call);
napi_value replicas(Addon& addon, const Call& call);
napi_value entry(Addon& addon, const Call& call);
napi_value keys(Addon& addon, const Call& call);
napi_value removeKeys(Addon& addon, const Call& call);
napi_value removeSome(Addon& addon, const Call& call);
napi_value clearKeys(Addon& addon, const Call& call);
napi_value holdersOf(Addon& addon, const Call& call);
napi_value segments(Addon& addon, const Call& call);
napi_value clients(Addon& addon, const Call& call);
napi_value tenants(Addon& addon, const Call& call);
napi_value figures(Addon& addon, const Call& call);
napi_value opFigures(Addon& addon, const Call& call);
napi_value room(Addon& addon, const Call& call);

}  // namespace svc
