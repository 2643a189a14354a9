// Prefix matching: which instance has how much of a prompt, per medium and per data-parallel rank.
#pragma once
#include <functional>
#include <map>
#include <unordered_set>

#include "index.h"

namespace svc {

struct Request {
  Namespace space;
  std::string_view instance;  // empty: all
  const u32* tokens = nullptr;
  u64 tokenCount = 0;
  const u64* hashes = nullptr;
  u64 hashCount = 0;
};

// By rank, the subscription that says how fresh it is.
using Publishers = std::map<u32, u32>;

// The rows of one namespace's answers, and for each figure in them the streams that count for it.
struct View {
  struct Rank {
    u32 rank = 0;
    u32 mask = 0;  // all media of the rank and the shared stores
  };
  struct Medium {
    std::string name, key;  // `key`: as it stands in JSON
    std::vector<u32> masks;  // one per rank
  };
  struct Row {
    std::string instance, key;
    std::vector<Rank> ranks;
    std::vector<Medium> media;
    Publishers publishers;
  };
  // Where a mask has bits: most have one stream, among thousands of others.
  struct Span {
    u32 from = 0, to = 0;
  };
  u64 version = 0;
  u64 serial = 0;  // of all that were built
  std::int64_t plain = -1, pairs = -1;  // the namespaces that it is of; -1 where no event has named them
  std::vector<Row> rows;
  u32 words = 0, masks = 0;
  std::vector<u64> bits;  // masks × words
  std::vector<Span> spans;
  u64 bytes() const;
};

enum class Form : u8 { Json, Packed };

// How fresh each subscription is, by its number: the fields of src/freshness.ts in their order. NaN: unknown.
enum FreshnessField : u8 { LastSequence, LagMs, AgeMs, HasGap, IsComplete, Source, IsConnected, freshnessFields };
inline constexpr const char* freshnessSources[] = {"none", "event", "replay", "snapshot"};
struct FreshnessTable {
  const double* rows = nullptr;
  std::size_t subscriptions = 0;
};

class Query {
 public:
  explicit Query(Index& index) : index_(index) {}

  // Matches, and writes the answer: {tenant: {instance: {longest_matched, GPU, CPU, DISK, DP, freshness?}}}.
  std::string_view answer(const Request& request, Form form = Form::Json, const FreshnessTable* freshness = nullptr);
  // The matched blocks per mask of the view, for measuring.
  const u32* match(const Request& request, const View& view);
  const View& view(const Namespace& space);
  // The standard's rolling hashes of the complete blocks.
  void sequences(const Request& request, bool pairs, std::vector<u64>& out) const;

  struct Totals {
    u64 queries = 0, askedBlocks = 0, matchedBlocks = 0;
  };
  const Totals& totals() const { return totals_; }

 private:
  static constexpr std::size_t maxViews = 4096, maxUnnamed = 64;
  static constexpr u64 maxViewBytes = 64 << 20;  // of all; with very many publishers one has megabytes
  // The masks that a set of holders has: of those that prompts began with last.
  struct First {
    u64 view = 0;
    std::vector<u64> bits;
    std::vector<u32> alive;
  };
  View build(const Namespace& space);
  const View& unnamed(const Namespace& space);
  // In its place, or all others are forgotten for it.
  View& keep(View& slot, View fresh, const std::function<View&()>& anew);
  void forgetViews();
  Publishers publishersOf(std::string_view tenant, std::string_view instance) const;
  void walk(u32 space, const Request& request, bool pairs, u64 localSeed, const View& view, u32* lengths);
  template <typename Out>
  void write(Out out, const View& view, const Request& request, const FreshnessTable* freshness);
  template <typename Out>
  void writeRow(Out& out, const View::Row& row, u32 blockSize, const FreshnessTable* freshness);

  Index& index_;
  std::map<u32, View> views_;
  // Of namespaces that no event has named, by what tells them apart: salts and adapters that nobody is registered for are alike.
  std::unordered_map<std::string, View> unnamed_;
  std::unordered_set<std::string> registeredSalts_, registeredLoras_;
  u64 unnamedVersion_ = 0, viewBytes_ = 0;
  std::vector<u32> lengths_, best_, alive_;
  std::array<First, 64> firsts_;
  u64 builds_ = 0;
  std::string text_;
  Totals totals_;
};

// A JSON string's inside for `text`, with its quotes.
std::string jsonText(std::string_view text);

}  // namespace svc
