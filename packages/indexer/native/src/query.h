// Prefix matching: how much of a prompt each instance has, per medium and per data-parallel rank.
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

// The subscription that gives a rank its freshness, by rank.
using Publishers = std::map<u32, u32>;

// The rows of one namespace's answers, and for each number in them the streams that count for it.
struct View {
  struct Rank {
    u32 rank = 0;
    u32 mask = 0;  // all media of the rank and the shared stores
    u32 stored = 0;  // the shared stores alone, where groups of the KV cache keep the two apart; else `mask`
  };
  struct Medium {
    std::string name, key;  // `key`: the name as JSON text
    std::vector<u32> masks;  // one per rank, or two as in `Rank`
  };
  struct Row {
    std::string instance, key;
    std::vector<Rank> ranks;
    std::vector<Medium> media;
    Publishers publishers;
  };
  // The words of a mask that have bits: most masks have one stream, among thousands of others.
  struct Span {
    u32 from = 0, to = 0;
  };
  // One group of an engine's KV cache: the streams that hold its blocks, as four masks in `partBits`.
  struct Part {
    GroupKind kind = GroupKind::Whole;
    u32 window = 0;
    u32 bits = 0;
  };
  enum PartMask : u8 { Certain, Proof, Provable, Unverified, partMasks };
  // A number that is not the length of one run of blocks: of an engine with several groups, or with blocks that a loss may have affected.
  struct Fine {
    u32 mask = 0;  // its index among the lengths
    bool isGrouped = false;
    std::vector<Part> parts;
  };
  u64 version = 0;
  u64 serial = 0;  // unique among all views
  std::int64_t plain = -1;  // its namespace; -1 if no event has named it
  std::vector<std::pair<u32, u32>> aheads;  // namespaces whose blocks are hashed with lookahead tokens: how many tokens, and which namespace
  std::vector<Row> rows;
  u32 words = 0, masks = 0;
  std::vector<u64> bits;  // masks × words
  std::vector<Span> spans;
  std::vector<Fine> fine;
  std::vector<u64> partBits;  // parts × partMasks × words
  bool hasCoarse = false;     // some mask is not fine
  bool isSparse = false;      // some fine mask can continue after a block that no stream has
  u64 bytes() const;
};

enum class Form : u8 { Json, Packed };

// The freshness of each subscription by its number: the fields of src/query/freshness.ts in their order. NaN: unknown.
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
  // Returns the matched blocks per mask of the view, for benches.
  const u32* match(const Request& request, const View& view);
  const View& view(const Namespace& space);
  // Computes the standard rolling hashes of the complete blocks.
  void sequences(const Request& request, u32 ahead, std::vector<u64>& out) const;

  struct Totals {
    u64 queries = 0, askedBlocks = 0, matchedBlocks = 0;
  };
  const Totals& totals() const { return totals_; }

 private:
  static constexpr std::size_t maxViews = 4096, maxUnnamed = 64;
  static constexpr u64 maxViewBytes = 64 << 20;  // of all views; with very many publishers a view has megabytes
  // A cache of the masks that a set of holders has, for the sets that recent prompts began with.
  struct First {
    u64 view = 0;
    std::vector<u64> bits;
    std::vector<u32> alive;
  };
  View build(const Namespace& space);
  const View& unnamed(const Namespace& space);
  // Keeps a view in its slot; if all views together are too large, it drops all others and calls `makeSlot` for a new slot.
  View& keep(View& slot, View fresh, const std::function<View&()>& makeSlot);
  void forgetViews();
  Publishers publishersOf(std::string_view tenant, std::string_view instance) const;
  void walk(u32 space, const Request& request, u32 ahead, u64 localSeed, const View& view, u32* lengths);
  // Computes the lengths of the fine masks: as far as they are certain, and as far as they reach if no uncertain block is gone.
  [[gnu::noinline]] void matchAllFine(const Request& request, const View& view, u64 salted);
  void matchFine(u32 space, const Request& request, u32 ahead, u64 localSeed, const View& view);
  template <typename Out>
  void write(Out out, const View& view, const Request& request, const FreshnessTable* freshness);
  bool hasUncertain(const View::Row& row) const;
  template <typename Out>
  [[gnu::noinline, gnu::cold]] void writeUncertain(Out& out, const View::Row& row, u32 blockSize);
  template <typename Out>
  void writeRow(Out& out, const View::Row& row, u32 blockSize, const FreshnessTable* freshness);

  // Includes uncertain blocks; a coarse mask has none.
  u32 reachOf(u32 mask) const { return reach_.empty() ? lengths_[mask] : std::max(reach_[mask], lengths_[mask]); }
  u32 reachOf(const View::Rank& rank) const { return std::max(reachOf(rank.mask), reachOf(rank.stored)); }
  u32 lengthOf(const View::Rank& rank) const { return std::max(lengths_[rank.mask], lengths_[rank.stored]); }

  Index& index_;
  std::map<u32, View> views_;
  // Views of namespaces that no event has named, by their difference: salts and adapters without a registration are alike.
  std::unordered_map<std::string, View> unnamed_;
  std::unordered_set<std::string> registeredSalts_, registeredLoras_;
  u64 unnamedVersion_ = 0, viewBytes_ = 0;
  std::vector<u32> lengths_, reach_, best_, alive_;
  std::array<First, 64> firsts_;
  u64 builds_ = 0;
  std::string text_;
  Totals totals_;
};

// Returns `text` as a JSON string, with its quotes.
std::string jsonText(std::string_view text);

}  // namespace svc
