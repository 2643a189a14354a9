// A bounded msgpack cursor: it never reads past its end, never trusts a length, and never recurses deeper than a limit.
#pragma once
#include <cstring>
#include <string_view>

#include "hashing.h"

namespace svc {

enum class Kind : u8 { Nil, Bool, Uint, Int, Float, Str, Bin, Array, Map, Ext, Bad };

// One value's head. `number` is the value of Uint and Int (two's complement), or the length of the others.
struct Head {
  Kind kind = Kind::Bad;
  u64 number = 0;
  double real = 0;
  const u8* body = nullptr;  // of Str, Bin, Ext
  std::string_view text() const { return {reinterpret_cast<const char*>(body), static_cast<std::size_t>(number)}; }
};

class MsgpackReader {
 public:
  static constexpr int maxDepth = 16;

  MsgpackReader(const u8* begin, const u8* end) : at_(begin), end_(end) {}

  const u8* at() const { return at_; }
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
  bool done() const { return at_ == end_; }

  // Reads the next value's head; skips the contents of Str, Bin and Ext, but not those of Array and Map.
  Head next() {
    Head head;
    if (at_ >= end_) return head;
    const u8 tag = *at_++;
    if (tag < 0x80) return number(Kind::Uint, tag);
    if (tag >= 0xe0) return number(Kind::Int, static_cast<u64>(static_cast<std::int64_t>(static_cast<std::int8_t>(tag))));
    if (tag < 0x90) return container(Kind::Map, tag & 15u);
    if (tag < 0xa0) return container(Kind::Array, tag & 15u);
    if (tag < 0xc0) return bytes(Kind::Str, tag & 31u);
    switch (tag) {
      case 0xc0: return number(Kind::Nil, 0);
      case 0xc2: return number(Kind::Bool, 0);
      case 0xc3: return number(Kind::Bool, 1);
      case 0xc4: return sized(Kind::Bin, 1);
      case 0xc5: return sized(Kind::Bin, 2);
      case 0xc6: return sized(Kind::Bin, 4);
      case 0xc7: return ext(1);
      case 0xc8: return ext(2);
      case 0xc9: return ext(4);
      case 0xca: return real(4);
      case 0xcb: return real(8);
      case 0xcc: return integer(1);
      case 0xcd: return integer(2);
      case 0xce: return integer(4);
      case 0xcf: return integer(8);
      case 0xd0: return negative(1);
      case 0xd1: return negative(2);
      case 0xd2: return negative(4);
      case 0xd3: return negative(8);
      case 0xd4: return bytes(Kind::Ext, 2);
      case 0xd5: return bytes(Kind::Ext, 3);
      case 0xd6: return bytes(Kind::Ext, 5);
      case 0xd7: return bytes(Kind::Ext, 9);
      case 0xd8: return bytes(Kind::Ext, 17);
      case 0xd9: return sized(Kind::Str, 1);
      case 0xda: return sized(Kind::Str, 2);
      case 0xdb: return sized(Kind::Str, 4);
      case 0xdc: return sized(Kind::Array, 2);
      case 0xdd: return sized(Kind::Array, 4);
      case 0xde: return sized(Kind::Map, 2);
      case 0xdf: return sized(Kind::Map, 4);
      default: return head;
    }
  }

  // Skips one value; returns false if it is malformed or nested too deeply.
  bool skip(int depth = 0) {
    if (depth > maxDepth) return false;
    const Head head = next();
    if (head.kind == Kind::Bad) return false;
    if (head.kind != Kind::Array && head.kind != Kind::Map) return true;
    const u64 values = head.kind == Kind::Map ? head.number * 2 : head.number;
    for (u64 i = 0; i < values; ++i)
      if (!skip(depth + 1)) return false;
    return true;
  }

  // Reads `count` values below 2^32 into `out`; returns false at anything else. Most bytes pass through this loop.
  bool tokens(u64 count, u32* out) {
    for (u64 i = 0; i < count; ++i) {
      if (at_ >= end_) return false;
      const u8 tag = *at_;
      if (tag < 0x80) {
        out[i] = tag;
        at_ += 1;
      } else if (tag == 0xcd && end_ - at_ >= 3) {
        out[i] = static_cast<u32>(at_[1]) << 8 | at_[2];
        at_ += 3;
      } else if (tag == 0xce && end_ - at_ >= 5) {
        out[i] = static_cast<u32>(bigEndian(at_ + 1, 4));
        at_ += 5;
      } else {
        const Head head = next();
        const bool fits = head.kind == Kind::Uint || (head.kind == Kind::Int && static_cast<std::int64_t>(head.number) >= 0);
        if (!fits || head.number > 0xffffffffull) return false;
        out[i] = static_cast<u32>(head.number);
      }
    }
    return true;
  }

 private:
  static u64 bigEndian(const u8* from, int size) {
    u64 value = 0;
    for (int i = 0; i < size; ++i) value = value << 8 | from[i];
    return value;
  }
  static Head number(Kind kind, u64 value) {
    Head head;
    head.kind = kind;
    head.number = value;
    return head;
  }
  // Each element takes at least one byte, so a longer length is wrong.
  Head container(Kind kind, u64 count) {
    if (count * (kind == Kind::Map ? 2 : 1) > left()) return {};
    return number(kind, count);
  }
  Head bytes(Kind kind, u64 size) {
    if (size > left()) return {};
    Head head = number(kind, size);
    head.body = at_;
    at_ += size;
    return head;
  }
  bool take(int size, u64& value) {
    if (left() < static_cast<std::size_t>(size)) return false;
    value = bigEndian(at_, size);
    at_ += size;
    return true;
  }
  Head sized(Kind kind, int size) {
    u64 length = 0;
    if (!take(size, length)) return {};
    return kind == Kind::Array || kind == Kind::Map ? container(kind, length) : bytes(kind, length);
  }
  Head ext(int size) {
    u64 length = 0;
    if (!take(size, length)) return {};
    return bytes(Kind::Ext, length + 1);
  }
  Head integer(int size) {
    u64 value = 0;
    return take(size, value) ? number(Kind::Uint, value) : Head{};
  }
  Head negative(int size) {
    u64 value = 0;
    if (!take(size, value)) return {};
    const int shift = 64 - size * 8;
    return number(Kind::Int, static_cast<u64>(static_cast<std::int64_t>(value << shift) >> shift));
  }
  Head real(int size) {
    u64 bits = 0;
    if (!take(size, bits)) return {};
    Head head = number(Kind::Float, 0);
    head.real = size == 8 ? std::bit_cast<double>(bits) : static_cast<double>(std::bit_cast<float>(static_cast<u32>(bits)));
    return head;
  }

  const u8* at_;
  const u8* end_;
};

}  // namespace svc
