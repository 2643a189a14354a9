// One node as a gateway knows it: its last reported state, whether that state is current, and what this gateway has sent there since.
import { CLOCK_LIMIT_MS, clockReason } from "@svc/contract/clock.ts";
import type { CopiedTemplate, HeldTemplate, NodeIdentity, NodeLoad, OwnedSandbox, SandboxIDs, StateFrame } from "@svc/contract/cluster.ts";
import { type PeerClient, plainPeers } from "@svc/kit/peers/peer-client.ts";
import type { Target } from "@svc/kit/proxy/target.ts";
import type { Candidate } from "../place/place.ts";

/**
 * connecting ─▶ up ─▶ lost ─▶ up      the stream came, broke, came back
 *      └──▶ refused ─▶ up             its secrets or its name conflict with the deployment's
 */
export type MemberState =
  | { readonly state: "connecting"; readonly reason: string }
  | { readonly state: "up" }
  | { readonly state: "lost"; readonly reason: string; readonly sinceMs: number }
  | { readonly state: "refused"; readonly reason: string };

const MIB = 1024 * 1024;
const NO_ANSWER_YET = "no answer yet";

export class Member {
  readonly url: string;
  /** The proxy target for requests to this node. */
  readonly target: Target;
  status: MemberState = { state: "connecting", reason: NO_ANSWER_YET };
  identity: NodeIdentity | undefined;
  load: NodeLoad | undefined;
  readonly running = new Set<string>();
  readonly paused = new Set<string>();
  /** Sizes of the sandboxes of tenants, running and paused. */
  readonly owned = new Map<string, OwnedSandbox>();
  templates: readonly HeldTemplate[] = [];
  /** Templates of other nodes that this node fetched. */
  copies: readonly CopiedTemplate[] = [];
  /** Creates that this gateway has sent and that have no answer yet. */
  creating = 0;
  createSuccesses = 0;
  createFails = 0;
  /** The node answered "full" to a create; any event that frees capacity clears this. */
  isFull = false;
  readonly #recordedAs: string | undefined;
  readonly #bears: (name: string, snapshotID: string) => boolean;
  #byName = new Map<string, HeldTemplate>();
  #copiesByName = new Map<string, CopiedTemplate>();
  #gone = new AbortController();

  /** Connections to the node, by its URL. */
  readonly peers: PeerClient;

  /** `bears` returns false if a snapshot taken here has lost this name, although this node may not know yet. */
  constructor(url: string, target: Target, recordedAs?: string, bears: (name: string, snapshotID: string) => boolean = () => true, peers = plainPeers()) {
    this.url = url;
    this.peers = peers;
    this.target = target;
    this.#recordedAs = recordedAs;
    this.#bears = bears;
  }

  /** The node's own name, which etcd also has; undefined with a fixed list until the node has reported it. */
  get nodeID(): string | undefined {
    return this.identity?.nodeID ?? this.#recordedAs;
  }

  /** The generation, which rises with each start of the node. */
  get life(): number {
    return this.identity?.generation ?? 0;
  }

  /** Falls back to the URL while the name is unknown. */
  get name(): string {
    return this.nodeID ?? this.url;
  }

  get isUp(): boolean {
    return this.status.state === "up";
  }

  /** True until the node has answered, or a connection to it has failed, for the first time. */
  get isNew(): boolean {
    return this.status.state === "connecting" && this.status.reason === NO_ANSWER_YET;
  }

  /** The reason why the node is not up or not ready. */
  get reason(): string {
    if ("reason" in this.status) return this.status.reason;
    return this.isClockOff ? clockReason(this.load?.clockSkewMs ?? 0) : "";
  }

  /** True if the node's clock is off: it gets no new sandboxes, and those that it has continue. */
  get isClockOff(): boolean {
    return Math.abs(this.load?.clockSkewMs ?? 0) > CLOCK_LIMIT_MS;
  }

  /** Aborts calls that wait for an answer of this node when it is lost. */
  get signal(): AbortSignal {
    return this.#gone.signal;
  }

  takeState({ node, load, sandboxes, templates, copies }: StateFrame): void {
    this.identity = node;
    this.load = load;
    this.isFull = false;
    this.running.clear();
    this.paused.clear();
    this.owned.clear();
    this.takeOwned(sandboxes);
    for (const id of sandboxes.running) this.running.add(id);
    for (const id of sandboxes.paused) this.paused.add(id);
    this.takeTemplates({ templates, copies });
    this.status = { state: "up" };
    if (this.#gone.signal.aborted) this.#gone = new AbortController();
  }

  takeOwned({ owned }: Pick<SandboxIDs, "owned">): void {
    for (const [id, size] of Object.entries(owned)) this.owned.set(id, size);
  }

  takeTemplates({ templates, copies }: Pick<StateFrame, "templates" | "copies">): void {
    this.templates = templates;
    this.copies = copies;
    this.#copiesByName = new Map(copies.flatMap((copy) => [copy.name, copy.templateID, ...copy.builds].map((name) => [name, copy])));
    this.#byName = new Map();
    for (const held of templates) for (const name of [...held.names, held.templateID]) this.#byName.set(name, held);
  }

  lose(status: Exclude<MemberState, { state: "up" }>): void {
    this.status = status;
    this.#gone.abort();
  }

  /** Looks a template or snapshot up by id or name, with or without tag. */
  held(asked: string): HeldTemplate | undefined {
    const [name = "", tag] = asked.split(":");
    const found = this.#byName.get(asked) ?? this.#byName.get(`${name}:${tag ?? "default"}`);
    if (found?.kind === "snapshot" && found.templateID !== asked && !this.#bears(asked, found.templateID)) return undefined;
    return found ?? (tag === undefined ? undefined : this.#templateNamed(name));
  }

  /** Returns any fetched build, by id or name; which build a tag means only the template's own node knows. */
  copyOf(asked: string): CopiedTemplate | undefined {
    return this.#copiesByName.get(asked) ?? this.#copiesByName.get(asked.split(":")[0] ?? "");
  }

  /** Returns true if a sandbox of it can start here without a fetch, according to this node's stream. */
  has(asked: string): boolean {
    return this.held(asked)?.isReady === true || this.copyOf(asked) !== undefined;
  }

  /** Only the node resolves tags of templates; names of snapshots contain their tag. */
  #templateNamed(name: string): HeldTemplate | undefined {
    const held = this.#byName.get(name);
    return held?.kind === "template" ? held : undefined;
  }

  candidate(): Candidate {
    const { load, identity } = this;
    return {
      nodeID: this.name,
      isUp: this.isUp && !this.isClockOff,
      isDraining: load?.isDraining ?? false,
      cpuClass: identity?.cpuClass ?? "",
      labels: identity?.labels ?? {},
      maxSandboxes: identity?.maxSandboxes ?? 0,
      running: this.running.size,
      starting: Math.max(this.creating, load?.starting ?? 0),
      underWay: Math.max(this.creating * (load?.gateways ?? 1), load?.starting ?? 0),
      isFull: this.isFull,
      memory: load?.memory ?? { totalBytes: 0, availableBytes: 0, reservedBytes: 0 },
      template: (asked) => {
        const held = this.held(asked);
        if (held?.isReady === true) return { memoryBytes: held.memoryMB * MIB, ready: Math.max(0, ...held.names.map((name) => load?.pools[name] ?? 0)) };
        const copy = this.copyOf(asked);
        return copy === undefined ? undefined : { memoryBytes: copy.memoryMB * MIB, ready: load?.pools[copy.name] ?? 0 };
      },
    };
  }
}
