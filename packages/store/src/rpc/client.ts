// A client of the store's RPC: calls by name over one connection, many at a time, each with a time limit.
import { connect, type Socket } from "node:net";
import { Failure, type FailureName, fail } from "@svc/contract/failures.ts";
import type { PeerClient } from "@svc/kit/peers/peer-client.ts";
import { decodeBody, encodeBody } from "./body.ts";
import { errorMessage, MAGIC, RESPONSE_BYTES, requestHead, wireError } from "./frame.ts";
import { type ArgsOf, functionID, type OperationName, operations, type ResultOf } from "./operations.ts";
import type { Schema } from "./schema.ts";

const CONNECT_MS = 10_000;
const CALL_MS = 60_000;
/** The interval of checks for late calls; a timeout may come this much later. */
const CHECK_MS = 100;
/** Bounds the pending calls of one connection. */
const MAX_WAITING = 65_536;
/** A longer answer does not belong to this RPC. */
const MAX_ANSWER_BYTES = 2 ** 30;
const EMPTY = Buffer.alloc(0);

type Waiting = { readonly name: OperationName; readonly sentMs: number; readonly dueMs: number; resolve(body: Buffer): void; reject(error: Error): void };

export type RpcOptions = {
  /** The first half of the RPC's scope: "svc", or the brand of another master. */
  readonly brand?: string;
  /** The token, presented before any other call. */
  readonly token?: string | undefined;
  readonly connectMs?: number;
  /** Reaches a master at its port of TLS. */
  readonly peers?: PeerClient | undefined;
  /** A call without an answer fails after this time. */
  readonly callMs?: number;
};

export class RpcClient {
  readonly #socket: Socket;
  readonly #scope: string;
  readonly #functions = new Map<OperationName, number>();
  readonly #callMs: number;
  readonly #waiting = new Map<number, Waiting>();
  #seq = 0;
  #parts: Buffer[] = [];
  #partBytes = 0;
  /** The parts contain no whole answer before they have this many bytes. */
  #needed = RESPONSE_BYTES;
  #heardMs = 0;
  #checking: NodeJS.Timeout | undefined;
  #ended: Failure | undefined;

