// The public C++20 interface of the transfer engine: bytes between registered memories of processes, machines and files.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace svc {

using BatchID = uint64_t;
using SegmentID = uint64_t;
using SegmentHandle = SegmentID;
inline constexpr BatchID INVALID_BATCH_ID = ~0ull;
inline constexpr SegmentHandle INVALID_SEGMENT_ID = ~0ull;
/** The engine's own RAM segment. */
inline constexpr SegmentID LOCAL_SEGMENT_ID = 0;

/** Negative results of the calls that return int; Status codes are their positive twins. */
enum ErrorCode : int {
  ERR_INVALID_ARGUMENT = -1,
  ERR_TOO_MANY_REQUESTS = -2,
  ERR_ADDRESS_NOT_REGISTERED = -3,
  ERR_BATCH_BUSY = -4,
  ERR_DEVICE_NOT_FOUND = -6,
  ERR_ADDRESS_OVERLAPPED = -7,
  ERR_NOT_SUPPORTED_TRANSPORT = -8,
  ERR_DNS = -101,
  ERR_SOCKET = -102,
  ERR_MALFORMED_JSON = -103,
  ERR_REJECT_HANDSHAKE = -104,
  ERR_METADATA = -200,
  ERR_ENDPOINT = -201,
  ERR_CONTEXT = -202,
  ERR_NUMA = -300,
  ERR_CLOCK = -301,
  ERR_MEMORY = -302,
};

/** The sentence behind the last negative result or invalid handle that this thread received. */
const std::string& lastError();

class Status {
 public:
  Status() = default;
  Status(int code, std::string message) : code_(code), message_(std::move(message)) {}
  static Status OK() { return {}; }
  bool ok() const { return code_ == 0; }
  /** 0, or the positive twin of an ErrorCode. */
  int code() const { return code_; }
  const std::string& message() const { return message_; }
  /** `Name: message`. */
  std::string ToString() const;

 private:
  int code_ = 0;
  std::string message_;
};

struct TransferRequest {
  enum OpCode { READ = 0, WRITE = 1 };
  OpCode opcode;
  void* source;  // in a buffer registered with this engine
  SegmentID target_id;
  uint64_t target_offset;  // RAM: virtual address at the target; file: offset in the segment
  size_t length;
  int advise_retry_cnt = 0;  // more attempts than the engine's own, after a broken connection
};

/** PENDING, CANCELED and TIMEOUT are never reported. */
enum TransferStatusEnum { WAITING = 0, PENDING = 1, INVALID = 2, CANCELED = 3, COMPLETED = 4, TIMEOUT = 5, FAILED = 6 };

struct TransferStatus {
  TransferStatusEnum s = WAITING;
  size_t transferred_bytes = 0;  // a lower bound
};

struct BufferEntry {
  void* addr;
  size_t length;
};

struct NotifyDesc {
  std::string name;
  std::string notify_msg;
};

/** One installed transport, for inspection. */
class Transport {
 public:
  virtual ~Transport() = default;
  virtual const char* name() const = 0;
  /** Active contexts: network devices for rdma, 1 for the others. */
  virtual int contexts() const { return 1; }
};

/** Devices near each memory location: location -> {preferred, others}. */
struct Topology {
  std::map<std::string, std::pair<std::vector<std::string>, std::vector<std::string>>> matrix;
  std::string toJson() const;
};

class Engine;

/** The engine's view of published records. Valid while the engine lives. */
class TransferMetadata {
 public:
  /** The document published for a segment, as JSON; empty when there is none. */
  std::string segmentDescriptor(const std::string& segment_name);
  /** The key under which a segment's record lies in the metadata service. */
  std::string segmentKey(const std::string& segment_name) const;
  std::string rpcKey(const std::string& server_name) const;

 private:
  friend class TransferEngine;
  explicit TransferMetadata(Engine& engine) : engine_(engine) {}
  Engine& engine_;
};

class TransferEngine {
 public:
  explicit TransferEngine(bool auto_discover = false);
  TransferEngine(bool auto_discover, const std::vector<std::string>& filter);
  /** Fails what is in flight, stops serving, deletes the engine's metadata entries. */
  ~TransferEngine();
  TransferEngine(TransferEngine&&) noexcept;
  TransferEngine& operator=(TransferEngine&&) noexcept;

