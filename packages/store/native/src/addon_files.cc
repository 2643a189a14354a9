// Object files for the script: each method a promise, kept by threads that wait for the disk in its place.
#include <cstring>

#include "addon_client.h"
#include "object_files.h"
#include "values.h"

namespace svc {

namespace {

// What became of one call, on its way back to JavaScript's thread.
struct Settled {
  napi_deferred promise = nullptr;
  int error = 0;
  std::function<napi_value(const Call&)> value;
};

struct NativeFiles {
  std::unique_ptr<ObjectFiles> files;
  napi_threadsafe_function settle = nullptr;
};

void deliverSettled(napi_env env, napi_value, void*, void* data) {
  const std::unique_ptr<Settled> settled(static_cast<Settled*>(data));
  if (env == nullptr) return;
  const Call call(env);
  if (settled->error == 0) {
    napi_resolve_deferred(env, settled->promise, settled->value ? settled->value(call) : call.undefined());
    return;
  }
  napi_value error = nullptr;
  const std::string name = settled->error == ENOSPC || settled->error == EDQUOT ? "ENOSPC" : settled->error == EBADMSG ? "EBADMSG" : settled->error == ENOENT ? "ENOENT" : settled->error == ECANCELED ? "ECANCELED" : "EIO";
  napi_create_error(env, call.of(std::string_view(name)), call.of(std::string_view(std::strerror(settled->error))), &error);
  napi_reject_deferred(env, settled->promise, error);
}

NativeFiles& selfOf(const Call& call) {
  void* self = nullptr;
  check(napi_unwrap(call.env, call.self, &self), "not an object store's folder");
  auto& files = *static_cast<NativeFiles*>(self);
  if (!files.files) throw std::invalid_argument("the folder is closed");
  return files;
}

// A promise, and what settles it from another thread.
template <typename Begin>
napi_value promised(const Call& call, Begin begin, std::function<napi_value(const Call&)> value = nullptr) {
  NativeFiles& self = selfOf(call);
  napi_value promise = nullptr;
  auto settled = std::make_unique<Settled>();
  check(napi_create_promise(call.env, &settled->promise, &promise), "promise");
  settled->value = std::move(value);
  begin(*self.files, [settle = self.settle, raw = settled.release()](int error) {
    raw->error = error;
    if (napi_call_threadsafe_function(settle, raw, napi_tsfn_nonblocking) != napi_ok) delete raw;
  });
  return promise;
}

// (folder, threads, whether a file is on disk before it counts)
napi_value constructFiles(napi_env env, napi_callback_info info) {
  return guarded(env, [&] {
    const Call call(env, info);
    auto self = std::make_unique<NativeFiles>();
    self->files = std::make_unique<ObjectFiles>(call.bytes(0), static_cast<u32>(call.number(1)), call.flag(2));
    check(napi_create_threadsafe_function(env, nullptr, nullptr, call.of(std::string_view("svc_files")), 0, 1, nullptr, nullptr, nullptr, deliverSettled, &self->settle), "function");
    napi_unref_threadsafe_function(env, self->settle);
    check(napi_wrap(env, call.self, self.get(), [](napi_env, void* data, void*) { delete static_cast<NativeFiles*>(data); }, nullptr, nullptr), "wrap");
    self.release();
    return call.self;
  });
}

template <napi_value (*method)(const Call&)>
napi_value call(napi_env env, napi_callback_info info) {
  return guarded(env, [&] { return method(Call(env, info)); });
}

u64 fileAt(const Call& call, int i) { return static_cast<u64>(call.number(i)); }

// (file, triples of address, 0 and length, about, the checksum that they should have or undefined) → its bytes' checksum
napi_value write(const Call& call) {
  napi_typedarray_type type;
  void* data = nullptr;
  std::size_t words = 0;
  check(napi_get_typedarray_info(call.env, call.at(1), &type, &words, &data, nullptr, nullptr), "expected a BigUint64Array");
  if (type != napi_biguint64_array || words % 3 != 0) throw std::invalid_argument("expected three words for each range");
  const auto* from = static_cast<const u64*>(data);
  const std::string_view about = call.buffer(2);
  if (about.size() > ObjectFiles::mostAbout) throw std::invalid_argument("about: too long");
  auto checksum = std::make_shared<u64>(0);
  napi_valuetype kind = napi_undefined;
  check(napi_typeof(call.env, call.at(3), &kind), "checksum");
  const std::optional<u64> expected = kind == napi_undefined ? std::nullopt : std::optional<u64>(call.big(call.at(3)));
  const auto sum = [checksum](const Call& maker) {
    napi_value value = nullptr;
    check(napi_create_bigint_uint64(maker.env, *checksum, &value), "bigint");
    return value;
  };
  return promised(call, [&](ObjectFiles& files, ObjectFiles::Done done) {
    files.write(fileAt(call, 0), std::vector<u64>(from, from + words), std::string(about), expected, checksum, std::move(done));
  }, sum);
}

napi_value removeFile(const Call& call) {
  return promised(call, [&](ObjectFiles& files, ObjectFiles::Done done) { files.remove(fileAt(call, 0), std::move(done)); });
}

napi_value settleFile(const Call& call) {
  return promised(call, [&](ObjectFiles& files, ObjectFiles::Done done) { files.settle(fileAt(call, 0), std::move(done)); });
}

napi_value verify(const Call& call) {
  return promised(call, [&](ObjectFiles& files, ObjectFiles::Done done) { files.verify(fileAt(call, 0), std::move(done)); });
}

// (file) → [bytes, checksum, about]
napi_value about(const Call& call) {
  auto found = std::make_shared<FoundFile>();
  const auto value = [found](const Call& maker) {
    napi_value checksum = nullptr;
    check(napi_create_bigint_uint64(maker.env, found->checksum, &checksum), "bigint");
    const napi_value out = maker.array(3);
    maker.set(out, 0, maker.of(static_cast<double>(found->size)));
    maker.set(out, 1, checksum);
    maker.set(out, 2, maker.copied(found->about));
    return out;
  };
  return promised(call, [&](ObjectFiles& files, ObjectFiles::Done done) { files.about(fileAt(call, 0), found, std::move(done)); }, value);
}

// () → [the next number, files...]
napi_value list(const Call& call) {
  auto found = std::make_shared<std::vector<u64>>();
  auto next = std::make_shared<u64>(0);
  const auto value = [found, next](const Call& maker) {
    std::vector<double> out{static_cast<double>(*next)};
    for (const u64 each : *found) out.push_back(static_cast<double>(each));
    return maker.numbers(out);
  };
  return promised(call, [&](ObjectFiles& files, ObjectFiles::Done done) { files.list(found, next, std::move(done)); }, value);
}

napi_value reserve(const Call& call) {
  return promised(call, [&](ObjectFiles& files, ObjectFiles::Done done) { files.reserve(fileAt(call, 0), std::move(done)); });
}

// () → [bytes of the file system, free ones]
napi_value space(const Call& call) {
  auto found = std::make_shared<std::pair<u64, u64>>();
  const auto value = [found](const Call& maker) { return maker.numbers({static_cast<double>(found->first), static_cast<double>(found->second)}); };
  return promised(call, [&](ObjectFiles& files, ObjectFiles::Done done) { files.space(found, std::move(done)); }, value);
}

// Nothing begins from now on; what the disk still holds up ends by itself.
napi_value closeFiles(const Call& call) {
  void* self = nullptr;
  if (napi_unwrap(call.env, call.self, &self) == napi_ok) static_cast<NativeFiles*>(self)->files.reset();
  return call.undefined();
}

}  // namespace

void addFiles(napi_env env, napi_value exports) {
  napi_value type = nullptr;
#define METHOD(name, function) {name, nullptr, call<function>, nullptr, nullptr, nullptr, napi_default_method, nullptr}
  const napi_property_descriptor methods[] = {
      METHOD("write", write), METHOD("settle", settleFile), METHOD("remove", removeFile), METHOD("verify", verify),    METHOD("about", about),
      METHOD("list", list),   METHOD("reserve", reserve),   METHOD("space", space),       METHOD("close", closeFiles),
  };
#undef METHOD
  check(napi_define_class(env, "NativeFiles", NAPI_AUTO_LENGTH, constructFiles, nullptr, sizeof methods / sizeof methods[0], methods, &type), "class");
  check(napi_set_named_property(env, exports, "NativeFiles", type), "export");
}

}  // namespace svc
