// Why keys are gone: a hash table without chains whose slots keep the newest removal, so that its memory is bounded.
#pragma once
#include <vector>

#include "base/checksum.h"

namespace svc {

// Why a key is missing. The numbers are on the wire and in the log, so they never change; the last two are for a known key, and never logged.
#define SVC_GONE(each)                                                                                                             \
  each(unknown, "unknown") each(neverStored, "never_stored") each(removed, "removed") each(evicted, "evicted")                      \
  each(expired, "expired") each(holderLost, "holder_lost") each(tenant, "tenant") each(quota, "quota")                              \
  each(fingerprint, "fingerprint") each(unfinished, "unfinished") each(checksum, "checksum") each(holderAway, "holder_away") each(stored, "stored")
enum class Gone : u8 { SVC_GONE(SVC_VALUE) };
inline constexpr const char* goneNames[] = {SVC_GONE(SVC_NAME)};

class Recent {
 public:
  static constexpr u32 places = 1 << 16;

  // The hash is the same after every restart, so that the log can keep it.
  static u64 hashOf(u16 tenant, std::string_view key) {
    const u64 range[3] = {reinterpret_cast<u64>(key.data()), 0, key.size()};
    return checksumOf(range, 1) ^ (tenant * 0x9E3779B97F4A7C15ull);
  }
  // `unixMs` is 0 if the time is unknown.
  void note(u64 hash, Gone why, u64 unixMs) {
    if (entries_.empty()) entries_.resize(places);
    entries_[hash % places] = {hash, unixMs << 8 | static_cast<u8>(why)};
  }
  // Returns `neverStored` only if no other removal can have overwritten the slot.
  Gone find(u64 hash, u64& unixMs) const {
    const Entry entry = entries_.empty() ? Entry{} : entries_[hash % places];
    unixMs = entry.hash == hash ? entry.whenAndWhy >> 8 : 0;
    if (!entry.used()) return incomplete_ ? Gone::unknown : Gone::neverStored;
    return entry.hash == hash ? static_cast<Gone>(entry.whenAndWhy & 0xff) : Gone::unknown;
  }
  // Returns false if the key certainly is not among the gone ones.
  bool mayBeGone(u64 hash) const { return !entries_.empty() && entries_[hash % places].used(); }
  // Objects were forgotten, so `neverStored` can no longer be proven.
  void markIncomplete() { incomplete_ = true; }
  template <typename Each>
  void each(Each each) const {
    for (const Entry& entry : entries_)
      if (entry.used()) each(entry.hash, static_cast<Gone>(entry.whenAndWhy & 0xff), entry.whenAndWhy >> 8);
  }

 private:
  struct Entry {
    u64 hash = 0, whenAndWhy = static_cast<u64>(Gone::neverStored);
    bool used() const { return static_cast<Gone>(whenAndWhy & 0xff) != Gone::neverStored; }
  };
  std::vector<Entry> entries_;
  bool incomplete_ = false;
};

}  // namespace svc