  /** A setting by name, before init: docs/transfer-engine.md lists them. 0 or negative. */
  int setOption(std::string_view name, std::string_view value);

  /** `metadata_conn_string`: P2PHANDSHAKE, [etcd://]host:port, redis://host:port or http://host:port/path. */
  int init(const std::string& metadata_conn_string, const std::string& local_server_name, const std::string& ip_or_host_name = "", uint64_t rpc_port = 0);
  int freeEngine();

  Transport* installTransport(const std::string& proto, void** args = nullptr);
  int uninstallTransport(const std::string& proto);
  Transport* getTransport(const std::string& proto);

  int registerLocalMemory(void* addr, size_t length, const std::string& location = "*", bool remote_accessible = true, bool update_metadata = true);
  int unregisterLocalMemory(void* addr, bool update_metadata = true);
  int registerLocalMemoryBatch(const std::vector<BufferEntry>& buffer_list, const std::string& location);
  int unregisterLocalMemoryBatch(const std::vector<void*>& addr_list);
  bool checkOverlap(void* addr, uint64_t length);

  SegmentHandle openSegment(const std::string& segment_name);
  int closeSegment(SegmentHandle segment_id);
  int removeLocalSegment(const std::string& segment_name);
  /** OK when the peer answers and its record is valid. */
  Status CheckSegmentStatus(SegmentID sid);
  int syncSegmentCache(const std::string& segment_name = "");

  BatchID allocateBatchID(size_t batch_size);
  Status submitTransfer(BatchID batch_id, const std::vector<TransferRequest>& entries);
  Status submitTransferWithNotify(BatchID batch_id, const std::vector<TransferRequest>& entries, NotifyDesc notify_msg);
  Status getTransferStatus(BatchID batch_id, size_t task_id, TransferStatus& status);
  Status getBatchTransferStatus(BatchID batch_id, TransferStatus& status);
  Status freeBatchID(BatchID batch_id);
  /** Why a task FAILED: peer, range and cause; empty while it has not. */
  std::string getTransferError(BatchID batch_id, size_t task_id);

  /** Waits until no request of the batch is in flight; false when timeout_ms passed before, or the handle is none. */
  bool waitBatch(BatchID batch_id, uint64_t timeout_ms);
  /** Submits and waits in the calling thread, which drives the sockets itself. timeout_ms 0: the engine's own. */
  Status transferSync(const std::vector<TransferRequest>& entries, uint64_t timeout_ms = 0);
  /** Submits; `done` runs once, on a thread of the engine or in this call, and must not block. */
  void transferAsync(const std::vector<TransferRequest>& entries, std::function<void(Status)> done, uint64_t timeout_ms = 0);

  int getNotifies(std::vector<NotifyDesc>& notifies);
  int sendNotifyByID(SegmentID target_id, NotifyDesc notify_msg);
  int sendNotifyByName(const std::string& remote_agent, NotifyDesc notify_msg);
  /** 0 when the peer of an open segment answers. */
  int probePeerAliveByID(SegmentID target_id);

  std::shared_ptr<TransferMetadata> getMetadata();
  void setAutoDiscover(bool auto_discover);
  void setWhitelistFilters(std::vector<std::string>&& filters);
  int numContexts() const;
  std::shared_ptr<Topology> getLocalTopology();
  /** host:port, empty before init. */
  std::string getLocalIpAndPort();
  int getRpcPort();
  /** The name of the engine: as given, or host:port with a handshake and no service. */
  std::string getServerName();
  /** Which path a request to this range takes: local, shm, process_vm, rdma, tcp or file; with the reason for each passed over. */
  std::string explainPath(SegmentID target_id, uint64_t target_offset, size_t length);
  /** Prometheus text. */
  std::string metrics() const;

 private:
  std::unique_ptr<Engine> engine_;
};

/** Zeroed memory that peers on this host map instead of copying through a socket. nullptr when there is none left. */
void* allocateShared(size_t size_bytes);
/** A named shared memory object of this host, created when `create`. nullptr with lastError() otherwise. */
void* openShared(const std::string& name, size_t size_bytes, bool create);
/** Unmaps what the two calls above returned. 0, or -1 for an address that is none of theirs. */
int freeShared(void* addr);
/** Removes the name of a shared memory object. */
int unlinkShared(const std::string& name);

}  // namespace svc
