// Keeps the metrics of some sandboxes, or of all, up to date: state, and a bounded history of samples.
import type { SvcClient } from "@svc/contract/client.ts";
import { asFailure, type Failure } from "@svc/contract/failures.ts";
import type { SandboxMetric } from "@svc/contract/observe.ts";
import type { ListedSandbox } from "@svc/contract/sandbox.ts";
import type { Watched } from "./metrics-view.ts";

const INTERVAL_MS = 1000;
const MAX_RETRY_MS = 10_000;
/** One sample is one column, and no terminal is wider than this. */
const MAX_SAMPLES = 512;
/** The maximum number of ids in one request for the newest samples. */
const IDS_PER_REQUEST = 100;
/** The history is requested once per sandbox, for at most this many sandboxes. */
const MAX_HISTORIES = 16;
const TRANSIENT = ["SERVER_UNREACHABLE", "TIMED_OUT", "SHUTTING_DOWN", "TOO_MANY_REQUESTS"];

type Entry = Watched & {
  samples: SandboxMetric[];
  state: string;
  startedAtMs: number;
  endAtMs: number;
  template: string;
  /** The timestamp of the sample that `refresh` returned last. */
  givenAt?: string;
};

export class Watch {
  readonly #client: SvcClient;
  readonly #targets: readonly string[] | undefined;
  readonly #entries = new Map<string, Entry>();
  #histories = 0;
  #retryMs = INTERVAL_MS;
  /** The given sandboxes that do not exist, or no longer. */
  missing: string[] = [];
  sawAny = false;
  /** The reason why the last refresh failed. */
  failure: Failure | undefined;

  /** `targets` undefined means all sandboxes, including those created later. */
  constructor(client: SvcClient, targets: readonly string[] | undefined) {
    this.#client = client;
    this.#targets = targets;
  }

  all(): readonly Watched[] {
    return [...this.#entries.values()];
  }

  /** Queries the server and returns the new samples. It throws only if the first query fails; later failures are retried. */
  async refresh(): Promise<(SandboxMetric & { sandboxID: string })[]> {
    try {
      const fresh = await this.#refresh();
      this.failure = undefined;
      this.#retryMs = INTERVAL_MS;
      this.sawAny ||= this.#entries.size > 0;
      return fresh;
    } catch (error) {
      const failure = asFailure(error);
      if (!this.sawAny || !TRANSIENT.includes(failure.name)) throw error;
      this.failure = failure;
      this.#retryMs = Math.min(this.#retryMs * 2, MAX_RETRY_MS);
      return [];
    }
  }

  wait(): Promise<void> {
    return new Promise((resolve) => setTimeout(resolve, this.#retryMs));
  }

  async #refresh(): Promise<(SandboxMetric & { sandboxID: string })[]> {
    const listed = new Map<string, ListedSandbox>();
    for await (const sandbox of this.#client.list())
      if (this.#targets === undefined || this.#targets.includes(sandbox.sandboxID)) listed.set(sandbox.sandboxID, sandbox);
    this.missing = (this.#targets ?? []).filter((id) => !listed.has(id));
    for (const [sandboxID, entry] of this.#entries) {
      if (listed.has(sandboxID)) continue;
      if (this.#targets === undefined) this.#entries.delete(sandboxID);
      else entry.state = "ended";
    }
    const fresh: (SandboxMetric & { sandboxID: string })[] = [];
    const ids = [...listed.keys()];
    for (const sandbox of listed.values()) await this.#note(sandbox);
    for (let from = 0; from < ids.length; from += IDS_PER_REQUEST) {
      const newest = await this.#client.newestMetrics(ids.slice(from, from + IDS_PER_REQUEST));
      for (const [sandboxID, sample] of Object.entries(newest)) {
        const entry = this.#entries.get(sandboxID);
        if (entry === undefined || entry.givenAt === sample.timestamp) continue;
        entry.givenAt = sample.timestamp;
        fresh.push({ sandboxID, ...sample });
        if (entry.samples.at(-1)?.timestamp !== sample.timestamp) entry.samples.push(sample);
        if (entry.samples.length > MAX_SAMPLES) entry.samples.shift();
      }
    }
    return fresh;
  }

  async #note(sandbox: ListedSandbox): Promise<void> {
    const { sandboxID, state } = sandbox;
    const now = { template: sandbox.alias ?? sandbox.templateID, state, startedAtMs: Date.parse(sandbox.startedAt), endAtMs: Date.parse(sandbox.endAt) };
    const entry = this.#entries.get(sandboxID);
    if (entry !== undefined) {
      Object.assign(entry, now);
      return;
    }
    const wantsHistory = this.#histories++ < MAX_HISTORIES;
    // A sandbox that ends meanwhile has no history, and is not in the next list.
    const samples = wantsHistory ? await this.#client.metrics(sandboxID).catch(() => []) : [];
    this.#entries.set(sandboxID, { sandboxID, ...now, samples: samples.slice(-MAX_SAMPLES) });
  }
}
