// Decides which rows an answer has, and which streams count for each number in it.
#include <algorithm>

#include "masks.h"

namespace svc {
namespace {

bool registeredFor(const Subscription& sub, const Namespace& space) {
  return sub.tenant == space.tenant && sub.model == space.model && sub.blockSize == space.blockSize && (sub.lora.empty() || "n:" + sub.lora == space.lora) &&
         (sub.salt.empty() || sub.salt == registeredSalt(space.salt) || sub.salt == space.salt);
}

// Returns the namespaces that differ only in the lookahead tokens hashed with each block.
std::vector<std::pair<u32, u32>> siblingsOf(const Index& index, const Namespace& space) {
  std::vector<std::pair<u32, u32>> found;
  for (u32 left = index.aheads(); left != 0; left &= left - 1) {
    Namespace like = space;
    like.ahead = static_cast<u32>(std::countr_zero(left));
    if (const std::int64_t id = index.findSpace(like); id >= 0) found.emplace_back(like.ahead, static_cast<u32>(id));
  }
  return found;
}

// Returns the groups of an instance's rank, from all of its publishers.
std::vector<CacheGroup> groupsOf(const std::deque<Subscription>& subs, const std::vector<u32>& members, u32 rank) {
  std::vector<CacheGroup> found;
  for (const u32 id : members)
    for (const CacheGroup& group : subs[id].groups) {
      const bool isKnown = std::any_of(found.begin(), found.end(), [&](const CacheGroup& other) { return other.index == group.index; });
      if (group.rank == rank && !isKnown) found.push_back(group);
    }
  return found;
}

// True if a store's keys have engines' hashes, so that it says itself which blocks engines have put into it.
bool speaksForEngines(const Index& index, const Subscription& sub) {
  return sub.kind == PublisherKind::Store && std::any_of(sub.streams.begin(), sub.streams.end(), [&](u32 stream) { return index.streams()[stream].owner == sharedStore; });
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

u64 View::bytes() const {
  u64 sum = sizeof(View) + bits.size() * sizeof(u64);
  for (const Row& row : rows) sum += sizeof(Row) + 2 * row.instance.size() + row.ranks.size() * sizeof(Rank) + row.media.size() * (sizeof(Medium) + 16) + row.publishers.size() * 48;
  for (const Fine& one : fine) sum += sizeof(Fine) + one.parts.size() * sizeof(Part);
  return sum + spans.size() * sizeof(Span) + partBits.size() * sizeof(u64);
}

const View& Query::view(const Namespace& space) {
  std::int64_t id = index_.findSpace(space);
  for (const auto& [_, other] : siblingsOf(index_, space))
    if (id < 0) id = other;
  if (id < 0) return unnamed(space);
  View& known = views_[static_cast<u32>(id)];
  if (known.version == index_.version()) return known;
  return keep(known, build(space), [&]() -> View& { return views_[static_cast<u32>(id)]; });
}

// The rows depend only on registrations, and on a salt or an adapter only if a registration names it.
const View& Query::unnamed(const Namespace& space) {
  if (unnamedVersion_ != index_.version()) {
    registeredSalts_.clear();
    registeredLoras_.clear();
    for (const Subscription& sub : index_.subscriptions()) {
      if (!sub.active) continue;
      registeredSalts_.insert(sub.salt);
      registeredLoras_.insert(std::string("n:").append(sub.lora));
    }
    unnamedVersion_ = index_.version();
  }
  Namespace like = space;
  // A salt that a request added to its engine's leaves the rows of that engine.
  if (!registeredSalts_.contains(like.salt)) like.salt = std::string(registeredSalt(like.salt));
  if (!registeredSalts_.contains(like.salt)) like.salt.clear();
  if (!registeredLoras_.contains(like.lora)) like.lora.clear();
  const std::string key = spaceKey(like);
  if (unnamed_.size() > maxUnnamed && !unnamed_.contains(key)) forgetViews();
  View& known = unnamed_[key];
  if (known.version == index_.version()) return known;
  View fresh = build(like);
  // Only the rows are shared: the namespace without the salt may have blocks of its own.
  fresh.plain = -1;
  fresh.aheads.clear();
  return keep(known, std::move(fresh), [&]() -> View& { return unnamed_[key]; });
}

void Query::forgetViews() {
  views_.clear();
  unnamed_.clear();
  viewBytes_ = 0;
}

View& Query::keep(View& slot, View fresh, const std::function<View&()>& makeSlot) {
  const u64 bytes = fresh.bytes();
  viewBytes_ -= slot.version == 0 ? 0 : slot.bytes();
  if (viewBytes_ + bytes > maxViewBytes || views_.size() > maxViews) {
    forgetViews();
    viewBytes_ = bytes;
    return makeSlot() = std::move(fresh);
  }
  viewBytes_ += bytes;
  return slot = std::move(fresh);
}

Publishers Query::publishersOf(std::string_view tenant, std::string_view instance) const {
  Publishers found;
  const auto& subs = index_.subscriptions();
  // If several publishers serve a rank, the one registered for that rank comes before one that serves all ranks, and an engine before a cache
  // that was registered as a part of the same instance.
  for (const bool own : {true, false})
    for (const PublisherKind kind : {PublisherKind::Engine, PublisherKind::Store})
      for (u32 i = 0; i < subs.size(); ++i) {
        if (!subs[i].active || subs[i].kind != kind || subs[i].instance != instance || (subs[i].tenant != tenant && kind != PublisherKind::Store)) continue;
        if (own) found.try_emplace(subs[i].rank, i);
        else
          for (const u32 stream : subs[i].streams) found.try_emplace(index_.streams()[stream].rank, i);
      }
  return found;
}

View Query::build(const Namespace& like) {
  View view;
  view.serial = ++builds_;
  view.version = index_.version();
  const auto& streams = index_.streams();
  const auto& subs = index_.subscriptions();
  view.words = static_cast<u32>((streams.size() + 63) / 64);
  view.aheads = siblingsOf(index_, like);
  std::vector<std::int64_t> spaces{view.plain = index_.findSpace(like)};
  for (const auto& [_, space] : view.aheads) spaces.push_back(space);
  Masks masks(index_, view, spaces);

  std::map<std::string, std::vector<u32>> instances;
  std::unordered_set<std::string_view> engines;
  bool isShared = false;
  const u64 scope = scopeSeed(like.tenant, like.model, like.blockSize);
  for (const Subscription& sub : subs) {
    if (!sub.active) continue;
    if (sub.kind == PublisherKind::Engine && sub.tenant == like.tenant) engines.insert(sub.instance);
    isShared |= sub.scope == scope && speaksForEngines(index_, sub);
  }
  // A cache that was registered under the name of an engine's instance serves that instance alone; any other store serves all engines.
  const auto isBeside = [&](u32 id) { return subs[id].kind == PublisherKind::Store && engines.contains(subs[id].instance); };
  std::vector<u32> shared;
  for (u32 i = 0; i < subs.size(); ++i) {
    if (!subs[i].active) continue;
    if (subs[i].kind == PublisherKind::Store && !subs[i].dead && !isBeside(i))
      for (const u32 stream : subs[i].streams)
        if (masks.counts(stream)) shared.push_back(stream);
    bool gave = false;
    for (const std::int64_t space : spaces) gave |= space >= 0 && subs[i].spaces.contains(static_cast<u32>(space));
    if (gave || registeredFor(subs[i], like)) instances[subs[i].instance].push_back(i);
  }
  // This is `publishersOf` for all instances at once.
  std::unordered_map<std::string_view, Publishers> publishers;
  for (const bool own : {true, false})
    for (const PublisherKind kind : {PublisherKind::Engine, PublisherKind::Store})
      for (u32 i = 0; i < subs.size(); ++i) {
        if (!subs[i].active || subs[i].kind != kind || (subs[i].tenant != like.tenant && kind != PublisherKind::Store)) continue;
        Publishers& of = publishers[subs[i].instance];
        if (own) of.try_emplace(subs[i].rank, i);
        else
          for (const u32 stream : subs[i].streams) of.try_emplace(streams[stream].rank, i);
      }

  for (const auto& [instance, members] : instances) {
    const bool isStore = std::all_of(members.begin(), members.end(), [&](u32 id) { return subs[id].kind == PublisherKind::Store; });
    std::map<u32, bool> ranks;
    std::vector<bool> media(index_.media().size());
    std::vector<u32> own, beside;
    for (const u32 id : members) {
      // A cache that was registered under an engine's instance serves all ranks of that engine.
      const bool ofAll = !isStore && subs[id].kind == PublisherKind::Store;
      if (!ofAll) ranks[subs[id].rank] = true;
      for (const u32 stream : subs[id].streams) {
        if (!ofAll) ranks[streams[stream].rank] = true;
        media[streams[stream].medium] = true;
        // An engine does not learn that the shared store evicted a block, so for these blocks only the store's own events count.
        if (isShared && subs[id].kind == PublisherKind::Engine && streams[stream].owner == sharedStore) continue;
        if (masks.counts(stream) && !subs[id].dead) (ofAll ? beside : own).push_back(stream);
      }
    }
    // Returns the counting streams of a rank, and of a medium if one is given.
    const auto counting = [&](u32 rank, std::int64_t medium) {
      std::vector<u32> found, stores;
      const auto fits = [&](u32 stream) { return medium < 0 || streams[stream].medium == medium; };
      for (const u32 stream : own)
        if (streams[stream].rank == rank && fits(stream)) found.push_back(stream);
      for (const u32 stream : beside)
        if (fits(stream)) stores.push_back(stream);
      if (!isStore && (medium < 0 || isSharedMedium(index_.media()[static_cast<std::size_t>(medium)])))
        for (const u32 stream : shared)
          if (fits(stream)) stores.push_back(stream);
      const std::vector<CacheGroup> groups = isStore ? std::vector<CacheGroup>() : groupsOf(subs, members, rank);
      const bool isApart = groups.size() > 1;
      // vLLM loads from a store what all groups have there from the prompt's beginning on: its own blocks and the store's do not add up.
      if (isApart) std::erase_if(stores, [&](u32 stream) { return !masks.namesGroup(stream); });
      else found.insert(found.end(), stores.begin(), stores.end());
      View::Rank counted{rank, masks.of(found, groups), 0};
      counted.stored = isApart && !stores.empty() ? masks.of(stores, groups) : counted.mask;
      return counted;
    };
    View::Row row;
    row.instance = instance;
    row.key = jsonText(instance);
    row.publishers = publishers[instance];
    for (const auto& [rank, _] : ranks) row.ranks.push_back(counting(rank, -1));
    for (u16 medium = 0; medium < media.size(); ++medium) {
      if (medium > 2 && !media[medium]) continue;
      View::Medium counted;
      counted.name = index_.media()[medium];
      counted.key = jsonText(counted.name);
      for (const auto& [rank, _] : ranks) {
        const View::Rank both = counting(rank, medium);
        counted.masks.push_back(both.mask);
        if (both.stored != both.mask) counted.masks.push_back(both.stored);
      }
      row.media.push_back(std::move(counted));
    }
    view.rows.push_back(std::move(row));
  }
  return view;
}

}  // namespace svc
