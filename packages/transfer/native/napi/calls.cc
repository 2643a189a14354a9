// All operations except transfers, in one table; JavaScript can call each synchronously or on a pool thread.
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <thread>
#include <variant>

#include "convert.h"
#include "base.h"
#include "json.h"
#include "metadata_store.h"

namespace svc::node {

namespace {

struct Args {
  std::vector<std::string> texts;
  std::vector<uint64_t> numbers;
  const std::string& text(size_t i) const { return texts[i]; }
  uint64_t number(size_t i) const { return numbers[i]; }
  void* pointer(size_t i) const { return reinterpret_cast<void*>(numbers[i]); }
};

/** A code is a number, a handle is a BigInt, and the rest is text. */
using Result = std::variant<int, uint64_t, std::string>;
using Operation = std::function<Result(TransferEngine&, const Args&)>;

/** The message of this thread's last Status; lastError() covers only int results. */
thread_local std::string statusError;
thread_local bool statusErrorSet = false;

Result coded(const Status& status) {
  if (status.ok()) return 0;
  statusError = status.message();
  statusErrorSet = true;
  return -status.code();
}

/** Gives the tools access to the records of a metadata service without starting an engine. */
template <typename Use>
Result withStore(const std::string& connection, Use&& use) {
  Options options;
  if (int code = options.readEnvironment(); code != 0) return code;
  if (isHandshake(connection)) return failWith(ERR_METADATA, "with P2PHANDSHAKE there is no metadata service to ask");
  auto store = openMetadataStore(connection, options);
  return store ? use(*store) : Result(int(ERR_METADATA));
}

const std::map<std::string, Operation>& table() {
  static const std::map<std::string, Operation> operations = {
      {"setOption", [](auto& e, auto& a) -> Result { return e.setOption(a.text(0), a.text(1)); }},
      {"init", [](auto& e, auto& a) -> Result { return e.init(a.text(0), a.text(1), a.text(2), a.number(0)); }},
      {"freeEngine", [](auto& e, auto&) -> Result { return e.freeEngine(); }},
      {"installTransport",
       [](auto& e, auto& a) -> Result {
         void* args[] = {const_cast<char*>(a.text(1).c_str())};
         return e.installTransport(a.text(0), args) != nullptr ? 0 : int(ERR_NOT_SUPPORTED_TRANSPORT);
       }},
      {"uninstallTransport", [](auto& e, auto& a) -> Result { return e.uninstallTransport(a.text(0)); }},
      {"getTransport",
       [](auto& e, auto& a) -> Result {
         Transport* found = e.getTransport(a.text(0));
         return found == nullptr ? -1 : found->contexts();
       }},
      {"registerLocalMemory", [](auto& e, auto& a) -> Result { return e.registerLocalMemory(a.pointer(0), a.number(1), a.text(0), a.number(2) != 0, a.number(3) != 0); }},
      {"unregisterLocalMemory", [](auto& e, auto& a) -> Result { return e.unregisterLocalMemory(a.pointer(0), a.number(1) != 0); }},
      {"registerLocalMemoryBatch",
       [](auto& e, auto& a) -> Result {
         std::vector<BufferEntry> list;
         for (size_t i = 0; i + 1 < a.numbers.size(); i += 2) list.push_back({a.pointer(i), a.number(i + 1)});
         return e.registerLocalMemoryBatch(list, a.text(0));
       }},
      {"unregisterLocalMemoryBatch",
       [](auto& e, auto& a) -> Result {
         std::vector<void*> list;
         for (size_t i = 0; i < a.numbers.size(); i++) list.push_back(a.pointer(i));
         return e.unregisterLocalMemoryBatch(list);
       }},
      {"checkOverlap", [](auto& e, auto& a) -> Result { return int(e.checkOverlap(a.pointer(0), a.number(1))); }},
      {"openSegment", [](auto& e, auto& a) -> Result { return e.openSegment(a.text(0)); }},
      {"closeSegment", [](auto& e, auto& a) -> Result { return e.closeSegment(a.number(0)); }},
      {"removeLocalSegment", [](auto& e, auto& a) -> Result { return e.removeLocalSegment(a.text(0)); }},
      {"serveFolder", [](auto& e, auto& a) -> Result {
         std::string segment = e.serveFolder(a.text(0), a.text(1));
         return segment.empty() ? Result(int(ERR_INVALID_ARGUMENT)) : Result(segment);
       }},
      {"serveFile", [](auto& e, auto& a) -> Result {
         std::string segment = e.serveFile(a.text(0), a.text(1));
         return segment.empty() ? Result(int(ERR_INVALID_ARGUMENT)) : Result(segment);
       }},
      {"stopFolder", [](auto& e, auto& a) -> Result { return e.stopFolder(a.text(0)); }},
      {"CheckSegmentStatus", [](auto& e, auto& a) -> Result { return coded(e.CheckSegmentStatus(a.number(0))); }},
      {"syncSegmentCache", [](auto& e, auto& a) -> Result { return e.syncSegmentCache(a.text(0)); }},
      {"allocateBatchID", [](auto& e, auto& a) -> Result { return e.allocateBatchID(a.number(0)); }},
      {"freeBatchID", [](auto& e, auto& a) -> Result { return coded(e.freeBatchID(a.number(0))); }},
      {"getTransferError", [](auto& e, auto& a) -> Result { return e.getTransferError(a.number(0), a.number(1)); }},
      {"waitBatch",
       [](auto& e, auto& a) -> Result {
         TransferStatus status;
         if (Status known = e.getBatchTransferStatus(a.number(0), status); !known.ok()) return coded(known);
         return int(e.waitBatch(a.number(0), a.number(1)));
       }},
      {"getNotifies",
       [](auto& e, auto&) -> Result {
         std::vector<NotifyDesc> list;
         e.getNotifies(list);
         Json json = Json::array();
         for (const auto& each : list) json.push(Json::Array{each.name, each.msg});
         return json.dump();
       }},
      {"sendNotifyByID", [](auto& e, auto& a) -> Result { return e.sendNotifyByID(a.number(0), {a.text(0), a.text(1)}); }},
      {"sendNotifyByName", [](auto& e, auto& a) -> Result { return e.sendNotifyByName(a.text(0), {a.text(1), a.text(2)}); }},
      {"probePeerAliveByID", [](auto& e, auto& a) -> Result { return e.probePeerAliveByID(a.number(0)); }},
      {"segmentDescriptor", [](auto& e, auto& a) -> Result { return e.getMetadata()->segmentDescriptor(a.text(0)); }},
      {"segmentKey", [](auto& e, auto& a) -> Result { return e.getMetadata()->segmentKey(a.text(0)); }},
      {"rpcKey", [](auto& e, auto& a) -> Result { return e.getMetadata()->rpcKey(a.text(0)); }},
      {"setAutoDiscover", [](auto& e, auto& a) -> Result { return e.setAutoDiscover(a.number(0) != 0), 0; }},
      {"setWhitelistFilters", [](auto& e, auto& a) -> Result { return e.setWhitelistFilters(std::vector<std::string>(a.texts)), 0; }},
      {"numContexts", [](auto& e, auto&) -> Result { return e.numContexts(); }},
      {"getLocalTopology", [](auto& e, auto&) -> Result { return e.getLocalTopology()->toJson(); }},
      {"getLocalIpAndPort", [](auto& e, auto&) -> Result { return e.getLocalIpAndPort(); }},
      {"getRpcPort", [](auto& e, auto&) -> Result { return e.getRpcPort(); }},
      {"getServerName", [](auto& e, auto&) -> Result { return e.getServerName(); }},
      {"explainPath", [](auto& e, auto& a) -> Result { return e.explainPath(a.number(0), a.number(1), a.number(2)); }},
      {"recordGet", [](auto&, auto& a) -> Result { return withStore(a.text(0), [&](MetadataStore& store) {
         std::string value;
         Lookup found = store.get(a.text(1), value);
         return found == Lookup::Failed ? Result(int(ERR_METADATA)) : Result(found == Lookup::Found ? value : std::string());
       }); }},
      {"recordSet", [](auto&, auto& a) -> Result { return withStore(a.text(0), [&](MetadataStore& store) { return Result(store.setForever(a.text(1), a.text(2)) ? 0 : int(ERR_METADATA)); }); }},
      {"recordList", [](auto&, auto& a) -> Result { return withStore(a.text(0), [&](MetadataStore& store) {
         std::map<std::string, std::string> records;
         if (store.list(a.text(1), records) == Lookup::Failed) return Result(int(ERR_METADATA));
         Json json = Json::object();
         for (const auto& [key, value] : records) json.set(key, value);
         return Result(json.dump());
       }); }},
      {"metrics", [](auto& e, auto&) -> Result { return e.metrics(); }},
  };
  return operations;
}

/** Converts the result, or [negative code or invalid handle, message]. */
napi_value answer(napi_env env, const Result& result, const std::string& error) {
  napi_value value = nullptr;
  bool bad = false;
  if (auto* code = std::get_if<int>(&result)) {
    value = toNumber(env, *code);
    bad = *code < 0;
  } else if (auto* handle = std::get_if<uint64_t>(&result)) {
    value = toBig(env, *handle);
    bad = *handle == INVALID_SEGMENT_ID;
  } else {
    return toText(env, std::get<std::string>(result));
  }
  if (!bad) return value;
  napi_value pair = nullptr;
  napi_create_array_with_length(env, 2, &pair);
  napi_set_element(env, pair, 0, value);
  napi_set_element(env, pair, 1, toText(env, error));
  return pair;
}

struct Work {
  EngineRef engine;
  const Operation* operation = nullptr;
  Args args;
  Result result;
  std::string error;
  napi_deferred deferred = nullptr;
  napi_async_work work = nullptr;

