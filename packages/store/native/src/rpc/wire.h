// The RPC wire format: frames, and the values within a body.
#pragma once
#include <optional>
#include <vector>

#include "base/base.h"

namespace svc {

//  request:  magic u8 21 | version u8 | serialize type u8 | message type u8 | seq u32 | function u32 | body bytes u32 | attachment bytes u32
//  response: magic u8 21 | version u8 | error u8          | message type u8 | seq u32 |                body bytes u32 | attachment bytes u32
//  body:     type hash u32 | metainfo u8 | size (bits 0-1) | literal ... 00 (bit 2) | payload | later fields
//            metainfo bits 0-1: 0 none, or a size of 2, 4, 8 bytes, the whole body's; bits 3-4: width of every length in it
// Fields that a later release adds to a type with the same hash follow the payload; they are ignored.
inline constexpr u8 wireMagic = 21, sizeBits = 3, hasLiteral = 4;
inline constexpr std::size_t requestBytes = 20, responseBytes = 16;

struct Request {
  u32 seq = 0, function = 0, bodyBytes = 0, attachmentBytes = 0;
  static Request of(const char* at) {
    Request request;
    std::memcpy(&request, at + 4, sizeof request);
    return request;
  }
};
static_assert(sizeof(Request) == 16);

class WireReader {
 public:
  WireReader(const char* at, std::size_t size) : begin_(at), at_(at), end_(at + size) {}
  bool failed = false;

  // Returns the type hash; the payload is read next.
  u32 begin() {
    const u32 hash = get<u32>();
    const u8 metainfo = get<u8>();
    width_ = (metainfo >> 3) & 3;
    if (metainfo & sizeBits) {
      const u32 code = metainfo & sizeBits;
      const u64 size = code == 1 ? get<u16>() : code == 2 ? get<u32>() : get<u64>();
      if (size != static_cast<u64>(end_ - begin_)) fail();
    }
    if ((metainfo & hasLiteral) && !failed) {
      const void* zero = std::memchr(at_, 0, static_cast<std::size_t>(end_ - at_));
      if (zero == nullptr) fail();
      else at_ = static_cast<const char*>(zero) + 1;
    }
    return hash;
  }
  template <typename T>
  T get() {
    T value{};
    if (static_cast<std::size_t>(end_ - at_) < sizeof value) {
      fail();
      return value;
    }
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  // Reads a count of items of at least `itemBytes` each; a count that exceeds the rest of the body fails.
  std::size_t length(std::size_t itemBytes) {
    const u64 value = width_ == 0 ? get<u8>() : width_ == 1 ? get<u16>() : width_ == 2 ? get<u32>() : get<u64>();
    if (value > static_cast<u64>(end_ - at_) / itemBytes) {
      fail();
      return 0;
    }
    return static_cast<std::size_t>(value);
  }
  // Reads values in their order, as the generated readers of arguments.h do.
  template <typename... Each>
  void readAll(Each&... each) {
    (read(each), ...);
  }

 private:
  template <typename T>
  void read(T& to) {
    if constexpr (requires { to.read(*this); }) to.read(*this);
    else to = get<T>();
  }
  void read(bool& to) { to = get<u8>() != 0; }
  void read(std::string_view& to) {
    const std::size_t size = length(1);
    at_ += size;
    to = {at_ - size, size};
  }
  template <typename T>
  void read(std::optional<T>& to) {
    if (get<u8>() == 0) to.reset();
    else read(to ? *to : to.emplace());
  }
  // The vector keeps its memory from one call to the next.
  template <typename T>
  void read(std::vector<T>& to) {
    to.resize(length(leastBytes<T>()));
    for (T& each : to) {
      if (failed) return;
      read(each);
    }
  }
  template <typename T>
  static constexpr std::size_t leastBytes() {
    if constexpr (requires { T::leastBytes; }) return T::leastBytes;
    else return std::is_same_v<T, std::string_view> ? 1 : sizeof(T);
  }
  void fail() {
    failed = true;
    at_ = end_;
  }
  const char *begin_, *at_, *end_;
  u32 width_ = 0;
};

class WireWriter {
 public:
  explicit WireWriter(std::string& out) : out_(out) {}

  void frame(u32 seq, u8 error) {
    start_ = out_.size();
    const u8 head[4] = {wireMagic, 0, error, 0};
    out_.append(reinterpret_cast<const char*>(head), sizeof head);
    put(seq);
    put(u64{0});
  }
  // `largest` is the largest length that follows; the literal ends with its zero, or is empty for none.
  void body(u32 hash, std::size_t largest, std::string_view literal) {
    width_ = largest < 0x100 ? 0 : largest < 0x1'0000 ? 1 : 2;
    put(hash);
    put(static_cast<u8>((literal.empty() ? 0 : hasLiteral) | (width_ << 3)));
    out_.append(literal);
  }
  void end() {
    const u32 bytes = static_cast<u32>(out_.size() - start_ - responseBytes);
    std::memcpy(out_.data() + start_ + 8, &bytes, sizeof bytes);
  }
  template <typename T>
  void put(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void length(std::size_t value) {
    if (width_ == 0) put(static_cast<u8>(value));
    else if (width_ == 1) put(static_cast<u16>(value));
    else put(static_cast<u32>(value));
  }
  void text(std::string_view value) {
    length(value.size());
    out_.append(value);
  }
  // Writes a result without a value: done, or the error.
  void done(i32 outcome) {
    put(static_cast<u8>(outcome == 0));
    if (outcome != 0) put(outcome);
  }

 private:
  std::string& out_;
  std::size_t start_ = 0;
  u32 width_ = 0;
};

}  // namespace svc
