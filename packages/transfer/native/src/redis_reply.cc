// Parses lines, bulk strings and flat arrays of the Redis protocol.
#include "redis_reply.h"

#include <charconv>

namespace svc {

RedisReply::Parsed RedisReply::parse(std::string_view in, RedisReply& reply, size_t& used, bool nested) {
  size_t end = in.substr(0, MAX_LINE_BYTES).find("\r\n");
  if (end == std::string_view::npos) return in.size() >= MAX_LINE_BYTES ? Parsed::Bad : Parsed::More;
  if (end == 0) return Parsed::Bad;
  reply = {};
  reply.kind = in[0];
  std::string_view line = in.substr(1, end - 1);
  used = end + 2;
  if (reply.kind == '+' || reply.kind == '-' || reply.kind == ':') {
    reply.text = line;
    return Parsed::Whole;
  }
  if (reply.kind != '$' && (reply.kind != '*' || nested)) return Parsed::Bad;
  int64_t size = 0;
  auto [last, error] = std::from_chars(line.data(), line.data() + line.size(), size);
  if (error != std::errc() || last != line.data() + line.size()) return Parsed::Bad;
  if (size < 0) {
    reply.null = true;
    return Parsed::Whole;
  }
  if (reply.kind == '$') {
    if (uint64_t(size) > MAX_BULK_BYTES) return Parsed::Bad;
    if (in.size() - used < size_t(size) + 2) return Parsed::More;
    reply.text = in.substr(used, size_t(size));
    used += size_t(size) + 2;
    return Parsed::Whole;
  }
  if (uint64_t(size) > MAX_ITEMS) return Parsed::Bad;
  for (int64_t i = 0; i < size; i++) {
    RedisReply item;
    size_t taken = 0;
    if (Parsed parsed = parse(in.substr(used), item, taken, true); parsed != Parsed::Whole) return parsed;
    used += taken;
    reply.items.push_back(std::move(item.text));
  }
  return Parsed::Whole;
}

}  // namespace svc