  void run() {
    statusErrorSet = false;
    result = (*operation)(*engine, args);
    error = statusErrorSet ? statusError : lastError();
  }
  void runOnThread() {
    try {
      run();
    } catch (const std::exception& caught) {
      result = int(ERR_MEMORY);
      error = caught.what();
    }
  }
};

bool read(napi_env env, napi_callback_info info, Work& work) {
  size_t count = 4;
  napi_value args[4];
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  work.engine = engineOf(env, args[0]);
  if (!work.engine) return false;
  auto found = table().find(textOf(env, args[1]));
  if (found == table().end()) return complain(env, "there is no such operation"), false;
  work.operation = &found->second;
  uint32_t length = 0;
  napi_get_array_length(env, args[2], &length);
  for (uint32_t i = 0; i < length; i++) {
    napi_value item = nullptr;
    napi_get_element(env, args[2], i, &item);
    work.args.texts.push_back(textOf(env, item));
  }
  const uint64_t* words = nullptr;
  size_t size = 0;
  if (!wordsOf(env, args[3], words, size)) return false;
  work.args.numbers.assign(words, words + size);
  return true;
}

/** call(engine, operation, texts, numbers) */
napi_value call(napi_env env, napi_callback_info info) {
  Work work;
  if (!read(env, info, work)) return nullptr;
  work.run();
  return answer(env, work.result, work.error);
}

/** callAsync(engine, operation, texts, numbers): a promise of call's result. */
napi_value callAsync(napi_env env, napi_callback_info info) {
  auto work = std::make_unique<Work>();
  if (!read(env, info, *work)) return nullptr;
  napi_value promise = nullptr;
  napi_create_promise(env, &work->deferred, &promise);
  auto execute = [](napi_env, void* data) { static_cast<Work*>(data)->runOnThread(); };
  auto complete = [](napi_env completeEnv, napi_status, void* data) {
    std::unique_ptr<Work> self(static_cast<Work*>(data));
    napi_resolve_deferred(completeEnv, self->deferred, answer(completeEnv, self->result, self->error));
    napi_delete_async_work(completeEnv, self->work);
  };
  napi_create_async_work(env, nullptr, toText(env, "svc-transfer"), execute, complete, work.get(), &work->work);
  napi_queue_async_work(env, work.release()->work);
  return promise;
}

/** A call on its own thread, because it may never return. */
struct Outlasting : Work {
  std::mutex mutex;
  std::condition_variable ended;
  bool over = false;

