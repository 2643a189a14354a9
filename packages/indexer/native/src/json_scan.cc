// Reads a plain query in one pass over its body.
#include "json_scan.h"

#include "json_scanner.h"

namespace svc {

// Buffers of an unusual body are not kept for the next one.
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

bool scanQuery(std::string_view body, ListKind wanted, ScannedQuery& out) {
  JsonScanner in(body);
  out.clear();
  u64 blockSize = 0;
  bool hasList = false, byHash = false;
  u32 seen = 0;
  in.space();
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
  if (!in.done() || !hasList) return false;
  return out.finish(blockSize, byHash);
}

}  // namespace svc
