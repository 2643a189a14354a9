// Copies and moves of replicas, and promotions from a disk to memory: begun, ended and revoked by the client that moves the bytes.
#pragma once
#include "eviction/eviction.h"

namespace svc {

// Owns nothing: an object's running task is in its `Extra`. The server's lock guards what it uses.
class Copies : Part {
 public:
  Copies(Common& common, const Locations& where, Space& space, Announcer& announcer, Objects& objects, Holders& holders, Disks& disks, Eviction& eviction)
      : Part(common), where(where), space(space), announcer(announcer), objects(objects), holders(holders), disks(disks), eviction(eviction) {}

  i32 start(const Uuid& client, u16 tenant, std::string_view key, std::string_view source, std::span<const std::string_view> targets, TaskKind kind, u32& index);
  i32 startPromotion(const Uuid& client, u16 tenant, std::string_view key, u64 size, std::span<const std::string_view> preferred, u32& index);
  i32 end(const Uuid& client, u16 tenant, std::string_view key, TaskKind kind, bool revoke);

 private:
  const Locations& where;
  Space& space;
  Announcer& announcer;
  Objects& objects;
  Holders& holders;
  Disks& disks;
  Eviction& eviction;
};

}  // namespace svc
