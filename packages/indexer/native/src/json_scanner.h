// A cursor over JSON text that creates no values: it reads eight digits at a time, and skips whole values by their brackets.
#pragma once
#include <bit>
#include <cstring>
#include <string_view>
#include <vector>

#include "hashing.h"

namespace svc {

class JsonScanner {
 public:
  explicit JsonScanner(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

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
  const char* at() const { return at_; }
  const char* end() const { return end_; }
  // Skips one value of any kind by its brackets and quotes only; a later reader checks what is between them.
  bool skip() {
    int depth = 0;
    do {
      space();
      if (at_ == end_) return false;
      const char letter = *at_;
      if (letter == '"') {
        if (!skipText()) return false;
      } else if (letter == '[' || letter == '{') {
        ++depth, ++at_;
      } else if (letter == ']' || letter == '}') {
        if (--depth < 0) return false;
        ++at_;
      } else if (letter == ',' || letter == ':') {
        if (depth == 0) return false;
        ++at_;
      } else {
        while (at_ < end_ && !isEnd(*at_)) ++at_;
      }
    } while (depth > 0);
    return true;
  }
  bool skipText() {
    if (!eat('"')) return false;
    while (at_ < end_ && *at_ != '"') at_ += *at_ == '\\' && at_ + 1 < end_ ? 2 : 1;
    return eat('"');
  }
  static bool isEnd(char letter) {
    switch (letter) {
      case ' ': case '\n': case '\t': case '\r': case ',': case ':': case ']': case '}': case '[': case '{': case '"': return true;
      default: return false;
    }
  }
  // Reads a short ASCII text without escapes; others need decoding and checking.
  bool text(std::string_view& out) {
    constexpr std::ptrdiff_t longest = 1024;
    if (!eat('"')) return false;
    const char* start = at_;
    while (at_ < end_ && *at_ != '"') {
      if (at_ - start == longest) return false;
      if (*at_ == '\\' || static_cast<signed char>(*at_) < 0x20) return false;
      ++at_;
    }
    out = {start, static_cast<std::size_t>(at_ - start)};
    return eat('"');
  }
  // Reads digits without leading zeros, up to `most`.
  bool number(u64 most, u64& out) {
    const char* start = at_;
    u64 value = 0;
    int digits = 0;
    if (end_ - at_ >= 24) {
      // Most hashes have 17 to 20 digits; the two halves of the first sixteen are converted independently.
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
  // The result for a list's elements. All: read up to the closing bracket. Odd: the cursor is before an element that is not plain digits.
  // Broken: this is not a list.
  enum class Elements { All, Odd, Broken };
  // Reads from an element on.
  template <typename T>
  Elements elements(u64 most, bool quoted, std::vector<T>& out) {
    for (;;) {
      const char* start = at_;
      u64 value = 0;
      const bool quote = quoted && eat('"');
      if (!number(most, value) || (quote && !eat('"'))) {
        at_ = start;
        return Elements::Odd;
      }
      out.push_back(static_cast<T>(value));
      if (at_ < end_ && *at_ == ',') {
        ++at_;
        if (at_ < end_ && *at_ == ' ') ++at_;
        if (at_ < end_ && static_cast<u8>(*at_) <= ' ') space();
        continue;
      }
      space();
      if (eat(']')) return Elements::All;
      if (!eat(',')) return Elements::Broken;
      space();
    }
  }
  template <typename T>
  bool list(u64 most, bool quoted, std::vector<T>& out) {
    if (!eat('[')) return false;
    space();
    return eat(']') || elements(most, quoted, out) == Elements::All;
  }

 private:
  // Loads eight characters, digits as their values; the first one is lowest.
  static u64 digitsAt(const char* at) {
    u64 eight;
    std::memcpy(&eight, at, 8);
    return eight ^ 0x3030303030303030ull;
  }
  // Counts the digits of the eight before the first other character.
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
    // A fraction or an exponent is left to the careful reader.
    if (at_ < end_ && (*at_ == '.' || *at_ == 'e' || *at_ == 'E')) return false;
    out = value;
    return value <= most;
  }
  const char* at_;
  const char* end_;
};

}  // namespace svc
