// The shared folder: which object has which file, which files are evicted when space is needed, and which are to be removed.
#pragma once
#include "holders/holders.h"

namespace svc {

//  put ──> processing ──ended by its writer──> complete ──evicted, removed, replaced──> dropped ──removed by the leader──> swept
//              └──revoked, or expired──> dropped, but not removed for `releaseMs`, in which a late writer may still create it

// Owns the number of the folder's segment and that of the last file; the files themselves are in the segment. The server's lock guards it.
class Folder : Part {
 public:
  Folder(Common& common, Locations& where, Announcer& announcer, Objects& objects, Holders& holders)
      : Part(common), where(where), announcer(announcer), objects(objects), holders(holders) {}

  // Opens the folder of the settings, after the log was read.
  void open();
  Segment* segment() { return cluster.segment(number_); }
  const Segment* segment() const { return cluster.segment(number_); }
  // Returns a file's path within the folder, which depends on the folder's id and the file's number alone.
  std::string nameOf(const Segment& folder, u64 file) const;
  std::string pathOf(const Segment& folder, u64 file) const { return folder.disk->folder->path + "/" + nameOf(folder, file); }
  // Called by the object's writer: assigns a file for exactly these bytes (a repeated call gives the same one), and takes its outcome.
  i32 startFile(const Uuid& client, u16 tenant, std::string_view key, u64 size, u64 checksum, u64& file);
  i32 endFile(const Uuid& client, u16 tenant, std::string_view key, u64 file, bool whole);
  // A client removed the file to free space.
  i32 evictFile(u16 tenant, std::string_view key);
  // `sweepable`: files without an object and without a possible late writer; `swept`: those of them that were removed.
  std::vector<u64> sweepable(u32 most) const;
  void swept(const std::vector<u64>& files);

  // Assigns a file to an object that is being put, if the folder has space for it.
  void add(u32 index);
  i32 end(u32 index, bool whole);
  void drop(u32 index, Gone why);
  // Called for a segment that the log names.
  void replay(u32 number, const Uuid& id, std::string_view path) { create(number, id, path); }

 private:
  Segment& create(u32 number, const Uuid& id, std::string_view path);
  bool evictFor(Segment& folder, u64 size, u32 spared);

  Locations& where;
  Announcer& announcer;
  Objects& objects;
  Holders& holders;
  u32 number_ = 0;
  u64 lastFile_ = 0;
};

}  // namespace svc
