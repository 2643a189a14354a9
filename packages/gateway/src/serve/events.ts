// GET /events of a gateway: the streams of all nodes as one; how far a reader has come on each of them is in the ids that it gets.
import { type ClientRequest, type IncomingMessage, request, type ServerResponse } from "node:http";
import { MISSING_NODES_HEADER } from "@svc/contract/cluster.ts";
import { formatCursor, parseCursor } from "@svc/contract/event-cursor.ts";
import { Failure, fail } from "@svc/contract/failures.ts";
import { streamEvents } from "@svc/contract/observe.ts";
import type { RawScope } from "@svc/kit/serve.ts";
import type { Member } from "../members/member.ts";
import type { Members } from "../members/members.ts";

export interface MergedEvents {
  /** For serve's `raw`. */
  routes(scope: RawScope): void;
  readonly readers: number;
  end(): void;
}

const MAX_READERS = 256;
/** How often it looks for nodes that are back. */
const LOOK_MS = 250;
/** The first ids of all nodes are waited for this long, then the stream begins with those that came. */
const FIRST_MS = 2_000;
/** A connection that takes nothing for this long is given up. */
const STALL_MS = 30_000;
const RECONNECT_MS = 2_000;
const MAX_BLOCK_CHARS = 1024 * 1024;

export function openMergedEvents(members: Members, apiKey: string): MergedEvents {
  const readers = new Set<Reader>();
  let isEnded = false;

  return {
    routes(scope) {
      scope.get(streamEvents.path, { exposeHeadRoute: false, config: { operation: streamEvents.name } as object }, (incoming, reply) => {
        if (isEnded) throw new Failure("SHUTTING_DOWN", "the gateway is stopping", { retryAfterSeconds: 1 });
        if (readers.size >= MAX_READERS)
          throw new Failure("TOO_MANY_REQUESTS", `${MAX_READERS} clients are already reading events; that is the maximum`, { retryAfterSeconds: 5 });
        const { after, filters } = queryOf(incoming.query as Record<string, unknown>, incoming.headers["last-event-id"]);
        if (members.up.length === 0)
          throw new Failure("SERVER_UNREACHABLE", "no node of this deployment answers; GET /nodes says why", { retryAfterSeconds: 1 });
        reply.hijack();
        const reader = new Reader(reply.raw, members, apiKey, after, filters);
        readers.add(reader);
        reply.raw.on("close", () => {
          reader.close();
          readers.delete(reader);
        });
      });
    },
    get readers() {
      return readers.size;
    },
    end() {
      isEnded = true;
      for (const reader of readers) reader.end();
    },
  };
}

class Reader {
  readonly #response: ServerResponse;
  readonly #members: Members;
  readonly #apiKey: string;
  readonly #filters: URLSearchParams;
  /** By node; "" for all that have none of their own. */
  readonly #places: Map<string, number>;
  readonly #fromStart: boolean;
  readonly #sources = new Map<Member, ClientRequest>();
  readonly #bodies = new Set<IncomingMessage>();
  readonly #missing = new Set<Member>();
  readonly #looking: NodeJS.Timeout;
  readonly #beganMs = performance.now();
  #hasBegun = false;
  #held = "";
  #stuckSinceMs: number | undefined;

