// The operations that are decoded, executed and answered natively; all others go to JavaScript.
#pragma once
#include <unordered_map>

#include "log/log.h"
#include "rpc/wire.h"

namespace svc {

enum class Op : u8 {
  script,
  constant,
  ping,
  fetchTasks,
  existKey,
  batchExistKey,
  probeKey,
  batchProbeKey,
  getReplicaList,
  batchGetReplicaList,
  replicaListForAdmin,
  batchReplicaListForAdmin,
  readObjects,
  whyMissing,
  takeChanges,
  takeDiskOrders,
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
  leaseExtents,
  returnExtents,
  commitPuts,
  beginCopies,
  endCopies,
  beginRestore,
  restoreObjects,
  keepFiles,
  httpQueryKey,
};
inline constexpr u32 opCount = static_cast<u32>(Op::httpQueryKey) + 1;
Op opOf(std::string_view name);

struct Declared {
  u32 argsHash = 0, resultHash = 0;
  Op op = Op::script;
  bool tenants = true;   // whether a tenant's key may call it
  std::string literal;   // the result's type literal, with its terminating zero
  std::string constant;  // the whole body, for Op::constant
};

struct OperationMetrics {
  static constexpr u32 buckets = 12;
  u64 requests = 0, items = 0, failedItems = 0, nanoseconds = 0;
  u64 within[buckets] = {};  // 2, 4, 8, ... microseconds
};

class Operations {
 public:
  // `later`: there is no space now; the call changed nothing, and can be run again.
  enum class Outcome { answered, script, unknown, refused, later };

  Operations(Store& store) : store_(store) {}

  void declare(u32 function, Declared declared);
  // Appends a whole response frame if the outcome is `answered`, else nothing. `log` is null until recovery has ended. With a `tenant`, the
  // call is that tenant's, and is refused if it names another.
  Outcome run(const Request& request, const char* body, Log* log, std::string& out, const std::string* tenant = nullptr);

  // Why calls are refused although the store is served; `view` below is the number of the lead, for pings.
  i32 barred = code::ok;
  // True if a put that finds no space may be retried later.
  bool mayWait = false;
  i64 view = 0;
  OperationMetrics metrics[opCount];
  u64 refusedLogFull = 0;
  void timed(Op op, u64 nanoseconds);
  void counted(Op op, i32 outcome) { count(op, outcome); }

 private:
  Outcome answer(const Declared& declared, const Request& request, WireReader& in, Log* log, std::string& out);
  Outcome start(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out, bool upsert, bool batch);
  void finish(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  void exist(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  void read(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  void remove(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  void copy(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  // operations_copies.cc
  void beginCopies(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  void endCopies(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  void copyBegun(WireWriter& to, u32 index, bool optional) const;
  // operations_extents.cc
  Outcome lease(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  void giveBack(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  void commit(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  void whyMissing(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  // operations_holdings.cc
  void takeChanges(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  void beginRestore(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  void restore(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  // operations_disks.cc
  void takeDiskOrders(const Declared& declared, const Request& request, WireReader& in, i32 barred, Log* log, std::string& out);
  void keepFiles(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out);
  void outcomes(const Declared& declared, const Request& request, bool batch, std::string& out);
  void leaseLastHit(u16 tenant, u64 candidates);
  void count(Op op, i32 outcome);
  void prefetch(u16 tenant);
  // Reads the tenant that a call names; `in` fails if the caller may not name it.
  u16 tenantOf(WireReader& in, i32 barred);
  bool readPolicy(WireReader& in, std::size_t keys);

  void descriptor(WireWriter& to, const Replica& replica, u64 size) const;
  std::size_t widest(u32 index) const;
  // Writes an object's replicas: all of them, or only the readable ones.
  void descriptors(WireWriter& to, u32 index, bool readableOnly) const;

  Store& store_;
  // State of the current call.
  const std::string* tenant_ = nullptr;
  bool refused_ = false;
  std::unordered_map<u32, std::vector<Declared>> declared_;
  // Buffers that are kept between requests, so that a request does not allocate.
  PutPolicy policy_;
  std::vector<std::string_view> keys_, groups_, sources_, targets_;
  std::vector<u64> sizes_, hashes_, extents_;
  std::vector<std::optional<u64>> checksums_;
  std::vector<u32> found_;
  std::vector<i32> results_;
};

}  // namespace svc
