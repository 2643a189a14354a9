// GET /events: each reader has a position in the log of events and reads on as fast as its connection accepts data.
import type { ServerResponse } from "node:http";
import { Failure, fail } from "@svc/contract/failures.ts";
import { issueText } from "@svc/contract/issues.ts";
import { streamEvents } from "@svc/contract/observe.ts";
import type { Parsed } from "@svc/contract/operation.ts";
import type { RawScope } from "@svc/kit/serve.ts";
import type { Entry, Events } from "./events.ts";

export interface EventStreams {
  /** The routes for serve's `raw`. */
  routes(scope: RawScope): void;
  readonly readers: number;
  /** Ends every stream; clients reconnect with their last id. Called before the proxy waits for requests in flight, which the streams are, too. */
  end(): void;
}

const MAX_READERS = 1_000;
const PAGE = 256;
const HEARTBEAT_MS = 15_000;
/** A connection that accepts nothing for this long is closed. */
const STALL_MS = 30_000;
/** The time for data in flight to reach a reader whose stream was ended. */
const FAREWELL_MS = 5_000;
const RECONNECT_MS = 2_000;

/*
 * reading ──connection full──▶ waiting ──drain──▶ reading       at most one page of entries in memory per reader:
 *    │                            │ STALL_MS                    what it has not read yet stays in the log, not in a queue
 *    └──────── closed ◀───────────┴──▶ overflow ──▶ closed
 */
type Reader = {
  readonly response: ServerResponse;
  readonly sandboxID: string | undefined;
  readonly types: ReadonlySet<string> | undefined;
  /** The id of the last entry considered. */
  cursor: number;
  waitingSinceMs: number | undefined;
  pumping: boolean;
};

export function openEventStreams(events: Events, nowMs: () => number = () => performance.now()): EventStreams {
  const readers = new Set<Reader>();
  let stopWatching: (() => void) | undefined;
  let heartbeat: NodeJS.Timeout | undefined;
  let isEnded = false;

  function add(reader: Reader): void {
    readers.add(reader);
    stopWatching ??= events.watch(() => {
      for (const each of readers) pump(each);
    });
    heartbeat ??= setInterval(beat, HEARTBEAT_MS).unref();
  }

  function remove(reader: Reader): void {
    readers.delete(reader);
    if (readers.size > 0) return;
    stopWatching?.();
    stopWatching = undefined;
    clearInterval(heartbeat);
    heartbeat = undefined;
  }

  function send(reader: Reader, text: string): void {
    if (!reader.response.write(text)) reader.waitingSinceMs ??= nowMs();
  }

  /** Sends entries, one page per tick of the event loop, until the reader is up to date or its connection is full. */
  function pump(reader: Reader): void {
    if (reader.pumping || reader.waitingSinceMs !== undefined || !readers.has(reader)) return;
    const page = events.read(reader.cursor, PAGE);
    const last = page.at(-1);
    if (last === undefined) return;
    const missing = page[0] !== undefined && page[0].id > reader.cursor + 1 ? gapFrame(reader.cursor, page[0].id, events.newest) : "";
    const text =
      missing +
      page
        .filter((entry) => isWanted(reader, entry))
        .map(({ frame }) => frame)
        .join("");
    reader.cursor = last.id;
    if (text !== "") send(reader, text);
    if (page.length < PAGE) return;
    reader.pumping = true;
    setImmediate(() => {
      reader.pumping = false;
      pump(reader);
    });
  }

  function beat(): void {
    for (const reader of readers) {
      if (reader.waitingSinceMs === undefined) {
        // Readers of few types also need the latest id: without it a reconnect after a long silence would report a gap.
        send(reader, `: alive\nid: ${reader.cursor}\n\n`);
      } else if (nowMs() - reader.waitingSinceMs > STALL_MS) {
        remove(reader);
        reader.response.end(`event: overflow\ndata: {"last":${reader.cursor}}\n\n`);
        setTimeout(() => reader.response.destroy(), FAREWELL_MS).unref();
      }
    }
  }

  function begin(response: ServerResponse, input: Parsed<typeof streamEvents>): void {
    const asked = input.lastEventID ?? input.after;
    const isKnown = asked === undefined || (asked >= events.oldest - 1 && asked <= events.newest);
    const cursor = isKnown ? (asked ?? events.newest) : events.oldest - 1;
    const reader: Reader = {
      response,
      sandboxID: input.sandboxID,
      types: input.types === undefined ? undefined : new Set(input.types),
      cursor,
      waitingSinceMs: undefined,
      pumping: false,
    };
    response.on("drain", () => {
      reader.waitingSinceMs = undefined;
      pump(reader);
    });
    response.on("close", () => remove(reader));
    response.on("error", () => remove(reader));
    response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store", "x-accel-buffering": "no" });
    add(reader);
    // The id is sent at once, so that a client disconnected before the first event reconnects without a gap.
    send(reader, `retry: ${RECONNECT_MS}\nid: ${cursor}\n\n${isKnown || asked === undefined ? "" : gapFrame(asked, events.oldest, events.newest)}`);
    pump(reader);
  }

  return {
    routes(scope) {
      const options = { exposeHeadRoute: false, config: { operation: streamEvents.name } as object };
      scope.get(streamEvents.path, options, (request, reply) => {
        if (isEnded) throw new Failure("SHUTTING_DOWN", "the node is stopping", { retryAfterSeconds: 1 });
        if (readers.size >= MAX_READERS) {
          throw new Failure("TOO_MANY_REQUESTS", `${MAX_READERS} clients are already reading events; that is the maximum`, { retryAfterSeconds: 5 });
        }
        const input = inputOf(request.query as object, request.headers["last-event-id"]);
        reply.hijack();
        begin(reply.raw, input);
      });
    },
    get readers() {
      return readers.size;
    },
    end() {
      isEnded = true;
      for (const reader of [...readers]) {
        remove(reader);
        reader.response.end();
      }
    },
  };
}

function isWanted({ sandboxID, types }: Reader, entry: Entry): boolean {
  return (sandboxID === undefined || sandboxID === entry.sandboxID) && (types === undefined || types.has(entry.type));
}

/** Builds the frame that reports a gap. Its id precedes the entries that follow, so that the same gap is reported only once. */
function gapFrame(asked: number, oldest: number, newest: number): string {
  return `id: ${oldest - 1}\nevent: gap\ndata: ${JSON.stringify({ asked, oldest, newest })}\n\n`;
}

function inputOf(query: object, lastEventID: string | string[] | undefined): Parsed<typeof streamEvents> {
  const { lastEventID: _, ...members } = query as Record<string, unknown>;
  const input = { ...members, ...(lastEventID === undefined || lastEventID === "" ? {} : { lastEventID: String(lastEventID) }) };
  const parsed = streamEvents.input.safeParse(input);
  return parsed.success ? parsed.data : fail("INVALID_REQUEST", issueText(parsed.error, input));
}
