// Parser and writer of JSON: recursive descent over one text, without exceptions, with a limited depth.
#include "json.h"

#include <charconv>
#include <cstdio>

namespace svc {

namespace {

constexpr int MAX_DEPTH = 64;
const Json nullJson;
const Json::Array noItems;
const Json::Object noMembers;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<Json> whole() {
    auto value = any(0);
    skip();
    if (!value || at_ != text_.size()) return std::nullopt;
    return value;
  }

 private:
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) at_++;
  }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  std::optional<Json> any(int depth) {
    if (depth > MAX_DEPTH) return std::nullopt;
    skip();
    if (at_ >= text_.size()) return std::nullopt;
    switch (text_[at_]) {
      case '{': return object(depth);
      case '[': return array(depth);
      case '"': {
        auto text = string();
        return text ? std::optional<Json>(std::move(*text)) : std::nullopt;
      }
      case 't': return take("true") ? std::optional<Json>(true) : std::nullopt;
      case 'f': return take("false") ? std::optional<Json>(false) : std::nullopt;
      case 'n': return take("null") ? std::optional<Json>(Json()) : std::nullopt;
      default: return number();
    }
  }

  std::optional<Json> object(int depth) {
    at_++;
    Json result = Json::object();
    skip();
    if (take("}")) return result;
    while (true) {
      skip();
      if (at_ >= text_.size() || text_[at_] != '"') return std::nullopt;
      auto name = string();
      skip();
      if (!name || !take(":")) return std::nullopt;
      auto value = any(depth + 1);
      if (!value) return std::nullopt;
      result.set(*name, std::move(*value));
      skip();
      if (take("}")) return result;
      if (!take(",")) return std::nullopt;
    }
  }

  std::optional<Json> array(int depth) {
    at_++;
    Json result = Json::array();
    skip();
    if (take("]")) return result;
    while (true) {
      auto value = any(depth + 1);
      if (!value) return std::nullopt;
      result.push(std::move(*value));
      skip();
      if (take("]")) return result;
      if (!take(",")) return std::nullopt;
    }
  }

  std::optional<Json> number() {
    const char* begin = text_.data() + at_;
    const char* end = text_.data() + text_.size();
    const char* stop = begin;
    auto have = [&](std::string_view any) { return stop < end && any.find(*stop) != any.npos && ++stop; };
    auto digits = [&] {
      const char* from = stop;
      while (have("0123456789")) {
      }
      return stop - from;
    };
    have("-");
    bool zero = stop < end && *stop == '0';
    if (auto count = digits(); count == 0 || (zero && count > 1)) return std::nullopt;
    bool fraction = have(".");
    if (fraction && digits() == 0) return std::nullopt;
    if (have("eE")) {
      fraction = true;
      have("+-");
      if (digits() == 0) return std::nullopt;
    }
    auto done = [&](auto value) -> std::optional<Json> {
      if (std::from_chars(begin, stop, value).ec != std::errc()) return std::nullopt;
      at_ = size_t(stop - text_.data());
      return Json(value);
    };
    if (fraction) return done(double{});
    if (*begin == '-') return done(int64_t{});
    return done(uint64_t{});
  }

  std::optional<uint32_t> hex4() {
    if (text_.size() - at_ < 4) return std::nullopt;
    uint32_t code = 0;
    auto [rest, error] = std::from_chars(text_.data() + at_, text_.data() + at_ + 4, code, 16);
    if (error != std::errc() || rest != text_.data() + at_ + 4) return std::nullopt;
    at_ += 4;
    return code;
  }

  static void utf8(std::string& out, uint32_t code) {
    if (code < 0x80) {
      out += char(code);
    } else if (code < 0x800) {
      out += char(0xc0 | code >> 6);
      out += char(0x80 | (code & 63));
    } else if (code < 0x10000) {
      out += char(0xe0 | code >> 12);
      out += char(0x80 | (code >> 6 & 63));
      out += char(0x80 | (code & 63));
    } else {
      out += char(0xf0 | code >> 18);
      out += char(0x80 | (code >> 12 & 63));
      out += char(0x80 | (code >> 6 & 63));
      out += char(0x80 | (code & 63));
    }
  }

  std::optional<std::string> string() {
    at_++;
    std::string out;
    while (at_ < text_.size()) {
      char c = text_[at_++];
      if (c == '"') return out;
      if (c != '\\') {
        out += c;
        continue;
      }
      if (at_ >= text_.size()) return std::nullopt;
      switch (text_[at_++]) {
        case 'n': out += '\n'; break;
        case 't': out += '\t'; break;
        case 'r': out += '\r'; break;
        case 'b': out += '\b'; break;
        case 'f': out += '\f'; break;
        case '/': out += '/'; break;
        case '\\': out += '\\'; break;
        case '"': out += '"'; break;
        case 'u': {
          auto code = hex4();
          if (!code) return std::nullopt;
          if (*code >= 0xd800 && *code < 0xdc00 && take("\\u")) {
            auto low = hex4();
            if (!low || *low < 0xdc00 || *low > 0xdfff) return std::nullopt;
            code = 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00);
          }
          utf8(out, *code);
          break;
        }
        default: return std::nullopt;
      }
    }
    return std::nullopt;
  }

  std::string_view text_;
  size_t at_ = 0;
};

void writeString(std::string& out, const std::string& text) {
  out += '"';
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace

std::optional<Json> Json::parse(std::string_view text) { return Parser(text).whole(); }

std::string Json::dump() const {
  std::string out;
  write(out);
  return out;
}

void Json::write(std::string& out) const {
  if (isNull()) {
    out += "null";
  } else if (auto* truth = std::get_if<bool>(&value_)) {
    out += *truth ? "true" : "false";
  } else if (auto* natural = std::get_if<uint64_t>(&value_)) {
    out += std::to_string(*natural);
  } else if (auto* integer = std::get_if<int64_t>(&value_)) {
    out += std::to_string(*integer);
  } else if (auto* real = std::get_if<double>(&value_)) {
    char text[32];
    std::string_view digits(text, size_t(std::to_chars(text, text + sizeof text, *real).ptr - text));
    out += digits;
    // Without a fraction it would be parsed as an integer.
    if (digits.find_first_of(".e") == digits.npos) out += ".0";
  } else if (auto* text = std::get_if<std::string>(&value_)) {
    writeString(out, *text);
  } else if (isArray()) {
    out += '[';
    for (const char* comma = ""; const auto& item : items()) {
      out += comma;
      item.write(out);
      comma = ",";
    }
    out += ']';
  } else {
    out += '{';
    for (const char* comma = ""; const auto& [name, member] : members()) {
      out += comma;
      writeString(out, name);
      out += ':';
      member.write(out);
      comma = ",";
    }
    out += '}';
  }
}

const Json& Json::operator[](std::string_view name) const {
  auto found = members().find(name);
  return found == members().end() ? nullJson : found->second;
}
const Json::Array& Json::items() const { return isArray() ? std::get<Array>(value_) : noItems; }
const Json::Object& Json::members() const { return isObject() ? std::get<Object>(value_) : noMembers; }
std::string Json::text(std::string_view otherwise) const { return isString() ? std::get<std::string>(value_) : std::string(otherwise); }

std::optional<uint64_t> Json::number() const {
  if (auto* natural = std::get_if<uint64_t>(&value_)) return *natural;
  if (auto* integer = std::get_if<int64_t>(&value_); integer != nullptr && *integer >= 0) return uint64_t(*integer);
  return std::nullopt;
}

}  // namespace svc
