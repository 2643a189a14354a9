// Removes the records of Mooncake clients that were killed, since they take no lease: once no process listens at the client's address any more.
import { connect } from "node:net";
import { setImmediate as breathe } from "node:timers/promises";
import type { Log } from "@svc/kit/log.ts";
import type { Records } from "./records.ts";

const PROBE_MS = 2_000;
const MAX_PROBES = 32;
/** The number of records that are examined between two pauses for the event loop. */
const SLICE = 5_000;
const MAX_CLIENTS = 20_000;
const MARK = "/rpc_meta/";

type Client = {
  /** The value that this client wrote; another value belongs to another client. */
  readonly value: Buffer;
  readonly host: string;
  readonly port: number;
  /** The record of its memory when it was last reached. */
  memory: Buffer | undefined;
  /** A client that was never reached from here may be in another network, and is left alone. */
  wasReached: boolean;
  refusedAtMs: number | undefined;
};

export type GoneClientsOptions = { readonly records: Records; readonly afterMs: number; readonly log: Log; now(): number; onEnded(count: number): void };

export class GoneClients {
  readonly #options: GoneClientsOptions;
  #clients = new Map<string, Client>();
  readonly #timer: NodeJS.Timeout;
  #looking: Promise<void> | undefined;
  #isClosed = false;

  constructor(options: GoneClientsOptions) {
    this.#options = options;
    this.#timer = setInterval(() => {
      this.#looking ??= this.#look()
        .catch((error: Error) => options.log.error({ err: error }, "looking for clients that are gone failed"))
        .finally(() => {
          this.#looking = undefined;
        });
    }, options.afterMs / 2);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#timer);
    await this.#looking;
  }

  async #look(): Promise<void> {
    const before = this.#clients;
    this.#clients = new Map();
    let seen = 0;
    for (const entry of this.#options.records.withPrefix("")) {
      if (++seen % SLICE === 0) await breathe();
      if (entry === undefined || this.#clients.size >= MAX_CLIENTS) continue;
      const [key, value] = entry;
      if (!key.includes(MARK) || this.#options.records.stored(key)?.leaseMs !== undefined) continue;
      const known = before.get(key);
      const client = known?.value.equals(value) === true ? known : clientOf(value);
      if (client !== undefined) this.#clients.set(key, client);
    }
    const left = [...this.#clients];
    const worker = async () => {
      for (let next = left.pop(); next !== undefined && !this.#isClosed; next = left.pop()) await this.#check(...next);
    };
    await Promise.all(Array.from({ length: MAX_PROBES }, worker));
  }

  async #check(key: string, client: Client): Promise<void> {
    const { records, afterMs, now } = this.#options;
    const outcome = await probe(client.host, client.port);
    if (outcome === "reached") {
      client.wasReached = true;
      client.refusedAtMs = undefined;
      client.memory = records.get(memoryOf(key));
    } else if (outcome === "refused" && client.wasReached) {
      client.refusedAtMs ??= now();
      if (now() - client.refusedAtMs >= afterMs / 2 && records.get(key)?.equals(client.value) === true) await this.#end(key, client);
    }
  }

  async #end(key: string, { memory, host, port }: Client): Promise<void> {
    const { records, log, onEnded } = this.#options;
    const memoryKey = memoryOf(key);
    const isOwn = memory !== undefined && records.get(memoryKey)?.equals(memory) === true;
    if (isOwn) await records.delete(memoryKey);
    await records.delete(key);
    this.#clients.delete(key);
    onEnded(isOwn ? 2 : 1);
    log.warn({ keys: isOwn ? [memoryKey, key] : [key] }, `no process listens at ${host}:${port} any more: the records of the client that wrote them ended`);
  }
}

const memoryOf = (key: string): string => key.replace(MARK, "/ram/");

function clientOf(value: Buffer): Client | undefined {
  try {
    const { ip_or_host_name: host, rpc_port: port } = JSON.parse(value.toString()) as { ip_or_host_name?: unknown; rpc_port?: unknown };
    if (typeof host !== "string" || host === "" || typeof port !== "number" || !Number.isInteger(port) || port < 1 || port > 65_535) return undefined;
    return { value, host, port, memory: undefined, wasReached: false, refusedAtMs: undefined };
  } catch {
    return undefined;
  }
}

/** A machine that does not answer, or a name that cannot be resolved, proves nothing about the process. */
function probe(host: string, port: number): Promise<"reached" | "refused" | "unknown"> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const end = (outcome: "reached" | "refused" | "unknown") => {
      socket.destroy();
      resolve(outcome);
    };
    socket.setTimeout(PROBE_MS, () => end("unknown"));
    socket.once("connect", () => end("reached"));
    socket.once("error", (error: NodeJS.ErrnoException) => end(error.code === "ECONNREFUSED" ? "refused" : "unknown"));
  });
}
