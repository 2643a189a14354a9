// Reports over the whole index, each in one pass over its blocks.
#include "report.h"

#include <algorithm>

#include "query.h"

namespace svc {
namespace {

std::string hex(u64 value) {
  constexpr char digits[] = "0123456789abcdef";
  std::string out(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4) out[static_cast<std::size_t>(i)] = digits[value & 15];
  return out;
}

// The maximum number of blocks that a page looks at, since those of one namespace may be few among many.
constexpr u32 mostLooked = 1 << 20;
// A page ends after the entry that reaches this size.
constexpr std::size_t mostPageBytes = 1 << 20;

template <typename Each>
void eachStream(const HolderSets::Set& set, Each visit) {
  for (u32 word = 0; word < set.bits.size(); ++word)
    for (u64 left = set.bits[word]; left != 0; left &= left - 1) visit(word * 64 + static_cast<u32>(std::countr_zero(left)));
}

// Sums are made per set first: a block belongs to one set, a set to many streams.
std::vector<Tally> tallySets(const Index& index) {
  std::vector<Tally> sets(index.sets().size());
  const BlockArena& arena = index.arena();
  for (u32 block = BlockArena::pageBlocks; block < arena.end(); ++block) {
    const u32 set = arena.holders[block];
    if (set == HolderSets::none) continue;
    ++sets[set].blocks;
    sets[set].digest += mix(arena.sequence[block] ^ index.spaces()[index.sets()[set].space].seed);
  }
  return sets;
}

}  // namespace

std::vector<Tally> tallyStreams(const Index& index) {
  std::vector<Tally> streams(index.streams().size());
  const std::vector<Tally> sets = tallySets(index);
  for (u32 set = 1; set < sets.size(); ++set) {
    if (sets[set].blocks == 0) continue;
    eachStream(index.sets()[set], [&](u32 stream) {
      streams[stream].blocks += sets[set].blocks;
      streams[stream].digest += sets[set].digest;
    });
  }
  return streams;
}

std::string describeSpaces(const Index& index, u32 cursor, u32 limit) {
  // The namespaces of the page in order, and the position of each in it.
  std::vector<u32> shown;
  std::vector<u32> places(index.spaces().size(), ~0u);
  u64 live = 0;
  for (u32 id = 0; id < index.spaces().size(); ++id) {
    if (!index.spaces()[id].live || live++ < cursor || shown.size() == limit) continue;
    places[id] = static_cast<u32>(shown.size());
    shown.push_back(id);
  }
  std::vector<u64> blocks(shown.size());
  std::vector<HolderSets::Set> streams(shown.size());
  for (u32 set = 1; set < index.sets().size(); ++set) {
    const auto& known = index.sets()[set];
    const u32 count = index.sets().blocksOf(set), place = count == 0 || known.empty() ? ~0u : places[known.space];
    if (place == ~0u) continue;
    blocks[place] += count;
    std::vector<u64>& bits = streams[place].bits;
    bits.resize(std::max(bits.size(), known.bits.size()));
    for (std::size_t word = 0; word < known.bits.size(); ++word) bits[word] |= known.bits[word];
  }
  std::string out = "{\"count\":" + std::to_string(live) + ",\"spaces\":[";
  u32 given = 0;
  for (; given < shown.size() && out.size() < mostPageBytes; ++given) {
    const Namespace& space = index.spaces()[shown[given]];
    if (given > 0) out.push_back(',');
    out.append("{\"space\":").append(std::to_string(shown[given])).append(",\"tenant\":").append(jsonText(space.tenant));
    out.append(",\"model\":").append(jsonText(space.model)).append(",\"lora\":").append(jsonText(space.lora));
    out.append(",\"salt\":").append(jsonText(space.salt)).append(",\"pairs\":").append(space.ahead == 1 ? "true" : "false");
    out.append(",\"block_size\":").append(std::to_string(space.blockSize)).append(",\"blocks\":").append(std::to_string(blocks[given])).append(",\"streams\":[");
    bool first = true;
    eachStream(streams[given], [&](u32 stream) {
      if (!first) out.push_back(',');
      first = false;
      out.append(std::to_string(stream));
    });
    out.append("]}");
  }
  return out.append("],\"next\":").append(cursor + given < live ? std::to_string(cursor + given) : "null").append("}");
}

std::string pageBlocks(const Index& index, u32 cursor, u32 limit, std::int64_t space) {
  const BlockArena& arena = index.arena();
  std::string out = "{\"blocks\":[";
  u32 block = std::max(cursor, BlockArena::pageBlocks), given = 0;
  const u32 until = std::min(arena.end(), block + mostLooked);
  for (; block < until && given < limit && out.size() < mostPageBytes; ++block) {
    const auto& set = index.sets()[arena.holders[block]];
    if (arena.holders[block] == HolderSets::none || set.empty() || (space >= 0 && set.space != space)) continue;
    if (given++ > 0) out.push_back(',');
    out.append("{\"space\":").append(std::to_string(set.space)).append(",\"hash\":\"").append(std::to_string(arena.sequence[block])).append("\",\"streams\":[");
    bool first = true;
    eachStream(set, [&](u32 stream) {
      if (!first) out.push_back(',');
      first = false;
      out.append(std::to_string(stream));
    });
    out.append("]}");
  }
  return out.append("],\"next\":").append(block < arena.end() ? std::to_string(block) : "null").append("}");
}

std::string describeStreams(const Index& index) {
  std::string out = "[";
  for (u32 id = 0; id < index.streams().size(); ++id) {
    const Stream& stream = index.streams()[id];
    if (!stream.active) continue;
    if (out.size() > 1) out.push_back(',');
    out.append("{\"stream\":").append(std::to_string(id)).append(",\"subscription\":").append(std::to_string(stream.subscription));
    out.append(",\"backend\":").append(jsonText(stream.backend)).append(",\"medium\":").append(jsonText(index.media()[stream.medium]));
    out.append(",\"rank\":").append(std::to_string(stream.rank));
    if (stream.group != 0) out.append(",\"group\":").append(std::to_string(stream.group));
    if (!stream.owner.empty()) out.append(",\"owner\":").append(jsonText(stream.owner));
    if (stream.isUncertain) out.append(",\"uncertain\":true");
    if (stream.shard != 0) out.append(",\"shard\":\"").append(stream.shard == Stream::wholeShard ? "all" : hex(stream.shard)).append("\"");
    out.push_back('}');
  }
  return out.append("]");
}

std::string describeGroups(const Subscription& sub) {
  constexpr const char* kinds[] = {"whole", "window", "chunk", "state", "unsaid", "unknown"};
  std::string out = "[";
  for (const CacheGroup& group : sub.groups) {
    if (out.size() > 1) out.push_back(',');
    out.append("{\"rank\":").append(std::to_string(group.rank)).append(",\"group\":").append(std::to_string(group.index));
    out.append(",\"needs\":\"").append(kinds[static_cast<u8>(group.kind)]).append("\",\"kind\":").append(jsonText(group.word));
    out.append(",\"window\":").append(std::to_string(group.window)).append(",\"block_size\":").append(std::to_string(group.otherBlockSize)).append("}");
  }
  return out.append("]");
}

std::string describeTally(const Index& index) {
  const std::vector<Tally> tally = tallyStreams(index);
  std::string out = "[";
  for (u32 id = 0; id < index.streams().size(); ++id) {
    if (!index.streams()[id].active) continue;
    if (out.size() > 1) out.push_back(',');
    out.append("{\"stream\":").append(std::to_string(id)).append(",\"blocks\":").append(std::to_string(tally[id].blocks));
    out.append(",\"digest\":\"").append(hex(tally[id].digest)).append("\"}");
  }
  return out.append("]");
}

}  // namespace svc
