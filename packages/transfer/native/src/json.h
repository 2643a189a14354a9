// JSON as Mooncake's formats need it: exact 64-bit integers, sorted keys, limited nesting.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace svc {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::map<std::string, Json, std::less<>>;

  Json() : value_(nullptr) {}
  Json(bool value) : value_(value) {}
  Json(uint64_t value) : value_(value) {}
  Json(int64_t value) : value_(value) {}
  Json(int value) : value_(int64_t(value)) {}
  Json(double value) : value_(value) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}
  static Json array() { return Json(Array{}); }
  static Json object() { return Json(Object{}); }

  /** Returns nothing if the text is not JSON, nests too deeply, or is followed by anything but white space. */
  static std::optional<Json> parse(std::string_view text);
  std::string dump() const;

  bool isObject() const { return std::holds_alternative<Object>(value_); }
  bool isArray() const { return std::holds_alternative<Array>(value_); }
  bool isString() const { return std::holds_alternative<std::string>(value_); }
  /** Returns the member, or null if this is not an object or has no such member. */
  const Json& operator[](std::string_view name) const;
  bool has(std::string_view name) const { return !(*this)[name].isNull(); }
  bool isNull() const { return std::holds_alternative<std::nullptr_t>(value_); }
  /** Returns an empty list if this is not an array or object. */
  const Array& items() const;
  const Object& members() const;
  std::string text(std::string_view otherwise = "") const;
  /** Returns nothing for negative numbers, fractions and other types. */
  std::optional<uint64_t> number() const;
  bool truth() const { return std::holds_alternative<bool>(value_) && std::get<bool>(value_); }

  void set(std::string_view name, Json value) { std::get<Object>(value_).insert_or_assign(std::string(name), std::move(value)); }
  void push(Json value) { std::get<Array>(value_).push_back(std::move(value)); }

 private:
  void write(std::string& out) const;
  std::variant<std::nullptr_t, bool, uint64_t, int64_t, double, std::string, Array, Object> value_;
};

}  // namespace svc
