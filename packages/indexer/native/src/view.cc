// Which rows an answer has, and which streams count for each figure.
#include <algorithm>

#include "query.h"

namespace svc {
namespace {

bool registeredFor(const Subscription& sub, const Namespace& space) {
  return sub.tenant == space.tenant && sub.model == space.model && sub.blockSize == space.blockSize && (sub.lora.empty() || "n:" + sub.lora == space.lora) &&
         (sub.salt.empty() || sub.salt == space.salt);
}

bool isSharedMedium(const std::string& medium) { return medium == "CPU" || medium == "DISK"; }

}  // namespace

std::string jsonText(std::string_view text) {
  std::string out = "\"";
  for (const char letter : text) {
    const auto code = static_cast<u8>(letter);
    if (letter == '"' || letter == '\\') {
      out.push_back('\\');
      out.push_back(letter);
    } else if (code < 0x20) {
      constexpr char digits[] = "0123456789abcdef";
      out.append("\\u00").push_back(digits[code >> 4]);
      out.push_back(digits[code & 15]);
    } else {
      out.push_back(letter);
    }
  }
  out.push_back('"');
  return out;
}

const View& Query::view(const Namespace& space) {
  Namespace pairs = space;
  pairs.pairs = true;
  std::int64_t id = index_.findSpace(space);
  if (id < 0) id = index_.findSpace(pairs);
  if (id < 0) {
    scratchView_ = build(space);
    return scratchView_;
  }
  View& known = views_[static_cast<u32>(id)];
  if (known.version != index_.version()) {
    if (views_.size() > maxViews) {
      views_.clear();
      return views_[static_cast<u32>(id)] = build(space);
    }
    known = build(space);
  }
  return known;
}

View Query::build(const Namespace& like) const {
  View view;
  view.version = index_.version();
  const auto& streams = index_.streams();
  view.words = static_cast<u32>((streams.size() + 63) / 64);
  Namespace pairs = like;
  pairs.pairs = true;
  const std::int64_t spaces[] = {index_.findSpace(like), index_.findSpace(pairs)};

  std::map<std::vector<u64>, u32> known;
  const auto maskOf = [&](auto counts) {
    std::vector<u64> bits(view.words);
    for (u32 i = 0; i < streams.size(); ++i)
      if (streams[i].counts() && counts(streams[i]) && !index_.isDoubted(i, spaces[0]) && !index_.isDoubted(i, spaces[1])) bits[i / 64] |= 1ull << (i % 64);
    const auto [at, added] = known.try_emplace(bits, view.masks);
    if (added) {
      view.bits.insert(view.bits.end(), bits.begin(), bits.end());
      ++view.masks;
    }
    return at->second;
  };
  const auto& subs = index_.subscriptions();
  const auto shared = [&](const Stream& stream) { return subs[stream.subscription].kind == PublisherKind::Store; };

  std::map<std::string, std::vector<u32>> instances;
  for (u32 i = 0; i < subs.size(); ++i) {
    if (!subs[i].active) continue;
    bool gave = false;
    for (const std::int64_t space : spaces) gave |= space >= 0 && subs[i].spaces.contains(static_cast<u32>(space));
    if (gave || registeredFor(subs[i], like)) instances[subs[i].instance].push_back(i);
  }
  for (const auto& [instance, members] : instances) {
    const auto own = [&](const Stream& stream) { return std::find(members.begin(), members.end(), stream.subscription) != members.end(); };
    const bool isStore = std::all_of(members.begin(), members.end(), [&](u32 id) { return subs[id].kind == PublisherKind::Store; });
    std::map<u32, bool> ranks;
    std::vector<bool> media(index_.media().size());
    for (u32 id : members) ranks[subs[id].rank] = true;
    for (const Stream& stream : streams) {
      if (!stream.active || !own(stream)) continue;
      ranks[stream.rank] = true;
      media[stream.medium] = true;
    }
    View::Row row;
    row.instance = instance;
    row.key = jsonText(instance);
    for (const auto& [rank, _] : ranks)
      row.ranks.push_back({rank, maskOf([&, rank = rank](const Stream& s) { return (own(s) && s.rank == rank) || (!isStore && shared(s)); })});
    for (u16 medium = 0; medium < media.size(); ++medium) {
      if (medium > 2 && !media[medium]) continue;
      View::Medium figure;
      figure.key = jsonText(index_.media()[medium]);
      for (const auto& [rank, _] : ranks)
        figure.masks.push_back(maskOf([&, rank = rank](const Stream& s) {
          if (s.medium != medium) return false;
          return (own(s) && s.rank == rank) || (!isStore && isSharedMedium(index_.media()[medium]) && shared(s));
        }));
      row.media.push_back(std::move(figure));
    }
    view.rows.push_back(std::move(row));
  }
  return view;
}

}  // namespace svc
