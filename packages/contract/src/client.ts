// The TypeScript client of the sandbox platform: sandboxes by operation, and the envd inside each.
import { Calls, type ClientOptions, LONG_CALL_MS } from "./client-calls.ts";
import { type EventOptions, followEvents } from "./client-events.ts";
import { type LogOptions, readLogs } from "./client-logs.ts";
import { type ExportedSnapshot, exportSnapshot, importSnapshot } from "./client-snapshots.ts";
import { TemplateClient } from "./client-templates.ts";
import { EnvdClient } from "./envd.ts";
import type { SandboxAnswer } from "./fields.ts";
import * as life from "./lifecycle.ts";
import { setSandboxNetwork } from "./network.ts";
import { type NodeDrain, nodeControlOperations } from "./node-control.ts";
import { nodesOperations, type ShownNode } from "./nodes.ts";
import { getSandboxesMetrics, getSandboxMetrics, type LifecycleEvent, type LogEntry, type SandboxMetric } from "./observe.ts";
import type { Input, Output } from "./operation.ts";
import * as api from "./sandbox.ts";
import { deleteTemplate } from "./template.ts";

export { type ClientOptions, DEFAULT_BASE_URL } from "./client-calls.ts";

/** What names a sandbox and opens its envd: the answer of create, connect or get. */
export type SandboxAccess = { readonly sandboxID: string; readonly envdAccessToken?: string | undefined };

/** One child of a fork: the answer of create for it, or why it is not there. */
export type ForkedChild = Output<typeof life.forkSandbox>[number];

export type Rules = Omit<Input<typeof setSandboxNetwork>, "sandboxID">;

/**
 * One deployment. Specification, API key: every call except `health` carries the key in X-API-Key.
 *
 * Every method throws Failure: UNAUTHENTICATED (no key, wrong key), SERVER_UNREACHABLE, TIMED_OUT, INVALID_REQUEST,
 * and those its operation lists in sandbox.ts. Methods that name a sandbox throw SANDBOX_NOT_FOUND, and
 * SANDBOX_CHANGING_STATE while it is being paused, resumed or ended.
 */
export class SvcClient {
  readonly baseURL: string;
  readonly templates: TemplateClient;
  readonly #calls: Calls;

