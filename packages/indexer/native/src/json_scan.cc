// A single pass over the body; eight digits at a time.
#include "json_scan.h"

#include <cstring>

namespace svc {
namespace {

class Scanner {
 public:
  explicit Scanner(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  void space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool eat(char wanted) {
    if (at_ < end_ && *at_ == wanted) {
      ++at_;
      return true;
    }
    return false;
  }
  bool eatWord(std::string_view word) {
    if (static_cast<std::size_t>(end_ - at_) < word.size() || std::memcmp(at_, word.data(), word.size()) != 0) return false;
    at_ += word.size();
    return true;
  }
  bool done() {
    space();
    return at_ == end_;
  }
  // A text without escapes, of ASCII only: others need decoding and checking.
  bool text(std::string_view& out) {
    if (!eat('"')) return false;
    const char* start = at_;
    while (at_ < end_ && *at_ != '"') {
      if (*at_ == '\\' || static_cast<signed char>(*at_) < 0x20) return false;
      ++at_;
    }
    out = {start, static_cast<std::size_t>(at_ - start)};
    return eat('"');
  }
  // Digits only, without leading zeros, up to `most`.
  bool number(u64 most, u64& out) {
    const char* start = at_;
    u64 value = 0;
    int digits = 0;
    if (end_ - at_ >= 24) {
      // Most hashes have 17 to 20 digits; the first sixteen do not wait for one another.
      const u64 first = digitsAt(at_), second = digitsAt(at_ + 8);
      if (digitCount(first) == 8 && digitCount(second) == 8) {
        value = valueOf(first) * powers[8] + valueOf(second);
        digits = 16;
        at_ += 16;
      }
    }
    while (end_ - at_ >= 8 && digits <= 16) {
      const u64 eight = digitsAt(at_);
      const int count = digitCount(eight);
      if (count > 0) {
        const unsigned __int128 next = static_cast<unsigned __int128>(value) * powers[count] + valueOf(eight << ((8 - count) * 8));
        if (next >> 64) return false;
        value = static_cast<u64>(next);
        digits += count;
        at_ += count;
      }
      if (count < 8) return digits > 0 && (digits == 1 || *start != '0') && finish(value, most, out);
    }
    while (at_ < end_ && *at_ >= '0' && *at_ <= '9') {
      if (++digits > 20) return false;
      unsigned __int128 next = static_cast<unsigned __int128>(value) * 10 + static_cast<unsigned>(*at_++ - '0');
      if (next >> 64) return false;
      value = static_cast<u64>(next);
    }
    return digits > 0 && (digits == 1 || *start != '0') && finish(value, most, out);
  }
  template <typename T>
  bool list(u64 most, bool quoted, std::vector<T>& out) {
    if (!eat('[')) return false;
    space();
    if (eat(']')) return true;
    for (;;) {
      u64 value = 0;
      const bool quote = quoted && eat('"');
      if (!number(most, value) || (quote && !eat('"'))) return false;
      out.push_back(static_cast<T>(value));
      if (at_ < end_ && *at_ == ',') {
        ++at_;
        if (at_ < end_ && *at_ == ' ') ++at_;
        if (at_ < end_ && static_cast<u8>(*at_) <= ' ') space();
        continue;
      }
      space();
      if (eat(']')) return true;
      if (!eat(',')) return false;
      space();
    }
  }

 private:
  // Eight characters, digits as their values; the first one lowest.
  static u64 digitsAt(const char* at) {
    u64 eight;
    std::memcpy(&eight, at, 8);
    return eight ^ 0x3030303030303030ull;
  }
  // How many of the eight are digits before the first that is none.
  static int digitCount(u64 eight) {
    const u64 others = ((eight + 0x7676767676767676ull) | eight) & 0x8080808080808080ull;
    return others == 0 ? 8 : std::countr_zero(others) / 8;
  }
  static u64 valueOf(u64 eight) {
    eight = eight * 10 + (eight >> 8);
    return (((eight & 0x000000FF000000FFull) * 0x000F424000000064ull) + (((eight >> 16) & 0x000000FF000000FFull) * 0x0000271000000001ull)) >> 32;
  }
  static constexpr u64 powers[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
  bool finish(u64 value, u64 most, u64& out) {
    // A fraction or an exponent is not for this reader.
    if (at_ < end_ && (*at_ == '.' || *at_ == 'e' || *at_ == 'E')) return false;
    out = value;
    return value <= most;
  }
  const char* at_;
  const char* end_;
};

}  // namespace

bool scanQuery(std::string_view body, bool byHash, ScannedQuery& out) {
  Scanner in(body);
  out.tokens.clear();
  out.hashes.clear();
  out.model = out.tenant = out.salt = out.lora = out.instance = {};
  u64 blockSize = 0;
  bool hasList = false;
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
    else if (!byHash && key == "token_ids") field = 4, sound = hasList = in.list(0xffffffff, false, out.tokens);
    else if (byHash && (key == "seq_hashes" || key == "block_hash")) field = 4, sound = hasList = in.list(~0ull, true, out.hashes);
    else if (key == "tenant_id") field = 8, sound = in.text(out.tenant) || in.eatWord("null");
    else if (key == "instance_id") field = 16, sound = in.text(out.instance) || in.eatWord("null");
    else if (key == "lora_name") field = 32, sound = in.text(out.lora) || in.eatWord("null");
    else if (key == "cache_salt") field = 64, sound = in.text(out.salt) || in.eatWord("null");
    else return false;
    if (!sound || (seen & field) != 0) return false;
    seen |= field;
    in.space();
  }
  if (!in.done() || out.model.empty() || blockSize == 0 || !hasList) return false;
  Request& request = out.request;
  request = {};
  request.space.model = std::string(out.model);
  request.space.tenant = out.tenant.empty() ? "default" : std::string(out.tenant);
  request.space.blockSize = static_cast<u32>(blockSize);
  request.space.salt = std::string(out.salt);
  if (!out.lora.empty()) request.space.lora = "n:" + std::string(out.lora);
  request.instance = out.instance;
  if (byHash) {
    static const u64 nothing = 0;
    request.hashes = out.hashes.empty() ? &nothing : out.hashes.data();
    request.hashCount = out.hashes.size();
  } else {
    request.tokens = out.tokens.data();
    request.tokenCount = out.tokens.size();
  }
  return true;
}

}  // namespace svc
