// Feeds the parser and the index with valid batches, with damaged ones and with noise; runs under sanitizers.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "fuzz_table.h"
#include "query_scan.h"
#include "query_split.h"
#include "report.h"

using namespace svc;

namespace {

std::mt19937_64 source;
u64 upTo(u64 most) { return source() % (most + 1); }

struct Encoder {
  std::vector<u8> out;
  void byte(u64 value) { out.push_back(static_cast<u8>(value)); }
  void big(u64 value, int size) {
    for (int i = size - 1; i >= 0; --i) byte(value >> (8 * i));
  }
  void number(u64 value) {
    if (value < 128) byte(value);
    else if (upTo(1) == 0 && value < 65536) byte(0xcd), big(value, 2);
    else if (value <= 0xffffffff) byte(0xce), big(value, 4);
    else byte(upTo(1) == 0 ? 0xcf : 0xd3), big(value, 8);
  }
  void text(const char* value) {
    const std::string_view view(value);
    byte(0xd9), byte(view.size());
    out.insert(out.end(), view.begin(), view.end());
  }
  void list(u64 size) { byte(0xdc), big(size, 2); }
  void nil() { byte(0xc0); }
};

u64 someHash() { return upTo(3) == 0 ? source() : upTo(200); }

void event(Encoder& to) {
  const u64 blocks = upTo(4), kind = upTo(5);
  const bool map = upTo(1) == 0;
  const char* tags[] = {"BlockStored", "BlockRemoved", "AllBlocksCleared"};
  const char* types[] = {"stored", "removed", "cleared"};
  const u64 which = kind < 3 ? 0 : kind < 5 ? 1 : upTo(3) == 0 ? 2 : 0;
  const auto hashes = [&] {
    to.list(blocks);
    for (u64 i = 0; i < blocks; ++i) {
      if (upTo(20) == 0) to.byte(0xc4), to.byte(4), to.big(source(), 4);
      else to.number(someHash());
    }
  };
  const auto tokens = [&] {
    to.list(blocks * 4);
    for (u64 i = 0; i < blocks * 4; ++i) to.number(upTo(5));
  };
  const auto extras = [&] {
    to.list(blocks);
    for (u64 i = 0; i < blocks; ++i) {
      if (upTo(1) == 0) to.nil();
      else to.list(1), to.text(upTo(1) == 0 ? "salt" : "image");
    }
  };
  if (!map) {
    to.list(which == 0 ? 9 : which == 1 ? 3 : 1);
    to.text(tags[which]);
    if (which == 2) return;
    hashes();
    if (which == 0) {
      upTo(1) == 0 ? to.nil() : to.number(someHash());
      tokens();
      to.number(4);
      to.nil();
    }
    upTo(1) == 0 ? to.nil() : to.text("CPU");
    if (which == 0) upTo(3) == 0 ? to.text("adapter") : to.nil(), extras();
    return;
  }
  const char* kinds[] = {"full_attention", "sliding_window", "chunked_local_attention", "mamba", "unheard_of"};
  const bool ahead = which == 0 && upTo(9) == 0;
  to.byte(0xde), to.big(ahead ? 15 : 14, 2);
  if (upTo(1) == 0) to.text("event_type"), to.text(types[which]);
  else to.text("type"), to.text(tags[which]);
  to.text("group_idx"), upTo(1) == 0 ? to.nil() : to.number(upTo(3));
  to.text("kv_cache_spec_kind"), upTo(1) == 0 ? to.nil() : to.text(kinds[upTo(4)]);
  to.text("kv_cache_spec_sliding_window"), upTo(2) == 0 ? to.nil() : to.number(upTo(20) == 0 ? 0xffffffff : upTo(12));
  to.text("ownership"), upTo(3) == 0 ? to.text("tier") : to.nil();
  if (ahead) {
    to.text("lookahead_token_ids"), to.list(blocks);
    const u64 each = upTo(3);
    for (u64 i = 0; i < blocks; ++i) {
      to.list(upTo(20) == 0 ? each + 1 : each);
      for (u64 k = 0; k < each; ++k) to.number(upTo(5));
    }
  }
  to.text("seq_hashes"), hashes();
  to.text("event_id"), upTo(2) == 0 ? to.number(upTo(50)) : to.nil();
  to.text("parent_hash"), upTo(1) == 0 ? to.nil() : to.number(someHash());
  to.text("token_ids"), upTo(1) == 0 ? to.nil() : tokens();
  to.text("medium"), upTo(1) == 0 ? to.text("disk") : to.nil();
  to.text("additional_salt"), upTo(3) == 0 ? to.text(upTo(1) == 0 ? "salt" : "other salt") : to.nil();
  to.text("tp_rank"), upTo(3) == 0 ? to.number(upTo(3)) : to.nil();
  to.text("layer_id"), upTo(9) == 0 ? to.number(upTo(1)) : to.nil();
  to.text("tenant_id"), upTo(3) == 0 ? to.text("other") : to.nil();
}

// Encodes a batch of a query or two, mostly valid.
std::vector<u8> packedQuery() {
  Encoder to;
  const u64 queries = upTo(2);
  to.byte(0x81), to.text("queries"), to.list(queries);
  for (u64 i = 0; i < queries; ++i) {
    to.byte(0x84);
    to.text("model"), to.text("model");
    to.text("block_size"), to.number(4);
    to.text(upTo(1) == 0 ? "token_ids" : "seq_hashes"), to.list(5);
    for (int k = 0; k < 5; ++k) to.number(upTo(5));
    to.text(upTo(1) == 0 ? "cache_salt" : "instance_id"), upTo(1) == 0 ? to.nil() : to.text("engine-1");
  }
  for (u64 damage = upTo(3); damage > 0; --damage) {
    const u64 at = upTo(to.out.size() - 1);
    if (upTo(3) == 0 && at > 0) to.out.resize(at);
    else to.out[at] = static_cast<u8>(source());
  }
  to.out.shrink_to_fit();
  return to.out;
}

void answerAll(Query& query, const std::vector<u8>& body, bool packed) {
  BatchScan batch;
  if (!BatchScan::begins(body.data(), body.size(), packed, batch)) return;
  ScannedQuery scanned;
  const double rows[] = {1, 2, 3, 0, 1, 7, 1, 1, 2, 3, 0, 1, -1, 0};
  const FreshnessTable table{rows, 2};
  while (batch.next(body.data(), body.size(), packed, scanned) == BatchScan::Found::Query)
    query.answer(scanned.request, upTo(1) == 0 ? Form::Json : Form::Packed, upTo(1) == 0 ? &table : nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  const u64 rounds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20000;
  source.seed(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  if (!fuzzTable(source, rounds) || !fuzzMemory(source)) return 1;
  Index index(4 << 20, 1337);
  Query query(index);
  std::vector<u32> subs;
  for (int i = 0; i < 4; ++i) {
    Subscription sub;
    sub.instance = "engine-" + std::to_string(i);
    sub.tenant = "default";
    sub.model = "model";
    sub.blockSize = 4;
    sub.countsCopies = i < 2;
    sub.kind = i == 3 ? PublisherKind::Store : PublisherKind::Engine;
    subs.push_back(index.subscribe(std::move(sub)));
  }
  Outcomes outcomes{};
  u64 sound = 0, refused = 0;
  for (u64 round = 0; round < rounds; ++round) {
    Encoder to;
    to.list(3);
    to.number(upTo(1) == 0 ? 5 : 1700000000000ull);
    const u64 events = upTo(6);
    to.list(events);
    for (u64 i = 0; i < events; ++i) event(to);
    to.number(0);
    for (u64 damage = upTo(3) == 0 ? upTo(6) : 0; damage > 0 && !to.out.empty(); --damage) {
      const u64 at = upTo(to.out.size() - 1);
      if (upTo(4) == 0) to.out.resize(at);
      else if (upTo(4) == 0) to.out.insert(to.out.begin() + static_cast<std::ptrdiff_t>(at), static_cast<u8>(source()));
      else to.out[at] = static_cast<u8>(source());
    }
    if (upTo(50) == 0)
      for (u64 size = to.out.size(), i = 0; i < size; ++i) to.out[i] = upTo(2) == 0 ? 0x91 : static_cast<u8>(source());
    // The vector has the exact size, so that the sanitizer detects a read past its end.
    std::vector<u8> exact(to.out.begin(), to.out.end());
    exact.shrink_to_fit();
    const u32 sub = subs[upTo(3)];
    Taken taken = index.apply(sub, round, exact.data(), exact.size(), outcomes);
    (taken != Taken::Malformed ? sound : refused) += 1;
    while (taken == Taken::More) taken = index.applyMore(sub, outcomes);
    if (upTo(500) == 0) index.clear(sub);
    if (upTo(100) == 0) index.lose(sub);
    if (upTo(500) == 0) index.forgetUncertain(sub);
    if (upTo(20) == 0) index.reclaim(static_cast<u32>(upTo(2000)));
    u32 tokens[12];
    for (u32& token : tokens) token = static_cast<u32>(upTo(5));
    Request request;
    request.space.tenant = "default";
    request.space.model = "model";
    request.space.blockSize = 4;
    request.tokens = tokens;
    request.tokenCount = upTo(12);
    const std::string_view answer = query.answer(request);
    std::string body = "{\"model\":\"model\",\"block_size\":4,\"token_ids\":[1, 2,3]}";
    for (u64 damage = upTo(3); damage > 0; --damage) body[upTo(body.size() - 1)] = static_cast<char>(source());
    ScannedQuery scanned;
    const std::vector<char> exactBody(body.begin(), body.end());
    if (scanQuery({exactBody.data(), exactBody.size()}, static_cast<ListKind>(upTo(2)), scanned)) query.answer(scanned.request);
    const std::string list = upTo(1) == 0 ? "{\"queries\":[" + body + "]}" : "{\"queries\":[" + body + " , " + body + "]} ";
    const std::vector<u8> exactBatch(list.begin(), list.end());
    answerAll(query, exactBatch, false);
    answerAll(query, exact, true);
    if (scanPacked(exact.data(), exact.data() + exact.size(), static_cast<ListKind>(upTo(2)), scanned)) query.answer(scanned.request, Form::Packed);
    std::vector<u8> packed = packedQuery();
    answerAll(query, packed, true);
    splitJson({exactBody.data(), exactBody.size()});
    splitJsonBatch({exactBody.data(), exactBody.size()});
    splitMsgpack(exact.data(), exact.data() + exact.size());
    splitMsgpackBatch(exact.data(), exact.data() + exact.size());
    if (answer.empty()) return 1;
    if (round % 5000 == 4999) {
      std::vector<u8> bytes;
      index.save("note", [&](const u8* piece, std::size_t size) { bytes.insert(bytes.end(), piece, piece + size); });
      Index again(4 << 20, 1337);
      std::string note, problem;
      if (!again.load(bytes.data(), bytes.size(), note, problem)) return std::fprintf(stderr, "%s\n", problem.c_str()), 1;
      if (describeStreams(again) != describeStreams(index) || describeTally(again) != describeTally(index)) return std::fprintf(stderr, "a snapshot read back differs\n"), 1;
    }
  }
  std::printf("%llu sound, %llu malformed, %u blocks, %llu bytes of a budget of %llu\n", static_cast<unsigned long long>(sound), static_cast<unsigned long long>(refused),
              index.arena().live(), static_cast<unsigned long long>(index.bytes()), static_cast<unsigned long long>(index.budgetBytes()));
  return index.bytes() <= index.budgetBytes() ? 0 : 1;
}
