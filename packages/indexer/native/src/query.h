// Prefix matching: which instance has how much of a prompt, per medium and per data-parallel rank.
#pragma once
#include <map>
#include <memory>

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

// The rows of one namespace's answers, and for each figure in them the streams that count for it.
struct View {
  struct Rank {
    u32 rank = 0;
    u32 mask = 0;  // all media of the rank and the shared stores
  };
  struct Medium {
    std::string key;  // as it stands in the answer
    std::vector<u32> masks;  // one per rank
  };
  struct Row {
    std::string instance, key;
    std::vector<Rank> ranks;
    std::vector<Medium> media;
  };
  u64 version = 0;
  std::vector<Row> rows;
  u32 words = 0, masks = 0;
  std::vector<u64> bits;  // masks × words
};

class Query {
 public:
  explicit Query(Index& index) : index_(index) {}

  // Matches, and writes the answer as JSON: {tenant: {instance: {longest_matched, GPU, CPU, DISK, DP}}}.
  std::string_view answer(const Request& request);
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
  static constexpr std::size_t maxViews = 4096;
  View build(const Namespace& space) const;
  void walk(u32 space, const Request& request, bool pairs, u64 localSeed, const View& view, u32* lengths);
  void writeRow(const View::Row& row, u32 blockSize);

  Index& index_;
  std::map<u32, View> views_;
  View scratchView_;
  std::vector<u32> lengths_, best_, alive_;
  std::string json_;
  Totals totals_;
};

// A JSON string's inside for `text`, with its quotes.
std::string jsonText(std::string_view text);

}  // namespace svc
