// The usage of tenants over all nodes: as the nodes' streams report it, and sandboxes of this gateway that no stream shows yet.
import { NO_USAGE, type Usage } from "@svc/contract/tenants.ts";
import { type Charge, sum } from "@svc/kit/keys/tenant-quotas.ts";
import type { Member } from "./member.ts";

type Unseen = Charge & { readonly sinceMs: number };

/** A sandbox that ended before its node's stream showed it stops counting after this time. */
const UNSEEN_MS = 60_000;

export class TenantUsage {
  readonly #members: { readonly all: readonly Member[] };
  readonly #nowMs: () => number;
  readonly #unseen = new Map<string, Unseen>();

  constructor(members: { readonly all: readonly Member[] }, nowMs: () => number) {
    this.#members = members;
    this.#nowMs = nowMs;
  }

  /** A sandbox counts once, also while two nodes report it because it moves. */
  usedBy(tenant: string): Usage {
    const { all } = this.#members;
    const counted = new Set<string>();
    const runs = (id: string) => all.some((member) => member.running.has(id));
    let used = NO_USAGE;
    for (const member of all) {
      for (const [id, size] of member.owned) {
        if (size.tenant !== tenant || counted.has(id)) continue;
        counted.add(id);
        used = sum(used, { ...NO_USAGE, diskMB: size.diskMB });
        if (runs(id)) used = sum(used, { sandboxes: 1, processors: size.processors, memoryMB: size.memoryMB, diskMB: 0 });
      }
    }
    for (const [id, { tenant: its, usage, sinceMs }] of this.#unseen) {
      if (runs(id) || this.#nowMs() - sinceMs > UNSEEN_MS) this.#unseen.delete(id);
      else if (its === tenant) used = sum(used, usage);
    }
    return used;
  }

  /** Counts a sandbox that a node has just started until the node's stream shows it. */
  started(sandboxID: string, charge: Charge): void {
    this.#unseen.set(sandboxID, { ...charge, sinceMs: this.#nowMs() });
  }

  /** The sizes that a sandbox of this template or snapshot has, by the streams; at least one of each where they do not say. */
  sizeOf(templateID: string): Usage {
    const held = this.#members.all.map((member) => member.held(templateID) ?? member.copyOf(templateID)).find((each) => each !== undefined);
    const { memoryMB = 1, cpuCount = 1, diskSizeMB = 1 } = { ...held } as { memoryMB?: number; cpuCount?: number; diskSizeMB?: number };
    return { sandboxes: 1, processors: cpuCount || 1, memoryMB: memoryMB || 1, diskMB: diskSizeMB || 1 };
  }

  /** The sizes of a sandbox that a node reports; undefined if none does. */
  sizeOfSandbox(sandboxID: string): { readonly usage: Usage; readonly runs: boolean } | undefined {
    for (const member of this.#members.all) {
      const size = member.owned.get(sandboxID);
      if (size === undefined) continue;
      const { processors, memoryMB, diskMB } = size;
      return { usage: { sandboxes: 1, processors, memoryMB, diskMB }, runs: member.running.has(sandboxID) };
    }
    return undefined;
  }
}
