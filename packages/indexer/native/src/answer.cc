// Writes the answer to a query as JSON or msgpack: a row per instance, with its freshness on request.
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "query.h"

namespace svc {
namespace {

class JsonOut {
 public:
  explicit JsonOut(std::string& out) : out_(out) {}
  void open(std::size_t) { out_.push_back('{'); }
  void close() { out_.push_back('}'); }
  void key(std::string_view, std::string_view quoted) {
    if (out_.back() != '{') out_.push_back(',');
    out_.append(quoted).push_back(':');
  }
  // `plain` needs no escapes.
  void key(std::string_view plain) {
    if (out_.back() != '{') out_.push_back(',');
    out_.append("\"").append(plain).append("\":");
  }
  void number(u64 value) {
    char digits[20];
    out_.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  }
  void text(std::string_view plain) { out_.append("\"").append(plain).append("\""); }
  void nothing() { out_.append("null"); }
  void flag(bool value) { out_.append(value ? "true" : "false"); }

 private:
  std::string& out_;
};

class PackedOut {
 public:
  explicit PackedOut(std::string& out) : out_(out) {}
  void open(std::size_t members) {
    if (members < 16) tag(0x80 | members);
    else if (members < 0x10000) tag(0xde), big(members, 2);
    else tag(0xdf), big(members, 4);
  }
  void close() {}
  void key(std::string_view name, std::string_view) { text(name); }
  void key(std::string_view plain) { text(plain); }
  void number(u64 value) {
    if (value < 0x80) tag(value);
    else if (value < 0x100) tag(0xcc), big(value, 1);
    else if (value < 0x10000) tag(0xcd), big(value, 2);
    else if (value <= 0xffffffff) tag(0xce), big(value, 4);
    // Many readers decode a 64-bit integer to a type that is not a number, so it is sent as a double.
    else tag(0xcb), big(std::bit_cast<u64>(static_cast<double>(value)), 8);
  }
  void text(std::string_view value) {
    if (value.size() < 32) tag(0xa0 | value.size());
    else if (value.size() < 0x100) tag(0xd9), big(value.size(), 1);
    else if (value.size() < 0x10000) tag(0xda), big(value.size(), 2);
    else tag(0xdb), big(value.size(), 4);
    out_.append(value);
  }
  void nothing() { tag(0xc0); }
  void flag(bool value) { tag(value ? 0xc3 : 0xc2); }

