// The operations that are decoded, executed and answered natively; all others go to JavaScript.
#pragma once
#include <span>
#include <unordered_map>

#include "log/log.h"
#include "rpc/arguments.h"

namespace svc {

inline constexpr u32 opCount = std::size(countedOperations);
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

// The call that is answered.
struct Invocation {
  const Declared& declared;
  const Request& request;
  WireReader& in;
  Log* log;
  std::string& out;
  i32 barred;  // why the call is refused, or ok
  u16 tenant = 0;
  Op op() const { return declared.op; }
  bool isBatch() const { return std::string_view(countedOperations[static_cast<u32>(op())].name).starts_with("Batch"); }
  bool allowed() const { return barred == code::ok; }
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
  void count(Op op, i32 outcome);

 private:
  Outcome answer(Invocation& call);
  void ping(Invocation& call);
  Outcome fetchTasks(Invocation& call);
  // keys.cc
  void exist(Invocation& call);
  void leaseLastHit(u16 tenant, std::span<const std::string_view> keys, u64 candidates);
  void read(Invocation& call);
  Outcome start(Invocation& call);
  void end(Invocation& call, const Uuid& client, std::span<const wire::ObjectMeta> metas, ReplicaType type);
  void revoke(Invocation& call, const Uuid& client, std::span<const std::string_view> keys, ReplicaType type);
  void remove(Invocation& call, std::span<const std::string_view> keys, bool force);
  // copies.cc
  void copyStart(Invocation& call);
  void copyEnd(Invocation& call);
  void beginCopies(Invocation& call);
  void endCopies(Invocation& call);
  void copyBegun(WireWriter& to, u32 index, bool optional) const;
  // extents.cc
  Outcome leaseExtents(Invocation& call);
  void returnExtents(Invocation& call);
  void commitPuts(Invocation& call);
  void whyMissing(Invocation& call);
  // holdings.cc
  void takeChanges(Invocation& call);
  void beginRestore(Invocation& call);
  void restore(Invocation& call);
  // disks.cc
  void takeDiskOrders(Invocation& call);
  void keepFiles(Invocation& call);

  // Reads a call's arguments and resolves its tenant; `call.in` fails if the body does not match, or if the caller may not name that tenant.
  template <typename Args>
  const Args& arguments(Invocation& call) {
    Args& args = std::get<Args>(arguments_);
    args.read(call.in);
    if constexpr (requires { args.tenant; }) call.tenant = tenantOf(call, args.tenant);
    return args;
  }
  // Reads a tenant and its key, or keys.
  std::span<const std::string_view> keysOf(Invocation& call);
  u16 tenantOf(Invocation& call, std::string_view name);
  // Takes over a writer's policy and the groups of its keys, one for each or none; returns whether they fit.
  bool takePolicy(const wire::ReplicateConfig& config, std::size_t keys);
  std::string_view groupOf(std::size_t key) const { return groups_.empty() ? std::string_view() : groups_[key]; }

  // Runs a call's items one by one unless it is refused, and keeps their outcomes in `results_`.
  template <typename Items, typename Each>
  void runEach(const Invocation& call, const Items& items, Each each) {
    results_.assign(items.size(), call.barred);
    if (!call.allowed()) return;
    prefetch(call.tenant, items);
    for (std::size_t i = 0; i < items.size(); ++i) results_[i] = each(items[i], i);
  }
  template <typename Items>
  void prefetch(u16 tenant, const Items& items) {
    if (items.size() < 4 || tenant == Tenants::none) return;
    hashes_.clear();
    for (const auto& item : items) {
      hashes_.push_back(store_.table.hashOf(tenant, keyOf(item)));
      store_.table.prefetchSlot(hashes_.back());
    }
    for (const u64 hash : hashes_) store_.table.prefetchRecord(hash);
  }
  static std::string_view keyOf(std::string_view key) { return key; }
  template <typename Item>
  static std::string_view keyOf(const Item& item) { return item.key; }

  // Begins the answer; `largest` is the largest length in it.
  WireWriter begin(const Invocation& call, std::size_t largest) const;
  // Answers with the outcomes in `results_`, or with the only one of them.
  void outcomes(const Invocation& call, bool asList);
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
  wire::Arguments arguments_;
  PutPolicy policy_;
  std::span<const std::string_view> groups_;
  std::vector<u64> hashes_, extents_;
  std::vector<u32> found_;
  std::vector<i32> results_;
};

}  // namespace svc
