// The console's table of sandboxes, kept once for all pages: read as a list, then changed by events, and sent in at most five batches a second.
import type { SvcClient } from "@svc/contract/client.ts";
import { type ConsoleEvent, type ConsoleRow, type FromServer, MAX_ENDED_ROWS, MAX_EVENTS } from "@svc/contract/console.ts";
import { formatCursor, parseCursor } from "@svc/contract/event-cursor.ts";
import { asFailure, type Failure } from "@svc/contract/failures.ts";
import type { LifecycleEvent } from "@svc/contract/observe.ts";
import type { ListedSandbox } from "@svc/contract/sandbox.ts";
import type { Log } from "../log.ts";
import { unknownRow } from "./ended.ts";

export type BoardSource = {
  readonly client: Pick<SvcClient, "events" | "list">;
  /** Returns the newest position in the events. */
  readonly newest: (signal: AbortSignal) => Promise<string>;
  /** Returns the rows of sandboxes that ended earlier. */
  readonly ended: () => Promise<ReadonlyMap<string, ConsoleRow>>;
  /** Returns one sandbox, or undefined if it is gone. */
  readonly row: (sandboxID: string) => Promise<ListedSandbox | undefined>;
};
export type Listener = { readonly onText: (text: string) => void };

const FLUSH_MS = 200;
const ROWS_PER_MESSAGE = 500;
const ROW_READS = 8;
/** The number of earlier events that are read at the start, for ends and their reasons. */
const HISTORY = 5_000;
/** The assumed maximum difference between the nodes' clocks: an event up to this long before the start counts as new. */
const SKEW_MS = 10_000;
const RETRY_MS = 1_000;
/** Events that say nothing about a sandbox's row. */
const rowless: ReadonlySet<string> = new Set(["sandbox.forked", "sandbox.snapshotted", "sandbox.limit_reached", "sandbox.pause_failed"]);

export class Board {
  readonly #source: BoardSource;
  readonly #log: Log;
  readonly #listeners = new Set<Listener>();
  readonly #rows = new Map<string, ConsoleRow>();
  readonly #ended = new Map<string, ConsoleRow>();
  /** The rows of sandboxes that ended before the start. */
  #endedEarlier: ReadonlyMap<string, ConsoleRow> = new Map();
  /** Sandboxes that ended before the list showed them, and after the earlier ends were read. */
  readonly #unread = new Set<string>();
  #events: ConsoleEvent[] = [];
  readonly #dirty = new Set<string>();
  readonly #changed = new Map<string, ConsoleRow>();
  readonly #gone = new Set<string>();
  #newEvents: ConsoleEvent[] = [];
  #timer: NodeJS.Timeout | undefined;
  #stopping: AbortController | undefined;
  #startedAt = 0;
  #why = "";
  #isListed = false;

  constructor(source: BoardSource, log: Log) {
    this.#source = source;
    this.#log = log;
  }

