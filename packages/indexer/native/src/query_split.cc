// Splits a body in one pass that ends at the first fault, so that a bad body costs no more than a good one.
#include "query_split.h"

#include <charconv>
#include <cmath>

#include "json_scanner.h"
#include "msgpack_reader.h"

namespace svc {
namespace {

constexpr u64 mostToken = 0xffffffff;
constexpr std::size_t mostShown = 80;
constexpr double mostExact = 9007199254740991.0;

// Returns an excerpt of the fault that is safe in any text.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, mostShown));
  for (char& letter : out)
    if (static_cast<signed char>(letter) < 0x20 || letter == 0x7f) letter = '?';
  return out;
}

template <typename T>
bool takeReal(double value, u64 most, std::vector<T>& out) {
  if (!(value >= 0 && value <= mostExact && value == std::floor(value)) || value > static_cast<double>(most)) return false;
  out.push_back(static_cast<T>(value));
  return true;
}

// Checks JSON's grammar of numbers, since from_chars is less strict.
bool isNumber(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  if (text.empty() || text[0] < '0' || text[0] > '9' || (text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9')) return false;
  const std::size_t point = text.find('.');
  return point == std::string_view::npos || (point + 1 < text.size() && text[point + 1] >= '0' && text[point + 1] <= '9');
}

bool decimal(std::string_view digits, u64& value) {
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc{} && end == digits.data() + digits.size() && digits.size() <= 20 && !digits.empty();
}

// Reads an element that is not plain digits: a number in another form is accepted, everything else is the fault.
template <typename T>
std::optional<std::string_view> oddElement(JsonScanner& in, u64 most, bool quoted, std::vector<T>& out, std::string_view& found) {
  const char* start = in.at();
  if (!in.skip() || in.at() == start) return "invalid_json";
  found = {start, static_cast<std::size_t>(in.at() - start)};
  u64 value = 0;
  if (quoted && found.size() >= 2 && found.front() == '"') {
    if (!decimal(found.substr(1, found.size() - 2), value)) return "invalid_value";
    out.push_back(static_cast<T>(value));
    return {};
  }
  if (!isNumber(found)) {
    const bool other = found == "null" || found == "true" || found == "false" || found.front() == '"' || found.front() == '[' || found.front() == '{';
    return other ? "invalid_type" : "invalid_json";
  }
  double real = 0;
  const auto [end, error] = std::from_chars(found.data(), found.data() + found.size(), real);
  if (end != found.data() + found.size()) return "invalid_json";
  if (error == std::errc{} && takeReal(real, most, out)) return {};
  return error == std::errc{} && real != std::floor(real) ? "invalid_type" : "out_of_range";
}

template <typename T>
bool readList(JsonScanner& in, std::string_view field, u64 most, bool quoted, std::vector<T>& out, SplitQuery& split, const char* begin) {
  const auto problem = [&](std::string_view reason, std::string_view found, bool inList) {
    split.problem = {reason, field, inList ? static_cast<std::int64_t>(out.size()) : -1, shown(found), static_cast<u64>(in.at() - begin)};
    return false;
  };
  in.eat('[');
  in.space();
  if (in.eat(']')) return true;
  for (;;) {
    const auto read = in.elements(most, quoted, out);
    if (read == JsonScanner::Elements::All) return true;
    if (read == JsonScanner::Elements::Broken) return problem("invalid_json", {}, false);
    std::string_view found;
    if (const auto reason = oddElement(in, most, quoted, out, found)) return problem(*reason, found, *reason != "invalid_json");
    in.space();
    if (in.eat(']')) return true;
    if (!in.eat(',')) return problem("invalid_json", {}, false);
    in.space();
  }
}

// Walks an object's members: `member` reads the values that it wants, all others are copied to `rest`.
template <typename Member>
std::optional<SplitQuery::Problem> eachMember(std::string_view body, std::vector<u8>& rest, Member member) {
  JsonScanner in(body);
  const auto broken = [&] { return SplitQuery::Problem{"invalid_json", {}, -1, {}, static_cast<u64>(in.at() - body.data())}; };
  const auto keep = [&](std::string_view text) { rest.insert(rest.end(), text.begin(), text.end()); };
  in.space();
  if (!in.eat('{')) return SplitQuery::Problem{"invalid_type", {}, -1, {}, 0};
  keep("{");
  in.space();
  for (bool first = true; !in.eat('}'); first = false) {
    if (!first && !in.eat(',')) return broken();
    in.space();
    const char* start = in.at();
    if (!in.skipText()) return broken();
    const std::string_view key(start, static_cast<std::size_t>(in.at() - start));
    in.space();
    if (!in.eat(':')) return broken();
    in.space();
    bool wanted = false;
    if (!member(in, key, wanted)) return broken();
    if (!wanted) {
      if (!in.skip()) return broken();
      if (rest.size() > 1) keep(",");
      keep({start, static_cast<std::size_t>(in.at() - start)});
      if (rest.size() > mostRestBytes) return SplitQuery::Problem{"too_large", {}, -1, {}, static_cast<u64>(in.at() - body.data())};
    }
    in.space();
  }
  if (!in.done()) return broken();
  keep("}");
  return {};
}

bool beginsList(const JsonScanner& in) { return in.at() < in.end() && *in.at() == '['; }

}  // namespace

SplitQuery splitJson(std::string_view body) {
  SplitQuery out;
  const auto problem = eachMember(body, out.rest, [&](JsonScanner& in, std::string_view key, bool& wanted) {
    const bool tokens = key == "\"token_ids\"", hashes = key == "\"seq_hashes\"", former = key == "\"block_hash\"";
    wanted = (tokens || hashes || former) && beginsList(in);
    if (!wanted) return true;
    if (tokens) return readList(in, "token_ids", mostToken, false, out.tokens.emplace(), out, body.data());
    if (hashes) return readList(in, "seq_hashes", ~0ull, true, out.hashes.emplace(), out, body.data());
    return readList(in, "block_hash", ~0ull, true, out.formerHashes.emplace(), out, body.data());
  });
  if (!out.problem) out.problem = problem;
  return out;
}

SplitBatch splitJsonBatch(std::string_view body) {
  SplitBatch out;
  out.problem = eachMember(body, out.rest, [&](JsonScanner& in, std::string_view key, bool& wanted) {
    wanted = key == "\"queries\"" && beginsList(in);
    if (!wanted) return true;
    out.hasQueries = true;
    out.spans.clear();
    out.count = 0;
    in.eat('[');
    in.space();
    if (in.eat(']')) return true;
    for (;;) {
      const char* start = in.at();
      if (!in.skip() || in.at() == start) return false;
      if (++out.count <= mostBatched) out.spans.push_back(static_cast<u32>(start - body.data())), out.spans.push_back(static_cast<u32>(in.at() - body.data()));
      in.space();
      if (in.eat(']')) return true;
      if (!in.eat(',')) return false;
      in.space();
    }
  });
  return out;
}

namespace {

template <typename T>
bool readPackedList(MsgpackReader& in, u64 count, std::string_view field, u64 most, bool texts, std::vector<T>& out, SplitQuery& split) {
  const auto problem = [&](std::string_view reason, std::string found) {
    split.problem = {reason, field, static_cast<std::int64_t>(out.size()), std::move(found), 0};
    return false;
  };
  for (u64 i = 0; i < count; ++i) {
    const Head head = in.next();
    u64 value = head.number;
    switch (head.kind) {
      case Kind::Bad: split.problem = {"invalid_msgpack", {}, -1, {}, 0}; return false;
      case Kind::Float:
        if (takeReal(head.real, most, out)) continue;
        return problem(head.real == std::floor(head.real) ? "out_of_range" : "invalid_type", std::to_string(head.real));
      case Kind::Int:
        if (static_cast<std::int64_t>(value) < 0) return problem("out_of_range", std::to_string(static_cast<std::int64_t>(value)));
        [[fallthrough]];
      case Kind::Uint:
        if (value > most) return problem("out_of_range", std::to_string(value));
        break;
      case Kind::Str:
        if (!texts) return problem("invalid_type", "a string");
        if (!decimal(head.text(), value)) return problem("invalid_value", shown(head.text()));
        break;
      default: return problem("invalid_type", "no number");
    }
    out.push_back(static_cast<T>(value));
  }
  return true;
}

template <typename Member>
std::optional<SplitQuery::Problem> eachPackedMember(const u8* begin, const u8* end, std::vector<u8>& rest, Member member) {
  const SplitQuery::Problem broken{"invalid_msgpack", {}, -1, {}, 0};
  MsgpackReader in(begin, end);
  const Head map = in.next();
  if (map.kind != Kind::Map) return SplitQuery::Problem{map.kind == Kind::Bad ? "invalid_msgpack" : "invalid_type", {}, -1, {}, 0};
  rest = {0xdf, 0, 0, 0, 0};
  u32 kept = 0;
  for (u64 i = 0; i < map.number; ++i) {
    const u8* start = in.at();
    const Head key = in.next();
    if (key.kind != Kind::Str) return broken;
    const u8* value = in.at();
    const Head list = in.next();
    bool wanted = false;
    if (list.kind == Kind::Array && !member(in, key.text(), list.number, wanted)) return broken;
    if (wanted) continue;
    in = MsgpackReader(value, end);
    if (!in.skip()) return broken;
    rest.insert(rest.end(), start, in.at());
    ++kept;
    if (rest.size() > mostRestBytes) return SplitQuery::Problem{"too_large", {}, -1, {}, 0};
  }
  if (!in.done()) return broken;
  for (int i = 0; i < 4; ++i) rest[1 + static_cast<std::size_t>(i)] = static_cast<u8>(kept >> (24 - 8 * i));
  return {};
}

}  // namespace

SplitQuery splitMsgpack(const u8* begin, const u8* end) {
  SplitQuery out;
  const auto problem = eachPackedMember(begin, end, out.rest, [&](MsgpackReader& in, std::string_view key, u64 count, bool& wanted) {
    wanted = true;
    if (key == "token_ids") return readPackedList(in, count, key, mostToken, false, out.tokens.emplace(), out);
    if (key == "seq_hashes") return readPackedList(in, count, key, ~0ull, true, out.hashes.emplace(), out);
    if (key == "block_hash") return readPackedList(in, count, key, ~0ull, true, out.formerHashes.emplace(), out);
    wanted = false;
    return true;
  });
  if (!out.problem) out.problem = problem;
  return out;
}

SplitBatch splitMsgpackBatch(const u8* begin, const u8* end) {
  SplitBatch out;
  out.problem = eachPackedMember(begin, end, out.rest, [&](MsgpackReader& in, std::string_view key, u64 count, bool& wanted) {
    wanted = key == "queries";
    if (!wanted) return true;
    out.hasQueries = true;
    out.spans.clear();
    out.count = count;
    for (u64 i = 0; i < count; ++i) {
      const u8* start = in.at();
      if (!in.skip()) return false;
      if (i < mostBatched) out.spans.push_back(static_cast<u32>(start - begin)), out.spans.push_back(static_cast<u32>(in.at() - begin));
    }
    return true;
  });
  return out;
}

}  // namespace svc
