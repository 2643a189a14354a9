// Converts a body that was split to JavaScript values.
#pragma once
#include <memory>

#include "later.h"
#include "node_values.h"
#include "query.h"
#include "query_split.h"

namespace svc {

class Members {
 public:
  explicit Members(const Arguments& args) : args_(args) { check(napi_create_object(args.env, &object), "object"); }
  void set(const char* name, napi_value value) { check(napi_set_named_property(args_.env, object, name, value), name); }
  template <typename T>
  void set(const char* name, napi_typedarray_type type, const std::vector<T>& list) {
    void* data = nullptr;
    napi_value buffer = nullptr, out = nullptr;
    check(napi_create_arraybuffer(args_.env, list.size() * sizeof(T), &data, &buffer), "array buffer");
    std::copy(list.begin(), list.end(), static_cast<T*>(data));
    check(napi_create_typedarray(args_.env, type, list.size(), buffer, 0, &out), "typed array");
    set(name, out);
  }
  void set(const std::optional<SplitQuery::Problem>& problem) {
    if (!problem) return;
    std::string text = "{\"reason\":" + jsonText(problem->reason) + ",\"found\":" + jsonText(problem->found) + ",\"offset\":" + std::to_string(problem->offset);
    if (!problem->field.empty()) text += ",\"field\":" + jsonText(problem->field);
    if (problem->index >= 0) text += ",\"index\":" + std::to_string(problem->index);
    set("problem", args_.of(std::string_view(text.append("}"))));
  }
  napi_value object = nullptr;

 private:
  const Arguments& args_;
};

inline SplitQuery splitBytes(const Bytes& body, bool msgpack) {
  return msgpack ? splitMsgpack(body.data, body.data + body.size) : splitJson({reinterpret_cast<const char*>(body.data), body.size});
}

// {rest, token_ids?, seq_hashes?, block_hash?, problem?}
inline napi_value splitValues(const Arguments& args, const SplitQuery& split) {
  Members out(args);
  out.set("rest", args.copied({reinterpret_cast<const char*>(split.rest.data()), split.rest.size()}));
  out.set(split.problem);
  if (split.problem) return out.object;
  if (split.tokens) out.set("token_ids", napi_uint32_array, *split.tokens);
  if (split.hashes) out.set("seq_hashes", napi_biguint64_array, *split.hashes);
  if (split.formerHashes) out.set("block_hash", napi_biguint64_array, *split.formerHashes);
  return out.object;
}

// (body, msgpack) → the same object, synchronously.
inline napi_value splitQueryValues(const Arguments& args) { return splitValues(args, splitBytes(args.bytes(0), args.flag(1))); }

// (body, msgpack) → a promise of it: another thread reads a long body, which takes as long as a hundred queries. It needs no index.
inline napi_value splitQueryLater(const Arguments& args) {
  static Stillness ofNothing;
  const auto split = std::make_shared<SplitQuery>();
  napi_ref kept = nullptr;
  check(napi_create_reference(args.env, args.at(0), 1, &kept), "reference");
  const auto read = [split, body = args.bytes(0), msgpack = args.flag(1)] { *split = splitBytes(body, msgpack); };
  return Later::begin(args, ofNothing, read, [split, kept](const Arguments& of) {
    napi_delete_reference(of.env, kept);
    return splitValues(of, *split);
  });
}

// (body, msgpack) → {rest, count, spans?, problem?}
inline napi_value splitBatchValues(const Arguments& args) {
  const Bytes body = args.bytes(0);
  const SplitBatch split = args.flag(1) ? splitMsgpackBatch(body.data, body.data + body.size) : splitJsonBatch({reinterpret_cast<const char*>(body.data), body.size});
  Members out(args);
  out.set("rest", args.copied({reinterpret_cast<const char*>(split.rest.data()), split.rest.size()}));
  out.set("count", args.of(static_cast<double>(split.count)));
  out.set(split.problem);
  if (split.hasQueries && !split.problem) out.set("spans", napi_uint32_array, split.spans);
  return out.object;
}

}  // namespace svc
