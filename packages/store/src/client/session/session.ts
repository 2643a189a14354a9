// A client's membership in the cluster: its id, its pings, its memory as the master knows it, its tasks, and its end.
import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import type { RpcClient } from "../../rpc/client.ts";
import { codes } from "../../rpc/codes.ts";
import type { ArgsOf, OperationName, ResultOf } from "../../rpc/operations.ts";
import type { NofFile } from "../nof-file.ts";
import { Connections } from "./connections.ts";
import { type Discovery, openDiscovery } from "./discovery.ts";
import { greet } from "./greet.ts";
import { Holdings } from "./holdings.ts";
import { mountWhenFree } from "./mount-when-free.ts";
import { refusal } from "./refusal.ts";
import { type Mounted, type MountOptions, Segments } from "./segments.ts";
import { MAX_GRACE_MS, type SessionOptions } from "./session-options.ts";
import { runTasks, type TaskExecutor } from "./task-loop.ts";

const NEEDS_REMOUNT = 2;
const PING_MS = 1000;
/** The ping interval while the leading master is being looked for. */
const SEEK_MS = 50;
const CALL_MS = 5000;
const JOIN_MS = 10_000;
/** The time limit of repeated calls, as a multiple of one call's. */
const REPEATED_CALLS = 3;
/** Failures that waiting for the master does not resolve. */
const LASTING = ["HOST_UNSUITABLE", "UNAUTHENTICATED", "ACCESS_DENIED"];
const CLOSE_CALL_MS = 2000;
const CLOSE_MEMORY_MS = 5000;

export class Session {
  readonly clientID = randomUUID() as string;
  readonly hostID: string;
  readonly segments: Segments;
  readonly discovery: Discovery;
  readonly #options: SessionOptions;
  readonly #calls: Connections;
  /** A connection of its own, so that pings and mounts never wait behind a batch of keys. */
  readonly #membership: Connections;
  readonly #holdings: Holdings;
  readonly #repeatMs: number;
  readonly #stop = new AbortController();
  /** Serializes the changes of what is mounted. */
  #last: Promise<unknown> = Promise.resolve();
  #loops: Promise<unknown>[] = [];
  #state: "joining" | "joined" | "away" | "closed" = "joining";
  /** The master may know only some of this client's segments. */
  #mustRemount = false;
  #nudge = new AbortController();