  bool wait(double timeoutMs) {
    std::unique_lock lock(mutex);
    return ended.wait_for(lock, std::chrono::duration<double, std::milli>(timeoutMs), [this] { return over; });
  }
};
constexpr size_t MOST_OUTLASTING = 16;

/** callWithin(engine, operation, texts, numbers, timeoutMs): call's result, or undefined if it takes longer. */
napi_value callWithin(napi_env env, napi_callback_info info) {
  size_t count = 5;
  napi_value args[5], undefined = nullptr;
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  napi_get_undefined(env, &undefined);
  auto made = std::make_shared<Outlasting>();
  if (!read(env, info, *made)) return nullptr;
  std::string name = std::to_string(uintptr_t(made->engine.get())) + "\n" + textOf(env, args[1]);
  for (const auto& text : made->args.texts) name += "\n" + text;
  auto& known = addonOf(env).outlasting;
  if (auto found = known.find(name); found != known.end()) {
    made = std::static_pointer_cast<Outlasting>(found->second);
  } else {
    if (known.size() >= MOST_OUTLASTING) std::erase_if(known, [](auto& each) { return std::static_pointer_cast<Outlasting>(each.second)->wait(0); });
    if (known.size() >= MOST_OUTLASTING) return answer(env, int(ERR_TOO_MANY_REQUESTS), std::to_string(MOST_OUTLASTING) + " calls are waited for that do not end");
    std::thread([made] {
      made->runOnThread();
      std::lock_guard lock(made->mutex);
      made->over = true;
      made->ended.notify_all();
    }).detach();
    known[name] = made;
  }
  if (!made->wait(numberOf(env, args[4]))) return undefined;
  known.erase(name);
  return answer(env, made->result, made->error);
}

}  // namespace

void addCalls(napi_env env, napi_value exports) {
  addFunction(env, exports, "call", guarded<call>);
  addFunction(env, exports, "callAsync", guarded<callAsync>);
  addFunction(env, exports, "callWithin", guarded<callWithin>);
}

}  // namespace svc::node
