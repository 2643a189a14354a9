// The memory that this client offers: registered with the engine, mounted at the master, and freed once no peer can access it.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Failure, fail } from "@svc/contract/failures.ts";
import type { TransferEngine } from "@svc/transfer/engine.ts";
import type { Proto } from "@svc/transfer/engine-options.ts";
import type { Segment } from "../../rpc/shapes.ts";
import { NOF_BLOCK, type NofFile } from "../nof-file.ts";
import { type Bytes, FreshMemory } from "./fresh-memory.ts";

//   mounting ──taken──> mounted ──unmount with grace──> leaving ──deadline──> freeing ──no transfer touches it──> (gone)
//       \──refused──────────\──────────unmount at once─────────────────────────>/

export type SegmentState =
  | { readonly name: "mounting" }
  | { readonly name: "mounted" }
  | { readonly name: "leaving"; readonly atMs: number }
  /** The master has unmounted the segment. */
  | { readonly name: "freeing" };

/** The memory of one mount: one segment, or several where the protocol limits the size of a registration. */
type Region = { readonly memory: Bytes; parts: number };

export type Mounted = {
  readonly segment: Segment;
  /** Both are undefined for a NOF segment, whose bytes lie in a file. */
  readonly memory: Bytes | undefined;
  readonly region: Region | undefined;
  /** The label of a NOF segment's file in the engine. */
  readonly label?: string;
  /** The purpose of the mount in the caller's words, which an unmount may check. */
  readonly purpose: string;
  state: SegmentState;
  timer?: NodeJS.Timeout;
  /** Pending reads of this process that bypass the engine. */
  readonly reads: Set<Promise<void>>;
};

export type MountOptions = {
  /** The transport by which peers reach it; the engine must have it installed. */
  readonly protocol?: string;
  /** A device or NUMA location near the memory, for the engine. */
  readonly location?: string;
  /** The maximum size of one registration; unlimited by default. */
  readonly maxRegistrationBytes?: number;
  readonly purpose?: string;
};

const FIRST_RETRY_MS = 20;
const MAX_RETRY_MS = 1000;
/** Bounds the segments of one client. */
const MAX_SEGMENTS = 4096;

export type SegmentsOptions = { readonly engine: TransferEngine; readonly hostID: string; readonly name?: string };

/** The table of segments and their memory; it does not call the master. */
export class Segments {
  readonly #engine: TransferEngine;
  readonly #hostID: string;
  readonly #name: string;
  readonly #fresh = new FreshMemory();
  readonly #all = new Map<string, Mounted>();
  readonly #freeing = new Set<Promise<void>>();
  #isClosed = false;

  constructor({ engine, hostID, name }: SegmentsOptions) {
    this.#engine = engine;
    this.#hostID = hostID;
    this.#name = name ?? engine.getServerName();
  }