  /** The first page starts the board. It then runs until `close`, so that the rows of ended sandboxes keep their last known values. */
  add(listener: Listener): void {
    this.#listeners.add(listener);
    if (this.#stopping === undefined) void this.#run((this.#stopping = new AbortController()).signal);
    else if (this.#isListed) this.#sendAll(listener);
    if (this.#why !== "") listener.onText(textOf({ t: "source", isUp: false, why: this.#why }));
  }

  remove(listener: Listener): void {
    this.#listeners.delete(listener);
  }

  close(): void {
    this.#stopping?.abort();
    clearTimeout(this.#timer);
  }

  /** Sends the whole table again, to a page that could not keep up. */
  resend(listener: Listener): void {
    if (this.#listeners.has(listener) && this.#isListed) this.#sendAll(listener);
  }

  async #run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        const newest = await this.#source.newest(signal);
        this.#startedAt = Date.now();
        this.#endedEarlier = await this.#source.ended().catch((error: unknown) => {
          this.#log.warn({ err: error }, "the console could not read the metadata of ended sandboxes");
          return new Map();
        });
        const since = formatCursor(new Map([...(parseCursor(newest) ?? [])].map(([node, id]) => [node, Math.max(0, id - HISTORY)])));
        const listing = this.#list(signal);
        listing.catch(() => {});
        await this.#follow(since, signal, listing);
      } catch (error) {
        if (signal.aborted) return;
        this.#down(asFailure(error));
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }

  async #list(signal: AbortSignal): Promise<void> {
    const found = new Map<string, ConsoleRow>();
    for await (const each of this.#source.client.list({ state: "running,paused" })) {
      if (signal.aborted) return;
      found.set(each.sandboxID, rowOf(each));
    }
    // Whatever changed during the listing is in #dirty, and is read once more.
    for (const id of this.#rows.keys()) if (!found.has(id)) this.#rows.delete(id);
    for (const [id, row] of found) if (!this.#ended.has(id)) this.#rows.set(id, row);
    this.#isListed = true;
    for (const listener of this.#listeners) this.#sendAll(listener);
    this.#up();
  }

  async #follow(since: string, signal: AbortSignal, listing: Promise<void>): Promise<void> {
    const options = {
      since,
      signal,
      onReconnect: (failure: Failure) => this.#down(failure),
      // The events in the gap are unknown, so the list is read once more.
      onGap: () => void this.#list(signal).catch((error: unknown) => this.#log.warn({ err: error }, "the console could not read the list of sandboxes")),
    };
    const failed = new Promise<never>((_, reject) => {
      listing.catch(reject);
    });
    const events = this.#source.client.events(options);
    try {
      for (;;) {
        const next = await Promise.race([events.next(), failed]);
        if (next.done === true) return;
        this.#take(next.value);
      }
    } finally {
      void events.return(undefined).catch(() => {});
    }
  }

  #take(event: LifecycleEvent): void {
    this.#up();
    const at = Date.parse(event.at);
    const { sandboxID, templateID } = event;
    const short: ConsoleEvent = {
      id: event.id,
      at,
      type: event.type,
      details: event.details,
      ...(sandboxID === undefined ? {} : { sandboxID }),
      ...(templateID === undefined ? {} : { templateID }),
    };
    this.#events.push(short);
    if (this.#events.length > 2 * MAX_EVENTS) this.#events = this.#events.slice(-MAX_EVENTS);
    const isOld = at < this.#startedAt - SKEW_MS;
    if (!isOld) this.#newEvents.push(short);
    if (sandboxID !== undefined && event.type === "sandbox.ended") this.#end(sandboxID, templateID, at, event.details);
    else if (sandboxID !== undefined && !isOld && !rowless.has(event.type)) this.#dirty.add(sandboxID);
    if (!isOld) this.#schedule();
  }

  #end(id: string, template: string | undefined, endedAt: number, details: LifecycleEvent["details"]): void {
    const known = this.#rows.get(id) ?? this.#endedEarlier.get(id);
    if (known === undefined && endedAt >= this.#startedAt - SKEW_MS) this.#unread.add(id);
    const row: ConsoleRow = { ...(known ?? unknownRow(id, template ?? "", endedAt)), state: "ended", endedAt, reason: String(details["reason"] ?? "unknown") };
    this.#rows.delete(id);
    this.#dirty.delete(id);
    this.#ended.delete(id);
    this.#ended.set(id, row);
    this.#changed.set(id, row);
    const [oldest] = this.#ended.keys();
    if (this.#ended.size > MAX_ENDED_ROWS && oldest !== undefined) {
      this.#ended.delete(oldest);
      this.#changed.delete(oldest);
      this.#gone.add(oldest);
    }
  }

  /** An end that is streamed is in the list of events, with the sandbox's metadata. */
  async #readEnded(ids: readonly string[]): Promise<void> {
    this.#unread.clear();
    const found = await this.#source.ended().catch(() => new Map<string, ConsoleRow>());
    for (const id of ids) {
      const [read, shown] = [found.get(id), this.#ended.get(id)];
      if (read === undefined || shown === undefined) continue;
      const row = { ...read, state: shown.state, endedAt: shown.endedAt, reason: shown.reason } as ConsoleRow;
      this.#ended.set(id, row);
      this.#changed.set(id, row);
    }
  }

  #schedule(): void {
    this.#timer ??= setTimeout(() => {
      void this.#flush().finally(() => {
        this.#timer = undefined;
        if (this.#dirty.size + this.#changed.size + this.#gone.size + this.#newEvents.length > 0) this.#schedule();
      });
    }, FLUSH_MS);
  }

  async #flush(): Promise<void> {
    const ids = [...this.#dirty];
    this.#dirty.clear();
    const read = async () => {
      for (let id = ids.pop(); id !== undefined; id = ids.pop()) {
        const found = await this.#source.row(id).catch(() => undefined);
        if (found === undefined) {
          if (this.#rows.delete(id)) this.#gone.add(id);
        } else if (!this.#ended.has(id)) {
          const row = rowOf(found);
          this.#rows.set(id, row);
          this.#changed.set(id, row);
          this.#gone.delete(id);
        }
      }
    };
    await Promise.all(Array.from({ length: Math.min(ROW_READS, ids.length) }, read));
    if (this.#unread.size > 0) await this.#readEnded([...this.#unread]);
    const message: FromServer = { t: "batch", rows: [...this.#changed.values()], gone: [...this.#gone], events: this.#newEvents };
    this.#changed.clear();
    this.#gone.clear();
    this.#newEvents = [];
    if (message.rows.length + message.gone.length + message.events.length === 0 || !this.#isListed) return;
    // One text serves all pages.
    const text = textOf(message);
    for (const listener of this.#listeners) listener.onText(text);
  }

  #sendAll(listener: Listener): void {
    const rows = [...this.#rows.values(), ...this.#ended.values()];
    for (let at = 0; at === 0 || at < rows.length; at += ROWS_PER_MESSAGE)
      listener.onText(textOf({ t: "rows", rows: rows.slice(at, at + ROWS_PER_MESSAGE), isFirst: at === 0, isLast: at + ROWS_PER_MESSAGE >= rows.length }));
    listener.onText(textOf({ t: "batch", rows: [], gone: [], events: this.#events.slice(-MAX_EVENTS) }));
  }

  #down({ message }: Failure): void {
    if (this.#why === message) return;
    this.#why = message;
    this.#say({ t: "source", isUp: false, why: message });
  }

  #up(): void {
    if (this.#why === "") return;
    this.#why = "";
    this.#say({ t: "source", isUp: true, why: "" });
  }

  #say(message: FromServer): void {
    const text = textOf(message);
    for (const listener of this.#listeners) listener.onText(text);
  }
}

export const textOf = (message: FromServer): string => JSON.stringify(message);

function rowOf(listed: ListedSandbox): ConsoleRow {
  return {
    id: listed.sandboxID,
    template: listed.templateID,
    ...(listed.alias === undefined ? {} : { alias: listed.alias }),
    state: listed.state,
    startedAt: Date.parse(listed.startedAt),
    endAt: Date.parse(listed.endAt),
    cpu: listed.cpuCount,
    memoryMB: listed.memoryMB,
    diskMB: listed.diskSizeMB,
    metadata: listed.metadata ?? {},
    ...(listed.parentSandboxID === undefined ? {} : { parent: listed.parentSandboxID }),
    depth: listed.forkDepth,
  };
}
