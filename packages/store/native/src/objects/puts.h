// Puts and upserts from start to end, their revocation, and removals.
#pragma once
#include "eviction/eviction.h"

namespace svc {

// Owns nothing: it decides how a writer's calls change objects. The server's lock guards what it uses.
class Puts : Part {
 public:
  Puts(Common& common, const Locations& where, Groups& groups, Space& space, Announcer& announcer, Objects& objects, Disks& disks, Folder& folder, Eviction& eviction)
      : Part(common), where(where), groups(groups), space(space), announcer(announcer), objects(objects), disks(disks), folder(folder), eviction(eviction) {}

  // Returns 0 or an error code; `index` is the object, if there is one.
  i32 start(u32 client, u16 tenant, std::string_view key, u64 size, const PutPolicy& policy, std::string_view group, u32& index);
  i32 startUpsert(u32 client, u16 tenant, std::string_view key, u64 size, const PutPolicy& policy, std::string_view group, u32& index);
  // A file in the shared folder is ended by a call of its own, with type `disk`; any other type concerns the other replicas.
  i32 end(const Uuid& client, u16 tenant, std::string_view key, std::optional<u64> checksum, ReplicaType type = ReplicaType::all);
  i32 revoke(const Uuid& client, u16 tenant, std::string_view key, ReplicaType type = ReplicaType::all);
  i32 remove(u16 tenant, std::string_view key, bool force);
  // Removes the writer's object from one segment, or from all.
  i32 clear(const Uuid& client, u16 tenant, std::string_view key, std::string_view segment);

  i32 checkPolicy(u16 tenant, std::string_view key, u64 size, const PutPolicy& policy) const;
  // Removes an unreadable or abandoned object in the way of a new one; ok, or exists.
  i32 makeWay(u16 tenant, std::string_view key);
  i32 refuseForSpace();
  u64 pinMs(const PutPolicy& policy) const { return policy.softPinMs.value_or(settings.softPinMs); }

 private:
  i32 create(u32 client, u16 tenant, std::string_view key, u64 size, const PutPolicy& policy, std::string_view group, bool files, u32& index);

  const Locations& where;
  Groups& groups;
  Space& space;
  Announcer& announcer;
  Objects& objects;
  Disks& disks;
  Folder& folder;
  Eviction& eviction;
};

}  // namespace svc
