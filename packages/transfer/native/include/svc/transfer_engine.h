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

/** The sentence behind the last negative result, false or invalid handle that this thread received. */
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

/** A short message between engines: at most 1 MiB with its name. */
struct NotifyDesc {
  std::string name;
  std::string msg;
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

/**
 * The engine. Results of type int are 0, or a negative ErrorCode; lastError() has the sentence. Lengths are bytes, times milliseconds.
 * Every call may be made from several threads at once, except that one batch belongs to one caller, and that nothing runs beside init.
 */
class TransferEngine {
 public:
  /** Does no I/O. `auto_discover`: init installs the transports that this host has: shm, rdma where there is a device, tcp. */
  explicit TransferEngine(bool auto_discover = false);
  /** `filter`: names of the network devices that may be used; empty means all. */
  TransferEngine(bool auto_discover, const std::vector<std::string>& filter);
  /** freeEngine(), whose failure is logged. */
  ~TransferEngine();
  TransferEngine(TransferEngine&&) noexcept;
  TransferEngine& operator=(TransferEngine&&) noexcept;

  /** A setting by name, before init: docs/transfer-engine.md lists them. ERR_INVALID_ARGUMENT for an unknown name or a value out of range. */
  int setOption(std::string_view name, std::string_view value);

  /**
   * Opens the ports and publishes the engine. Before every other operation.
   * `metadata_conn_string`: P2PHANDSHAKE, [etcd://]host:port, redis://host:port or http://host:port/path.
   * `local_server_name`: unique in the cluster; with P2PHANDSHAKE the host to listen on, and the name becomes host:port.
   * `rpc_port` 0 takes a free one. ERR_INVALID_ARGUMENT (the name's engine is running, empty name), ERR_SOCKET (port in use), ERR_METADATA.
   */
  int init(const std::string& metadata_conn_string, const std::string& local_server_name, const std::string& ip_or_host_name = "", uint64_t rpc_port = 0);
  /**
   * Fails what is in flight, stops serving, deletes this engine's own metadata entries. The engine is of no more use afterwards.
   * ERR_BATCH_BUSY while a stopped process of this host is in a copy to or from registered memory: keep that memory, and call again.
   */
  int freeEngine();

  /** "tcp", "shm", "rdma" or "nvmeof"; args[0] may be a priority matrix as JSON text. nullptr when this host cannot have it; nothing else takes its place. */
  Transport* installTransport(const std::string& proto, void** args = nullptr);
  /** Closes what the transport holds and publishes the engine without it. ERR_INVALID_ARGUMENT when it is not installed. */
  int uninstallTransport(const std::string& proto);
  /** nullptr when it is not installed. */
  Transport* getTransport(const std::string& proto);

  /**
   * Opens [addr, addr + length) to transfers: as source of this engine's requests, and to peers when `remote_accessible`.
   * `location`: "*", or "<device>:<index>" such as cpu:0. `update_metadata` false: the record never names the buffer, and peers reach it
   * only by an address they were given. ERR_INVALID_ARGUMENT (length 0), ERR_ADDRESS_OVERLAPPED, ERR_CONTEXT (a device refuses it),
   * ERR_METADATA; then nothing is registered.
   */
  int registerLocalMemory(void* addr, size_t length, const std::string& location = "*", bool remote_accessible = true, bool update_metadata = true);
  /**
   * 0: no byte of a peer or of this engine enters or leaves the buffer any more. `addr` is its start. `update_metadata` false: the record names
   * the buffer until it is published next. ERR_ADDRESS_NOT_REGISTERED. ERR_BATCH_BUSY while requests in flight use the buffer, which then stays
   * as it is; or when, after a second, a process of this host stands still in a copy: then the buffer is closed to new requests, and the call
   * succeeds once that process runs on or has ended.
   */
  int unregisterLocalMemory(void* addr, bool update_metadata = true);
  /** All or none, published once. Errors as above. */
  int registerLocalMemoryBatch(const std::vector<BufferEntry>& buffer_list, const std::string& location);
  /** Tries every address, publishes once; the first error is returned. */
  int unregisterLocalMemoryBatch(const std::vector<void*>& addr_list);
  /** Whether the range shares a byte with registered memory. */
  bool checkOverlap(void* addr, uint64_t length);

