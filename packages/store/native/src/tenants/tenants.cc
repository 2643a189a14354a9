// Finds and adds tenants, and computes what their quotas allow.
#include "tenants/tenants.h"

namespace svc {

Tenants::Tenants(Common& common, const Space& space) : Part(common), space(space) {
  tenants_.push_back({"default", !settings.multiTenant, 0, 0});
  byName_["default"] = 0;
}

u16 Tenants::numberOf(std::string_view name) const {
  if (!settings.multiTenant) return 0;
  const auto found = byName_.find(name.empty() ? "default" : std::string(name));
  return found == byName_.end() ? none : found->second;
}

u16 Tenants::add(std::string_view name) {
  const auto [found, fresh] = byName_.try_emplace(std::string(name), static_cast<u16>(tenants_.size()));
  if (!fresh) return found->second;
  if (tenants_.size() >= none) {
    byName_.erase(found);
    return none;
  }
  tenants_.push_back({std::string(name), false, 0, 0});
  journal.tenant(found->second, name);
  return found->second;
}

void Tenants::setQuota(u16 tenant, bool registered, u64 bytes) {
  assignQuota(tenant, registered, bytes);
  journal.quota(tenant, registered, bytes);
}

void Tenants::assignQuota(u16 tenant, bool registered, u64 bytes) {
  askedBytes_ += (registered ? bytes : 0) - (tenants_[tenant].registered ? tenants_[tenant].quota : 0);
  tenants_[tenant].registered = registered;
  tenants_[tenant].quota = bytes;
}

u64 Tenants::quotaOf(u16 tenant) const {
  const u64 asked = tenants_[tenant].quota, capacity = space.usageOf(Tier::memory).capacity;
  return askedBytes_ <= capacity ? asked : static_cast<u64>(static_cast<unsigned __int128>(asked) * capacity / askedBytes_);
}

void Tenants::replayName(u16 number, std::string_view name) {
  while (tenants_.size() <= number) tenants_.emplace_back();
  tenants_[number].name = name;
  byName_[std::string(name)] = number;
}

bool Tenants::replayQuota(u16 number, bool registered, u64 bytes) {
  if (number >= tenants_.size()) return false;
  assignQuota(number, registered, bytes);
  return true;
}

}  // namespace svc