  private constructor(options: SessionOptions) {
    this.#options = options;
    this.hostID = options.hostID ?? hostname();
    this.segments = new Segments({ engine: options.engine, hostID: this.hostID });
    this.#holdings = new Holdings({ clientID: this.clientID, segments: this.segments, maxBytes: options.remembersBytes ?? 0 });
    const brand = options.brand ?? "svc";
    this.discovery = openDiscovery(options.master, { brand, clusterID: options.clusterID, certificates: options.certificates });
    const shared = { master: this.discovery, brand, callMs: options.callMs ?? CALL_MS, token: options.token };
    this.#repeatMs = shared.callMs * REPEATED_CALLS;
    this.#calls = new Connections({ ...shared, count: options.connections ?? 3 });
    this.#membership = new Connections({ ...shared, count: 1, greet });
    this.discovery.onMove(() => this.#onMove());
  }

  /** @throws SERVER_UNREACHABLE when no master answers within `joinMs`, HOST_UNSUITABLE for one of another version, UNAUTHENTICATED without a valid key. */
  static async open(options: SessionOptions): Promise<Session> {
    const session = new Session(options);
    const endMs = performance.now() + (options.joinMs ?? JOIN_MS);
    try {
      while (!(await session.#ping(performance.now() > endMs))) await sleep(Math.min(200, options.pingMs ?? PING_MS));
    } catch (error) {
      await session.close();
      throw error;
    }
    session.#loops = [session.#pingLoop(), session.#followLoop(), ...(options.execute === undefined ? [] : [session.#taskLoop(options.execute)])];
    return session;
  }

  /** True while the master knows this client. */
  get isJoined(): boolean {
    return this.#state === "joined";
  }

  /** The connections for calls about keys. */
  get calls(): Connections {
    return this.#calls;
  }

  /** @see Connections.call */
  call<N extends OperationName>(name: N, ...args: ArgsOf<N>): Promise<ResultOf<N>> {
    return this.#calls.call(name, ...args);
  }

  /** Mounts memory of this process for the cluster's objects. */
  mountNew(sizeBytes: number, options: MountOptions = {}): Promise<Mounted[]> {
    return this.#inOrder(async () => this.#mount(await this.segments.allocate(sizeBytes, options)));
  }

  /** Mounts a shared memory object of this host, from `offset` on. */
  mountShared(name: string, offset: number, sizeBytes: number, options: MountOptions = {}): Promise<Mounted[]> {
    return this.#inOrder(async () => this.#mount(await this.segments.map(name, offset, sizeBytes, options)));
  }

  /** Mounts a NOF segment; one of another process is taken over once that process's lease has expired. @throws as other mounts. */
  async mountFile(file: NofFile): Promise<Mounted> {
    return mountWhenFree(async () => (await this.#inOrder(async () => this.#mount([await this.segments.serve(file)])))[0] as Mounted);
  }

  /**
   * Unmounts a segment. With a grace period it accepts no new objects and stays readable until the period ends; without one its objects are gone at
   * once. The memory is freed once no transfer uses it; with `graceMs` 0 before this resolves, unless a transfer still runs.
   * @throws STORE_KEY_NOT_FOUND for an id that is not mounted, SERVER_UNREACHABLE: then it stays mounted.
   */
  async unmount(id: string, graceMs = 0): Promise<void> {
    await this.#inOrder(async () => {
      const mounted = this.segments.get(id) ?? fail("STORE_KEY_NOT_FOUND", `segment ${id} is not mounted here`);
      if (mounted.state.name === "freeing") return;
      if (graceMs > 0) await this.#leave(mounted, Math.min(graceMs, MAX_GRACE_MS));
      else await this.#unmountNow(mounted);
    });
  }

  /** Unmounts everything, waits for transfers within a bound, and ends all calls. */
  async close(): Promise<void> {
    if (this.#state === "closed") return;
    const wasJoined = this.isJoined;
    this.#state = "closed";
    this.#stop.abort();
    const endMs = performance.now() + CLOSE_CALL_MS;
    await Promise.race([this.#last, sleep(CLOSE_CALL_MS, undefined, { ref: false })]);
    // A master that does not answer notices the missing pings soon enough.
    const bounded = (asked: Promise<unknown>) => Promise.race([asked.catch(() => undefined), sleep(endMs - performance.now(), undefined, { ref: false })]);
    // A NOF segment outlives this process: the next process to open its file has its objects.
    for (const { segment, region } of this.segments.all())
      if (performance.now() < endMs && region !== undefined) await bounded(this.#membership.call("UnmountSegment", segment.id, this.clientID));
    if (wasJoined) await bounded(this.#membership.call("Leave", this.clientID));
    this.#membership.close();
    this.#calls.close();
    await this.discovery.close();
    await this.segments.close(CLOSE_MEMORY_MS);
    await Promise.all(this.#loops);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #mount(pieces: Mounted[]): Promise<Mounted[]> {
    try {
      this.#mustRemount = true;
      for (const mounted of pieces) {
        const outcome = await this.#membership.callUntil(this.#repeatMs, "MountSegment", mounted.segment, this.clientID);
        if (!outcome.ok) throw refusal(outcome.code, `mounting ${mounted.segment.sizeBytes} bytes by ${mounted.segment.protocol}`);
        mounted.state = { name: "mounted" };
      }
      // A master that had lost this client took the new segments for all of its memory; if this remount fails, the next ping repeats it.
      await this.#membership
        .connection()
        .then((rpc) => this.#remount(rpc))
        .catch(() => undefined);
      return pieces;
    } catch (error) {
      for (const mounted of pieces) {
        await this.#membership.call("UnmountSegment", mounted.segment.id, this.clientID).catch(() => undefined);
        void this.segments.free(mounted);
      }
      throw error;
    }
  }

  async #leave(mounted: Mounted, graceMs: number): Promise<void> {
    const outcome = await this.#membership.callUntil(this.#repeatMs, "GracefulUnmountSegment", mounted.segment.id, this.clientID, BigInt(graceMs));
    if (!outcome.ok) throw refusal(outcome.code, `unmounting segment ${mounted.segment.id}`);
    clearTimeout(mounted.timer);
    mounted.state = { name: "leaving", atMs: Date.now() + graceMs };
    mounted.timer = setTimeout(() => this.#expire(mounted), graceMs).unref();
  }

  /** The grace period is over. The master ends it by its own clock; this client unmounts as well. */
  #expire(mounted: Mounted): void {
    this.#inOrder(async () => {
      if (mounted.state.name === "leaving" && !this.#stop.signal.aborted) await this.#unmountNow(mounted);
    }).catch(() => {
      if (this.#stop.signal.aborted) return;
      mounted.timer = setTimeout(() => this.#expire(mounted), PING_MS).unref();
    });
  }

  async #unmountNow(mounted: Mounted): Promise<void> {
    const { id } = mounted.segment;
    const outcome = await this.#membership.callUntil(this.#repeatMs, "UnmountSegment", id, this.clientID);
    if (!outcome.ok) throw refusal(outcome.code, `unmounting segment ${id}`);
    const freed = this.segments.free(mounted).then(() => this.#options.onEvent?.({ type: "unmounted", segmentID: id }));
    await Promise.race([freed, sleep(CLOSE_MEMORY_MS, undefined, { ref: false })]);
  }

  /** Returns whether the master knows this client now; with `mustJoin`, throws the reason if it does not. */
  async #ping(mustJoin: boolean): Promise<boolean> {
    try {
      const rpc = await this.#membership.connection();
      const pong = await rpc.call("Ping", this.clientID);
      if (!pong.ok) throw refusal(pong.code, "pinging the master");
      const isNew = pong.value.status === NEEDS_REMOUNT || this.#mustRemount;
      const isListed = isNew && (await this.#inOrder(() => this.#remount(rpc)));
      if (this.#state === "closed") return false;
      const again = this.#state !== "joining";
      const changed = isListed || this.#state !== "joined";
      this.#state = "joined";
      if (changed) this.#options.onEvent?.({ type: "joined", again });
      return true;
    } catch (error) {
      const failure = asFailure(error);
      if (mustJoin || (LASTING.includes(failure.name) && this.#state === "joining")) throw failure;
      if (this.#state === "joined") {
        this.#state = "away";
        this.#options.onEvent?.({ type: "away", failure });
      }
      return false;
    }
  }

  /** Mounts all segments again under their former ids, bases and sizes. Returns false if the master's full disk refuses a stable id without memory. */
  async #remount(rpc: RpcClient): Promise<boolean> {
    // If this fails half-way, the next ping continues.
    this.#mustRemount = true;
    const objects = await this.#holdings.restoreTo(rpc);
    if (objects > 0) this.#options.onEvent?.({ type: "restored", objects });
    const mounted = this.segments.known();
    const outcome = await rpc.call("ReMountSegment", mounted, this.clientID);
    if (!outcome.ok && outcome.code === codes.PERSISTENT_FAIL && mounted.length === 0) return false;
    if (!outcome.ok) throw refusal(outcome.code, "mounting again what this client has");
    await this.#announce(rpc);
    for (const { segment, state } of this.segments.all()) {
      if (state.name !== "leaving") continue;
      // A master that forgot the deadline gets the rest of the grace period.
      const leftMs = Math.max(1, state.atMs - Date.now());
      await rpc.call("GracefulUnmountSegment", segment.id, this.clientID, BigInt(leftMs));
    }
    this.#mustRemount = false;
    return true;
  }

  /** A Mooncake master knows no stable ids, and a tenant's key may not announce one: both treat the client as unnamed. */
  async #announce(rpc: RpcClient): Promise<void> {
    const { identity } = this.#options;
    if (identity === undefined) return;
    const outcome = await rpc.call("Announce", this.clientID, identity.stableID, identity.epoch).catch((error: unknown) => {
      if (error instanceof Failure && (error.name === "INVALID_REQUEST" || error.name === "ACCESS_DENIED")) return undefined;
      throw error;
    });
    if (outcome?.ok === false) this.#options.onEvent?.({ type: "unnamed" });
  }

  /** Another master leads, so it learns at once what this client has mounted. */
  #onMove(): void {
    this.#calls.drop();
    this.#membership.drop();
    // This repeats for the new leader what only the former one knew.
    this.#mustRemount = true;
    this.#nudge.abort();
  }

  async #pingLoop(): Promise<void> {
    const { signal } = this.#stop;
    const pingMs = this.#options.pingMs ?? PING_MS;
    while (!signal.aborted) {
      this.#nudge = new AbortController();
      const waitMs = this.discovery.isMoving && !this.isJoined ? Math.min(SEEK_MS, pingMs) : pingMs;
      await sleep(waitMs, undefined, { signal: AbortSignal.any([signal, this.#nudge.signal]), ref: false }).catch(() => undefined);
      if (!signal.aborted) await this.#ping(false);
    }
  }

  #followLoop(): Promise<void> {
    return this.#holdings.run(this.#stop.signal, {
      connection: async () => (this.isJoined ? this.#calls.connection() : undefined),
      onLost: () => {
        this.#mustRemount = true;
        this.#nudge.abort();
      },
    });
  }

  #taskLoop(execute: TaskExecutor): Promise<void> {
    const { obey, pingMs = PING_MS } = this.#options;
    const shared = { clientID: this.clientID, connections: this.#membership, execute, everyMs: pingMs, signal: this.#stop.signal };
    return runTasks({ ...shared, ...(obey === undefined ? {} : { obey }) });
  }

  #inOrder<T>(act: () => Promise<T>): Promise<T> {
    if (this.#stop.signal.aborted) return Promise.reject(new Failure("SHUTTING_DOWN", "the store's client is closed"));
    const result = this.#last.then(act);
    this.#last = result.catch(() => undefined);
    return result;
  }
}
