// Object files for JavaScript: each method returns a promise, and threads of its own wait for the disk.
#include "addon/client.h"
#include "addon/promise.h"
#include "client/object_files.h"

namespace svc {

namespace {

struct NativeFiles {
  std::unique_ptr<ObjectFiles> files;
  napi_threadsafe_function settle = nullptr;
};

NativeFiles& selfOf(const Call& call) {
  void* self = nullptr;
  check(napi_unwrap(call.env, call.self, &self), "not an object store's folder");
  auto& files = *static_cast<NativeFiles*>(self);
  if (!files.files) throw std::invalid_argument("the folder is closed");
  return files;
}

template <typename Begin>
napi_value promised(const Call& call, Begin begin, std::function<napi_value(const Call&)> value = nullptr) {
  NativeFiles& self = selfOf(call);
  return svc::promised(call, self.settle, [&](ObjectFiles::Done done) { begin(*self.files, std::move(done)); }, std::move(value));
}

// (folder, threads, whether a file is synced before its promise resolves)
napi_value constructFiles(napi_env env, napi_callback_info info) {
  return guarded(env, [&] {
    const Call call(env, info);
    auto self = std::make_unique<NativeFiles>();
    self->files = std::make_unique<ObjectFiles>(call.bytes(0), static_cast<u32>(call.number(1)), call.flag(2));
    self->settle = settlingQueue(call, "svc_files");
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

// (file, triples of address, 0 and length, about, expected checksum or undefined) → the checksum of its bytes
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
  const std::optional<u64> expected = kind == napi_undefined ? std::nullopt : std::optional<u64>(call.bigOf(call.at(3)));
  const auto sum = [checksum](const Call& maker) { return maker.big(*checksum); };
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
    const napi_value out = maker.array(3);
    maker.set(out, 0, maker.of(static_cast<double>(found->size)));
    maker.set(out, 1, maker.big(found->checksum));
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

// No work begins from now on; running work ends by itself, even on a disk that hangs.
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
