// Conversions between JavaScript's values and ours: a value of another type throws.
#pragma once
#include <node_api.h>

#include <initializer_list>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/base.h"

namespace svc {

inline void check(napi_status status, const char* what) {
  if (status != napi_ok) throw std::invalid_argument(what);
}

// The names of the numbers that describe a range in a BigUint64Array.
inline constexpr const char* rangeNames[] = {"localAddress", "remoteAddress", "length"};

class Call {
 public:
  // For use outside of a callback, to create values.
  explicit Call(napi_env env) : env(env), count_(0) {}
  Call(napi_env env, napi_callback_info info) : env(env) { check(napi_get_cb_info(env, info, &count_, values_, &self, nullptr), "arguments"); }

  napi_env env;
  napi_value self = nullptr;

  napi_value at(int index) const {
    const auto i = static_cast<std::size_t>(index);
    if (i >= count_) throw std::invalid_argument("too few arguments");
    return values_[i];
  }
  napi_value member(int i, const char* name) const {
    napi_value value = nullptr;
    check(napi_get_named_property(env, at(i), name, &value), name);
    return value;
  }
  double number(napi_value from) const {
    double value = 0;
    check(napi_get_value_double(env, from, &value), "expected a number");
    return value;
  }
  double number(int i) const { return number(at(i)); }
  bool flag(napi_value from) const {
    bool value = false;
    check(napi_get_value_bool(env, from, &value), "expected a boolean");
    return value;
  }
  bool flag(int i) const { return flag(at(i)); }
  u64 bigOf(napi_value from) const {
    u64 value = 0;
    bool lossless = false;
    check(napi_get_value_bigint_uint64(env, from, &value, &lossless), "expected a bigint");
    return value;
  }
  // Reads one byte per character, like the RPC's byte strings.
  std::string bytes(napi_value from) const {
    std::size_t size = 0;
    check(napi_get_value_string_latin1(env, from, nullptr, 0, &size), "expected a string");
    std::string text(size, '\0');
    check(napi_get_value_string_latin1(env, from, text.data(), size + 1, &size), "expected a string");
    return text;
  }
  std::string bytes(int i) const { return bytes(at(i)); }
  std::string_view buffer(int i) const {
    void* data = nullptr;
    std::size_t size = 0;
    check(napi_get_buffer_info(env, at(i), &data, &size), "expected a Buffer");
    return {static_cast<const char*>(data), size};
  }
  std::vector<std::string> list(int i) const {
    u32 length = 0;
    check(napi_get_array_length(env, at(i), &length), "expected an array");
    std::vector<std::string> out;
    for (u32 each = 0; each < length; ++each) {
      napi_value value = nullptr;
      check(napi_get_element(env, at(i), each, &value), "element");
      out.push_back(bytes(value));
    }
    return out;
  }

  napi_value undefined() const {
    napi_value value = nullptr;
    napi_get_undefined(env, &value);
    return value;
  }
  napi_value of(double number) const {
    napi_value value = nullptr;
    check(napi_create_double(env, number, &value), "number");
    return value;
  }
  napi_value of(bool claim) const {
    napi_value value = nullptr;
    check(napi_get_boolean(env, claim, &value), "boolean");
    return value;
  }
  napi_value of(std::string_view text) const {
    napi_value value = nullptr;
    check(napi_create_string_utf8(env, text.data(), text.size(), &value), "string");
    return value;
  }
  napi_value latin1(std::string_view text) const {
    napi_value value = nullptr;
    check(napi_create_string_latin1(env, text.data(), text.size(), &value), "string");
    return value;
  }
  napi_value copied(std::string_view bytes) const {
    napi_value value = nullptr;
    check(napi_create_buffer_copy(env, bytes.size(), bytes.data(), nullptr, &value), "buffer");
    return value;
  }
  napi_value array(std::size_t size) const {
    napi_value value = nullptr;
    check(napi_create_array_with_length(env, size, &value), "array");
    return value;
  }
  napi_value big(u64 number) const {
    napi_value value = nullptr;
    check(napi_create_bigint_uint64(env, number, &value), "bigint");
    return value;
  }
  // Creates an object of these members.
  napi_value record(std::initializer_list<std::pair<const char*, napi_value>> members) const {
    napi_value out = nullptr;
    check(napi_create_object(env, &out), "object");
    for (const auto& [name, value] : members) check(napi_set_named_property(env, out, name, value), name);
    return out;
  }
  // Creates a list of what `make` returns for each item.
  template <typename Items, typename Make>
  napi_value listOf(const Items& items, Make make) const {
    const napi_value out = array(std::size(items));
    for (std::size_t i = 0; i < std::size(items); ++i) set(out, i, make(items[i]));
    return out;
  }
  napi_value numbers(const std::vector<double>& values) const {
    return listOf(values, [&](double value) { return of(value); });
  }
  void set(napi_value array, std::size_t i, napi_value value) const { check(napi_set_element(env, array, static_cast<u32>(i), value), "element"); }

 private:
  std::size_t count_ = 8;
  napi_value values_[8] = {};
};

}  // namespace svc