  all(): readonly Mounted[] {
    return [...this.#all.values()];
  }

  get(id: string): Mounted | undefined {
    return this.#all.get(id);
  }

  /** Allocates and registers zeroed memory of this process. */
  async allocate(sizeBytes: number, options: MountOptions): Promise<Mounted[]> {
    return this.#register(() => this.#fresh.allocate(sizeBytes), sizeBytes, options);
  }

  /** Maps and registers a shared memory object that another process created. */
  async map(name: string, offset: number, sizeBytes: number, options: MountOptions): Promise<Mounted[]> {
    return this.#register(() => this.#fresh.map(name, offset, sizeBytes), sizeBytes, options);
  }

  /** Serves a file or device as a NOF segment; the caller keeps it open and closes it. */
  async serve(file: NofFile): Promise<Mounted> {
    if (this.#isClosed) fail("SHUTTING_DOWN", "the store's client is closed");
    if (this.#engine.getTransport("nvmeof") === undefined) await this.#engine.installTransport("nvmeof");
    const endpoint = await this.#engine.serveFile(file.label, file.path);
    const { id, segmentName: name, label } = file;
    const segment = { id, name, base: BigInt(NOF_BLOCK), sizeBytes: BigInt(file.sizeBytes), endpoint, protocol: "nvmeof", hostID: this.#hostID };
    const mounted: Mounted = { segment, memory: undefined, region: undefined, label, purpose: "nof", state: { name: "mounting" }, reads: new Set() };
    this.#all.set(id, mounted);
    return mounted;
  }

  /** Returns the segments that the master should know, for mounting them again after its restart. */
  known(): Segment[] {
    return this.all().flatMap(({ segment, state }) => (state.name === "mounted" || state.name === "leaving" ? [segment] : []));
  }

  /** Keeps the memory of a range until the returned function is called; undefined if the range is not mounted. */
  hold(address: bigint, sizeBytes: number): (() => void) | undefined {
    for (const { segment, state, reads, region } of this.#all.values()) {
      if (region === undefined || address < segment.base || address + BigInt(sizeBytes) > segment.base + segment.sizeBytes || state.name === "freeing")
        continue;
      const { promise, resolve } = Promise.withResolvers<void>();
      reads.add(promise);
      return () => {
        reads.delete(promise);
        resolve();
      };
    }
    return undefined;
  }

  /** Ends access by peers at once; the memory is freed when no transfer uses it. */
  free(mounted: Mounted): Promise<void> {
    clearTimeout(mounted.timer);
    mounted.state = { name: "freeing" };
    const freed = this.#free(mounted).finally(() => this.#freeing.delete(freed));
    this.#freeing.add(freed);
    return freed;
  }

  /** Waits for memory that is being freed. Memory that a transfer still uses after `boundMs` is kept until this process ends. */
  async close(boundMs: number): Promise<void> {
    this.#isClosed = true;
    for (const mounted of this.all()) if (mounted.state.name !== "freeing") void this.free(mounted);
    await Promise.race([Promise.all(this.#freeing), sleep(boundMs, undefined, { ref: false })]);
  }

  async #register(make: () => Bytes, sizeBytes: number, options: MountOptions): Promise<Mounted[]> {
    const { protocol = "tcp", location = "*", maxRegistrationBytes = sizeBytes, purpose = "" } = options;
    if (this.#isClosed) fail("SHUTTING_DOWN", "the store's client is closed");
    if (this.#engine.getTransport(protocol as Proto) === undefined)
      fail("TRANSPORT_UNAVAILABLE", `protocol ${JSON.stringify(protocol)} is not installed in this engine, and no other is used instead`);
    const parts = Math.ceil(sizeBytes / maxRegistrationBytes);
    if (this.#all.size + parts > MAX_SEGMENTS)
      fail("CAPACITY_EXHAUSTED", `${parts} more segments: the maximum of one client is ${MAX_SEGMENTS}, and it has ${this.#all.size}`);
    const memory = make();
    const region: Region = { memory, parts };
    const pieces = Array.from({ length: parts }, (_, at) => memory.subarray(at * maxRegistrationBytes, Math.min(sizeBytes, (at + 1) * maxRegistrationBytes)));
    const registered: bigint[] = [];
    try {
      for (const piece of pieces) registered.push(await this.#engine.registerLocalMemory(piece, { location: location === "" ? "*" : location }));
    } catch (error) {
      // No peer knows these addresses yet.
      for (const base of registered) await this.#unregister(base);
      this.#fresh.free(memory);
      throw error;
    }
    return pieces.map((piece, at) => {
      const base = registered[at] as bigint;
      const segment: Segment = {
        id: randomUUID(),
        name: this.#name,
        base,
        sizeBytes: BigInt(piece.byteLength),
        endpoint: this.#engine.getServerName(),
        protocol,
        hostID: this.#hostID,
      };
      const mounted: Mounted = { segment, memory: piece, region, purpose, state: { name: "mounting" }, reads: new Set() };
      this.#all.set(segment.id, mounted);
      return mounted;
    });
  }

  async #free(mounted: Mounted): Promise<void> {
    const { segment, region, reads, label } = mounted;
    if (label !== undefined) this.#engine.stopFolder(label);
    else await this.#unregister(segment.base);
    await Promise.all(reads);
    this.#all.delete(segment.id);
    if (region === undefined) return;
    region.parts--;
    if (region.parts === 0) this.#fresh.free(region.memory);
  }

  /** Resolves when no transfer uses the memory; new transfers are refused meanwhile. */
  async #unregister(base: bigint): Promise<void> {
    for (let delayMs = FIRST_RETRY_MS; ; delayMs = Math.min(MAX_RETRY_MS, delayMs * 2)) {
      try {
        return await this.#engine.unregisterLocalMemory(base);
      } catch (error) {
        // The engine no longer has the range, which is all that matters: peers that use an outdated metadata record are refused.
        if (!this.#engine.checkOverlap(base, 1)) return;
        if (!(error instanceof Failure)) throw error;
        await sleep(delayMs, undefined, { ref: false });
      }
    }
  }
}
