// The transfer engine for TypeScript: every operation of the specification, in Promise and Sync forms.
// Longer than 300 lines: one class has all operations, and most of the lines are their two forms and what each throws.
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import { EngineCore, flag, portNumber } from "./engine-core.ts";
import type { EngineOptions, InitOptions, MetadataView, Notify, Proto, RegisterOptions, Topology, TransferStatus, TransportInfo } from "./engine-options.ts";
import type { Memory } from "./memory.ts";
import { native, transferPromise } from "./native.ts";
import { packRanges, packRequests, type Ranges, type TransferRequest } from "./request.ts";
import { failureFor, INVALID_BATCH_ID, INVALID_SEGMENT_ID, OPCODE, type Opcode, transferStatuses } from "./status.ts";

/** No limit for a promise that ends with its batch: transfers have their own time-out. */
const NO_LIMIT_MS = 0xffff_ffffn;

/**
 * Moves bytes between registered memory here and segments of peers.
 *
 * Sync forms block the JavaScript thread until they end; sync transfers drive the sockets themselves and are the fastest. Every operation
 * throws a Failure: `name` is its kind, the message contains peer, range and cause, and `details.transferCode` is the core's code.
 */
export class TransferEngine {
  readonly #core: EngineCore;

  constructor(options: EngineOptions = {}) {
    this.#core = new EngineCore(options.autoDiscover ?? false, options.filter ?? []);
    for (const [name, value] of Object.entries(options.settings ?? {})) this.#core.call("setOption", [name, String(value)]);
  }

  /**
   * Opens the ports and publishes the engine. Every other operation requires it.
   * @throws TRANSFER_FAILED if a port is in use (the message names it), METADATA_UNAVAILABLE if the records cannot be written.
   */
  async init(options: InitOptions): Promise<void> {
    await this.#core.callAsync("init", [options.metadata, options.name, options.host ?? ""], [portNumber(options.rpcPort ?? 0)]);
  }
  initSync(options: InitOptions): void {
    this.#core.call("init", [options.metadata, options.name, options.host ?? ""], [portNumber(options.rpcPort ?? 0)]);
  }

  /**
   * Fails the transfers in flight, stops serving, and deletes this engine's metadata. The engine cannot be used afterwards.
   * @throws TRANSFER_BUSY if a process of this host is stopped in the middle of a copy: keep the memory, and call it again.
   */
  async freeEngine(): Promise<void> {
    await this.#core.callAsync("freeEngine");
    this.#core.views.clear();
  }
  freeEngineSync(): void {
    this.#core.call("freeEngine");
    this.#core.views.clear();
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await this.freeEngine();
  }

  /**
   * Registers memory; typed arrays and buffers are kept alive until they are unregistered.
   * @returns the address that peers use as target offset.
   * @throws MEMORY_OVERLAPS, INVALID_REQUEST (empty or resizable memory), METADATA_UNAVAILABLE; on a failure nothing is registered.
   */
  async registerLocalMemory(memory: Memory, options: RegisterOptions = {}): Promise<bigint> {
    const { view, address, byteLength } = this.#core.views.check(memory);
    // The view also keeps the memory alive during the call.
    await this.#core.callAsync("registerLocalMemory", [options.location ?? "*"], registration(address, byteLength, options));
    this.#core.views.keep(address, view);
    return address;
  }
  registerLocalMemorySync(memory: Memory, options: RegisterOptions = {}): bigint {
    const { view, address, byteLength } = this.#core.views.check(memory);
    this.#core.call("registerLocalMemory", [options.location ?? "*"], registration(address, byteLength, options));
    this.#core.views.keep(address, view);
    return address;
  }

  /**
   * Once it resolves, no byte of a peer or of this process enters or leaves the memory. `start` is the address that registration returned.
   * @throws MEMORY_NOT_REGISTERED; TRANSFER_BUSY while requests in flight use the memory, or while a process of this host is stopped in the
   * middle of a copy. In that case the memory is closed to new requests and must be kept, and it can be unregistered once that process
   * continues or ends.
   */
  async unregisterLocalMemory(start: bigint, updateMetadata = true): Promise<void> {
    try {
      await this.#core.callAsync("unregisterLocalMemory", [], [start, flag(updateMetadata)]);
    } finally {
      this.#letGo([start]);
    }
  }
  unregisterLocalMemorySync(start: bigint, updateMetadata = true): void {
    try {
      this.#core.call("unregisterLocalMemory", [], [start, flag(updateMetadata)]);
    } finally {
      this.#letGo([start]);
    }
  }

