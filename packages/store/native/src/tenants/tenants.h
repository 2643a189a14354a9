// Tenants: their names, their quotas, and the memory that they are charged for.
#pragma once
#include "objects/space.h"

namespace svc {

struct Tenant {
  std::string name;
  bool registered = false;
  u64 quota = 0, charged = 0;
  u64 announced[KvEvents::media] = {};  // objects that subscribers of KV events know
  u32 cursor = 1;  // where its own eviction continues
};

// Owns the list of tenants; a tenant's number is its place in it, and stays. Eviction enforces the quotas. The server's lock guards it.
class Tenants : Part {
 public:
  static constexpr u16 none = 0xffff;

  Tenants(Common& common, const Space& space);

  Tenant& operator[](u32 number) { return tenants_[number]; }
  const Tenant& operator[](u32 number) const { return tenants_[number]; }
  std::size_t size() const { return tenants_.size(); }
  // Returns `none` for an unknown one.
  u16 numberOf(std::string_view name) const;
  u16 add(std::string_view name);
  void setQuota(u16 tenant, bool registered, u64 bytes);
  // Returns a tenant's effective quota: less than its configured one if all of them together exceed the capacity.
  u64 quotaOf(u16 tenant) const;
  // Apply records of the log; false for a tenant that is not known.
  void replayName(u16 number, std::string_view name);
  bool replayQuota(u16 number, bool registered, u64 bytes);

 private:
  void assignQuota(u16 tenant, bool registered, u64 bytes);

  const Space& space;
  std::vector<Tenant> tenants_;
  std::unordered_map<std::string, u16> byName_;
  u64 askedBytes_ = 0;  // sum of all tenants' quotas
};

}  // namespace svc
