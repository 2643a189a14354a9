// Fetches templates and snapshots before a sandbox needs them: on request, and by the rules of the settings for nodes with a label.
import { asFailure, Failure } from "@svc/contract/failures.ts";
import { hasNodeLabels, type PullAnswer, type PulledNode, type pullOperations } from "@svc/contract/pull.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Handlers } from "@svc/kit/serve.ts";
import type { SnapshotTransfer } from "../../snapshot-transfer/open-snapshot-transfer.ts";
import type { Templates } from "../../template/open-templates.ts";

export type PullParts = {
  /** NAME, or NAME and the labels of the nodes that keep it: "web gpu=yes zone=a". */
  readonly rules: readonly string[];
  readonly labels: readonly string[];
  readonly templates: Pick<Templates, "index" | "builder">;
  readonly transfer: Pick<SnapshotTransfer, "fetch">;
  readonly nodeID: () => string;
  readonly log: Log;
};

export interface Pulls {
  readonly handlers: Handlers<typeof pullOperations>;
  /** Applies the rules, now and at an interval: a name may refer to a newer build, and a fetch may have failed. */
  start(): void;
  close(): Promise<void>;
}

/** `id` is what a name referred to: a node finds what it fetched by id alone. */
type Pull = Omit<PulledNode, "nodeID" | "seconds"> & { readonly beganMs: number; readonly endedMs?: number; readonly id?: string };

const RULES_MS = 60_000;
/** A node that has just joined may not know the others yet. */
const RETRY_MS = 5_000;
/** Fetches that end are remembered, so that their outcome can be shown; the oldest are forgotten. */
const MAX_REMEMBERED = 200;
const MAX_FETCHING = 32;

export function openPulls({ rules, labels, templates, transfer, nodeID, log }: PullParts): Pulls {
  const pulls = new Map<string, Pull>();
  const running = new Map<string, Promise<void>>();
  let timer: NodeJS.Timeout | undefined;
  let isClosed = false;

  /** Returns true if it is here for good: a template of this node or of set-up, or a snapshot. A copy's name may refer to a newer build elsewhere. */
  const isOwn = (asked: string): boolean =>
    pulls.get(asked)?.id === undefined && local(asked) !== undefined && templates.builder.copies.get(asked) === undefined;
  function local(asked: string): string | undefined {
    for (const name of [asked, pulls.get(asked)?.id]) {
      try {
        if (name !== undefined) return templates.index.find(name).templateID;
      } catch {
        // It is not on this node under this name.
      }
    }
    return undefined;
  }

  async function fetch(asked: string): Promise<void> {
    const beganMs = performance.now();
    const known = pulls.get(asked);
    const over = (state: "ready" | "failed", message: string, id = known?.id) => {
      pulls.delete(asked);
      pulls.set(asked, { state, message, beganMs, endedMs: performance.now(), ...(id === undefined ? {} : { id }) });
      const [oldest] = pulls.keys();
      if (pulls.size > MAX_REMEMBERED && oldest !== undefined) pulls.delete(oldest);
    };
    // While a copy is looked up again, it stays ready.
    if (local(asked) === undefined) pulls.set(asked, { state: "fetching", message: "", beganMs });
    try {
      const found = await transfer.fetch(asked);
      if (found === undefined && local(asked) === undefined) throw new Failure("TEMPLATE_NOT_FOUND", `no node of this deployment has '${asked}'`);
      over("ready", "", found);
      if (known?.state !== "ready") log.info({ template: asked, seconds: (performance.now() - beganMs) / 1000 }, "a template was fetched in advance");
    } catch (error) {
      const { name, message } = asFailure(error);
      over("failed", `${name}: ${message}`);
      if (known?.message !== `${name}: ${message}`) log.warn({ err: error, template: asked }, "a template could not be fetched in advance");
    }
  }

  function begin(asked: string): void {
    if (running.has(asked) || isOwn(asked)) return;
    if (running.size >= MAX_FETCHING)
      throw new Failure("TOO_MANY_REQUESTS", `this node is fetching ${MAX_FETCHING} templates; that is the maximum`, { retryAfterSeconds: 10 });
    running.set(
      asked,
      fetch(asked).finally(() => running.delete(asked)),
    );
  }

  function stateOf(asked: string): PulledNode {
    const known = pulls.get(asked);
    const seconds = known === undefined ? 0 : Math.round((known.endedMs ?? performance.now()) - known.beganMs) / 1000;
    if (known?.state === "fetching" || (known?.state === "failed" && local(asked) === undefined))
      return { nodeID: nodeID(), state: known.state, message: known.message, seconds };
    return { nodeID: nodeID(), state: local(asked) === undefined ? "absent" : "ready", message: known?.message ?? "", seconds };
  }

  const answer = (asked: string, nodeLabels: string | undefined): PullAnswer => ({
    nodes: hasNodeLabels(labels, nodeLabels) ? [stateOf(asked)] : [],
    missingNodes: [],
  });

  const wanted = rules.flatMap((rule) => {
    const [name = "", ...wantedLabels] = rule.split(" ");
    return wantedLabels.every((each) => labels.includes(each)) ? [name] : [];
  });
  async function applyRules(): Promise<void> {
    // One after the other: a node that joins must not fill its network with all of them at once.
    for (const name of wanted) {
      if (isOwn(name) || running.has(name)) continue;
      begin(name);
      await running.get(name);
    }
  }

  return {
    handlers: {
      pullTemplate({ templateID, nodeLabels }) {
        if (hasNodeLabels(labels, nodeLabels)) begin(templateID);
        return answer(templateID, nodeLabels);
      },
      getPull: ({ templateID, nodeLabels }) => answer(templateID, nodeLabels),
    },
    start() {
      if (wanted.length === 0) return;
      const apply = async () => {
        await applyRules().catch((error: unknown) => log.warn({ err: error }, "the rules of template.pull could not be applied; retrying"));
        if (isClosed) return;
        const isComplete = wanted.every((name) => stateOf(name).state === "ready");
        timer = setTimeout(() => void apply(), isComplete ? RULES_MS : RETRY_MS).unref();
      };
      void apply();
    },
    async close() {
      isClosed = true;
      clearTimeout(timer);
    },
  };
}
