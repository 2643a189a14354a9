// Writes msgpack: the few types that KV events consist of.
#pragma once
#include <concepts>
#include <string>

#include "base/base.h"

namespace svc::msgpack {

template <std::unsigned_integral T>
void bigEndian(std::string& out, T value) {
  for (int shift = static_cast<int>(sizeof value) * 8 - 8; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift));
}
inline void byte(std::string& out, u8 value) { out.push_back(static_cast<char>(value)); }
inline void nil(std::string& out) { byte(out, 0xc0); }
inline void number(std::string& out, u64 value) {
  if (value < 0x80) return byte(out, static_cast<u8>(value));
  byte(out, 0xcf);
  bigEndian(out, value);
}
// Writes the 64 bits as a signed number.
inline void signedNumber(std::string& out, u64 bits) {
  byte(out, 0xd3);
  bigEndian(out, bits);
}
inline void list(std::string& out, u32 size) {
  if (size < 16) return byte(out, static_cast<u8>(0x90 | size));
  if (size <= 0xffff) {
    byte(out, 0xdc);
    return bigEndian(out, static_cast<u16>(size));
  }
  byte(out, 0xdd);
  bigEndian(out, size);
}
inline void map(std::string& out, u16 size) {
  byte(out, 0xde);
  bigEndian(out, size);
}

inline bool isUtf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const u8 first = static_cast<u8>(text[at]);
    const std::size_t more = first < 0x80 ? 0 : first >= 0xc2 && first < 0xe0 ? 1 : first >= 0xe0 && first < 0xf0 ? 2 : first >= 0xf0 && first < 0xf5 ? 3 : 4;
    if (more == 4 || text.size() - at <= more) return false;
    u32 point = first & (0x7f >> more >> (more > 0));
    for (std::size_t i = 1; i <= more; ++i) {
      const u8 next = static_cast<u8>(text[at + i]);
      if ((next & 0xc0) != 0x80) return false;
      point = (point << 6) | (next & 0x3f);
    }
    // Strict readers refuse overlong encodings, surrogates, and code points past the last one.
    if ((more == 2 && (point < 0x800 || (point >= 0xd800 && point < 0xe000))) || (more == 3 && (point < 0x10000 || point > 0x10ffff))) return false;
    at += more + 1;
  }
  return true;
}

// Writes UTF-8 as text and anything else as bytes, since readers refuse strings that are not UTF-8.
inline void text(std::string& out, std::string_view value) {
  const bool plain = isUtf8(value);
  if (plain && value.size() < 32) {
    byte(out, static_cast<u8>(0xa0 | value.size()));
  } else if (value.size() < 0x100) {
    byte(out, plain ? 0xd9 : 0xc4);
    byte(out, static_cast<u8>(value.size()));
  } else if (value.size() < 0x1'0000) {
    byte(out, plain ? 0xda : 0xc5);
    bigEndian(out, static_cast<u16>(value.size()));
  } else {
    byte(out, plain ? 0xdb : 0xc6);
    bigEndian(out, static_cast<u32>(value.size()));
  }
  out.append(value);
}

}  // namespace svc::msgpack
