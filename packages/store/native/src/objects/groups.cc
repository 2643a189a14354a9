// Adds objects to groups and removes them.
#include "objects/groups.h"

#include <algorithm>

namespace svc {

void Groups::lease(const Object& object, u64 endMs) {
  const u32 group = numberOf(object);
  if (group != 0) groups_[group].leaseEndMs = std::max(groups_[group].leaseEndMs, endMs);
}

u32 Groups::numberOf(u16 tenant, std::string_view name) {
  const auto [found, fresh] = byName_.try_emplace(std::to_string(tenant) + "/" + std::string(name), 0);
  if (!fresh) return found->second;
  if (free_.empty()) {
    found->second = static_cast<u32>(groups_.size());
    groups_.emplace_back();
  } else {
    found->second = free_.back();
    free_.pop_back();
  }
  groups_[found->second] = {std::string(name), tenant, 0, 0, 0};
  return found->second;
}

void Groups::join(u32 index, u16 tenant, std::string_view name) {
  Extra& extra = table.extraOf(index);
  extra.group = numberOf(tenant, name);
  Group& group = groups_[extra.group];
  extra.groupBefore = 0;
  extra.groupAfter = group.first;
  if (group.first != 0) table.extras[table[group.first].extra].groupBefore = index;
  group.first = index;
  ++group.members;
}

void Groups::leave(u32 index) {
  Extra& extra = table.extras[table[index].extra];
  if (extra.group == 0) return;
  Group& group = groups_[extra.group];
  if (extra.groupBefore != 0) table.extras[table[extra.groupBefore].extra].groupAfter = extra.groupAfter;
  else group.first = extra.groupAfter;
  if (extra.groupAfter != 0) table.extras[table[extra.groupAfter].extra].groupBefore = extra.groupBefore;
  if (--group.members == 0) {
    byName_.erase(std::to_string(group.tenant) + "/" + group.name);
    group = {};
    free_.push_back(extra.group);
  }
  extra.group = 0;
}

}  // namespace svc
