// Follows the events of a deployment across lost connections: server-sent events, resumed by Last-Event-ID.
import { type Calls, mayPass, pause } from "./client-calls.ts";
import { type EventCursor, hasReached, parseCursor } from "./event-cursor.ts";
import { asFailure, Failure } from "./failures.ts";
import { eventGap, type LifecycleEvent, lifecycleEvent, lifecycleEvents, streamEvents } from "./observe.ts";

export type LifecycleEventType = LifecycleEvent["type"];
/** The events between `asked` and `oldest` are missing: the server no longer keeps them, or it never issued such an id. */
export type EventGap = { readonly asked: number; readonly oldest: number; readonly newest: number };

export type EventOptions = {
  /** Starts after the event of this id, or at this cursor of a gateway; 0 starts with the oldest stored event. Absent: only new events. */
  readonly since?: number | EventCursor;
  readonly types?: readonly LifecycleEventType[];
  readonly sandboxID?: string;
  /** false: ends after the newest event that exists at the start. Default true: continues until the loop is left. */
  readonly follow?: boolean;
  readonly signal?: AbortSignal;
  /** The connection was lost and is retried after `delayMs`. */
  readonly onReconnect?: (failure: Failure, delayMs: number) => void;
  readonly onGap?: (gap: EventGap) => void;
};

const FIRST_RETRY_MS = 250;
const MAX_RETRY_MS = 10_000;
/** The server sends something at least every 15 s, even if only a comment; a connection that is silent for this long is dead. */
const SILENCE_MS = 60_000;
/** The limit for one event; ours have a few hundred bytes. */
const MAX_EVENT_CHARS = 1024 * 1024;

/** Yields each event once, in order. With `follow` it ends by its signal, or with a failure that no retry fixes. */
export async function* followEvents(calls: Calls, options: EventOptions): AsyncGenerator<LifecycleEvent> {
  const { types, sandboxID, signal, follow = true } = options;
  let last: EventCursor | undefined = options.since === undefined ? undefined : String(options.since);
  const newest = follow ? undefined : await newestID(calls, signal);
  // The server filters events, except without `follow`: there we must see the newest event, which the filter might drop, to know where to stop.
  const query = new URLSearchParams();
  if (follow && types !== undefined) query.set("types", types.join(","));
  if (follow && sandboxID !== undefined) query.set("sandboxID", sandboxID);
  let retryMs = FIRST_RETRY_MS;
  for (;;) {
    if (newest !== undefined && hasReached(last ?? newest, newest)) return;
    let failure: Failure;
    try {
      for await (const message of messagesOf(calls, query, last, signal)) {
        retryMs = FIRST_RETRY_MS;
        if (message.event === "gap") options.onGap?.(eventGap.parse(JSON.parse(message.data)));
        // Newer servers may send other message types, such as overflow; these are not lifecycle events.
        const isEvent = lifecycleEvents.some((type) => type === message.event);
        const event = isEvent ? lifecycleEvent.parse(JSON.parse(message.data)) : undefined;
        // A server may repeat events after a reconnect; each event must be yielded only once.
        const isNew = event !== undefined && (last === undefined || !hasReached(last, message.id ?? String(event.id)));
        last = message.id ?? (event === undefined ? last : String(event.id));
        if (isNew && (types === undefined || types.includes(event.type)) && (sandboxID === undefined || event.sandboxID === sandboxID)) yield event;
        if (newest !== undefined && last !== undefined && hasReached(last, newest)) return;
      }
      failure = new Failure("SERVER_UNREACHABLE", `${calls.baseURL} ended the stream of events`);
    } catch (error) {
      signal?.throwIfAborted();
      failure = asFailure(error);
      if (!mayPass(failure)) throw error;
      // Without `follow` the current state was requested, so we do not wait for a server that is away.
      if (newest !== undefined) throw error;
    }
    const delayMs = Math.max(retryMs, (failure.retryAfterSeconds ?? 0) * 1000);
    options.onReconnect?.(failure, delayMs);
    await pause(delayMs, signal);
    retryMs = Math.min(retryMs * 2, MAX_RETRY_MS);
  }
}

/** Returns the newest id: a stream without a start position begins by sending it. */
async function newestID(calls: Calls, signal: AbortSignal | undefined): Promise<EventCursor> {
  for await (const { id } of messagesOf(calls, new URLSearchParams(), undefined, signal)) if (id !== undefined) return id;
  throw new Failure("SERVER_UNREACHABLE", `${calls.baseURL} ended the stream of events before it began`);
}

type Message = { readonly id: EventCursor | undefined; readonly event: string; readonly data: string };

/** Yields the messages of one connection; a bare `id:` is a message without data. */
async function* messagesOf(calls: Calls, query: URLSearchParams, last: EventCursor | undefined, signal: AbortSignal | undefined): AsyncGenerator<Message> {
  const silent = new AbortController();
  const both = signal === undefined ? silent.signal : AbortSignal.any([silent.signal, signal]);
  let timer = setTimeout(() => silent.abort(), SILENCE_MS);
  try {
    const headers = { accept: "text/event-stream", ...(last === undefined ? {} : { "last-event-id": last }) };
    const response = await calls.open(`${streamEvents.path}${query.size === 0 ? "" : `?${query}`}`, headers, both);
    const decoder = new TextDecoder();
    let rest = "";
    for await (const chunk of response.body ?? []) {
      clearTimeout(timer);
      timer = setTimeout(() => silent.abort(), SILENCE_MS);
      rest += decoder.decode(chunk, { stream: true });
      const blocks = rest.split(/\r?\n\r?\n/);
      rest = blocks.pop() ?? "";
      if (rest.length > MAX_EVENT_CHARS) throw new Failure("INTERNAL", `${calls.baseURL} sent an event of more than ${MAX_EVENT_CHARS} characters`);
      for (const block of blocks) {
        const message = messageOf(block);
        if (message !== undefined) yield message;
      }
    }
  } catch (error) {
    if (error instanceof Failure || signal?.aborted === true) throw error;
    const why = silent.signal.aborted ? `was silent for ${SILENCE_MS / 1000} s` : `broke (${(error as Error).message})`;
    throw new Failure("SERVER_UNREACHABLE", `the stream of events from ${calls.baseURL} ${why}`, { cause: error });
  } finally {
    clearTimeout(timer);
    silent.abort();
  }
}

function messageOf(block: string): Message | undefined {
  let id: EventCursor | undefined;
  let event = "message";
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    const [, field, value = ""] = /^([a-z]+)(?:: ?(.*))?$/.exec(line) ?? [];
    if (field === "data") data.push(value);
    else if (field === "event") event = value;
    else if (field === "id" && parseCursor(value) !== undefined) id = value;
  }
  return id === undefined && data.length === 0 ? undefined : { id, event, data: data.join("\n") };
}
