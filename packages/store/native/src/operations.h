// The operations that are decoded, done and answered here; all others go to the script.
#pragma once
#include <unordered_map>

#include "log.h"
#include "wire.h"

namespace svc {

enum class Op : u8 {
  script,
  constant,
  ping,
  fetchTasks,
  existKey,
  batchExistKey,
  getReplicaList,
  batchGetReplicaList,
  putStart,
  upsertStart,
  batchPutStart,
  batchUpsertStart,
  putEnd,
  upsertEnd,
  batchPutEnd,
  batchUpsertEnd,
  putRevoke,
  upsertRevoke,
  batchPutRevoke,
  batchUpsertRevoke,
  remove,
  batchRemove,
  copyStart,
  moveStart,
  copyEnd,
  copyRevoke,
  moveEnd,
  moveRevoke,
};
inline constexpr u32 opCount = static_cast<u32>(Op::moveRevoke) + 1;
Op opOf(std::string_view name);

struct Declared {
  u32 argsHash = 0, resultHash = 0;
  Op op = Op::script;
  std::string literal;   // of the result, with its zero
  std::string constant;  // the whole body, for Op::constant
};

struct OpFigures {
  static constexpr u32 buckets = 12;
  u64 requests = 0, items = 0, failedItems = 0, nanoseconds = 0;
  u64 within[buckets] = {};  // 2, 4, 8, ... microseconds
};

class Operations {
 public:
  enum class Outcome { answered, script, unknown };

  Operations(Store& store) : store_(store) {}

  void declare(u32 function, Declared declared);
  // Appends a whole response frame; `script` and `unknown` append nothing. Before recovery ended `log` is null.
  Outcome run(const Request& request, const char* body, Log* log, std::string& out);

  OpFigures figures[opCount];
  u64 refusedForRoom = 0;

 private:
  Outcome answer(const Declared& declared, const Request& request, WireReader& in, Log* log, std::string& out);
  void start(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out, bool upsert, bool batch);
  void finish(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  void exist(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  void read(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  void remove(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  void copy(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  void outcomes(const Declared& declared, const Request& request, bool batch, std::string& out);
  void count(Op op, i32 outcome);
  void prefetch(u16 tenant);
  // While the log is read, the store is another thread's.
  u16 tenantOf(std::string_view name, i32 barred) const { return barred == code::unavailable ? u16{0} : store_.tenantOf(name); }
  bool readWish(WireReader& in, std::size_t keys);

  void descriptor(WireWriter& to, const Replica& replica, u64 size) const;
  std::size_t widest(u32 index) const;
  // The list of an object's replicas: all of them, or those that may be read.
  void descriptors(WireWriter& to, u32 index, bool readableOnly) const;

  Store& store_;
  std::unordered_map<u32, std::vector<Declared>> declared_;
  // Kept between requests, so that none allocates.
  Wish wish_;
  std::vector<std::string_view> keys_, groups_;
  std::vector<u64> sizes_, hashes_;
  std::vector<std::optional<u64>> checksums_;
  std::vector<u32> found_;
  std::vector<i32> results_;
};

}  // namespace svc