  /** Registers all or none, and publishes once. @returns the addresses, in the order of the list. */
  async registerLocalMemoryBatch(list: readonly Memory[], location = "*"): Promise<bigint[]> {
    const checked = list.map((memory) => this.#core.views.check(memory));
    const numbers = checked.flatMap(({ address, byteLength }) => [address, BigInt(byteLength)]);
    await this.#core.callAsync("registerLocalMemoryBatch", [location], numbers);
    for (const { address, view } of checked) this.#core.views.keep(address, view);
    return checked.map(({ address }) => address);
  }
  registerLocalMemoryBatchSync(list: readonly Memory[], location = "*"): bigint[] {
    const checked = list.map((memory) => this.#core.views.check(memory));
    this.#core.call(
      "registerLocalMemoryBatch",
      [location],
      checked.flatMap(({ address, byteLength }) => [address, BigInt(byteLength)]),
    );
    for (const { address, view } of checked) this.#core.views.keep(address, view);
    return checked.map(({ address }) => address);
  }

  /** Tries every address, and then throws the first failure. */
  async unregisterLocalMemoryBatch(starts: readonly bigint[]): Promise<void> {
    try {
      await this.#core.callAsync("unregisterLocalMemoryBatch", [], starts);
    } finally {
      this.#letGo(starts);
    }
  }
  unregisterLocalMemoryBatchSync(starts: readonly bigint[]): void {
    try {
      this.#core.call("unregisterLocalMemoryBatch", [], starts);
    } finally {
      this.#letGo(starts);
    }
  }

  /** Releases the views that the core no longer holds: a failure may concern only some addresses, or only the publication. */
  #letGo(starts: readonly bigint[]): void {
    for (const start of starts) if (!this.checkOverlap(start, 1)) this.#core.views.release(start);
  }

  /** Returns whether the range shares a byte with registered memory. */
  checkOverlap(start: bigint, lengthBytes: number | bigint): boolean {
    return this.#core.call("checkOverlap", [], [start, BigInt(lengthBytes)]) === 1;
  }

