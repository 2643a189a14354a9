// Groups of objects, named by their writers: a lease on one member is a lease on all, and they are evicted together.
#pragma once
#include "common.h"

namespace svc {

// Owns the groups and their names; the list of a group's members runs through the objects' `Extra`. The server's lock guards it.
class Groups : Part {
 public:
  explicit Groups(Common& common) : Part(common) { groups_.emplace_back(); }

  std::string_view nameOf(const Object& object) const { return groups_[numberOf(object)].name; }
  void join(u32 index, u16 tenant, std::string_view name);
  void leave(u32 index);
  // Visits the members of an object's group one by one; 0 if it has none, or after the last one.
  u32 first(const Object& object) const { return groups_[numberOf(object)].first; }
  u32 next(u32 index) const { return table.extras[table[index].extra].groupAfter; }
  u64 leaseEndMs(const Object& object) const { return groups_[numberOf(object)].leaseEndMs; }
  void lease(const Object& object, u64 endMs);

 private:
  u32 numberOf(const Object& object) const { return object.extra == 0 ? 0 : table.extras[object.extra].group; }
  u32 numberOf(u16 tenant, std::string_view name);

  std::vector<Group> groups_;  // the first one stands for none
  std::vector<u32> free_;
  std::unordered_map<std::string, u32> byName_;
};

}  // namespace svc
