// The shared folder for JavaScript: each method returns a promise, or blocks the thread for at most the given time.
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "addon/client.h"
#include "addon/promise.h"
#include "client/shared_files.h"

namespace svc {

namespace shared {

namespace {

struct NativeShared {
  std::unique_ptr<SharedFiles> files;
  napi_threadsafe_function settle = nullptr;
};

NativeShared& selfOf(const Call& call) {
  void* self = nullptr;
  check(napi_unwrap(call.env, call.self, &self), "not a shared folder");
  auto& shared = *static_cast<NativeShared*>(self);
  if (!shared.files) throw std::invalid_argument("the folder is closed");
  return shared;
}

// (folder, threads)
napi_value construct(napi_env env, napi_callback_info info) {
  return guarded(env, [&] {
    const Call call(env, info);
    auto self = std::make_unique<NativeShared>();
    self->files = std::make_unique<SharedFiles>(call.bytes(0), static_cast<u32>(call.number(1)));
    self->settle = settlingQueue(call, "svc_shared");
    check(napi_wrap(env, call.self, self.get(), [](napi_env, void* data, void*) { delete static_cast<NativeShared*>(data); }, nullptr, nullptr), "wrap");
    self.release();
    return call.self;
  });
}

template <napi_value (*method)(const Call&)>
napi_value call(napi_env env, napi_callback_info info) {
  return guarded(env, [&] { return method(Call(env, info)); });
}

struct Words {
  const u64* at = nullptr;
  std::size_t count = 0;
  u64 bytes = 0;
  Words(const Call& call, int i) {
    napi_typedarray_type type;
    void* data = nullptr;
    check(napi_get_typedarray_info(call.env, call.at(i), &type, &count, &data, nullptr, nullptr), "expected a BigUint64Array");
    if (type != napi_biguint64_array || count % 3 != 0) throw std::invalid_argument("expected three words for each range");
    at = static_cast<const u64*>(data);
    for (std::size_t each = 0; each < count; each += 3) bytes += at[each + 2];
  }
};

std::string gathered(const Words& words) {
  std::string out;
  out.reserve(words.bytes);
  for (std::size_t i = 0; i < words.count; i += 3) out.append(reinterpret_cast<const char*>(words.at[i]), words.at[i + 2]);
  return out;
}

// Waits until the work is done or the time is over: 0 or an errno. Work that continues after that has its own copy of the bytes.
template <typename Begin>
int waited(double timeoutMs, Begin begin) {
  struct Outcome {
    std::mutex mutex;
    std::condition_variable done;
    int error = -1;
  };
  const auto outcome = std::make_shared<Outcome>();
  begin([outcome](int error) {
    const std::lock_guard lock(outcome->mutex);
    outcome->error = error;
    outcome->done.notify_one();
  });
  std::unique_lock lock(outcome->mutex);
  const bool ended = outcome->done.wait_for(lock, std::chrono::milliseconds(static_cast<i64>(timeoutMs)), [&] { return outcome->error >= 0; });
  return ended ? outcome->error : ETIMEDOUT;
}

napi_value nameOrUndefined(const Call& call, int error) { return error == 0 ? call.undefined() : call.of(std::string_view(nameOfError(error))); }

// (name, triples of address, 0 and length, whether it is synced before its promise resolves)
napi_value write(const Call& call) {
  NativeShared& self = selfOf(call);
  const Words words(call, 1);
  return promised(call, self.settle, [&](SharedFiles::Done done) { self.files->write(call.bytes(0), gathered(words), call.flag(2), std::move(done)); });
}

// (the same, and ms to wait) → undefined, or the error's name
napi_value writeSync(const Call& call) {
  NativeShared& self = selfOf(call);
  const Words words(call, 1);
  return nameOrUndefined(call, waited(call.number(3), [&](SharedFiles::Done done) { self.files->write(call.bytes(0), gathered(words), call.flag(2), std::move(done)); }));
}

// (name, bytes) → its bytes
napi_value read(const Call& call) {
  NativeShared& self = selfOf(call);
  auto out = std::make_shared<std::string>();
  return promised(call, self.settle, [&](SharedFiles::Done done) { self.files->read(call.bytes(0), static_cast<u64>(call.number(1)), out, std::move(done)); },
                  [out](const Call& maker) { return maker.copied(*out); });
}

// (name, bytes, ms) → its bytes, or the error's name
napi_value readSync(const Call& call) {
  NativeShared& self = selfOf(call);
  auto out = std::make_shared<std::string>();
  const int error = waited(call.number(2), [&](SharedFiles::Done done) { self.files->read(call.bytes(0), static_cast<u64>(call.number(1)), out, std::move(done)); });
  return error == 0 ? call.copied(*out) : call.of(std::string_view(nameOfError(error)));
}

// (bytes, triples of address, 0 and length): copies as many bytes as the ranges hold.
napi_value place(const Call& call) {
  const std::string_view bytes = call.buffer(0);
  const Words words(call, 1);
  std::size_t from = 0;
  for (std::size_t i = 0; i < words.count && from < bytes.size(); i += 3) {
    const std::size_t length = std::min<std::size_t>(words.at[i + 2], bytes.size() - from);
    std::memcpy(reinterpret_cast<void*>(words.at[i]), bytes.data() + from, length);
    from += length;
  }
  return call.undefined();
}

napi_value removeFile(const Call& call) {
  NativeShared& self = selfOf(call);
  return promised(call, self.settle, [&](SharedFiles::Done done) { self.files->remove(call.bytes(0), std::move(done)); });
}

// (name, bytes) → the checksum of its bytes
napi_value verify(const Call& call) {
  NativeShared& self = selfOf(call);
  auto checksum = std::make_shared<u64>(0);
  const auto value = [checksum](const Call& maker) { return maker.big(*checksum); };
  return promised(call, self.settle, [&](SharedFiles::Done done) { self.files->verify(call.bytes(0), static_cast<u64>(call.number(1)), checksum, std::move(done)); }, value);
}

// () → [bytes of the file system, free ones]
napi_value space(const Call& call) {
  NativeShared& self = selfOf(call);
  auto found = std::make_shared<std::pair<u64, u64>>();
  const auto value = [found](const Call& maker) { return maker.numbers({static_cast<double>(found->first), static_cast<double>(found->second)}); };
  return promised(call, self.settle, [&](SharedFiles::Done done) { self.files->space(found, std::move(done)); }, value);
}

napi_value closeShared(const Call& call) {
  void* self = nullptr;
  if (napi_unwrap(call.env, call.self, &self) == napi_ok) static_cast<NativeShared*>(self)->files.reset();
  return call.undefined();
}

}  // namespace

}  // namespace shared

void addShared(napi_env env, napi_value exports) {
  napi_value type = nullptr;
#define METHOD(name, function) {name, nullptr, shared::call<shared::function>, nullptr, nullptr, nullptr, napi_default_method, nullptr}
  const napi_property_descriptor methods[] = {
      METHOD("write", write),       METHOD("writeSync", writeSync), METHOD("read", read),   METHOD("readSync", readSync), METHOD("place", place),
      METHOD("remove", removeFile), METHOD("verify", verify),       METHOD("space", space), METHOD("close", closeShared),
  };
#undef METHOD
  check(napi_define_class(env, "NativeShared", NAPI_AUTO_LENGTH, shared::construct, nullptr, sizeof methods / sizeof methods[0], methods, &type), "class");
  check(napi_set_named_property(env, exports, "NativeShared", type), "export");
}

}  // namespace svc
