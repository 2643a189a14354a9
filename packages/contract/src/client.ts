// The TypeScript client of the sandbox platform: sandboxes by operation, and the envd inside each.
import { Calls, type ClientOptions, LONG_CALL_MS } from "./client-calls.ts";
import { type EventOptions, followEvents } from "./client-events.ts";
import { KeyClient } from "./client-keys.ts";
import { type LogOptions, readLogs } from "./client-logs.ts";
import { PreviewClient } from "./client-previews.ts";
import { SecretClient } from "./client-secrets.ts";
import { type ExportedSnapshot, exportSnapshot, importSnapshot } from "./client-snapshots.ts";
import { TemplateClient } from "./client-templates.ts";
import { TenantClient } from "./client-tenants.ts";
import { VolumeClient } from "./client-volumes.ts";
import { EnvdClient } from "./envd.ts";
import type { SandboxAnswer } from "./fields.ts";
import { collectGarbage, type GCAnswer } from "./gc.ts";
import * as life from "./lifecycle.ts";
import { setSandboxNetwork } from "./network.ts";
import { type NodeDrain, nodeControlOperations } from "./node-control.ts";
import { nodesOperations, type Scaling, type ShownNode } from "./nodes.ts";
import { getSandboxesMetrics, getSandboxMetrics, type LifecycleEvent, type LogEntry, type SandboxMetric } from "./observe.ts";
import type { Input, Output } from "./operation.ts";
import * as api from "./sandbox.ts";
import { deleteTemplate } from "./template.ts";
import { getUsage, type UsageAnswer } from "./usage.ts";

export { type ClientOptions, DEFAULT_BASE_URL } from "./client-calls.ts";

/** Identifies a sandbox and gives access to its envd; the answers of create, connect and get have these members. */
export type SandboxAccess = { readonly sandboxID: string; readonly envdAccessToken?: string | undefined };

/** One child of a fork: its answer as from create, or the reason why it does not exist. */
export type ForkedChild = Output<typeof life.forkSandbox>[number];

export type Rules = Omit<Input<typeof setSandboxNetwork>, "sandboxID">;

/**
 * A client of one deployment. Specification, API key: every call except `health` carries the key in X-API-Key.
 *
 * Every method throws Failure: UNAUTHENTICATED (no key, wrong key), SERVER_UNREACHABLE, TIMED_OUT, INVALID_REQUEST, and those its operation lists in
 * sandbox.ts. Methods that name a sandbox throw SANDBOX_NOT_FOUND, and SANDBOX_CHANGING_STATE while it is being paused, resumed or ended.
 */
export class SvcClient {
  readonly baseURL: string;
  readonly templates: TemplateClient;
  readonly volumes: VolumeClient;
  readonly secrets: SecretClient;
  readonly previews: PreviewClient;
  readonly keys: KeyClient;
  readonly tenants: TenantClient;
  readonly #calls: Calls;

