// Reads a plain query in one pass over its body.
#include "query_scan.h"

#include "query_split.h"

namespace svc {

// Large buffers of an unusual body are not kept for the next one.
void ScannedQuery::clear() {
  constexpr std::size_t kept = 1 << 18;
  tokens.clear();
  hashes.clear();
  if (tokens.capacity() > kept) tokens = {};
  if (hashes.capacity() > kept) hashes = {};
  model = tenant = salt = lora = instance = {};
  freshness = false;
}

bool ScannedQuery::finish(u64 blockSize, bool byHash) {
  if (model.empty() || blockSize == 0 || blockSize > 0xffffffff) return false;
  request = {};
  request.space.model = std::string(model);
  request.space.tenant = tenant.empty() ? "default" : std::string(tenant);
  request.space.blockSize = static_cast<u32>(blockSize);
  request.space.salt = std::string(salt);
  if (!lora.empty()) request.space.lora = "n:" + std::string(lora);
  request.instance = instance;
  if (byHash) {
    static const u64 nothing = 0;
    request.hashes = hashes.empty() ? &nothing : hashes.data();
    request.hashCount = hashes.size();
  } else {
    request.tokens = tokens.data();
    request.tokenCount = tokens.size();
  }
  return true;
}

namespace {

// Scans an object from its first bracket to its last one.
bool scanObject(JsonScanner& in, ListKind wanted, ScannedQuery& out) {
  out.clear();
  u64 blockSize = 0;
  bool hasList = false, byHash = false;
  u32 seen = 0;
  if (!in.eat('{')) return false;
  in.space();
  for (bool first = true; !in.eat('}'); first = false) {
    if (!first && !in.eat(',')) return false;
    in.space();
    std::string_view key;
    if (!in.text(key)) return false;
    in.space();
    if (!in.eat(':')) return false;
    in.space();
    u32 field = 0;
    bool sound = false;
    if (key == "model") field = 1, sound = in.text(out.model);
    else if (key == "block_size") field = 2, sound = in.number(0xffffffff, blockSize);
    else if (wanted != ListKind::Hashes && key == "token_ids") field = 4, sound = hasList = in.list(0xffffffff, false, out.tokens);
    else if (wanted != ListKind::Tokens && (key == "seq_hashes" || key == "block_hash")) field = 4, byHash = true, sound = hasList = in.list(~0ull, true, out.hashes);
    else if (key == "tenant_id") field = 8, sound = in.text(out.tenant) || in.eatWord("null");
    else if (key == "instance_id") field = 16, sound = in.text(out.instance) || in.eatWord("null");
    else if (key == "lora_name") field = 32, sound = in.text(out.lora) || in.eatWord("null");
    else if (key == "freshness") field = 128, out.freshness = in.eatWord("true"), sound = out.freshness || in.eatWord("false") || in.eatWord("null");
    else if (key == "cache_salt") field = 64, sound = in.text(out.salt) || in.eatWord("null");
    else return false;
    if (!sound || (seen & field) != 0) return false;
    seen |= field;
    in.space();
  }
  return hasList && out.finish(blockSize, byHash);
}

// Accepts a plain text as in JSON, or nil if the member may be absent.
bool packedText(const Head& head, bool orNil, std::string_view& out) {
  constexpr u64 longest = 1024;
  if (head.kind == Kind::Nil) return orNil;
  if (head.kind != Kind::Str || head.number > longest) return false;
  out = head.text();
  for (const char letter : out)
    if (static_cast<signed char>(letter) < 0x20) return false;
  return true;
}

bool packedHashes(MsgpackReader& in, u64 count, std::vector<u64>& out) {
  out.resize(count);
  for (u64& hash : out) {
    const Head head = in.next();
    if (head.kind != Kind::Uint && (head.kind != Kind::Int || static_cast<std::int64_t>(head.number) < 0)) return false;
    hash = head.number;
  }
  return true;
}

bool scanMap(MsgpackReader& in, ListKind wanted, ScannedQuery& out) {
  out.clear();
  const Head map = in.next();
  if (map.kind != Kind::Map) return false;
  u64 blockSize = 0;
  bool hasList = false, byHash = false;
  u32 seen = 0;
  for (u64 i = 0; i < map.number; ++i) {
    const Head name = in.next();
    if (name.kind != Kind::Str) return false;
    const std::string_view key = name.text();
    const Head value = in.next();
    u32 field = 0;
    bool sound = false;
    if (key == "model") field = 1, sound = packedText(value, false, out.model);
    else if (key == "block_size") field = 2, blockSize = value.number, sound = value.kind == Kind::Uint;
    else if (wanted != ListKind::Hashes && key == "token_ids") {
      field = 4;
      if (value.kind != Kind::Array) return false;
      out.tokens.resize(value.number);
      sound = hasList = in.tokens(value.number, out.tokens.data());
    } else if (wanted != ListKind::Tokens && (key == "seq_hashes" || key == "block_hash")) {
      field = 4, byHash = true;
      sound = hasList = value.kind == Kind::Array && packedHashes(in, value.number, out.hashes);
    } else if (key == "tenant_id") field = 8, sound = packedText(value, true, out.tenant);
    else if (key == "instance_id") field = 16, sound = packedText(value, true, out.instance);
    else if (key == "lora_name") field = 32, sound = packedText(value, true, out.lora);
    else if (key == "freshness") field = 128, out.freshness = value.kind == Kind::Bool && value.number == 1, sound = value.kind == Kind::Bool || value.kind == Kind::Nil;
    else if (key == "cache_salt") field = 64, sound = packedText(value, true, out.salt);
    if (!sound || (seen & field) != 0) return false;
    seen |= field;
  }
  return hasList && out.finish(blockSize, byHash);
}

std::string_view textOf(const u8* body, std::size_t from, std::size_t size) { return {reinterpret_cast<const char*>(body) + from, size - from}; }

}  // namespace

bool scanQuery(std::string_view body, ListKind wanted, ScannedQuery& out) {
  JsonScanner in(body);
  in.space();
  return scanObject(in, wanted, out) && in.done();
}

bool scanPacked(const u8* begin, const u8* end, ListKind wanted, ScannedQuery& out) {
  MsgpackReader in(begin, end);
  return scanMap(in, wanted, out) && in.done();
}

bool BatchScan::begins(const u8* body, std::size_t size, bool packed, BatchScan& out) {
  if (size > 0xffffffff) return false;
  if (packed) {
    MsgpackReader in(body, body + size);
    const Head map = in.next();
    if (map.kind != Kind::Map || map.number != 1) return false;
    const Head key = in.next();
    if (key.kind != Kind::Str || key.text() != "queries") return false;
    const Head list = in.next();
    if (list.kind != Kind::Array || list.number > mostBatched) return false;
    out.place = static_cast<u32>(in.at() - body);
    out.read = 0;
    out.total = static_cast<u32>(list.number);
    return true;
  }
  JsonScanner in(textOf(body, 0, size));
  in.space();
  if (!in.eat('{')) return false;
  in.space();
  std::string_view key;
  if (!in.text(key) || key != "queries") return false;
  in.space();
  if (!in.eat(':')) return false;
  in.space();
  if (!in.eat('[')) return false;
  in.space();
  out.place = static_cast<u32>(reinterpret_cast<const u8*>(in.at()) - body);
  out.read = out.total = 0;
  return true;
}

BatchScan::Found BatchScan::next(const u8* body, std::size_t size, bool packed, ScannedQuery& out) {
  if (packed) {
    if (read == total) return place == size ? Found::End : Found::Unusual;
    MsgpackReader in(body + place, body + size);
    if (!scanMap(in, ListKind::Either, out)) return Found::Unusual;
    place = static_cast<u32>(in.at() - body);
    ++read;
    return Found::Query;
  }
  JsonScanner in(textOf(body, place, size));
  if (in.eat(']')) {
    in.space();
    return in.eat('}') && in.done() ? Found::End : Found::Unusual;
  }
  if (read > 0) {
    if (!in.eat(',')) return Found::Unusual;
    in.space();
  }
  // The careful reader reports a batch with too many queries.
  if (++read > mostBatched || !scanObject(in, ListKind::Either, out)) return Found::Unusual;
  in.space();
  place = static_cast<u32>(reinterpret_cast<const u8*>(in.at()) - body);
  return Found::Query;
}

}  // namespace svc
