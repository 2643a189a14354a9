// Transfers for JavaScript: packed requests in, integers out, and completions delivered in groups.
#include <optional>

#include "convert.h"

namespace svc::node {

namespace {

constexpr size_t WORDS_PER_TRIPLE = 3;   // local, remote, length
constexpr size_t WORDS_PER_REQUEST = 6;  // opcode, source, target, offset, length, retries
thread_local std::string transferError;
/** The transferAsync() call that this thread is in, and its outcome if the transfer has already ended. */
struct Call {
  explicit Call(uint32_t given) : ticket(given) { current = this; }
  ~Call() { current = nullptr; }
  const uint32_t ticket;
  std::optional<Status> ended;
  static thread_local Call* current;
};
thread_local Call* Call::current = nullptr;

int keep(const Status& status) {
  if (status.ok()) return 0;
  transferError = status.message();
  return -status.code();
}

/** Reads the arguments engine, opcode, target, triples, timeoutMs, … */
bool readTriples(napi_env env, napi_value* args, EngineRef& engine, std::vector<TransferRequest>& requests) {
  engine = engineOf(env, args[0]);
  if (!engine) return false;
  const uint64_t* words = nullptr;
  size_t count = 0;
  if (!wordsOf(env, args[3], words, count)) return false;
  if (count % WORDS_PER_TRIPLE != 0) return complain(env, "expected local, remote and length of each request"), false;
  auto opcode = TransferRequest::OpCode(int(numberOf(env, args[1])));
  uint64_t target = bigOf(env, args[2]);
  requests.resize(count / WORDS_PER_TRIPLE);
  for (size_t i = 0; i < requests.size(); i++, words += WORDS_PER_TRIPLE) requests[i] = {opcode, reinterpret_cast<void*>(words[0]), target, words[1], words[2], 0};
  return true;
}

/** transferSync(engine, opcode, target, triples, timeoutMs): 0 or negative */
napi_value transferSync(napi_env env, napi_callback_info info) {
  size_t count = 5;
  napi_value args[5];
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  EngineRef engine;
  std::vector<TransferRequest> requests;
  if (!readTriples(env, args, engine, requests)) return nullptr;
  return toNumber(env, keep(engine->transferSync(requests, uint64_t(numberOf(env, args[4])))));
}

/** Passes completions to the function given to listen(): an array of ticket, code, message. */
void deliver(napi_env env, napi_value callback, void*, void*) {
  if (env == nullptr) return;
  Addon& addon = addonOf(env);
  std::vector<Completion> list;
  {
    std::lock_guard lock(addon.mailbox->mutex);
    list.swap(addon.mailbox->waiting);
  }
  if (list.empty()) return;
  napi_value array = nullptr, undefined = nullptr;
  napi_create_array_with_length(env, list.size() * 3, &array);
  for (size_t i = 0; i < list.size(); i++) {
    napi_set_element(env, array, uint32_t(i * 3), toNumber(env, list[i].ticket));
    napi_set_element(env, array, uint32_t(i * 3 + 1), toNumber(env, list[i].code));
    napi_set_element(env, array, uint32_t(i * 3 + 2), toText(env, list[i].error));
  }
  addon.pending -= uint32_t(list.size());
  // With no transfer in flight, the process may exit.
  if (addon.pending == 0) napi_unref_threadsafe_function(env, addon.mailbox->wake);
  napi_get_undefined(env, &undefined);
  napi_call_function(env, undefined, callback, 1, &array, nullptr);
}

/** listen(callback): must be called once, before the first transferAsync. */
napi_value listen(napi_env env, napi_callback_info info) {
  size_t count = 1;
  napi_value args[1];
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  Addon& addon = addonOf(env);
  if (napi_create_threadsafe_function(env, args[0], nullptr, toText(env, "svc-transfer"), 0, 1, nullptr, nullptr, nullptr, deliver, &addon.mailbox->wake) != napi_ok)
    return complain(env, "expected a function");
  napi_unref_threadsafe_function(env, addon.mailbox->wake);
  return nullptr;
}

/**
 * transferAsync(engine, opcode, target, triples, timeoutMs, ticket, lingers): 0 or negative if the transfer ended within this call;
 * otherwise undefined, and listen()'s function receives the outcome.
 */
napi_value transferAsync(napi_env env, napi_callback_info info) {
  size_t count = 7;
  napi_value args[7];
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  EngineRef engine;
  std::vector<TransferRequest> requests;
  if (!readTriples(env, args, engine, requests)) return nullptr;
  Addon& addon = addonOf(env);
  if (addon.pending++ == 0) napi_ref_threadsafe_function(env, addon.mailbox->wake);
  // The JavaScript class keeps the engine alive meanwhile; otherwise its own thread could destroy it.
  Call call(uint32_t(numberOf(env, args[5])));
  auto done = [mailbox = addon.mailbox, ticket = call.ticket](Status status) {
    if (Call* here = Call::current; here != nullptr && here->ticket == ticket) {
      here->ended = status;
      return;
    }
    std::lock_guard lock(mailbox->mutex);
    mailbox->waiting.push_back({ticket, status.ok() ? 0 : -status.code(), status.message()});
    // One wake-up delivers all completions until the event loop runs.
    if (mailbox->waiting.size() == 1 && mailbox->wake != nullptr) napi_call_threadsafe_function(mailbox->wake, nullptr, napi_tsfn_nonblocking);
  };
  engine->transferAsync(requests, done, uint64_t(numberOf(env, args[4])), truthOf(env, args[6]));
  if (!call.ended) return nullptr;
  if (--addon.pending == 0) napi_unref_threadsafe_function(env, addon.mailbox->wake);
  return toNumber(env, keep(*call.ended));
}

/** submit(engine, batch, packed, notifyName, notifyMessage): 0 or negative; the last two may be undefined. */
napi_value submit(napi_env env, napi_callback_info info) {
  size_t count = 5;
  napi_value args[5];
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  EngineRef engine = engineOf(env, args[0]);
  const uint64_t* words = nullptr;
  size_t size = 0;
  if (!engine || !wordsOf(env, args[2], words, size)) return nullptr;
  if (size % WORDS_PER_REQUEST != 0) return complain(env, "expected six words of each request");
  std::vector<TransferRequest> requests(size / WORDS_PER_REQUEST);
  for (size_t i = 0; i < requests.size(); i++, words += WORDS_PER_REQUEST)
    requests[i] = {TransferRequest::OpCode(words[0]), reinterpret_cast<void*>(words[1]), words[2], words[3], words[4], int(words[5])};
  napi_valuetype type = napi_undefined;
  if (count > 3) napi_typeof(env, args[3], &type);
  uint64_t batch = bigOf(env, args[1]);
  Status status = type == napi_string ? engine->submitTransferWithNotify(batch, requests, {textOf(env, args[3]), textOf(env, args[4])}) : engine->submitTransfer(batch, requests);
  return toNumber(env, keep(status));
}

/** status(engine, batch, task, out): writes status and bytes to `out`; task -1 means the whole batch. */
napi_value status(napi_env env, napi_callback_info info) {
  size_t count = 4, size = 0;
  napi_value args[4];
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  EngineRef engine = engineOf(env, args[0]);
  const uint64_t* words = nullptr;
  if (!engine || !wordsOf(env, args[3], words, size) || size < 2) return nullptr;
  TransferStatus found;
  double task = numberOf(env, args[2]);
  Status result = task < 0 ? engine->getBatchTransferStatus(bigOf(env, args[1]), found) : engine->getTransferStatus(bigOf(env, args[1]), size_t(task), found);
  auto* out = const_cast<uint64_t*>(words);
  out[0] = uint64_t(found.s);
  out[1] = found.transferred_bytes;
  return toNumber(env, keep(result));
}

/** lastTransferError(): the message of the last negative result of the calls above. */
napi_value lastTransferError(napi_env env, napi_callback_info) { return toText(env, transferError); }

}  // namespace

void addTransfers(napi_env env, napi_value exports) {
  addFunction(env, exports, "listen", guarded<listen>);
  addFunction(env, exports, "transferSync", guarded<transferSync>);
  addFunction(env, exports, "transferAsync", guarded<transferAsync>);
  addFunction(env, exports, "submit", guarded<submit>);
  addFunction(env, exports, "status", guarded<status>);
  addFunction(env, exports, "lastTransferError", guarded<lastTransferError>);
}

}  // namespace svc::node
