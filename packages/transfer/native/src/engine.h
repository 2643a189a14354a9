// The engine behind the public class: its state, and which file implements which part.
#pragma once
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <thread>
#include <unordered_map>

#include "control_page.h"
#include "event_loop.h"
#include "metadata_store.h"
#include "options.h"
#include "rpc.h"
#include "segment.h"
#include "work_pool.h"

namespace svc {

class FileTransport;
struct FileService;

class Engine : private RouteOwner {
 public:
  /** The time a peer's handshake port has to answer. */
  static constexpr uint64_t RPC_MS = 5000;

  Engine(bool autoDiscover, std::vector<std::string> filters);
  ~Engine() override { stop(); }

  // engine_start.cc
  int init(const std::string& connection, const std::string& name, const std::string& host, uint64_t rpcPort);
  int stop();

  // Defined in engine_transports.cc:
  Transport* install(const std::string& proto, const std::string& matrix);
  int uninstall(const std::string& proto);
  Transport* transport(const std::string& proto);
  int contexts() const;
  std::shared_ptr<Topology> topology();
  std::string localAddress() const { return started_ ? joinHostPort(host_, rpcPort_) : ""; }

  // engine_name.cc
  /** Returns 0, or an error if another running engine has the name. */
  int claimName();
  /** Returns false, and logs it, if the name's record belongs to another engine. */
  bool hasName();
  /** Deletes a record unless it belongs to another engine. */
  bool removeOwn(const std::string& key);
  bool isOwn(const std::string& record) const;
  std::string rpcRecord() const;

  // engine_memory.cc
  int registerMemory(const std::vector<BufferEntry>& list, const std::string& location, bool remote, bool publish);
  int unregisterMemory(const std::vector<uint64_t>& addresses, bool publish);
  int publish();

  // engine_files.cc
  /** Returns the segment name `nvmeof/SERVER/LABEL`, or an empty text with lastError(). */
  std::string serveFolder(const std::string& label, const std::string& path);
  /** Like serveFolder, for a file or block device that peers can read and write. */
  std::string serveFile(const std::string& label, const std::string& path);
  int stopFolder(const std::string& label);
  std::optional<SegmentDescriptor> fetchFolder(const std::string& segment, const std::string& owner, uint64_t answerMs);
  /** The record of a folder or file that this engine serves. */
  std::optional<SegmentDescriptor> folderRecord(const std::string& segment);

  // engine_segments.cc
  SegmentHandle open(std::string name);
  int close(SegmentID id);
  int forget(std::string name);
  Status check(SegmentID id);
  int sync(const std::string& name);
  SegmentRef segment(SegmentID id);
  /**
   * Reads the record again, unless it was read less than `maxAgeMs` ago. Returns false with lastError(), and by the deadline, if one is
   * given.
   */
  bool refresh(Segment& segment, uint64_t maxAgeMs, uint64_t answerMs = RPC_MS, uint64_t deadlineNs = 0);
  std::optional<SegmentDescriptor> fetch(const std::string& name, uint64_t answerMs = RPC_MS);
  std::optional<Address> rpcAddressOf(const std::string& name);
  std::string segmentKey(const std::string& name) const;
  std::string rpcKey(const std::string& name) const;

  // engine_view.cc
  std::string explain(SegmentID id, uint64_t offset, uint64_t length);

  // engine_submit.cc
  Status submit(Batch& batch, const std::vector<TransferRequest>& entries, Drive drive, uint64_t timeoutMs, std::function<void(Batch&)> whenDone);
  Status transferSync(const std::vector<TransferRequest>& entries, uint64_t timeoutMs);
  void transferAsync(const std::vector<TransferRequest>& entries, std::function<void(Status)> done, uint64_t timeoutMs, bool lingers);

  // engine_notify.cc
  std::string takeNotify(const std::string& name, const std::string& message);
  int getNotifies(std::vector<NotifyDesc>& list);
  int notifySegment(const std::string& name, const NotifyDesc& message);
  int probe(const std::string& name);

  Options options;
  Metrics metrics;
  BatchTable batches;
  MemoryRegistry registry;
  std::string name;
  bool autoDiscover;
  std::vector<std::string> filters;
  WorkPool pool;
  /** Threads for reads of folders that their owner fills on demand. */
  WorkPool fillPool;

  void describe();
  std::string recordText();
  bool started() const { return started_; }
  uint16_t rpcPort() const { return rpcPort_; }

 private:
  // engine_start.cc
  int bindPorts(const std::string& host, uint64_t rpcPort);
  void tick(size_t loop);
  void beat();
  bool answersAs(const Address& address);

  // Defined in engine_transports.cc:
  /** Returns null with lastError() on failure. */
  TransportRef make(const std::string& proto, const std::string& matrix);
  std::vector<TransportRef> installed() const;
  TransportRef find(const std::string& proto) const;
  std::shared_ptr<FileTransport> files() const;
  FileService fileService();

