// Reads a sandbox's log as one sequence: joins pages, retries lost connections, and returns no entry twice.
import { type Calls, mayPass, pause } from "./client-calls.ts";
import { asFailure, type Failure } from "./failures.ts";
import { getSandboxLogsV2, type LogEntry, type logKinds, type logLevels } from "./observe.ts";
import { getSandbox } from "./sandbox.ts";

export type LogOptions = {
  /** The time to start from; absent: the oldest stored entry. */
  readonly since?: Date;
  /** This level and those above it. */
  readonly level?: (typeof logLevels)[number];
  readonly kind?: (typeof logKinds)[number];
  /** Returns only entries whose message contains this text. */
  readonly search?: string;
  /** Starts with this many of the newest entries (at most 1,000); takes precedence over `since`. */
  readonly tail?: number;
  /** true: waits for further entries until the sandbox is gone or the loop is left. */
  readonly follow?: boolean;
  readonly signal?: AbortSignal;
  /** No server answers; the request is retried after `delayMs`. */
  readonly onReconnect?: (failure: Failure, delayMs: number) => void;
};

const PAGE = 1000;
const BUSY_POLL_MS = 200;
const QUIET_POLL_MS = 1000;
const FIRST_RETRY_MS = 250;
const MAX_RETRY_MS = 10_000;
/** After this many polls without entries, we check whether the sandbox still exists. */
const LOOK_AFTER_POLLS = 3;

/** Yields entries, oldest first. SANDBOX_NOT_FOUND if there never was such a sandbox, or its log has been deleted. */
export async function* readLogs(calls: Calls, sandboxID: string, options: LogOptions): AsyncGenerator<LogEntry> {
  const reader = new Reader(calls, sandboxID, options);
  let hadAny = false;
  let quietPolls = 0;
  let retryMs = FIRST_RETRY_MS;
  for (;;) {
    options.signal?.throwIfAborted();
    try {
      const { entries, isFull } = hadAny || options.tail === undefined ? await reader.next() : await reader.tail(options.tail);
      retryMs = FIRST_RETRY_MS;
      hadAny = true;
      quietPolls = entries.length === 0 ? quietPolls + 1 : 0;
      yield* entries;
      if (isFull) continue;
      if (options.follow !== true) return;
      if (quietPolls > 0 && quietPolls % LOOK_AFTER_POLLS === 0 && !(await isThere(calls, sandboxID))) {
        // Read the entries that were logged between our last page and the sandbox's end.
        for (let last = await reader.next(); ; last = await reader.next()) {
          yield* last.entries;
          if (!last.isFull) return;
        }
      }
    } catch (error) {
      const failure = asFailure(error);
      if (hadAny && failure.name === "SANDBOX_NOT_FOUND") return;
      if (options.follow !== true || !mayPass(failure)) throw error;
      const delayMs = Math.max(retryMs, (failure.retryAfterSeconds ?? 0) * 1000);
      options.onReconnect?.(failure, delayMs);
      retryMs = Math.min(retryMs * 2, MAX_RETRY_MS);
      await pause(delayMs, options.signal);
      continue;
    }
    await pause(quietPolls > 1 ? QUIET_POLL_MS : BUSY_POLL_MS, options.signal);
  }
}

async function isThere(calls: Calls, sandboxID: string): Promise<boolean> {
  try {
    await calls.call(getSandbox, { sandboxID });
    return true;
  } catch (error) {
    if (asFailure(error).name === "SANDBOX_NOT_FOUND") return false;
    throw error;
  }
}

function filterOf({ level, kind, search }: LogOptions) {
  return { ...(level === undefined ? {} : { level }), ...(kind === undefined ? {} : { kind }), ...(search === undefined ? {} : { search }) };
}

/** Pages forward by time. A page begins with the millisecond of the last entry, so entries that were already returned are left out. */
class Reader {
  readonly #calls: Calls;
  readonly #sandboxID: string;
  readonly #filter: ReturnType<typeof filterOf>;
  #cursorMs: number | undefined;
  /** The entries of the cursor's millisecond that were returned, with the number of times each was returned. */
  #given = new Map<string, number>();

  constructor(calls: Calls, sandboxID: string, options: LogOptions) {
    this.#calls = calls;
    this.#sandboxID = sandboxID;
    this.#filter = filterOf(options);
    this.#cursorMs = options.since?.getTime();
  }

  /** Returns the newest `count` entries; `next` then continues after them. */
  async tail(count: number): Promise<{ entries: LogEntry[]; isFull: false }> {
    const limit = Math.min(Math.max(count, 1), PAGE);
    const page = await this.#calls.call(getSandboxLogsV2, { sandboxID: this.#sandboxID, limit, direction: "backward", ...this.#filter });
    const entries = page.logs.toReversed();
    for (const entry of entries) this.#note(entry, JSON.stringify(entry));
    return { entries: count < 1 ? [] : entries, isFull: false };
  }

  async next(): Promise<{ entries: LogEntry[]; isFull: boolean }> {
    const page = await this.#calls.call(getSandboxLogsV2, {
      sandboxID: this.#sandboxID,
      limit: PAGE,
      direction: "forward",
      ...this.#filter,
      ...(this.#cursorMs === undefined ? {} : { cursor: this.#cursorMs }),
    });
    const known = new Map(this.#given);
    const entries: LogEntry[] = [];
    for (const entry of page.logs) {
      const key = JSON.stringify(entry);
      const count = known.get(key) ?? 0;
      if (count > 0) known.set(key, count - 1);
      else {
        entries.push(entry);
        this.#note(entry, key);
      }
    }
    const isFull = page.logs.length === PAGE;
    // Paging by time cannot get past more than a page of entries in one millisecond: skip to the next millisecond instead of looping forever.
    if (isFull && entries.length === 0 && this.#cursorMs !== undefined) {
      this.#cursorMs++;
      this.#given.clear();
    }
    return { entries, isFull };
  }

  #note(entry: LogEntry, key: string): void {
    const ms = Math.floor(Date.parse(entry.timestamp));
    if (this.#cursorMs === undefined || ms > this.#cursorMs) {
      this.#cursorMs = ms;
      this.#given.clear();
    }
    if (ms === this.#cursorMs) this.#given.set(key, (this.#given.get(key) ?? 0) + 1);
  }
}
