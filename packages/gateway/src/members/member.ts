// One node as a gateway knows it: its last word, whether that holds, and what this gateway has sent there meanwhile.
import { CLOCK_LIMIT_MS, clockReason } from "@svc/contract/clock.ts";
import type { CopiedTemplate, HeldTemplate, NodeIdentity, NodeLoad, StateFrame } from "@svc/contract/cluster.ts";
import type { Target } from "@svc/kit/proxy/target.ts";
import type { Candidate } from "../place/place.ts";

/**
 * connecting ─▶ up ─▶ lost ─▶ up      the stream came, broke, came again
 *      └──▶ refused ─▶ up             its secrets, or its name, are not what they must be
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
  /** Where its requests go. */
  readonly target: Target;
  status: MemberState = { state: "connecting", reason: NO_ANSWER_YET };
  identity: NodeIdentity | undefined;
  load: NodeLoad | undefined;
  readonly running = new Set<string>();
  readonly paused = new Set<string>();
  templates: readonly HeldTemplate[] = [];
  /** Templates of other nodes that it fetched. */
  copies: readonly CopiedTemplate[] = [];
  /** Creates that this gateway has sent and that are not answered. */
  creating = 0;
  createSuccesses = 0;
  createFails = 0;
  /** It said "full" to a create; cleared by whatever makes room. */
  isFull = false;
  readonly #recordedAs: string | undefined;
  readonly #bears: (name: string, snapshotID: string) => boolean;
  #byName = new Map<string, HeldTemplate>();
  #copiesByName = new Map<string, CopiedTemplate>();
  #gone = new AbortController();

  /** `bears`: false where a snapshot that was taken here lost this name, though this node may not have heard of it. */
  constructor(url: string, target: Target, recordedAs?: string, bears: (name: string, snapshotID: string) => boolean = () => true) {
    this.url = url;
    this.target = target;
    this.#recordedAs = recordedAs;
    this.#bears = bears;
  }

  /** Its own name, which etcd knows, too; undefined while it never told one to a gateway with a fixed list. */
  get nodeID(): string | undefined {
    return this.identity?.nodeID ?? this.#recordedAs;
  }

  /** Rises with each start of the node. */
  get life(): number {
    return this.identity?.generation ?? 0;
  }

  /** Or its URL. */
  get name(): string {
    return this.nodeID ?? this.url;
  }

  get isUp(): boolean {
    return this.status.state === "up";
  }

  /** It has neither answered nor been found away yet. */
  get isNew(): boolean {
    return this.status.state === "connecting" && this.status.reason === NO_ANSWER_YET;
  }

  /** Why it is not up, or not ready. */
  get reason(): string {
    if ("reason" in this.status) return this.status.reason;
    return this.isClockOff ? clockReason(this.load?.clockSkewMs ?? 0) : "";
  }

  /** It takes no new sandboxes; those that it has go on. */
  get isClockOff(): boolean {
    return Math.abs(this.load?.clockSkewMs ?? 0) > CLOCK_LIMIT_MS;
  }

  /** Aborts what waits for an answer of this node once it is lost. */
  get signal(): AbortSignal {
    return this.#gone.signal;
  }

  takeState({ node, load, sandboxes, templates, copies }: StateFrame): void {
    this.identity = node;
    this.load = load;
    this.isFull = false;
    this.running.clear();
    this.paused.clear();
    for (const id of sandboxes.running) this.running.add(id);
    for (const id of sandboxes.paused) this.paused.add(id);
    this.takeTemplates({ templates, copies });
    this.status = { state: "up" };
    if (this.#gone.signal.aborted) this.#gone = new AbortController();
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

  /** By id or name, with its tag or without. */
  held(asked: string): HeldTemplate | undefined {
    const [name = "", tag] = asked.split(":");
    const found = this.#byName.get(asked) ?? this.#byName.get(`${name}:${tag ?? "default"}`);
    if (found?.kind === "snapshot" && found.templateID !== asked && !this.#bears(asked, found.templateID)) return undefined;
    return found ?? (tag === undefined ? undefined : this.#templateNamed(name));
  }

  /** Some build of it, by id or name; with a tag, which build that is its own node says. */
  copyOf(asked: string): CopiedTemplate | undefined {
    return this.#copiesByName.get(asked) ?? this.#copiesByName.get(asked.split(":")[0] ?? "");
  }

  /** Whether a sandbox of it starts here without a fetch, as far as its streams tell. */
  has(asked: string): boolean {
    return this.held(asked)?.isReady === true || this.copyOf(asked) !== undefined;
  }

  /** Tags of templates are the node's to know; names of snapshots bear theirs. */
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