  constructor(options: ClientOptions = {}) {
    this.#calls = new Calls(options);
    this.baseURL = this.#calls.baseURL;
    this.templates = new TemplateClient(this.#calls);
  }

  /**
   * Creates a sandbox, which runs when this returns. It is always secure: its answer holds envdAccessToken (specification,
   * command-line client). `timeout` is its life in seconds, 300 by default; `autoPause` keeps it at its timeout instead of
   * ending it. `templateID` takes a snapshot's id or name, too.
   * TEMPLATE_NOT_FOUND, TOO_MANY_REQUESTS (see `retryAfterSeconds`), CAPACITY_EXHAUSTED, SANDBOX_START_FAILED, SNAPSHOT_DAMAGED.
   */
  create(request: Input<typeof api.createSandbox>): Promise<SandboxAnswer> {
    return this.#calls.call(api.createSandbox, request);
  }

  /** Every sandbox that passes the filter, newest first, fetched page by page as the loop goes on. */
  list(filter: ListFilter = {}): AsyncGenerator<api.ListedSandbox> {
    const { metadata, startedAfter, ...rest } = filter;
    return this.#calls.pages(api.listSandboxes, {
      ...rest,
      ...(metadata === undefined ? {} : { metadata: pairs(metadata) }),
      ...(startedAfter === undefined ? {} : { startedAfter: startedAfter.toISOString() }),
    });
  }

  /** One sandbox with its tokens and its end. */
  get(sandboxID: string): Promise<api.SandboxDetail> {
    return this.#calls.call(api.getSandbox, { sandboxID });
  }

  /** Ends a sandbox, running or paused, and all in it. */
  async delete(sandboxID: string): Promise<void> {
    await this.#calls.call(api.deleteSandbox, { sandboxID });
  }

  /**
   * Keeps the sandbox on disk, memory included, and frees what it uses; `memory: false` keeps its files alone. A paused
   * sandbox has no timeout and stays until it is resumed or deleted.
   * SANDBOX_PAUSED when it is paused already, CHECKPOINT_UNAVAILABLE when its runtime cannot keep memory, CHECKPOINT_FAILED, DISK_FULL.
   */
  async pause(sandboxID: string, options: { memory?: boolean } = {}): Promise<void> {
    await this.#calls.call(life.pauseSandbox, { sandboxID, memory: options.memory }, LONG_CALL_MS);
  }

  /**
   * The answer of create for a sandbox that runs when this returns; a paused one is resumed. It then lives at least
   * `timeoutSeconds` (300) more.
   */
  connect(sandboxID: string, timeoutSeconds?: number): Promise<SandboxAnswer> {
    return this.#connect(sandboxID, { timeoutSeconds }).then(({ value }) => value);
  }

  /**
   * As connect, and tells whether the sandbox was paused. `memory: false` starts a paused sandbox anew from its files.
   * SNAPSHOT_DAMAGED when what was kept is not what was written, SANDBOX_START_FAILED, CAPACITY_EXHAUSTED.
   */
  async resume(sandboxID: string, options: { timeoutSeconds?: number; memory?: boolean } = {}): Promise<SandboxAnswer & { wasPaused: boolean }> {
    const { status, value } = await this.#connect(sandboxID, options);
    return { ...value, wasPaused: status === 201 };
  }

  /**
   * Copies a running sandbox, memory included, into `count` (1 to 100) new ones: one checkpoint, and for each child its
   * answer or its error. Without `timeoutSeconds` each lives as long as its source was given.
   * CHECKPOINT_UNAVAILABLE, CHECKPOINT_FAILED, DISK_FULL, TOO_MANY_REQUESTS.
   */
  fork(sandboxID: string, options: { count?: number; timeoutSeconds?: number } = {}): Promise<ForkedChild[]> {
    return this.#calls.call(life.forkSandbox, { sandboxID, count: options.count, timeout: options.timeoutSeconds }, LONG_CALL_MS);
  }

  /**
   * Moves a sandbox to another node of its deployment, `nodeID` or one that has room; one that ran runs there. It needs etcd and object
   * storage. NODE_NOT_FOUND, CAPACITY_EXHAUSTED, SNAPSHOT_UNSUITABLE, ETCD_UNAVAILABLE, OBJECTS_UNAVAILABLE: then it is where it was.
   */
  move(sandboxID: string, nodeID?: string): Promise<life.MovedSandbox> {
    return this.#calls.call(life.moveSandbox, { sandboxID, nodeID }, LONG_CALL_MS);
  }

  /**
   * A snapshot of a running sandbox, which goes on. `name` is NAME or NAME:TAG; it moves to the newest snapshot that
   * bears it. `memory: false` keeps the files alone. Failures as those of pause.
   */
  createSnapshot(sandboxID: string, options: { name?: string; memory?: boolean } = {}): Promise<life.SnapshotInfo> {
    return this.#calls.call(life.createSnapshot, { sandboxID, name: options.name, memory: options.memory }, LONG_CALL_MS);
  }

  /** Snapshots, newest first, page by page; also those of a sandbox that is gone. */
  snapshots(filter: { sandboxID?: string; name?: string } = {}): AsyncGenerator<life.SnapshotInfo> {
    return this.#calls.pages(life.listSnapshots, filter);
  }

  /** By id or name. SNAPSHOT_NOT_FOUND. */
  snapshot(reference: string): Promise<life.SnapshotInfo> {
    return this.#calls.call(life.getSnapshot, { snapshotID: reference });
  }

  /**
   * A snapshot as one file, for `importSnapshot` on another node, of this deployment or another. `withBase`: with the files of the
   * template of set-up's that it stands on. SNAPSHOT_NOT_FOUND, SNAPSHOT_DAMAGED, CHECKPOINT_UNAVAILABLE, TOO_MANY_REQUESTS.
   */
  exportSnapshot(reference: string, options: { withBase?: boolean; signal?: AbortSignal } = {}): Promise<ExportedSnapshot> {
    return exportSnapshot(this.#calls, reference, options);
  }

  /**
   * Takes in such a file; one whose snapshot is here already changes nothing. `name`: NAME or NAME:TAG, instead of its own.
   * INVALID_REQUEST for another file, SNAPSHOT_DAMAGED, SNAPSHOT_UNSUITABLE with the reason, PAYLOAD_TOO_LARGE, DISK_FULL.
   */
  importSnapshot(
    file: AsyncIterable<Uint8Array>,
    options: { name?: string | undefined; signal?: AbortSignal } = {},
  ): Promise<life.SnapshotInfo & { isNew: boolean }> {
    return importSnapshot(this.#calls, file, options);
  }

  /** By id or name. Sandboxes started from it go on. TEMPLATE_NOT_FOUND, TEMPLATE_IN_USE. */
  async deleteSnapshot(reference: string): Promise<void> {
    await this.#calls.call(deleteTemplate, { templateID: reference });
  }

  /**
   * Replaces what the sandbox may reach, at once and as a whole: a member left out is cleared. `allowOut` (CIDR blocks,
   * addresses, domains, *.domain) wins over `denyOut` (CIDR blocks, addresses). Private ranges stay closed.
   */
  async setNetwork(sandboxID: string, rules: Rules): Promise<void> {
    await this.#calls.call(setSandboxNetwork, { ...rules, sandboxID });
  }

  /** What a sandbox used, oldest sample first, an hour back at most; sizes in bytes, 100 per cent is one whole CPU. */
  metrics(sandboxID: string, range: { start?: Date; end?: Date } = {}): Promise<SandboxMetric[]> {
    const seconds = (date: Date | undefined) => (date === undefined ? undefined : Math.floor(date.getTime() / 1000));
    return this.#calls.call(getSandboxMetrics, { sandboxID, start: seconds(range.start), end: seconds(range.end) });
  }

  /** The newest sample of each of at most 100 sandboxes; those without one are left out. */
  async newestMetrics(sandboxIDs: readonly string[]): Promise<Record<string, SandboxMetric>> {
    if (sandboxIDs.length === 0) return {};
    return (await this.#calls.call(getSandboxesMetrics, { sandbox_ids: sandboxIDs.join(",") })).sandboxes;
  }

  /**
   * A sandbox's log, oldest entry first, each once; for an hour after its end, too. With `follow` it goes on until the
   * sandbox is gone, over restarts of the server; leave the loop or abort `signal` to end it sooner.
   */
  logs(sandboxID: string, options: LogOptions = {}): AsyncGenerator<LogEntry> {
    return readLogs(this.#calls, sandboxID, options);
  }

  /** What happens to the deployment's sandboxes, snapshots and templates; each event once, over cut lines and restarts. */
  events(options: EventOptions = {}): AsyncGenerator<LifecycleEvent> {
    return followEvents(this.#calls, options);
  }

  /** The sandbox ends `timeoutSeconds` from now, be that sooner or later than before. */
  async setTimeout(sandboxID: string, timeoutSeconds: number): Promise<void> {
    await this.#calls.call(api.setSandboxTimeout, { sandboxID, timeout: timeoutSeconds });
  }

  /** The sandbox lives at least `durationSeconds` (15 to 3,600) from now; never shortens. */
  async refresh(sandboxID: string, durationSeconds?: number): Promise<void> {
    await this.#calls.call(api.refreshSandbox, { sandboxID, duration: durationSeconds });
  }

  /** The nodes behind a gateway. ROUTE_NOT_FOUND at a node itself. */
  nodes(): Promise<ShownNode[]> {
    return this.#calls.call(nodesOperations.listNodes, {});
  }

  /** One node with its sandboxes, by id. NODE_NOT_FOUND, NODE_LOST. */
  node(nodeID: string): Promise<Output<typeof nodesOperations.getNode>> {
    return this.#calls.call(nodesOperations.getNode, { nodeID });
  }

  /** Drains a node, or makes it ready again; returns when it has begun. `self`: the node that is asked. */
  async setNodeStatus(nodeID: string, status: "draining" | "ready"): Promise<void> {
    await this.#calls.call(nodeControlOperations.setNodeStatus, { nodeID, status });
  }

  /** How far a node's drain is. */
  nodeDrain(nodeID: string): Promise<NodeDrain> {
    return this.#calls.call(nodeControlOperations.getNodeDrain, { nodeID });
  }

  /** Takes a stopped node off the deployment, or declares one dead. */
  async removeNode(nodeID: string, isDead: boolean): Promise<void> {
    await this.#calls.call(nodeControlOperations.removeNode, { nodeID, dead: isDead });
  }

  /** Returns when the server takes requests; needs no key. */
  async health(): Promise<void> {
    await this.#calls.call(api.getHealth, {});
  }

  /** The envd of a sandbox just created, connected to or got. */
  envd(sandbox: SandboxAccess): EnvdClient {
    return new EnvdClient({ baseURL: this.baseURL, sandboxID: sandbox.sandboxID, envdAccessToken: sandbox.envdAccessToken });
  }

  #connect(sandboxID: string, { timeoutSeconds, memory }: { timeoutSeconds?: number | undefined; memory?: boolean }) {
    const input = { sandboxID, memory, ...(timeoutSeconds === undefined ? {} : { timeout: timeoutSeconds }) };
    return this.#calls.answer(life.connectSandbox, input, LONG_CALL_MS);
  }
}

export type ListFilter = {
  /** Every pair must match exactly. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** `running`, `paused`, or both joined by a comma; absent: both. */
  readonly state?: string;
  readonly startedAfter?: Date;
  /** Id or name. */
  readonly template?: string;
  readonly order?: "asc" | "desc";
  /** Of one page, 1 to 100. */
  readonly limit?: number;
};

/** `+` would stay a plus sign in some readers of the second layer of encoding, so spaces travel as %20. */
function pairs(map: Readonly<Record<string, string>>): string {
  return Object.entries(map)
    .map(([key, value]) => `${encodeURIComponent(key)}=${encodeURIComponent(value)}`)
    .join("&");
}