  /** A peer's server name, or "nvmeof/<file segment>". One handle per name, counted. INVALID_SEGMENT_ID when there is no record or its peer does not answer. */
  SegmentHandle openSegment(const std::string& segment_name);
  /** The last close drops the connections and fails what is in flight on them. ERR_INVALID_ARGUMENT for no open segment. */
  int closeSegment(SegmentHandle segment_id);
  /** Forgets a peer's record here. Of this engine's own name: deletes its segment record, until a registration publishes it again. ERR_METADATA. */
  int removeLocalSegment(const std::string& segment_name);
  /**
   * A folder of this host as a segment that peers read: file N, of eight hexadecimal digits, begins at N << 35. Its name, or empty with lastError().
   * With a socket `source` in the folder, a file that is not there is asked for: eight bytes of its number, and '1' back within 10 s once it is.
   */
  std::string serveFolder(const std::string& label, const std::string& path);
  /** A file or block device of this host, of its present length, as the segment `nvmeof/SERVER/LABEL`, which peers read and write through this engine. */
  std::string serveFile(const std::string& label, const std::string& path);
  int stopFolder(const std::string& label);
  /** OK when the peer answers, its record is valid and a path serves it: reads the record anew. */
  Status CheckSegmentStatus(SegmentID sid);
  /** Reads the record of one open segment anew, or of all. ERR_INVALID_ARGUMENT (not open), ERR_METADATA. */
  int syncSegmentCache(const std::string& segment_name = "");

  /** For at most `batch_size` requests, 1 to 4,194,304. INVALID_BATCH_ID beyond that, or when 65,536 batches are allocated. */
  BatchID allocateBatchID(size_t batch_size);
  /** Starts all entries or, with a status that is not OK, none: 1 InvalidArgument, 2 TooManyRequests, 3 AddressNotRegistered, 8 NotSupportedTransport. */
  Status submitTransfer(BatchID batch_id, const std::vector<TransferRequest>& entries);
  /** The engine of the first entry's target gets the message once all requests of the batch have completed; not when one failed. */
  Status submitTransferWithNotify(BatchID batch_id, const std::vector<TransferRequest>& entries, NotifyDesc notify_msg);
  /** `task_id` counts the batch's requests from 0. COMPLETED: every byte is at its destination. */
  Status getTransferStatus(BatchID batch_id, size_t task_id, TransferStatus& status);
  /** COMPLETED when all requests are, FAILED as soon as one is; bytes are those of completed requests. */
  Status getBatchTransferStatus(BatchID batch_id, TransferStatus& status);
  /** 4 BatchBusy while a request is in flight; whether the requests were asked for makes no difference. */
  Status freeBatchID(BatchID batch_id);
  /** Why a task FAILED: peer, range and cause; empty while it has not. */
  std::string getTransferError(BatchID batch_id, size_t task_id);

  /** Waits until no request of the batch is in flight; false when timeout_ms passed before, or for a handle that is not allocated. */
  bool waitBatch(BatchID batch_id, uint64_t timeout_ms);
  /** Submits and waits in the calling thread, which drives the sockets itself. timeout_ms 0: the engine's own. 102 Socket when a request failed. */
  Status transferSync(const std::vector<TransferRequest>& entries, uint64_t timeout_ms = 0);
  /**
   * Submits; `done` runs once, on a thread of the engine or in this call, and must not block. With `lingers` the call looks for the answer
   * to one short request itself for up to poll_us, which saves two wake-ups where the peer is near; for who submits one after the other.
   */
  void transferAsync(const std::vector<TransferRequest>& entries, std::function<void(Status)> done, uint64_t timeout_ms = 0, bool lingers = false);

  /** Appends nothing: replaces `notifies` by what arrived since the last call, in its order. */
  int getNotifies(std::vector<NotifyDesc>& notifies);
  /** ERR_METADATA (no open segment, no record), ERR_SOCKET (no answer), ERR_REJECT_HANDSHAKE (the peer holds too many already). */
  int sendNotifyByID(SegmentID target_id, NotifyDesc notify_msg);
  /** To an engine whose segment need not be open. Errors as above. */
  int sendNotifyByName(const std::string& remote_agent, NotifyDesc notify_msg);
  /** 0 when the peer of an open segment answers. ERR_INVALID_ARGUMENT, ERR_METADATA, ERR_SOCKET. */
  int probePeerAliveByID(SegmentID target_id);

  std::shared_ptr<TransferMetadata> getMetadata();
  /** Before init. */
  void setAutoDiscover(bool auto_discover);
  /** Before init: the network devices that may be used. */
  void setWhitelistFilters(std::vector<std::string>&& filters);
  /** Active contexts of all transports: one each, rdma one for each device. */
  int numContexts() const;
  /** Found anew at each call. */
  std::shared_ptr<Topology> getLocalTopology();
  /** host:port of the handshake port, empty before init. */
  std::string getLocalIpAndPort();
  /** ERR_INVALID_ARGUMENT before init. */
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
