// Scans and answers queries that never become JavaScript values.
#pragma once
#include "node_values.h"
#include "query_scan.h"

namespace svc {

// The numbers are those of src/native.ts.
enum class Scanned : u8 { Unusual, Plain, WantsFreshness, End };

inline napi_value scannedValue(bool plain, const ScannedQuery& scanned, const Arguments& args) {
  return args.of(static_cast<double>(!plain ? Scanned::Unusual : scanned.freshness ? Scanned::WantsFreshness : Scanned::Plain));
}

// (body, msgpack, ListKind) → Scanned; the texts that were read are views of the body.
inline napi_value scanValue(ScannedQuery& scanned, const Arguments& args) {
  const Bytes body = args.bytes(0);
  const auto lists = static_cast<ListKind>(args.index(2));
  const bool plain = args.flag(1) ? scanPacked(body.data, body.data + body.size, lists, scanned) : scanQuery({reinterpret_cast<const char*>(body.data), body.size}, lists, scanned);
  return scannedValue(plain, scanned, args);
}

// The position in a batch: where the next query begins, how many came before, how many there are.
inline u32* placeOf(const Arguments& args, std::size_t i) {
  std::size_t length = 0;
  u32* place = args.array<u32>(i, napi_uint32_array, length);
  if (length < 3) throw std::invalid_argument("the place is too short");
  return place;
}

// (body, msgpack, place: Uint32Array) → whether the body begins as a batch of queries; sets the place of the first one.
inline napi_value scanBatchValue(const Arguments& args) {
  const Bytes body = args.bytes(0);
  u32* place = placeOf(args, 2);
  BatchScan batch;
  const bool begins = BatchScan::begins(body.data, body.size, args.flag(1), batch);
  place[0] = batch.place, place[1] = batch.read, place[2] = batch.total;
  return args.of(begins ? 1.0 : 0.0);
}

// (body, msgpack, place) → Scanned; moves the place to the next query.
inline napi_value scanNextValue(ScannedQuery& scanned, const Arguments& args) {
  const Bytes body = args.bytes(0);
  u32* place = placeOf(args, 2);
  if (place[0] > body.size) throw std::invalid_argument("no place in this body");
  BatchScan batch;
  batch.place = place[0], batch.read = place[1], batch.total = place[2];
  const BatchScan::Found found = batch.next(body.data, body.size, args.flag(1), scanned);
  place[0] = batch.place, place[1] = batch.read;
  if (found == BatchScan::Found::End) return args.of(static_cast<double>(Scanned::End));
  return scannedValue(found == BatchScan::Found::Query, scanned, args);
}

// Reads two optional arguments: whether the answer is msgpack, and the table of freshness or null.
inline napi_value answerValue(Query& query, const Request& request, const Arguments& args, std::size_t from) {
  const Form form = args.has(from) && args.flag(from) ? Form::Packed : Form::Json;
  if (!args.has(from + 1) || !args.isTypedArray(from + 1)) return args.copied(query.answer(request, form));
  std::size_t length = 0;
  FreshnessTable table;
  table.rows = args.array<double>(from + 1, napi_float64_array, length);
  table.subscriptions = length / freshnessFields;
  return args.copied(query.answer(request, form, &table));
}

}  // namespace svc
