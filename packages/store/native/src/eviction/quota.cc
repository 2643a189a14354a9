// Quotas of tenants: what exceeds one evicts the same tenant's objects first.
#include <algorithm>

#include "eviction/eviction.h"

namespace svc {

namespace {
constexpr u32 objectsLookedAt = 4'096, attempts = 2;
}  // namespace

i32 Eviction::overQuota(u16 tenant, u64 more, std::string_view key, u32 spared) {
  if (!settings.multiTenant) return code::ok;
  const auto refuse = [&](i32 wrong, Gone why) {
    if (!key.empty()) objects.recent.note(Recent::hashOf(tenant, key), why, unixMs());
    return wrong;
  };
  if (!tenants[tenant].registered) return refuse(code::tenantUnknown, Gone::tenant);
  const u64 quota = tenants.quotaOf(tenant);
  for (u32 attempt = 0; tenants[tenant].charged + more > quota; ++attempt) {
    if (more > quota || attempt == attempts) return refuse(code::tenantQuota, Gone::quota);
    evictOf(tenant, tenants[tenant].charged + more - quota, attempt > 0 && settings.evictSoftPinned, spared);
  }
  return code::ok;
}

// Evicts the least recently read objects that a bounded scan finds; the next scan continues after it.
void Eviction::evictOf(u16 tenant, u64 bytes, bool pinned, u32 spared) {
  std::vector<std::pair<Tick, u32>> found;
  u32& cursor = tenants[tenant].cursor;
  for (u32 left = std::min(objectsLookedAt, table.end() - 1); left > 0; --left, ++cursor) {
    if (cursor >= table.end()) cursor = 1;
    const Object& object = table[cursor];
    if (object.keyBytes == 0 || object.tenant != tenant || cursor == spared) continue;
    if (mayEvict(object, pinned) && where.inMemory(cursor) && groupMayGo(object, pinned, spared)) found.push_back({object.lease, cursor});
  }
  std::sort(found.begin(), found.end());
  const u64 before = tenants[tenant].charged;
  for (const auto& [lease, index] : found) {
    if (before - tenants[tenant].charged >= bytes) return;
    // The eviction of a group erases others of the list as well.
    if (table.live(index) && table[index].tenant == tenant) evictWhole(index, Tier::memory);
  }
}

u32 Eviction::withinQuota(u16 tenant, u64 size, const Placed* placed, u32 count) {
  if (!settings.multiTenant) return count;
  const u64 quota = tenants.quotaOf(tenant), charged = tenants[tenant].charged;
  for (; count > 1 && charged + size * count > quota; --count) space.free(placed[count - 1].segment, placed[count - 1].node);
  return count;
}

}  // namespace svc
