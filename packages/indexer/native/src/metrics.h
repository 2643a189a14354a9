// The metrics of an index and the outcomes of batches, in the form that JavaScript expects.
#pragma once
#include "node_values.h"
#include "query.h"

namespace svc {

#define SVC_METRICS(each)                                                                                                       \
  each("bytes", index.bytes()) each("budgetBytes", index.budgetBytes()) each("indexBytes", index.indexBytes())                    \
  each("nameBytes", index.nameBytes()) each("blocks", index.arena().live()) each("evictedBlocks", index.evicted())                \
  each("holderSets", index.sets().size()) each("namespaces", index.liveSpaces()) each("queries", totals.queries)                  \
  each("askedBlocks", totals.askedBlocks) each("matchedBlocks", totals.matchedBlocks) each("changes", index.changes())
inline napi_value metricValues(const Index& index, const Query::Totals& totals, const Arguments& args) {
#define SVC_VALUE(name, value) static_cast<double>(value),
  return args.list(std::vector<double>{SVC_METRICS(SVC_VALUE)});
#undef SVC_VALUE
}

#define SVC_OUTCOME_NAME(value, name) name,
#define SVC_METRIC_NAME(name, value) name,
inline constexpr const char* outcomeNames[] = {SVC_OUTCOMES(SVC_OUTCOME_NAME)};
inline constexpr const char* metricNames[] = {SVC_METRICS(SVC_METRIC_NAME)};

// Exports the names in order: src/index/native.ts compares them with its own.
inline void exportNames(napi_env env, napi_value exports) {
  const auto give = [&](const char* name, const auto& names) {
    napi_value list = nullptr;
    check(napi_create_array_with_length(env, std::size(names), &list), "array");
    for (u32 i = 0; i < std::size(names); ++i) {
      napi_value text = nullptr;
      check(napi_create_string_utf8(env, names[i], NAPI_AUTO_LENGTH, &text), "string");
      check(napi_set_element(env, list, i, text), "element");
    }
    check(napi_set_named_property(env, exports, name, list), "export");
  };
  give("outcomeNames", outcomeNames);
  give("metricNames", metricNames);
  give("freshnessSources", freshnessSources);
}

}  // namespace svc
