// The transfer engine for TypeScript: every operation of the specification, in Promise and Sync forms.
import { EngineCore, flag, portNumber } from "./engine-core.ts";
import { EngineSegments } from "./engine-segments.ts";
import type { Notify } from "./engine-transfers.ts";
import type { Memory } from "./memory.ts";

export type EngineOptions = {
  /** Installs the transports of this host at init: rdma if there is a device, shm and tcp. Otherwise installTransport must be called. */
  readonly autoDiscover?: boolean;
  /** The network devices that discovery may use; an empty list allows all. */
  readonly filter?: readonly string[];
  /** Settings by name, as listed in docs/transfer-engine.md: `brand`, `transfer_timeout_ms`, … */
  readonly settings?: Readonly<Record<string, string | number | boolean>>;
};

export type InitOptions = {
  /** P2PHANDSHAKE, [etcd://]host:port, redis://host:port or http://host:port/path. */
  readonly metadata: string;
  /** The name is unique in the cluster and also names this engine's RAM segment. With a handshake it is this host's address. */
  readonly name: string;
  /** The address to listen on and to publish. Default: with P2PHANDSHAKE the host of `name`, otherwise the address of the first interface. */
  readonly host?: string;
  /** 0 takes a free port of the range min_rpc_port to max_rpc_port. */
  readonly rpcPort?: number;
};

export type RegisterOptions = {
  /** With `*` the kernel is asked where the memory is; `cpu:0`, `cuda:1`, … state it. */
  readonly location?: string;
  /** If false, peers can neither see nor access the memory. */
  readonly remoteAccessible?: boolean;
  /** If false, the record never names the memory, so only peers that were given its address reach it. */
  readonly updateMetadata?: boolean;
};

/**
 * Moves bytes between registered memory here and segments of peers.
 *
 * Sync forms block the JavaScript thread until they end; sync transfers drive the sockets themselves and are the fastest. Every operation
 * throws a Failure: `name` is its kind, the message contains peer, range and cause, and `details.transferCode` is the core's code.
 */
export class TransferEngine extends EngineSegments {
  constructor(options: EngineOptions = {}) {
    super(new EngineCore(options.autoDiscover ?? false, options.filter ?? []));
    for (const [name, value] of Object.entries(options.settings ?? {})) this.core.call("setOption", [name, String(value)]);
  }

  /**
   * Opens the ports and publishes the engine. Every other operation requires it.
   * @throws TRANSFER_FAILED if a port is in use (the message names it), METADATA_UNAVAILABLE if the records cannot be written.
   */
  async init(options: InitOptions): Promise<void> {
    await this.core.callAsync("init", [options.metadata, options.name, options.host ?? ""], [portNumber(options.rpcPort ?? 0)]);
  }
  initSync(options: InitOptions): void {
    this.core.call("init", [options.metadata, options.name, options.host ?? ""], [portNumber(options.rpcPort ?? 0)]);
  }

  /**
   * Fails the transfers in flight, stops serving, and deletes this engine's metadata. The engine cannot be used afterwards.
   * @throws TRANSFER_BUSY if a process of this host is stopped in the middle of a copy: keep the memory, and call it again.
   */
  async freeEngine(): Promise<void> {
    await this.core.callAsync("freeEngine");
    this.core.views.clear();
  }
  freeEngineSync(): void {
    this.core.call("freeEngine");
    this.core.views.clear();
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
    const { view, address, byteLength } = this.core.views.check(memory);
    // The view also keeps the memory alive during the call.
    await this.core.callAsync("registerLocalMemory", [options.location ?? "*"], registration(address, byteLength, options));
    this.core.views.keep(address, view);
    return address;
  }
  registerLocalMemorySync(memory: Memory, options: RegisterOptions = {}): bigint {
    const { view, address, byteLength } = this.core.views.check(memory);
    this.core.call("registerLocalMemory", [options.location ?? "*"], registration(address, byteLength, options));
    this.core.views.keep(address, view);
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
      await this.core.callAsync("unregisterLocalMemory", [], [start, flag(updateMetadata)]);
    } finally {
      this.#letGo([start]);
    }
  }
  unregisterLocalMemorySync(start: bigint, updateMetadata = true): void {
    try {
      this.core.call("unregisterLocalMemory", [], [start, flag(updateMetadata)]);
    } finally {
      this.#letGo([start]);
    }
  }

  /** Registers all or none, and publishes once. @returns the addresses, in the order of the list. */
  async registerLocalMemoryBatch(list: readonly Memory[], location = "*"): Promise<bigint[]> {
    const checked = list.map((memory) => this.core.views.check(memory));
    const numbers = checked.flatMap(({ address, byteLength }) => [address, BigInt(byteLength)]);
    await this.core.callAsync("registerLocalMemoryBatch", [location], numbers);
    for (const { address, view } of checked) this.core.views.keep(address, view);
    return checked.map(({ address }) => address);
  }
  registerLocalMemoryBatchSync(list: readonly Memory[], location = "*"): bigint[] {
    const checked = list.map((memory) => this.core.views.check(memory));
    this.core.call(
      "registerLocalMemoryBatch",
      [location],
      checked.flatMap(({ address, byteLength }) => [address, BigInt(byteLength)]),
    );
    for (const { address, view } of checked) this.core.views.keep(address, view);
    return checked.map(({ address }) => address);
  }

  /** Tries every address, and then throws the first failure. */
  async unregisterLocalMemoryBatch(starts: readonly bigint[]): Promise<void> {
    try {
      await this.core.callAsync("unregisterLocalMemoryBatch", [], starts);
    } finally {
      this.#letGo(starts);
    }
  }
  unregisterLocalMemoryBatchSync(starts: readonly bigint[]): void {
    try {
      this.core.call("unregisterLocalMemoryBatch", [], starts);
    } finally {
      this.#letGo(starts);
    }
  }

  /** Releases the views that the core no longer holds: a failure may concern only some addresses, or only the publication. */
  #letGo(starts: readonly bigint[]): void {
    for (const start of starts) if (!this.checkOverlap(start, 1)) this.core.views.release(start);
  }

  /** Returns whether the range shares a byte with registered memory. */
  checkOverlap(start: bigint, lengthBytes: number | bigint): boolean {
    return this.core.call("checkOverlap", [], [start, BigInt(lengthBytes)]) === 1;
  }

  /** Returns the messages of peers since the last call, in order. At most max_notifies wait. */
  getNotifies(): Notify[] {
    const list = JSON.parse(this.core.call("getNotifies") as string) as [string, string][];
    return list.map(([name, msg]) => ({ name, msg }));
  }

  async sendNotifyByID(targetID: bigint, notify: Notify): Promise<void> {
    await this.core.callAsync("sendNotifyByID", [notify.name, notify.msg], [targetID]);
  }
  sendNotifyByIDSync(targetID: bigint, notify: Notify): void {
    this.core.call("sendNotifyByID", [notify.name, notify.msg], [targetID]);
  }
  /** Sends to a peer whose segment need not be open. */
  async sendNotifyByName(remoteAgent: string, notify: Notify): Promise<void> {
    await this.core.callAsync("sendNotifyByName", [remoteAgent, notify.name, notify.msg]);
  }
  sendNotifyByNameSync(remoteAgent: string, notify: Notify): void {
    this.core.call("sendNotifyByName", [remoteAgent, notify.name, notify.msg]);
  }
}

function registration(address: bigint, byteLength: number, options: RegisterOptions): bigint[] {
  return [address, BigInt(byteLength), flag(options.remoteAccessible ?? true), flag(options.updateMetadata ?? true)];
}