  private constructor(socket: Socket, { brand = "svc", callMs = CALL_MS }: RpcOptions) {
    this.#socket = socket;
    this.#scope = `${brand}::WrappedMasterService`;
    this.#callMs = callMs;
    socket.on("data", (bytes: Buffer) => this.#read(bytes));
    socket.on("error", (error) => this.#end(unreachable(`the connection to the store's master broke: ${error.message}`, error)));
    socket.on("close", () => {
      const hint = this.#heardMs === 0 ? " before it answered anything: if its port expects TLS, or another certificate, its log says so" : "";
      this.#end(unreachable(`the store's master closed the connection${hint}`));
    });
  }

  /** @throws SERVER_UNREACHABLE within `connectMs`; UNAUTHENTICATED when the master does not know the token. */
  static async connect(host: string, port: number, options: RpcOptions = {}): Promise<RpcClient> {
    const connectMs = options.connectMs ?? CONNECT_MS;
    const dial = options.peers?.dial(`https://${host.includes(":") ? `[${host}]` : host}:${port}`);
    const socket = typeof dial === "function" ? dial({ noDelay: true }) : connect({ host, port, noDelay: true });
    const late = setTimeout(() => socket.destroy(new Error(`no connection within ${connectMs} ms`)), connectMs);
    await new Promise<void>((resolve, reject) => {
      socket.once(dial === undefined ? "connect" : "secureConnect", resolve);
      socket.once("error", reject);
    })
      .catch((error: Error) => fail("SERVER_UNREACHABLE", `the store's master at ${host}:${port}: ${error.message}`, { cause: error }))
      .finally(() => clearTimeout(late));
    const client = new RpcClient(socket, options);
    try {
      if (options.token !== undefined) await client.call("Authorize", options.token);
    } catch (error) {
      client.close();
      throw error;
    }
    return client;
  }

  /** The number of pending calls. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** The reason why the connection cannot be used any more. */
  get ended(): Failure | undefined {
    return this.#ended;
  }

  async call<N extends OperationName>(name: N, ...args: ArgsOf<N>): Promise<ResultOf<N>> {
    const {
      args: schema,
      argsHash,
      result,
      resultHash,
    } = operations[name] as unknown as {
      args: Schema<unknown> | undefined;
      argsHash: number;
      result: Schema<ResultOf<N>>;
      resultHash: number;
    };
    const body = schema === undefined ? EMPTY : encodeBody(schema, argsHash, args, schema.literal);
    return decodeBody(result, resultHash, await this.send(name, body));
  }

  /**
   * Makes a call with an encoded body, and returns the result's encoded body.
   * @throws TIMED_OUT, or SERVER_UNREACHABLE once the connection has ended: the call may or may not have been executed.
   */
  send(name: OperationName, body: Buffer): Promise<Buffer> {
    if (this.#ended !== undefined) return Promise.reject(this.#ended);
    if (this.#waiting.size >= MAX_WAITING)
      return Promise.reject(new Failure("TOO_MANY_REQUESTS", `${name}: ${MAX_WAITING} calls of this connection are waiting for an answer, the maximum`));
    this.#seq = (this.#seq + 1) >>> 0;
    const seq = this.#seq;
    const sentMs = performance.now();
    this.#socket.write(Buffer.concat([requestHead(seq, this.#functionOf(name), body.length), body]));
    this.#checking ??= setInterval(() => this.#check(), CHECK_MS).unref();
    return new Promise((resolve, reject) => this.#waiting.set(seq, { name, sentMs, dueMs: sentMs + this.#callMs, resolve, reject }));
  }

  close(): void {
    this.#end(new Failure("SHUTTING_DOWN", "the connection to the store's master was closed on this side"));
  }

  /** Like `close`, for a master that no longer leads: pending calls fail such that they can be retried at another one. */
  abandon(reason: string): void {
    this.#end(unreachable(reason));
  }

  #functionOf(name: OperationName): number {
    const known = this.#functions.get(name);
    if (known !== undefined) return known;
    const id = functionID(this.#scope, name);
    this.#functions.set(name, id);
    return id;
  }

  #read(bytes: Buffer): void {
    this.#heardMs = performance.now();
    this.#parts.push(bytes);
    this.#partBytes += bytes.length;
    // A long answer arrives in many parts, which are joined once it is complete.
    if (this.#partBytes < this.#needed) return;
    const all = this.#parts.length === 1 ? bytes : Buffer.concat(this.#parts);
    let at = 0;
    this.#needed = RESPONSE_BYTES;
    while (all.length - at >= RESPONSE_BYTES) {
      const bodyBytes = all.readUInt32LE(at + 8);
      const wholeBytes = RESPONSE_BYTES + bodyBytes + all.readUInt32LE(at + 12);
      if (all[at] !== MAGIC || wholeBytes > MAX_ANSWER_BYTES) {
        this.#end(unreachable("what answers there does not speak the store's RPC"));
        return;
      }
      this.#needed = wholeBytes;
      if (all.length - at < wholeBytes) break;
      this.#needed = RESPONSE_BYTES;
      this.#settle(all.readUInt32LE(at + 4), all[at + 2] as number, all.subarray(at + RESPONSE_BYTES, at + RESPONSE_BYTES + bodyBytes));
      at += wholeBytes;
    }
    const left = all.subarray(at);
    this.#parts = left.length === 0 ? [] : [left];
    this.#partBytes = left.length;
  }

  #settle(seq: number, error: number, body: Buffer): void {
    const waiting = this.#waiting.get(seq);
    this.#waiting.delete(seq);
    if (error === 0) waiting?.resolve(body);
    else waiting?.reject(refusedCall(waiting.name, error, errorMessage(body)));
  }

  #check(): void {
    if (this.#waiting.size === 0) {
      clearInterval(this.#checking);
      this.#checking = undefined;
      return;
    }
    const now = performance.now();
    for (const [seq, each] of this.#waiting) {
      if (each.dueMs > now) continue;
      this.#waiting.delete(seq);
      each.reject(new Failure("TIMED_OUT", `${each.name}: no answer of the store's master within ${this.#callMs} ms`));
      // The peer is not running, since it has sent no bytes since the call.
      if (this.#heardMs < each.sentMs) this.#end(unreachable(`the store's master sent nothing for ${this.#callMs} ms`));
    }
  }

  #end(error: Failure): void {
    if (this.#ended !== undefined) return;
    this.#ended = error;
    clearInterval(this.#checking);
    this.#socket.destroy();
    for (const each of this.#waiting.values()) each.reject(error);
    this.#waiting.clear();
    this.#parts = [];
  }
}

const names: Readonly<Record<number, FailureName>> = { [wireError.noKey]: "UNAUTHENTICATED", [wireError.otherTenant]: "ACCESS_DENIED" };

/** Translates an error in the head of an answer. */
export const refusedCall = (name: OperationName, error: number, message: string): Failure =>
  new Failure(names[error] ?? "INVALID_REQUEST", `${name}: error ${error} of the store's master: ${message}`);

const unreachable = (message: string, cause?: unknown) => new Failure("SERVER_UNREACHABLE", message, cause === undefined ? {} : { cause });