  /**
   * Opens a peer's segment by name: its server name, or `nvmeof/<file segment>`. The same name gives the same handle.
   * @throws METADATA_UNAVAILABLE if it has no record, or its peer does not answer.
   */
  async openSegment(segmentName: string): Promise<bigint> {
    return (await this.#core.callAsync("openSegment", [segmentName])) as bigint;
  }
  /**
   * With `timeoutMs` the call blocks the thread no longer than that, even if the segment's folder or peer hangs. The operation continues,
   * and the same call made again waits for it. @throws TIMED_OUT after that time.
   */
  openSegmentSync(segmentName: string, timeoutMs?: number): bigint {
    if (timeoutMs === undefined) return this.#core.call("openSegment", [segmentName]) as bigint;
    const opened = this.#core.callWithin(timeoutMs, "openSegment", [segmentName]) as bigint | undefined;
    return opened ?? fail("TIMED_OUT", `segment ${segmentName} was not opened within ${timeoutMs} ms`);
  }
  /** Like openSegment, but returns the invalid handle instead of throwing a failure. */
  async tryOpenSegment(segmentName: string): Promise<bigint> {
    try {
      return await this.openSegment(segmentName);
    } catch (error) {
      if (error instanceof Failure) return INVALID_SEGMENT_ID;
      throw error;
    }
  }

  /** Releases the handle. When the last opener closes it, the connections to the peer close and their transfers in flight fail. */
  closeSegment(segmentID: bigint): void {
    this.#core.call("closeSegment", [], [segmentID]);
  }

  /** Forgets a peer's cached record. For this engine's own name it deletes the record from the metadata service. */
  async removeLocalSegment(segmentName: string): Promise<void> {
    await this.#core.callAsync("removeLocalSegment", [segmentName]);
  }
  removeLocalSegmentSync(segmentName: string): void {
    this.#core.call("removeLocalSegment", [segmentName]);
  }

  /**
   * Serves a folder of this host as the segment `nvmeof/SERVER/LABEL`, which peers can read, with or without a metadata service. File N,
   * named by eight hexadecimal digits, begins at N << 35. Needs the transports nvmeof and tcp. @returns the segment's name. @throws
   * INVALID_REQUEST.
   */
  async serveFolder(label: string, path: string): Promise<string> {
    return (await this.#core.callAsync("serveFolder", [label, path])) as string;
  }
  /**
   * Serves a file or block device of this host, with its present length, as the segment `nvmeof/SERVER/LABEL`, which peers read and write
   * through this engine, with or without a metadata service. Needs the transports nvmeof and tcp. @returns the segment's name. @throws
   * INVALID_REQUEST.
   */
  async serveFile(label: string, path: string): Promise<string> {
    return (await this.#core.callAsync("serveFile", [label, path])) as string;
  }
  /** Stops serving a folder or a file. Peers that have the segment open can use it until they close it. */
  stopFolder(label: string): void {
    this.#core.call("stopFolder", [label]);
  }

  /**
   * Resolves if the peer answers and its record is valid. @throws SERVER_UNREACHABLE, METADATA_UNAVAILABLE, TRANSPORT_UNAVAILABLE
   * otherwise.
   */
  async checkSegmentStatus(segmentID: bigint): Promise<void> {
    await this.#core.callAsync("CheckSegmentStatus", [], [segmentID]);
  }
  checkSegmentStatusSync(segmentID: bigint): void {
    this.#core.call("CheckSegmentStatus", [], [segmentID]);
  }

  /** Reads the record of one open segment, or of all, again. */
  async syncSegmentCache(segmentName = ""): Promise<void> {
    await this.#core.callAsync("syncSegmentCache", [segmentName]);
  }
  syncSegmentCacheSync(segmentName = ""): void {
    this.#core.call("syncSegmentCache", [segmentName]);
  }

  /**
   * Returns whether the peer of an open segment answers a probe.
   * @throws INVALID_REQUEST if the segment is not open.
   */
  async probePeerAlive(segmentID: bigint): Promise<boolean> {
    try {
      await this.#core.callAsync("probePeerAliveByID", [], [segmentID]);
      return true;
    } catch (error) {
      if (error instanceof Failure && error.name !== "INVALID_REQUEST") return false;
      throw error;
    }
  }

  /** @throws TRANSPORT_UNAVAILABLE with the reason if this host does not support it; no other transport replaces it. */
  async installTransport(proto: Proto, priorityMatrix?: Topology): Promise<TransportInfo> {
    await this.#core.callAsync("installTransport", [proto, priorityMatrix === undefined ? "" : JSON.stringify(priorityMatrix)]);
    return this.getTransport(proto) as TransportInfo;
  }
  installTransportSync(proto: Proto, priorityMatrix?: Topology): TransportInfo {
    this.#core.call("installTransport", [proto, priorityMatrix === undefined ? "" : JSON.stringify(priorityMatrix)]);
    return this.getTransport(proto) as TransportInfo;
  }

  /** Closes the transport's connections and publishes the engine without it. */
  async uninstallTransport(proto: Proto): Promise<void> {
    await this.#core.callAsync("uninstallTransport", [proto]);
  }
  uninstallTransportSync(proto: Proto): void {
    this.#core.call("uninstallTransport", [proto]);
  }

  getTransport(proto: Proto): TransportInfo | undefined {
    try {
      return { proto, contexts: this.#core.call("getTransport", [proto]) as number };
    } catch (error) {
      if (error instanceof Failure) return undefined;
      throw error;
    }
  }

  getMetadata(): MetadataView {
    const core = this.#core;
    return {
      async segmentDescriptor(name) {
        const text = (await core.callAsync("segmentDescriptor", [name])) as string;
        return text === "" ? undefined : text;
      },
      segmentKey: (name) => core.call("segmentKey", [name]) as string,
      rpcKey: (name) => core.call("rpcKey", [name]) as string,
    };
  }

  /** Has an effect only before init. */
  setAutoDiscover(autoDiscover: boolean): void {
    this.#core.call("setAutoDiscover", [], [flag(autoDiscover)]);
  }
  /** Sets the devices that discovery and the rdma transport may use. */
  setWhitelistFilters(filters: readonly string[]): void {
    this.#core.call("setWhitelistFilters", filters);
  }
  /** The number of active contexts: one per transport, for rdma one per device. */
  numContexts(): number {
    return this.#core.call("numContexts") as number;
  }
  getLocalTopology(): Topology {
    return JSON.parse(this.#core.call("getLocalTopology") as string) as Topology;
  }
  /** host:port of the handshake port; empty before init. */
  getLocalIpAndPort(): string {
    return this.#core.call("getLocalIpAndPort") as string;
  }
  getRpcPort(): number {
    return this.#core.call("getRpcPort") as number;
  }
  /** The name that peers open: as given, or host:port if a handshake replaces the metadata service. */
  getServerName(): string {
    return this.#core.call("getServerName") as string;
  }
  /** Returns the path that a request to this range takes, and why each earlier one was skipped. */
  explainPath(segmentID: bigint, targetOffset: bigint, lengthBytes: number | bigint): string {
    return this.#core.call("explainPath", [], [segmentID, targetOffset, BigInt(lengthBytes)]) as string;
  }

  /** Allocates a batch of at most `batchSize` requests. Returns INVALID_BATCH_ID if none is available. */
  allocateBatchID(batchSize: number): bigint {
    try {
      return this.#core.call("allocateBatchID", [], [BigInt(batchSize)]) as bigint;
    } catch {
      return INVALID_BATCH_ID;
    }
  }

  /**
   * Starts all requests, which end in the background, or refuses all of them.
   * @throws TOO_MANY_REQUESTS above the batch's size, MEMORY_NOT_REGISTERED, INVALID_REQUEST, TRANSPORT_UNAVAILABLE.
   */
  submitTransfer(batchID: bigint, entries: readonly TransferRequest[]): void {
    this.#core.views.recheck();
    this.#core.checked(native().submit(this.#core.handle, batchID, packRequests(entries)));
  }

  /**
   * Like submitTransfer. Once all requests have completed, the first entry's target receives the message, whether or not the caller queries
   * the status.
   */
  submitTransferWithNotify(batchID: bigint, entries: readonly TransferRequest[], notify: Notify): void {
    this.#core.views.recheck();
    this.#core.checked(native().submit(this.#core.handle, batchID, packRequests(entries), notify.name, notify.msg));
  }

  /** `taskID` is the request's index in the batch. */
  getTransferStatus(batchID: bigint, taskID: number): TransferStatus {
    return this.#status(batchID, taskID);
  }

  /** FAILED as soon as one request failed, COMPLETED once all did. The bytes are those of completed requests. */
  getBatchTransferStatus(batchID: bigint): TransferStatus {
    return this.#status(batchID, -1);
  }

  #status(batchID: bigint, task: number): TransferStatus {
    const out = new BigUint64Array(2);
    this.#core.checked(native().status(this.#core.handle, batchID, task, out));
    return { status: transferStatuses[Number(out[0])] ?? "INVALID", transferredBytes: out[1] ?? 0n };
  }

  /** The reason why a request FAILED: peer, range and cause. Empty otherwise. */
  getTransferError(batchID: bigint, taskID: number): string {
    return this.#core.call("getTransferError", [], [batchID, BigInt(taskID)]) as string;
  }

  /** Resolves once no request of the batch is in flight; false after `timeoutMs`. */
  async waitBatch(batchID: bigint, timeoutMs?: number): Promise<boolean> {
    return (await this.#core.callAsync("waitBatch", [], [batchID, timeoutMs === undefined ? NO_LIMIT_MS : BigInt(timeoutMs)])) === 1;
  }
  waitBatchSync(batchID: bigint, timeoutMs?: number): boolean {
    return this.#core.call("waitBatch", [], [batchID, timeoutMs === undefined ? NO_LIMIT_MS : BigInt(timeoutMs)]) === 1;
  }

  /** @throws TRANSFER_BUSY while requests are in flight, INVALID_REQUEST for a handle that was freed or never allocated. */
  freeBatchID(batchID: bigint): void {
    this.#core.call("freeBatchID", [], [batchID]);
  }

  /**
   * Transfers ranges to or from one target; resolves when all have completed. 0 ms means the engine's transfer_timeout_ms.
   * @throws TRANSFER_FAILED with the first failed range; others may have been transferred.
   */
  transfer(opcode: Opcode, targetID: bigint, ranges: Ranges, timeoutMs = 0): Promise<void> {
    try {
      this.#core.views.recheck();
      const keep = [this.#core, ranges];
      return transferPromise(this.#core.handle, OPCODE[opcode], targetID, packRanges(ranges), timeoutMs, keep, failureFor);
    } catch (error) {
      return Promise.reject(asFailure(error));
    }
  }
  transferSync(opcode: Opcode, targetID: bigint, ranges: Ranges, timeoutMs = 0): void {
    this.#core.views.recheck();
    this.#core.checked(native().transferSync(this.#core.handle, OPCODE[opcode], targetID, packRanges(ranges), timeoutMs));
  }

  /** The engine's counters in Prometheus' text format. */
  metrics(): string {
    return this.#core.call("metrics") as string;
  }

  /** Returns the messages of peers since the last call, in order. At most max_notifies wait. */
  getNotifies(): Notify[] {
    const list = JSON.parse(this.#core.call("getNotifies") as string) as [string, string][];
    return list.map(([name, msg]) => ({ name, msg }));
  }

  async sendNotifyByID(targetID: bigint, notify: Notify): Promise<void> {
    await this.#core.callAsync("sendNotifyByID", [notify.name, notify.msg], [targetID]);
  }
  sendNotifyByIDSync(targetID: bigint, notify: Notify): void {
    this.#core.call("sendNotifyByID", [notify.name, notify.msg], [targetID]);
  }
  /** Sends to a peer whose segment need not be open. */
  async sendNotifyByName(remoteAgent: string, notify: Notify): Promise<void> {
    await this.#core.callAsync("sendNotifyByName", [remoteAgent, notify.name, notify.msg]);
  }
  sendNotifyByNameSync(remoteAgent: string, notify: Notify): void {
    this.#core.call("sendNotifyByName", [remoteAgent, notify.name, notify.msg]);
  }
}

function registration(address: bigint, byteLength: number, options: RegisterOptions): bigint[] {
  return [address, BigInt(byteLength), flag(options.remoteAccessible ?? true), flag(options.updateMetadata ?? true)];
}
