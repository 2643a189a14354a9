// A stored event's extra keys: for each block nil, or the values that its hash covers in addition to the tokens.
#pragma once
#include <vector>

#include "msgpack_reader.h"

namespace svc {

class ExtraKeys {
 public:
  // `root`: the event begins a chain, so its first block may carry the request's salt.
  ExtraKeys(const u8* begin, const u8* end, u64 count, std::string_view lora, bool root) : in_(begin, end), left_(count), lora_(lora), root_(root) {}

  // Appends the keys of the next block that change its content to `content`; returns true if there were any.
  bool next(std::vector<u8>& content, bool first) {
    if (left_ == 0) return false;
    --left_;
    const u8* start = in_.at();
    const Head keys = in_.next();
    if (keys.kind == Kind::Nil) return false;
    if (keys.kind != Kind::Array) {
      content.insert(content.end(), start, in_.at());
      return true;
    }
    bool any = false;
    for (u64 i = 0; i < keys.number; ++i) {
      const u8* from = in_.at();
      if (!in_.skip()) return any;
      if (isLora(from) || (first && root_ && takeSalt(from))) continue;
      content.insert(content.end(), from, in_.at());
      any = true;
    }
    return any;
  }

  std::string_view salt() const { return salt_; }

 private:
  // Newer engines send ("lora", name) and similar pairs, older ones the bare value.
  bool isLora(const u8* from) const {
    MsgpackReader key(from, in_.at());
    const Head head = key.next();
    if (head.kind == Kind::Str) return !lora_.empty() && head.text() == lora_;
    if (head.kind != Kind::Array || head.number < 2) return false;
    const Head tag = key.next();
    return tag.kind == Kind::Str && (tag.text() == "lora" || tag.text() == "lora_name");
  }
  bool takeSalt(const u8* from) {
    MsgpackReader key(from, in_.at());
    Head head = key.next();
    if (head.kind == Kind::Array && head.number == 2) {
      const Head tag = key.next();
      if (tag.kind != Kind::Str || (tag.text() != "salt" && tag.text() != "cache_salt")) return false;
      head = key.next();
    }
    if (head.kind != Kind::Str || !salt_.empty()) return false;
    salt_ = head.text();
    return true;
  }

  MsgpackReader in_;
  u64 left_ = 0;
  std::string_view lora_, salt_;
  bool root_;
};

}  // namespace svc