  constructor(options: ClientOptions = {}) {
    this.#calls = new Calls(options);
    this.baseURL = this.#calls.baseURL;
    this.templates = new TemplateClient(this.#calls);
    this.volumes = new VolumeClient(this.#calls);
    this.previews = new PreviewClient(this.#calls);
    this.secrets = new SecretClient(this.#calls);
    this.keys = new KeyClient(this.#calls);
    this.tenants = new TenantClient(this.#calls);
  }

  /**
   * Creates a sandbox, which is running when this returns. It is always secure: its answer contains envdAccessToken (specification, command-line client).
   * `timeout` is its lifetime in seconds, 300 by default; with `autoPause` the sandbox is paused at its timeout instead of ended. `templateID` also accepts a
   * snapshot's id or name.
   * TEMPLATE_NOT_FOUND, TOO_MANY_REQUESTS (see `retryAfterSeconds`), CAPACITY_EXHAUSTED, SANDBOX_START_FAILED, SNAPSHOT_DAMAGED.
   */
  create(request: Input<typeof api.createSandbox>): Promise<SandboxAnswer> {
    return this.#calls.call(api.createSandbox, request);
  }

  /** Removes what the retention rules of the nodes name, and what nobody needs; with `dryRun` it only says what would be lost. */
  gc(dryRun: boolean): Promise<GCAnswer> {
    return this.#calls.call(collectGarbage, { dryRun });
  }

  /** Returns sums of what sandboxes used, page by page; a named key gets those of its own tenant. */
  usage(query: Input<typeof getUsage> = {}): Promise<UsageAnswer> {
    return this.#calls.call(getUsage, query);
  }

  /** Yields every sandbox that matches the filter, newest first, fetched page by page as the loop advances. */
  list(filter: ListFilter = {}): AsyncGenerator<api.ListedSandbox> {
    const { metadata, startedAfter, ...rest } = filter;
    return this.#calls.pages(api.listSandboxes, {
      ...rest,
      ...(metadata === undefined ? {} : { metadata: pairs(metadata) }),
      ...(startedAfter === undefined ? {} : { startedAfter: startedAfter.toISOString() }),
    });
  }

  /** Returns one sandbox with its tokens and the time of its end. */
  get(sandboxID: string): Promise<api.SandboxDetail> {
    return this.#calls.call(api.getSandbox, { sandboxID });
  }

  /** Ends a sandbox, running or paused, and deletes its memory and files. */
  async delete(sandboxID: string): Promise<void> {
    await this.#calls.call(api.deleteSandbox, { sandboxID });
  }

  /**
   * Saves the sandbox to disk, including its memory, and frees the resources it uses; `memory: false` saves only its files. A paused sandbox has no timeout and
   * stays until it is resumed or deleted.
   * SANDBOX_PAUSED when it is already paused, CHECKPOINT_UNAVAILABLE when its runtime cannot save memory, CHECKPOINT_FAILED, DISK_FULL.
   */
  async pause(sandboxID: string, options: { memory?: boolean } = {}): Promise<void> {
    await this.#calls.call(life.pauseSandbox, { sandboxID, memory: options.memory }, LONG_CALL_MS);
  }

  /**
   * Returns the answer of create for an existing sandbox, which is running when this returns; a paused one is resumed. Its timeout is then at least
   * `timeoutSeconds` (300) from now.
   */
  connect(sandboxID: string, timeoutSeconds?: number): Promise<SandboxAnswer> {
    return this.#connect(sandboxID, { timeoutSeconds }).then(({ value }) => value);
  }

  /**
   * Same as connect, and returns whether the sandbox was paused. `memory: false` boots a paused sandbox from its files.
   * SNAPSHOT_DAMAGED when the stored data is not what was written, SANDBOX_START_FAILED, CAPACITY_EXHAUSTED.
   */
  async resume(sandboxID: string, options: { timeoutSeconds?: number; memory?: boolean } = {}): Promise<SandboxAnswer & { wasPaused: boolean }> {
    const { status, value } = await this.#connect(sandboxID, options);
    return { ...value, wasPaused: status === 201 };
  }

  /**
   * Copies a running sandbox, including its memory, into `count` (1 to 100) new ones. One checkpoint serves all; each child has its own answer or error.
   * Without `timeoutSeconds` each child gets the timeout of its source.
   * CHECKPOINT_UNAVAILABLE, CHECKPOINT_FAILED, DISK_FULL, TOO_MANY_REQUESTS.
   */
  fork(sandboxID: string, options: { count?: number; timeoutSeconds?: number } = {}): Promise<ForkedChild[]> {
    return this.#calls.call(life.forkSandbox, { sandboxID, count: options.count, timeout: options.timeoutSeconds }, LONG_CALL_MS);
  }

  /**
   * Moves a sandbox to another node of its deployment: `nodeID`, or any with free capacity; a running one is resumed there. Requires etcd and object storage.
   * NODE_NOT_FOUND, CAPACITY_EXHAUSTED, SNAPSHOT_UNSUITABLE, ETCD_UNAVAILABLE, OBJECTS_UNAVAILABLE: the sandbox then stays where it was.
   */
  move(sandboxID: string, nodeID?: string): Promise<life.MovedSandbox> {
    return this.#calls.call(life.moveSandbox, { sandboxID, nodeID }, LONG_CALL_MS);
  }

  /**
   * Takes a snapshot of a running sandbox, which keeps running. `name` is NAME or NAME:TAG; the newest snapshot with a name replaces the former one under it.
   * `memory: false` saves only the files. Fails as pause does.
   */
  createSnapshot(sandboxID: string, options: { name?: string; memory?: boolean } = {}): Promise<life.SnapshotInfo> {
    return this.#calls.call(life.createSnapshot, { sandboxID, name: options.name, memory: options.memory }, LONG_CALL_MS);
  }

  /** Yields snapshots, newest first, page by page; also those of a sandbox that no longer exists. */
  snapshots(filter: { sandboxID?: string; name?: string } = {}): AsyncGenerator<life.SnapshotInfo> {
    return this.#calls.pages(life.listSnapshots, filter);
  }

  /** Returns a snapshot by id or name. SNAPSHOT_NOT_FOUND. */
  snapshot(reference: string): Promise<life.SnapshotInfo> {
    return this.#calls.call(life.getSnapshot, { snapshotID: reference });
  }

  /**
   * Exports a snapshot as one file, for `importSnapshot` on another node, of this deployment or another. `withBase` includes the files of the set-up template
   * that it is based on. SNAPSHOT_NOT_FOUND, SNAPSHOT_DAMAGED, CHECKPOINT_UNAVAILABLE, TOO_MANY_REQUESTS.
   */
  exportSnapshot(reference: string, options: { withBase?: boolean; signal?: AbortSignal } = {}): Promise<ExportedSnapshot> {
    return exportSnapshot(this.#calls, reference, options);
  }

  /**
   * Imports such a file; importing a snapshot that already exists here has no effect. `name`: NAME or NAME:TAG, instead of its own.
   * INVALID_REQUEST for another kind of file, SNAPSHOT_DAMAGED, SNAPSHOT_UNSUITABLE with the reason, PAYLOAD_TOO_LARGE, DISK_FULL.
   */
  importSnapshot(
    file: AsyncIterable<Uint8Array>,
    options: { name?: string | undefined; signal?: AbortSignal } = {},
  ): Promise<life.SnapshotInfo & { isNew: boolean }> {
    return importSnapshot(this.#calls, file, options);
  }

  /** Deletes a snapshot by id or name; sandboxes started from it continue. TEMPLATE_NOT_FOUND, TEMPLATE_IN_USE. */
  async deleteSnapshot(reference: string): Promise<void> {
    await this.#calls.call(deleteTemplate, { templateID: reference });
  }

  /**
   * Replaces the sandbox's network rules at once and as a whole: a member left out is cleared. `allowOut` (CIDR blocks, addresses, domains, *.domain) takes
   * precedence over `denyOut` (CIDR blocks, addresses). Private ranges stay closed.
   */
  async setNetwork(sandboxID: string, rules: Rules): Promise<void> {
    await this.#calls.call(setSandboxNetwork, { ...rules, sandboxID });
  }

  /** Returns a sandbox's resource usage, oldest sample first, at most one hour back; sizes in bytes, 100 per cent is one whole CPU. */
  metrics(sandboxID: string, range: { start?: Date; end?: Date } = {}): Promise<SandboxMetric[]> {
    const seconds = (date: Date | undefined) => (date === undefined ? undefined : Math.floor(date.getTime() / 1000));
    return this.#calls.call(getSandboxMetrics, { sandboxID, start: seconds(range.start), end: seconds(range.end) });
  }

  /** Returns the newest sample of each of at most 100 sandboxes; those without one are left out. */
  async newestMetrics(sandboxIDs: readonly string[]): Promise<Record<string, SandboxMetric>> {
    if (sandboxIDs.length === 0) return {};
    return (await this.#calls.call(getSandboxesMetrics, { sandbox_ids: sandboxIDs.join(",") })).sandboxes;
  }

  /**
   * Yields a sandbox's log, oldest entry first, each once; it is available for an hour after the sandbox's end. With `follow` it continues until the sandbox is
   * gone, across restarts of the server; leave the loop or abort `signal` to end it sooner.
   */
  logs(sandboxID: string, options: LogOptions = {}): AsyncGenerator<LogEntry> {
    return readLogs(this.#calls, sandboxID, options);
  }

  /** Yields the events of the deployment's sandboxes, snapshots and templates, each once, across lost connections and restarts. */
  events(options: EventOptions = {}): AsyncGenerator<LifecycleEvent> {
    return followEvents(this.#calls, options);
  }

  /** Sets the sandbox's end to `timeoutSeconds` from now, whether that is earlier or later than before. */
  async setTimeout(sandboxID: string, timeoutSeconds: number): Promise<void> {
    await this.#calls.call(api.setSandboxTimeout, { sandboxID, timeout: timeoutSeconds });
  }

  /** Extends the sandbox's life to at least `durationSeconds` (15 to 3,600) from now; never shortens it. */
  async refresh(sandboxID: string, durationSeconds?: number): Promise<void> {
    await this.#calls.call(api.refreshSandbox, { sandboxID, duration: durationSeconds });
  }

  /** Lists the nodes behind a gateway. A node itself answers ROUTE_NOT_FOUND. */
  nodes(): Promise<ShownNode[]> {
    return this.#calls.call(nodesOperations.listNodes, {});
  }

  /** Returns one node with its sandboxes, by id. NODE_NOT_FOUND, NODE_LOST. */
  node(nodeID: string): Promise<Output<typeof nodesOperations.getNode>> {
    return this.#calls.call(nodesOperations.getNode, { nodeID });
  }

  /** How many nodes the load needs; served by gateways. */
  scaling(): Promise<Scaling> {
    return this.#calls.call(nodesOperations.getScaling, {});
  }

  /** Drains a node, or makes it ready again; returns as soon as this has started. `self` is the node that receives the request. */
  async setNodeStatus(nodeID: string, status: "draining" | "ready"): Promise<void> {
    await this.#calls.call(nodeControlOperations.setNodeStatus, { nodeID, status });
  }

  /** Returns the progress of a node's drain. */
  nodeDrain(nodeID: string): Promise<NodeDrain> {
    return this.#calls.call(nodeControlOperations.getNodeDrain, { nodeID });
  }

  /** Removes a stopped node from the deployment, or declares a node dead. */
  async removeNode(nodeID: string, isDead: boolean): Promise<void> {
    await this.#calls.call(nodeControlOperations.removeNode, { nodeID, dead: isDead });
  }

  /** Returns when the server accepts requests; needs no key. */
  async health(): Promise<void> {
    await this.#calls.call(api.getHealth, {});
  }

  /** Returns a client for the envd of a sandbox that was created, connected to or fetched. */
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
  /** An id or a name. */
  readonly template?: string;
  readonly order?: "asc" | "desc";
  /** The size of one page, 1 to 100. */
  readonly limit?: number;
};

/** Spaces are encoded as %20, since some parsers of the second encoding layer do not decode `+`. */
function pairs(map: Readonly<Record<string, string>>): string {
  return Object.entries(map)
    .map(([key, value]) => `${encodeURIComponent(key)}=${encodeURIComponent(value)}`)
    .join("&");
}
