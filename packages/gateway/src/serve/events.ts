// GET /events of a gateway merges the streams of all nodes; each event's id contains the reader's position on every node.
import type { ClientRequest, IncomingMessage, ServerResponse } from "node:http";
import { MISSING_NODES_HEADER } from "@svc/contract/cluster.ts";
import { formatCursor, parseCursor } from "@svc/contract/event-cursor.ts";
import { Failure, fail } from "@svc/contract/failures.ts";
import { streamEvents } from "@svc/contract/observe.ts";
import type { RawScope } from "@svc/kit/serve.ts";
import type { Member } from "../members/member.ts";
import type { Members } from "../members/members.ts";

export interface MergedEvents {
  /** Adds the route to the `raw` scope of serve(). */
  routes(scope: RawScope): void;
  readonly readers: number;
  end(): void;
}

const MAX_READERS = 256;
/** The interval at which a reader looks for nodes that are back. */
const LOOK_MS = 250;
/** The stream begins once every node has sent its first id, or after this time. */
const FIRST_MS = 2_000;
/** A connection that accepts no data for this long is closed. */
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
  /** Positions by node name, for nodes whose position is known. */
  readonly #positions: Map<string, number>;
  readonly #fromStart: boolean;
  readonly #sources = new Map<Member, ClientRequest>();
  readonly #bodies = new Set<IncomingMessage>();
  readonly #missing = new Set<Member>();
  readonly #looking: NodeJS.Timeout;
  readonly #beganMs = performance.now();
  #hasBegun = false;
  #pending = "";
  #stuckSinceMs: number | undefined;

  constructor(response: ServerResponse, members: Members, apiKey: string, after: ReadonlyMap<string, number> | undefined, filters: URLSearchParams) {
    this.#response = response;
    this.#members = members;
    this.#apiKey = apiKey;
    this.#filters = filters;
    this.#fromStart = after?.has("") === true;
    this.#positions = new Map([...(after ?? [])].filter(([node]) => node !== ""));
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
    const isKnown = [...this.#sources.keys()].every(({ name }) => this.#positions.has(name));
    if (!this.#hasBegun && (isKnown || performance.now() - this.#beganMs > FIRST_MS)) this.#begin();
    if (this.#stuckSinceMs !== undefined && performance.now() - this.#stuckSinceMs > STALL_MS) {
      this.#response.end(`event: overflow\ndata: {"last":${JSON.stringify(formatCursor(this.#positions))}}\n\n`);
    }
  }

  /** Sends the position first, so that a client that is cut off before its first event resumes without a gap. */
  #begin(): void {
    this.#hasBegun = true;
    this.#send(`retry: ${RECONNECT_MS}\nid: ${formatCursor(this.#positions)}\n\n${this.#pending}`);
    this.#pending = "";
  }

  #connect(member: Member): void {
    if (this.#sources.has(member)) return;
    const position = this.#positions.get(member.name) ?? (this.#fromStart ? 0 : undefined);
    const query = new URLSearchParams(this.#filters);
    if (position !== undefined) query.set("after", String(position));
    const source = member.peers.request(`${member.url}${streamEvents.path}?${query}`, { headers: { "x-api-key": this.#apiKey } });
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

  /** Sends a node's event with this stream's own id, and adds the node's name to its data. */
  #pass(member: Member, block: string): void {
    const lines = block.split("\n").filter((line) => !line.startsWith("retry:"));
    const at = lines.findIndex((line) => line.startsWith("id:"));
    const id = Number(/^id: ?(\d{1,15})$/.exec(lines[at] ?? "")?.[1] ?? Number.NaN);
    if (!Number.isNaN(id)) {
      this.#positions.set(member.name, id);
      lines[at] = `id: ${formatCursor(this.#positions)}`;
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
      this.#pending += text;
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

/** Parses a gateway's cursor, or 0 for all events that the nodes keep. @throws INVALID_REQUEST. */
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