  constructor(response: ServerResponse, members: Members, apiKey: string, after: ReadonlyMap<string, number> | undefined, filters: URLSearchParams) {
    this.#response = response;
    this.#members = members;
    this.#apiKey = apiKey;
    this.#filters = filters;
    this.#fromStart = after?.has("") === true;
    this.#places = new Map([...(after ?? [])].filter(([node]) => node !== ""));
    const missing = members.all.filter((member) => !member.isUp);
    const named = missing.length === 0 ? {} : { [MISSING_NODES_HEADER]: missing.map(({ name }) => name).join(",") };
    response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store", "x-accel-buffering": "no", ...named });
    response.on("drain", () => {
      this.#stuckSinceMs = undefined;
      for (const body of this.#bodies) body.resume();
    });
    response.on("error", () => {});
    for (const member of missing) this.#miss(member);
    this.#looking = setInterval(() => this.#look(), LOOK_MS);
    this.#look();
  }

  #look(): void {
    for (const member of this.#members.all) {
      if (member.isUp) this.#connect(member);
      else if (!this.#missing.has(member)) this.#miss(member);
    }
    const isKnown = [...this.#sources.keys()].every(({ name }) => this.#places.has(name));
    if (!this.#hasBegun && (isKnown || performance.now() - this.#beganMs > FIRST_MS)) this.#begin();
    if (this.#stuckSinceMs !== undefined && performance.now() - this.#stuckSinceMs > STALL_MS) {
      this.#response.end(`event: overflow\ndata: {"last":${JSON.stringify(formatCursor(this.#places))}}\n\n`);
    }
  }

  /** The place at once: who is cut off before the first event comes back without a gap. */
  #begin(): void {
    this.#hasBegun = true;
    this.#send(`retry: ${RECONNECT_MS}\nid: ${formatCursor(this.#places)}\n\n${this.#held}`);
    this.#held = "";
  }

  #connect(member: Member): void {
    if (this.#sources.has(member)) return;
    const place = this.#places.get(member.name) ?? (this.#fromStart ? 0 : undefined);
    const query = new URLSearchParams(this.#filters);
    if (place !== undefined) query.set("after", String(place));
    const source = request(`${member.url}${streamEvents.path}?${query}`, { agent: false, headers: { "x-api-key": this.#apiKey } });
    this.#sources.set(member, source);
    const over = () => {
      if (this.#sources.get(member) === source) this.#sources.delete(member);
    };
    source.on("error", over);
    source.on("close", over);
    source.on("response", (body) => {
      if (body.statusCode !== 200) return void source.destroy();
      if (this.#missing.delete(member)) this.#send(`event: returned\ndata: ${JSON.stringify({ node: member.name })}\n\n`);
      this.#read(member, body);
    });
    source.end();
  }

  #read(member: Member, body: IncomingMessage): void {
    let rest = "";
    this.#bodies.add(body);
    body.setEncoding("utf8");
    body.on("close", () => this.#bodies.delete(body));
    body.on("data", (text: string) => {
      const blocks = (rest + text).split("\n\n");
      rest = blocks.pop() ?? "";
      if (rest.length > MAX_BLOCK_CHARS) return void body.destroy();
      for (const block of blocks) this.#pass(member, block);
      if (!this.#hasBegun) this.#look();
    });
  }

  /** A node's event with this stream's own id, and the node's name beside what it says. */
  #pass(member: Member, block: string): void {
    const lines = block.split("\n").filter((line) => !line.startsWith("retry:"));
    const at = lines.findIndex((line) => line.startsWith("id:"));
    const id = Number(/^id: ?(\d{1,15})$/.exec(lines[at] ?? "")?.[1] ?? Number.NaN);
    if (!Number.isNaN(id)) {
      this.#places.set(member.name, id);
      lines[at] = `id: ${formatCursor(this.#places)}`;
    }
    if (lines.length === 1 && at === 0) return;
    const named = lines.map((line) => (line.startsWith("data: {") ? `data: {"node":${JSON.stringify(member.name)},${line.slice(7)}` : line));
    this.#send(`${named.join("\n")}\n\n`);
  }

  #miss(member: Member): void {
    this.#missing.add(member);
    this.#send(`event: missing\ndata: ${JSON.stringify({ node: member.name, reason: member.reason })}\n\n`);
  }

  #send(text: string): void {
    if (!this.#hasBegun) {
      this.#held += text;
      return;
    }
    if (this.#response.writableEnded || this.#response.write(text)) return;
    this.#stuckSinceMs ??= performance.now();
    for (const body of this.#bodies) body.pause();
  }

  end(): void {
    this.#response.end();
    this.close();
  }

  close(): void {
    clearInterval(this.#looking);
    for (const source of this.#sources.values()) source.destroy();
  }
}

/** A cursor of a gateway, or 0 for all that the nodes keep. @throws INVALID_REQUEST. */
function queryOf(query: Record<string, unknown>, header: string | string[] | undefined) {
  const given = header === undefined || header === "" ? query["after"] : header;
  const after = given === undefined || given === "" ? undefined : parseCursor(String(given));
  if (given !== undefined && given !== "" && (after === undefined || (after.get("") ?? 0) !== 0)) {
    fail("INVALID_REQUEST", `after: expected 0, or an id that a gateway of this deployment gave, got ${JSON.stringify(String(given).slice(0, 100))}`);
  }
  const { sandboxID, types } = query;
  const parsed = streamEvents.input.safeParse({ ...(sandboxID === undefined ? {} : { sandboxID }), ...(types === undefined ? {} : { types }) });
  if (!parsed.success)
    fail("INVALID_REQUEST", `${parsed.error.issues[0]?.path.join(".") || "the query"}: ${parsed.error.issues[0]?.message ?? "is not valid"}`);
  const filters = new URLSearchParams();
  if (sandboxID !== undefined) filters.set("sandboxID", String(sandboxID));
  if (types !== undefined) filters.set("types", String(types));
  return { after, filters };
}
