// The Node-API face of the index: one class, whose methods src/native.ts declares.
#include <cmath>
#include <memory>
#include <set>

#include "metrics.h"
#include "later.h"
#include "node_values.h"
#include "report.h"
#include "scan_values.h"
#include "snapshot_file.h"
#include "split_values.h"

namespace svc {
namespace {

struct Addon {
  Addon(u64 budget, u64 seed) : index(budget, seed), query(index) {}
  ~Addon() { still.over(); }
  Index index;
  Query query;
  ScannedQuery scanned;
  Outcomes outcomes{};
  Stillness still;
};

using Method = napi_value (*)(Addon&, const Arguments&);

// Returns the index for a change, after all concurrent readers are done.
Index& changing(Addon& addon) {
  addon.still.over();
  return addon.index;
}

u32 liveSubscription(Addon& addon, const Arguments& args) {
  const u32 id = args.index(0);
  if (id >= addon.index.subscriptions().size() || !addon.index.subscription(id).active) throw std::invalid_argument("no such subscription");
  return id;
}

Request requestOf(const Arguments& args, std::string& instance) {
  Request request;
  request.space.tenant = args.member(0, "tenant");
  request.space.model = args.member(0, "model");
  request.space.lora = args.member(0, "lora");
  request.space.salt = args.member(0, "salt");
  request.space.blockSize = static_cast<u32>(args.numberMember(0, "blockSize"));
  if (request.space.blockSize == 0) throw std::invalid_argument("the block size must be above 0");
  instance = args.member(0, "instance");
  request.instance = instance;
  std::size_t length = 0;
  if (args.arrayType(1) == napi_biguint64_array) {
    static const u64 nothing = 0;
    request.hashes = args.array<u64>(1, napi_biguint64_array, length);
    if (length == 0) request.hashes = &nothing;
    request.hashCount = length;
  } else {
    request.tokens = args.array<u32>(1, napi_uint32_array, length);
    request.tokenCount = length;
  }
  return request;
}

napi_value subscribe(Addon& addon, const Arguments& args) {
  Subscription sub;
  sub.instance = args.member(0, "instance");
  sub.tenant = args.member(0, "tenant");
  sub.model = args.member(0, "model");
  sub.lora = args.member(0, "lora");
  sub.salt = args.member(0, "salt");
  sub.key = args.member(0, "key");
  sub.blockSize = static_cast<u32>(args.numberMember(0, "blockSize"));
  sub.rank = static_cast<u32>(args.numberMember(0, "rank"));
  sub.kind = args.numberMember(0, "store") != 0 ? PublisherKind::Store : PublisherKind::Engine;
  sub.countsCopies = args.flagMember(0, "countsCopies");
  return args.of(static_cast<double>(changing(addon).subscribe(std::move(sub))));
}

napi_value unsubscribe(Addon& addon, const Arguments& args) {
  changing(addon).unsubscribe(liveSubscription(addon, args));
  return args.undefined();
}

napi_value setDead(Addon& addon, const Arguments& args) { return changing(addon).setDead(liveSubscription(addon, args), args.number(1) != 0), args.undefined(); }

napi_value clear(Addon& addon, const Arguments& args) {
  changing(addon).clear(liveSubscription(addon, args));
  return args.undefined();
}

napi_value lose(Addon& addon, const Arguments& args) {
  changing(addon).lose(liveSubscription(addon, args));
  return args.undefined();
}

napi_value ranks(Addon& addon, const Arguments& args) {
  const Subscription& sub = addon.index.subscription(liveSubscription(addon, args));
  std::set<u32> ranks{sub.rank};
  for (const u32 stream : sub.streams) ranks.insert(addon.index.streams()[stream].rank);
  return args.list(std::vector<double>(ranks.begin(), ranks.end()));
}

// (subscription, sequence, payload, outcomes: Uint32Array, time: Float64Array) → Taken.
napi_value apply(Addon& addon, const Arguments& args) {
  const u32 id = liveSubscription(addon, args);
  const Bytes payload = args.bytes(2);
  std::size_t outLength = 0, timeLength = 0;
  u32* out = args.array<u32>(3, napi_uint32_array, outLength);
  double* time = args.array<double>(4, napi_float64_array, timeLength);
  if (outLength < outcomeCount || timeLength < 1) throw std::invalid_argument("the result arrays are too short");
  const Taken taken = changing(addon).apply(id, static_cast<u64>(args.number(1)), payload.data, payload.size, addon.outcomes);
  std::copy(addon.outcomes.begin(), addon.outcomes.end(), out);
  time[0] = addon.index.batch().timestampMs;
  return args.of(static_cast<double>(taken));
}

// (subscription, outcomes).
napi_value applyMore(Addon& addon, const Arguments& args) {
  std::size_t outLength = 0;
  u32* out = args.array<u32>(1, napi_uint32_array, outLength);
  if (outLength < outcomeCount) throw std::invalid_argument("the result array is too short");
  const Taken taken = changing(addon).applyMore(args.index(0), addon.outcomes);
  std::copy(addon.outcomes.begin(), addon.outcomes.end(), out);
  return args.of(static_cast<double>(taken));
}

napi_value seen(Addon& addon, const Arguments& args) {
  const u32 id = liveSubscription(addon, args);
  const Bytes payload = args.bytes(2);
  return args.of(static_cast<double>(addon.index.seen(id, static_cast<u64>(args.number(1)), payload.data, payload.size)));
}

napi_value forgetUncertain(Addon& addon, const Arguments& args) {
  changing(addon).forgetUncertain(liveSubscription(addon, args));
  return args.undefined();
}

napi_value groups(Addon& addon, const Arguments& args) { return args.of(std::string_view(describeGroups(addon.index.subscription(liveSubscription(addon, args))))); }

// Returns bits for a subscription's blocks: 1 if some were evicted, 2 if some are uncertain.
napi_value lacks(Addon& addon, const Arguments& args) {
  const u32 id = liveSubscription(addon, args);
  return args.of((addon.index.subscription(id).evicted ? 1.0 : 0.0) + (addon.index.hasUncertain(id) ? 2.0 : 0.0));
}

napi_value complaint(Addon& addon, const Arguments& args) { return args.of(std::string_view(addon.index.subscription(liveSubscription(addon, args)).complaint)); }

napi_value parked(Addon& addon, const Arguments& args) {
  return args.of(static_cast<double>(addon.index.subscription(liveSubscription(addon, args)).park.size()));
}

napi_value scan(Addon& addon, const Arguments& args) { return scanValue(addon.scanned, args); }
napi_value scanBatch(Addon&, const Arguments& args) { return scanBatchValue(args); }
napi_value scanNext(Addon& addon, const Arguments& args) { return scanNextValue(addon.scanned, args); }
// (packed, freshness): answers the query that `scan` or `scanNext` read, whose body must still be there.
napi_value answerScanned(Addon& addon, const Arguments& args) { return answerValue(addon.query, addon.scanned.request, args, 0); }

napi_value splitQuery(Addon&, const Arguments& args) { return splitQueryValues(args); }
napi_value splitLater(Addon&, const Arguments& args) { return splitQueryLater(args); }
napi_value splitBatch(Addon&, const Arguments& args) { return splitBatchValues(args); }

napi_value answer(Addon& addon, const Arguments& args) {
  std::string instance;
  const Request request = requestOf(args, instance);
  return answerValue(addon.query, request, args, 2);
}

// (query, list, positions: Uint32Array) → JSON: for each position its hash and the streams that have it.
napi_value explain(Addon& addon, const Arguments& args) {
  std::string instance;
  const Request request = requestOf(args, instance);
  std::size_t length = 0;
  const u32* positions = args.array<u32>(2, napi_uint32_array, length);
  std::vector<u64> hashes;
  addon.query.sequences(request, false, hashes);
  const std::int64_t space = addon.index.findSpace(request.space);
  std::string out = "[";
  for (std::size_t i = 0; i < length; ++i) {
    if (positions[i] >= hashes.size()) continue;
    const u32 block = space < 0 ? 0 : addon.index.find(static_cast<u32>(space), hashes[positions[i]]);
    if (out.size() > 1) out.push_back(',');
    out.append("{\"depth\":").append(std::to_string(positions[i])).append(",\"hash\":\"").append(std::to_string(hashes[positions[i]])).append("\",\"streams\":[");
    bool first = true;
    for (u32 stream = 0; block != 0 && stream < addon.index.streams().size(); ++stream) {
      if (!addon.index.sets()[addon.index.arena().holders[block]].has(stream) || addon.index.isUnverified(stream, space)) continue;
      if (!first) out.push_back(',');
      first = false;
      out.append(std::to_string(stream));
    }
    out.append("]}");
  }
  return args.of(std::string_view(out.append("]")));
}

napi_value sequences(Addon& addon, const Arguments& args) {
  Request request;
  std::size_t length = 0;
  request.tokens = args.array<u32>(0, napi_uint32_array, length);
  request.tokenCount = length;
  request.space.blockSize = args.index(1);
  if (request.space.blockSize == 0) throw std::invalid_argument("the block size must be above 0");
  std::vector<u64> hashes;
  addon.query.sequences(request, false, hashes);
  void* data = nullptr;
  napi_value buffer = nullptr, out = nullptr;
  check(napi_create_arraybuffer(args.env, hashes.size() * 8, &data, &buffer), "array buffer");
  std::copy(hashes.begin(), hashes.end(), static_cast<u64*>(data));
  check(napi_create_typedarray(args.env, napi_biguint64_array, hashes.size(), buffer, 0, &out), "typed array");
  return out;
}

napi_value spaces(Addon& addon, const Arguments& args) { return args.of(std::string_view(describeSpaces(addon.index, args.index(0), args.index(1)))); }
napi_value streams(Addon& addon, const Arguments& args) { return args.of(std::string_view(describeStreams(addon.index))); }
napi_value blocks(Addon& addon, const Arguments& args) {
  return args.of(std::string_view(pageBlocks(addon.index, args.index(0), args.index(1), static_cast<std::int64_t>(args.number(2)))));
}

napi_value metrics(Addon& addon, const Arguments& args) { return metricValues(addon.index, addon.query.totals(), args); }
napi_value reclaim(Addon& addon, const Arguments& args) { return args.of(changing(addon).reclaim(args.index(0)) ? 1.0 : 0.0); }

// (path, note) → a promise of the file's size.
napi_value save(Addon& addon, const Arguments& args) {
  const auto size = std::make_shared<u64>();
  const auto read = [&index = addon.index, size, path = args.text(0), note = args.text(1)] { *size = saveTo(path, index, note); };
  return Later::begin(args, addon.still, read, [size](const Arguments& of) { return of.of(static_cast<double>(*size)); });
}

// () → a promise of JSON: blocks and digest per stream.
napi_value tally(Addon& addon, const Arguments& args) {
  const auto text = std::make_shared<std::string>();
  const auto read = [&index = addon.index, text] { *text = describeTally(index); };
  return Later::begin(args, addon.still, read, [text](const Arguments& of) { return of.of(std::string_view(*text)); });
}

napi_value load(Addon& addon, const Arguments& args) {
  std::string note, problem;
  if (!loadFrom(args.text(0), changing(addon), note, problem)) {
    // A partly loaded snapshot is useless, so the index starts empty.
    const u64 budget = addon.index.budgetBytes(), seed = addon.index.seed();
    std::destroy_at(&addon.index);
    std::construct_at(&addon.index, budget, seed);
    throw std::runtime_error(problem);
  }
  return args.of(std::string_view(note));
}

// A C++ exception that leaves a callback would abort the process, so each is converted to a JavaScript exception.
template <typename Body>
napi_value guarded(napi_env env, Body body) {
  try {
    return body();
  } catch (const std::exception& error) {
    napi_throw_error(env, nullptr, error.what());
  } catch (...) {
    napi_throw_error(env, nullptr, "unknown failure in the index");
  }
  return nullptr;
}

template <Method method>
napi_value call(napi_env env, napi_callback_info info) {
  return guarded(env, [&] {
    const Arguments args(env, info);
    void* self = nullptr;
    check(napi_unwrap(env, args.self, &self), "not an index");
    return method(*static_cast<Addon*>(self), args);
  });
}

napi_value construct(napi_env env, napi_callback_info info) {
  return guarded(env, [&] {
    const Arguments args(env, info);
    bool lossless = false;
    u64 seed = 0;
    check(napi_get_value_bigint_uint64(env, args.at(1), &seed, &lossless), "expected a bigint");
    auto addon = std::make_unique<Addon>(static_cast<u64>(args.number(0)), seed);
    const auto drop = [](napi_env, void* data, void*) { delete static_cast<Addon*>(data); };
    check(napi_wrap(env, args.self, addon.get(), drop, nullptr, nullptr), "wrap");
    addon.release();
    return args.self;
  });
}

napi_value init(napi_env env, napi_value exports) {
  return guarded(env, [&] {
#define METHOD(name) {#name, nullptr, call<name>, nullptr, nullptr, nullptr, napi_default_method, nullptr}
    const napi_property_descriptor methods[] = {METHOD(subscribe), METHOD(unsubscribe), METHOD(setDead), METHOD(clear), METHOD(lose), METHOD(apply), METHOD(applyMore), METHOD(ranks), METHOD(seen), METHOD(forgetUncertain), METHOD(groups), METHOD(lacks), METHOD(complaint), METHOD(parked), METHOD(scan), METHOD(scanBatch), METHOD(scanNext), METHOD(answerScanned), METHOD(answer), METHOD(splitQuery), METHOD(splitLater), METHOD(splitBatch), METHOD(explain), METHOD(sequences), METHOD(spaces), METHOD(streams), METHOD(blocks), METHOD(metrics), METHOD(reclaim), METHOD(save), METHOD(tally), METHOD(load)};
#undef METHOD
    napi_value type = nullptr;
    check(napi_define_class(env, "NativeIndex", NAPI_AUTO_LENGTH, construct, nullptr, std::size(methods), methods, &type), "class");
    check(napi_set_named_property(env, exports, "NativeIndex", type), "export");
    exportNames(env, exports);
    return exports;
  });
}

}  // namespace
}  // namespace svc

NAPI_MODULE(svc_indexer, svc::init)
