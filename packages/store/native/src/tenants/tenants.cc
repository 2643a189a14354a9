// Tenants: their names, their quotas, and evictions among a tenant's own objects. Also the notes that JavaScript keeps.
#include <algorithm>

#include "store.h"

namespace svc {

namespace {
constexpr u32 objectsLookedAt = 4'096, attempts = 2;
}

u16 Store::tenantOf(std::string_view name) const {
  if (!settings.multiTenant) return 0;
  const auto found = tenantByName_.find(name.empty() ? "default" : std::string(name));
  return found == tenantByName_.end() ? noTenant : found->second;
}

u16 Store::addTenant(std::string_view name) {
  const auto [found, fresh] = tenantByName_.try_emplace(std::string(name), static_cast<u16>(tenants.size()));
  if (!fresh) return found->second;
  if (tenants.size() >= noTenant) {
    tenantByName_.erase(found);
    return noTenant;
  }
  tenants.push_back({std::string(name), false, 0, 0});
  journal.tenant(found->second, name);
  return found->second;
}

void Store::setQuota(u16 tenant, bool registered, u64 bytes) {
  assignQuota(tenant, registered, bytes);
  journal.quota(tenant, registered, bytes);
}

void Store::assignQuota(u16 tenant, bool registered, u64 bytes) {
  askedBytes_ += (registered ? bytes : 0) - (tenants[tenant].registered ? tenants[tenant].quota : 0);
  tenants[tenant].registered = registered;
  tenants[tenant].quota = bytes;
}

u64 Store::quotaOf(u16 tenant) const {
  const u64 asked = tenants[tenant].quota;
  if (askedBytes_ <= capacityBytes()) return asked;
  return static_cast<u64>(static_cast<unsigned __int128>(asked) * capacityBytes() / askedBytes_);
}

i32 Store::overQuota(u16 tenant, u64 more, std::string_view key, u32 spared) {
  if (!settings.multiTenant) return code::ok;
  const auto refuse = [&](i32 wrong, Gone why) {
    if (!key.empty()) recent_.note(Recent::hashOf(tenant, key), why, unixMs());
    return wrong;
  };
  if (!tenants[tenant].registered) return refuse(code::tenantUnknown, Gone::tenant);
  const u64 quota = quotaOf(tenant);
  for (u32 attempt = 0; tenants[tenant].charged + more > quota; ++attempt) {
    if (more > quota || attempt == attempts) return refuse(code::tenantQuota, Gone::quota);
    evictOf(tenant, tenants[tenant].charged + more - quota, attempt > 0 && settings.evictSoftPinned, spared);
  }
  return code::ok;
}

// Evicts the least recently read objects that a bounded scan finds; the next scan continues after it.
void Store::evictOf(u16 tenant, u64 bytes, bool pinned, u32 spared) {
  std::vector<std::pair<Tick, u32>> found;
  u32& cursor = tenants[tenant].cursor;
  for (u32 left = std::min(objectsLookedAt, table.end() - 1); left > 0; --left, ++cursor) {
    if (cursor >= table.end()) cursor = 1;
    const Object& object = table[cursor];
    if (object.keyBytes == 0 || object.tenant != tenant || cursor == spared) continue;
    if (mayEvict(object, pinned) && inMemory(cursor) && groupMayGo(object, pinned, spared)) found.push_back({object.lease, cursor});
  }
  std::sort(found.begin(), found.end());
  const u64 before = tenants[tenant].charged;
  for (const auto& [lease, index] : found) {
    if (before - tenants[tenant].charged >= bytes) return;
    // The eviction of a group erases others of the list as well.
    if (table.live(index) && table[index].tenant == tenant) evictWhole(index, Tier::memory);
  }
}

u32 Store::withinQuota(u16 tenant, u64 size, const Placed* placed, u32 count) {
  if (!settings.multiTenant) return count;
  const u64 quota = quotaOf(tenant), charged = tenants[tenant].charged;
  for (; count > 1 && charged + size * count > quota; --count) free(placed[count - 1].segment, placed[count - 1].node);
  return count;
}

void Store::keepNote(u8 kind, const Uuid& id, std::string text) {
  journal.note(kind, id, text);
  notes_[id] = {kind, std::move(text)};
}

void Store::dropNote(const Uuid& id) {
  if (notes_.erase(id) > 0) journal.noteGone(id);
}

}  // namespace svc
