// The keys under which engines with vLLM's MooncakeStoreConnector keep their blocks in a store.
#pragma once
#include <string_view>

#include "hashing.h"

namespace svc {

// [PREFIX@]MODEL[NAMESPACE]@tp_rank:T@pcpP@dcpD@pp_rank:R@group:G@HEX; HEX is the block's hash as the engine's events have it.
struct ObjectKey {
  std::string_view head;   // all that engines must have in common to load each other's blocks
  std::string_view model;  // the last part of the model's folder
  u64 ranks[4] = {};
  u64 group = 0;
  u64 hash = 0;

  // Returns false if the text is another key.
  static bool read(std::string_view text, ObjectKey& out) {
    const std::size_t at = text.rfind("@tp_rank:");
    if (at == std::string_view::npos || at == 0) return false;
    out.head = text.substr(0, at);
    out.model = out.head.substr(0, out.head.find("@store_tp:"));
    if (const std::size_t prefix = out.model.rfind('@'); prefix != std::string_view::npos) out.model.remove_prefix(prefix + 1);
    std::string_view rest = text.substr(at);
    constexpr std::string_view names[] = {"@tp_rank:", "@pcp", "@dcp", "@pp_rank:", "@group:"};
    for (std::size_t i = 0; i < 5; ++i)
      if (!take(rest, names[i], i < 4 ? out.ranks[i] : out.group)) return false;
    return !out.model.empty() && rest.starts_with('@') && takeHash(rest.substr(1), out.hash);
  }

 private:
  static bool take(std::string_view& rest, std::string_view name, u64& value) {
    if (!rest.starts_with(name)) return false;
    rest.remove_prefix(name.size());
    std::size_t digits = 0;
    for (value = 0; digits < rest.size() && rest[digits] >= '0' && rest[digits] <= '9'; ++digits) value = value * 10 + static_cast<u64>(rest[digits] - '0');
    rest.remove_prefix(digits);
    return digits > 0 && digits < 9;
  }
  // The last 8 bytes count, as in events that have hashes as bytes.
  static bool takeHash(std::string_view hex, u64& hash) {
    if (hex.size() < 16 || hex.size() % 2 != 0) return false;
    for (const char letter : hex) {
      const int digit = letter >= '0' && letter <= '9' ? letter - '0' : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
      if (digit < 0) return false;
      hash = hash << 4 | static_cast<u64>(digit);
    }
    return true;
  }
};

}  // namespace svc
