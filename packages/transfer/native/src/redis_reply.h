// Replies of a Redis server: a parser that a fuzzer drives.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace svc {

struct RedisReply {
  char kind = 0;  // + - : $ *
  std::string text;
  bool null = false;
  std::vector<std::string> items;

  enum class Parsed { More, Whole, Bad };
  static constexpr size_t MAX_LINE_BYTES = 64 << 10;
  static constexpr size_t MAX_BULK_BYTES = 64 << 20;
  static constexpr size_t MAX_ITEMS = 1 << 20;
  /** Parses from the start of `in`; `used` is set if the reply is complete. The commands of this client never return nested arrays. */
  static Parsed parse(std::string_view in, RedisReply& reply, size_t& used) { return parse(in, reply, used, false); }

 private:
  static Parsed parse(std::string_view in, RedisReply& reply, size_t& used, bool nested);
};

}  // namespace svc
