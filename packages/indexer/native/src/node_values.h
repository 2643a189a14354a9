// Converts between JavaScript values and C++ ones: every conversion checks, and a failed one throws to the caller.
#pragma once
#include <node_api.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "hashing.h"

namespace svc {

inline void check(napi_status status, const char* what) {
  if (status != napi_ok) throw std::invalid_argument(what);
}

struct Bytes {
  u8* data = nullptr;
  std::size_t size = 0;
};

class Arguments {
 public:
  static constexpr std::size_t most = 8;
  Arguments(napi_env env, napi_callback_info info) : env(env) { check(napi_get_cb_info(env, info, &count_, values_, &self, nullptr), "arguments"); }

  napi_env env;
  napi_value self = nullptr;

  napi_value at(std::size_t i) const {
    if (i >= count_) throw std::invalid_argument("too few arguments");
    return values_[i];
  }
  bool has(std::size_t i) const { return i < count_; }
  double number(std::size_t i) const { return numberOf(at(i)); }
  u32 index(std::size_t i) const { return static_cast<u32>(number(i)); }
  bool flag(std::size_t i) const {
    bool value = false;
    check(napi_get_value_bool(env, at(i), &value), "expected a boolean");
    return value;
  }
  bool isTypedArray(std::size_t i) const {
    bool is = false;
    check(napi_is_typedarray(env, at(i), &is), "type");
    return is;
  }
  std::string text(std::size_t i) const { return textOf(at(i)); }
  Bytes bytes(std::size_t i) const {
    Bytes out;
    void* data = nullptr;
    check(napi_get_buffer_info(env, at(i), &data, &out.size), "expected a Buffer");
    out.data = static_cast<u8*>(data);
    return out;
  }
  template <typename T>
  T* array(std::size_t i, napi_typedarray_type type, std::size_t& length) const {
    napi_typedarray_type found{};
    void* data = nullptr;
    check(napi_get_typedarray_info(env, at(i), &found, &length, &data, nullptr, nullptr), "expected a typed array");
    if (found != type) throw std::invalid_argument("expected another kind of typed array");
    return static_cast<T*>(data);
  }
  napi_typedarray_type arrayType(std::size_t i) const {
    napi_typedarray_type found{};
    check(napi_get_typedarray_info(env, at(i), &found, nullptr, nullptr, nullptr, nullptr), "expected a typed array");
    return found;
  }
  std::string member(std::size_t i, const char* name) const { return textOf(named(i, name)); }
  // Returns false if there is none.
  bool flagMember(std::size_t i, const char* name) const {
    bool value = false;
    napi_get_value_bool(env, named(i, name), &value);
    return value;
  }
  double numberMember(std::size_t i, const char* name) const { return numberOf(named(i, name)); }

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
  napi_value of(std::string_view text) const {
    napi_value value = nullptr;
    check(napi_create_string_utf8(env, text.data(), text.size(), &value), "string");
    return value;
  }
  napi_value copied(std::string_view bytes) const {
    napi_value value = nullptr;
    check(napi_create_buffer_copy(env, bytes.size(), bytes.data(), nullptr, &value), "buffer");
    return value;
  }
  napi_value list(const std::vector<double>& numbers) const {
    napi_value out = nullptr;
    check(napi_create_array_with_length(env, numbers.size(), &out), "array");
    for (std::size_t i = 0; i < numbers.size(); ++i) check(napi_set_element(env, out, static_cast<u32>(i), of(numbers[i])), "element");
    return out;
  }

 private:
  napi_value named(std::size_t i, const char* name) const {
    napi_value value = nullptr;
    check(napi_get_named_property(env, at(i), name, &value), name);
    return value;
  }
  double numberOf(napi_value from) const {
    double value = 0;
    check(napi_get_value_double(env, from, &value), "expected a number");
    return value;
  }
  std::string textOf(napi_value from) const {
    std::size_t size = 0;
    check(napi_get_value_string_utf8(env, from, nullptr, 0, &size), "expected a string");
    std::string text(size, '\0');
    check(napi_get_value_string_utf8(env, from, text.data(), size + 1, &size), "expected a string");
    return text;
  }

  std::size_t count_ = most;
  napi_value values_[most] = {};
};

}  // namespace svc