  // engine_files.cc
  /** Returns whether a folder or file may be served under this label; otherwise lastError() has the reason, prefixed with `caller`. */
  bool mayServe(const std::string& caller, const std::string& label);
  /** Publishes the record to peers that request it; returns the segment's name. */
  std::string serve(const std::string& label, SegmentDescriptor record);

  // engine_memory.cc
  /** Closes the buffers to all access and removes them. ERR_BATCH_BUSY while a process of this host may still copy to or from one. */
  int release(const std::vector<BufferRef>& buffers);
  SegmentDescriptor ownRecord();

  // engine_view.cc
  std::shared_ptr<SegmentView> makeView(Segment& segment, SegmentDescriptor record, const ViewRef& before);
  /** Exchanges our payload for the peer's. Returns nothing, with `why`, on failure. */
  std::optional<Json> exchange(const std::string& segmentName, const Json& payload, std::string& why);

  // engine_submit.cc
  void dispatch(std::vector<Slice>& slices, Drive drive, uint64_t deadlineNs, bool mayRefresh);
  /** Offers the slices to the segment's routes in order; slices that no route serves fail. */
  void route(Segment& segment, std::vector<Slice>& slices, Drive drive, uint64_t deadlineNs, bool mayRefresh);
  /** Copies within this process. */
  void copyOwn(const Slice& slice);

  // engine_recover.cc
  void broke(SegmentID segment, const RouteRef& route, Unfinished left) override;
  void gaveUp(SegmentID segment, const RouteRef& route, Slice slice, const std::string& error) override;
  /** Fails the slices past their deadline; `path` is the one they were on. */
  void failLate(std::vector<Slice>& slices, Path path, const std::string& trouble);
  /** Reads the record again if slices are left, by the deadline. Ends those that cannot continue, and returns those to retry. */
  std::vector<Slice> selectRetries(Segment& segment, const Route& route, const Unfinished& left, const std::shared_ptr<WaitingSlices>& waiting, uint64_t deadlineNs);
  /** Retries on a pool thread, over the segment's current route. */
  void recover(const SegmentRef& segment, const Route& route, const Unfinished& left, const std::shared_ptr<WaitingSlices>& waiting);
  /** Retries on the caller's thread, which also drives the next attempts. */
  void recoverHere(Segment& segment, RouteRef route, Unfinished left, uint64_t deadlineNs);
  void recoverStranded(const SegmentRef& segment, const RouteRef& before);
  /** Keeps the deadlines of waiting slices: until they are taken, tick() fails those that become due. */
  std::shared_ptr<WaitingSlices> waitWith(std::vector<Slice> slices, Path path, std::string trouble, std::vector<SegmentRef> segments);
  void expireWaiting();
  void fail(const Slice& slice, Path path, const std::string& error) { failSlice(metrics, path, slice, error); }
  /** Probes peers that have been silent for a while, and gives up those that are gone. */
  void watchSilent();
  /** Reads the record again on another thread, once at a time: the caller does not wait, and later requests see the changes. */
  void reread(const SegmentRef& segment);

  std::string host_, bindHost_;
  uint16_t rpcPort_ = 0, dataPort_ = 0;
  std::unique_ptr<MetadataStore> store_;
  bool handshake_ = false;
  std::atomic<bool> started_{false}, stopping_{false};
  std::string instance_, timestamp_;
  /** True after removeLocalSegment deleted the segment's record; the next published registration restores it. */
  std::atomic<bool> withdrawn_{false};
  /** True if another engine has taken the name. */
  std::atomic<bool> displaced_{false};
  std::vector<std::unique_ptr<EventLoop>> loops_;
  std::shared_ptr<RpcServer> rpc_;

  /** Serializes installations and removals. The list has its own lock, which is never held for long. */
  std::mutex installMutex_;
  mutable std::mutex listMutex_;
  std::vector<TransportRef> installed_;
  /** Peers are served through the data port, which uses this, too. */
  std::shared_ptr<FileTransport> files_;
  std::atomic<bool> watched_{false};
  /** The page outlives the shm transport, because buffers have slots in it until they are unregistered. */
  std::shared_ptr<ControlPage> control_;
  Json priorityMatrix_ = Json::object();

  std::mutex folderMutex_;
  std::map<std::string, SegmentDescriptor> folders_;

  std::recursive_mutex memoryMutex_;
  std::mutex recordMutex_;
  std::string record_;

  std::mutex segmentMutex_;
  std::unordered_map<SegmentID, SegmentRef> segments_;
  std::map<std::string, SegmentID> segmentIDs_;
  SegmentID nextSegment_ = 1;
  std::mutex waitingMutex_;
  std::list<std::weak_ptr<WaitingSlices>> waiting_;

  std::mutex notifyMutex_;
  std::deque<NotifyDesc> notifies_;
  uint64_t notifyBytes_ = 0;
  /** The number of callers inside submit; stopping waits for them. */
  std::atomic<int> inside_{0};

  std::thread heart_;
  std::mutex heartMutex_;
  std::condition_variable heartWake_;
};

/** Returns whether `machine` reads the segment's files directly. */
bool mountedOn(const SegmentDescriptor& record, const std::string& machine);

}  // namespace svc