 private:
  void tag(u64 value) { out_.push_back(static_cast<char>(value)); }
  void big(u64 value, int size) {
    for (int i = size - 1; i >= 0; --i) out_.push_back(static_cast<char>(value >> (8 * i)));
  }
  std::string& out_;
};

template <typename Out>
void writeFreshness(Out& out, const Index& index, const Publishers& publishers, const FreshnessTable& table) {
  const auto rowOf = [&](u32 subscription) { return table.rows + static_cast<std::size_t>(subscription) * freshnessFields; };
  // A subscription that is being registered or removed is not in the table.
  const auto isKnown = [&](u32 subscription) { return subscription < table.subscriptions && !std::isnan(rowOf(subscription)[IsConnected]); };
  std::size_t known = 0;
  for (const auto& [_, subscription] : publishers) known += isKnown(subscription) ? 1 : 0;
  out.open(known);
  for (const auto& [rank, subscription] : publishers) {
    if (!isKnown(subscription)) continue;
    const double* row = rowOf(subscription);
    const auto number = [&](const char* name, FreshnessField field) {
      out.key(name);
      if (std::isnan(row[field])) out.nothing();
      else out.number(static_cast<u64>(row[field]));
    };
    const auto flag = [&](const char* name, FreshnessField field, bool also = true) {
      out.key(name);
      out.flag(row[field] != 0 && also);
    };
    out.key(std::to_string(rank));
    out.open(freshnessFields + 2);
    number("last_sequence", LastSequence);
    number("lag_ms", LagMs);
    number("age_ms", AgeMs);
    flag("gap", HasGap);
    flag("complete", IsComplete, !index.subscriptions()[subscription].evicted);
    out.key("source");
    out.text(row[Source] >= 0 && row[Source] < std::size(freshnessSources) ? freshnessSources[static_cast<std::size_t>(row[Source])] : freshnessSources[0]);
    flag("connected", IsConnected);
    out.key("state");
    out.text(index.subscriptions()[subscription].dead ? "dead" : row[IsConnected] != 0 ? "live" : "disconnected");
    out.key("uncertain");
    out.flag(index.hasUncertain(subscription));
    out.close();
  }
  out.close();
}

}  // namespace

std::string_view Query::answer(const Request& request, Form form, const FreshnessTable* freshness) {
  const View& view = this->view(request.space);
  match(request, view);
  text_.clear();
  if (form == Form::Json) write(JsonOut(text_), view, request, freshness);
  else write(PackedOut(text_), view, request, freshness);
  ++totals_.queries;
  totals_.askedBlocks += request.hashes != nullptr ? request.hashCount : request.tokenCount / request.space.blockSize;
  return text_;
}

template <typename Out>
void Query::write(Out out, const View& view, const Request& request, const FreshnessTable* freshness) {
  const auto asked = [&](const View::Row& row) { return request.instance.empty() || row.instance == request.instance; };
  std::size_t rows = 0;
  for (const View::Row& row : view.rows) rows += asked(row) ? 1 : 0;
  // An instance that is not registered has no blocks, and its row says so.
  const bool unknown = rows == 0 && !request.instance.empty();
  out.open(1);
  out.key(request.space.tenant, jsonText(request.space.tenant));
  out.open(unknown ? 1 : rows);
  for (const View::Row& row : view.rows)
    if (asked(row)) writeRow(out, row, request.space.blockSize, freshness);
  if (unknown) {
    out.key(request.instance, jsonText(request.instance));
    out.open(freshness == nullptr ? 5 : 6);
    for (const char* name : {"longest_matched", "GPU", "CPU", "DISK"}) out.key(name), out.number(0);
    out.key("DP");
    out.open(0);
    out.close();
    if (freshness != nullptr) out.key("freshness"), writeFreshness(out, index_, publishersOf(request.space.tenant, request.instance), *freshness);
    out.close();
  }
  out.close();
  out.close();
}

// Writes the tokens beyond the certain ones.
template <typename Out>
void Query::writeUncertain(Out& out, const View::Row& row, u32 blockSize) {
  u32 longest = 0, reach = 0;
  for (const auto& rank : row.ranks) longest = std::max(longest, lengthOf(rank)), reach = std::max(reach, reachOf(rank));
  out.key("uncertain");
  out.open(2);
  out.key("longest_matched");
  out.number(static_cast<u64>(reach - longest) * blockSize);
  out.key("DP");
  out.open(row.ranks.size());
  for (const auto& rank : row.ranks) {
    out.key(std::to_string(rank.rank));
    out.number(static_cast<u64>(reachOf(rank) - lengthOf(rank)) * blockSize);
  }
  out.close();
  out.close();
}

template <typename Out>
void Query::writeRow(Out& out, const View::Row& row, u32 blockSize, const FreshnessTable* freshness) {
  u32 longest = 0;
  for (const auto& rank : row.ranks) longest = std::max(longest, lengthOf(rank));
  totals_.matchedBlocks += longest;
  out.key(row.instance, row.key);
  const bool isUncertain = !reach_.empty() && hasUncertain(row);
  out.open(2 + row.media.size() + (isUncertain ? 1 : 0) + (freshness == nullptr ? 0 : 1));
  out.key("longest_matched");
  out.number(static_cast<u64>(longest) * blockSize);
  for (const auto& medium : row.media) {
    u32 best = 0;
    for (u32 mask : medium.masks) best = std::max(best, lengths_[mask]);
    out.key(medium.name, medium.key);
    out.number(static_cast<u64>(best) * blockSize);
  }
  out.key("DP");
  out.open(row.ranks.size());
  for (const auto& rank : row.ranks) {
    char digits[10];
    out.key({digits, static_cast<std::size_t>(std::to_chars(digits, digits + sizeof digits, rank.rank).ptr - digits)});
    out.number(static_cast<u64>(lengthOf(rank)) * blockSize);
  }
  out.close();
  if (isUncertain) [[unlikely]] writeUncertain(out, row, blockSize);
  if (freshness != nullptr) out.key("freshness"), writeFreshness(out, index_, row.publishers, *freshness);
  out.close();
}

}  // namespace svc
