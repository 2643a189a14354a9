// The handlers of the operations that show sandboxes' metrics, and of both logs endpoints.
import { fail } from "@svc/contract/failures.ts";
import type { getSandboxesMetrics, getSandboxLogs, getSandboxLogsV2, getSandboxMetrics, LogEntry } from "@svc/contract/observe.ts";
import type { Handlers } from "@svc/kit/serve.ts";
import { fetchProcesses } from "../agent/process-log.ts";
import type { RuntimeHandle } from "../runtime/runtime.ts";
import type { SandboxLogs } from "./sandbox-logs.ts";
import type { UsageLog } from "./usage.ts";

export type ObserveOperations = {
  readonly getSandboxMetrics: typeof getSandboxMetrics;
  readonly getSandboxesMetrics: typeof getSandboxesMetrics;
  readonly getSandboxLogs: typeof getSandboxLogs;
  readonly getSandboxLogsV2: typeof getSandboxLogsV2;
};

/** A running sandbox, with what a request to its envd needs. */
export type Asked = {
  readonly handle: RuntimeHandle;
  /** Undefined where envd requires no token. */
  readonly accessToken: string | undefined;
  /** Entries from before this time belong to another sandbox: the source of a fork, or a template's build. */
  readonly startedAtWallMs: number;
};

export type ObserveDeps = {
  /**
   * Returns how to reach the envd of a client's sandbox, or undefined while it does not run. @throws SANDBOX_NOT_FOUND, with the reason if it
   * ended within the hour.
   */
  ask(sandboxID: string): Asked | undefined;
  /** True if the sandbox ended within the hour. */
  hasEnded(sandboxID: string): boolean;
  /** Fetches envd's log (openCollector). */
  collect(sandboxID: string): Promise<void>;
  readonly usage: UsageLog;
  readonly logs: SandboxLogs;
};

const MAX_IDS = 100;

export function observeHandlers({ ask, hasEnded, collect, usage, logs }: ObserveDeps): Handlers<ObserveOperations> {
  async function read(sandboxID: string, query: Parameters<SandboxLogs["read"]>[1]): Promise<LogEntry[]> {
    if (!hasEnded(sandboxID)) await collect(sandboxID);
    return logs.read(sandboxID, query);
  }

  return {
    getSandboxMetrics({ sandboxID, start, end }) {
      ask(sandboxID);
      return usage.read(sandboxID, { startSeconds: start, endSeconds: end });
    },
    async getSandboxesMetrics({ sandbox_ids }) {
      const ids = [...new Set(sandbox_ids.split(",").filter(Boolean))];
      if (ids.length > MAX_IDS) fail("INVALID_REQUEST", `sandbox_ids: the maximum is ${MAX_IDS} ids, got ${ids.length}; send several requests`);
      const found = await Promise.all(ids.map(async (sandboxID) => [sandboxID, await usage.newest(sandboxID)] as const));
      return { sandboxes: Object.fromEntries(found.flatMap(([sandboxID, metric]) => (metric === undefined ? [] : [[sandboxID, metric]]))) };
    },
    async getSandboxLogs({ sandboxID, start, limit }) {
      const logEntries = await read(sandboxID, { cursor: start, limit, direction: "forward" });
      return { logs: logEntries.map((entry) => ({ timestamp: entry.timestamp, line: lineOf(entry) })), logEntries };
    },
    async getSandboxLogsV2({ sandboxID, ...query }) {
      return { logs: await read(sandboxID, query) };
    },
  };
}

/** Formats an entry as one JSON object per line, with `level` and `logger`, which the E2B CLI requires. */
function lineOf({ level, message, fields: { kind, ...fields } }: LogEntry): string {
  return JSON.stringify({ ...fields, level, logger: kind, message });
}

/** Concurrent readers share one request to envd, and requests are at least this far apart. */
const COLLECT_MS = 200;

/** Copies new entries of envd's log into the sandbox's log; resolves also if envd does not answer. */
export function openCollector({ ask, logs }: Pick<ObserveDeps, "ask" | "logs">): (sandboxID: string, boundMs?: number) => Promise<void> {
  const underWay = new Map<string, Promise<void>>();

  async function collect(sandboxID: string, boundMs: number | undefined): Promise<void> {
    const asked = ask(sandboxID);
    if (asked === undefined) return;
    const page = await fetchProcesses(asked.handle, asked.accessToken, logs.processesKnown(sandboxID), boundMs);
    if (page !== undefined) await logs.writeProcesses(sandboxID, page, asked.startedAtWallMs);
  }

  return (sandboxID, boundMs) => {
    const known = underWay.get(sandboxID);
    if (known !== undefined) return known;
    const work = collect(sandboxID, boundMs).finally(() => setTimeout(() => underWay.delete(sandboxID), COLLECT_MS).unref());
    underWay.set(sandboxID, work);
    return work;
  };
}
