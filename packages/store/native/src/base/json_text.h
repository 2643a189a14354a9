// Writes JSON by hand, so that 64-bit numbers keep all their digits.
#pragma once
#include <string>
#include <string_view>

#include "base/base.h"

namespace svc::text {

inline void quote(std::string& out, std::string_view text) {
  static const char digits[] = "0123456789abcdef";
  out.push_back('"');
  for (const char each : text) {
    const auto byte = static_cast<u8>(each);
    if (each == '"' || each == '\\') {
      out.push_back('\\');
      out.push_back(each);
    } else if (byte < 0x20 || byte == 0x7f) {
      out.append("\\u00");
      out.push_back(digits[byte >> 4]);
      out.push_back(digits[byte & 15]);
    } else {
      out.push_back(each);
    }
  }
  out.push_back('"');
}

inline void member(std::string& out, const char* name, std::string_view text) {
  out.append(",\"").append(name).append("\":");
  quote(out, text);
}

inline void member(std::string& out, const char* name, u64 number) { out.append(",\"").append(name).append("\":").append(std::to_string(number)); }

inline void claim(std::string& out, const char* name, bool value) { out.append(",\"").append(name).append(value ? "\":true" : "\":false"); }

}  // namespace svc::text
