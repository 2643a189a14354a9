// A client of the store's RPC: calls by name over one connection, any number of them under way.
import { connect, type Socket } from "node:net";
import { fail } from "@svc/contract/failures.ts";
import { decodeBody, encodeBody } from "./body.ts";
import { errorMessage, RESPONSE_BYTES, requestHead } from "./frame.ts";
import { type ArgsOf, functionID, type OperationName, operations, type ResultOf } from "./operations.ts";
import type { Schema } from "./schema.ts";

const CONNECT_MS = 10_000;
const EMPTY = Buffer.alloc(0);

type Waiting = { readonly name: OperationName; resolve(body: Buffer): void; reject(error: Error): void };

export class RpcClient {
  readonly #socket: Socket;
  readonly #scope: string;
  readonly #waiting = new Map<number, Waiting>();
  #seq = 0;
  #left: Buffer = EMPTY;
  #ended: Error | undefined;

  private constructor(socket: Socket, scope: string) {
    this.#socket = socket;
    this.#scope = scope;
    socket.on("data", (bytes: Buffer) => this.#read(bytes));
    socket.on("error", (error) => this.#end(error));
    socket.on("close", () => this.#end(new Error("the store's master closed the connection")));
  }

  /** @param brand the first half of the RPC's scope: "svc", or the word of another maker's master. */
  static async connect(host: string, port: number, brand = "svc"): Promise<RpcClient> {
    const socket = connect({ host, port, noDelay: true, timeout: CONNECT_MS });
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", reject);
      socket.once("timeout", () => socket.destroy(new Error(`no connection within ${CONNECT_MS} ms`)));
    }).catch((error: Error) => fail("SERVER_UNREACHABLE", `the store's master at ${host}:${port}: ${error.message}`, { cause: error }));
    socket.setTimeout(0);
    return new RpcClient(socket, `${brand}::WrappedMasterService`);
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

  /** A call whose body is at hand; the result's body as it came. */
  send(name: OperationName, body: Buffer): Promise<Buffer> {
    if (this.#ended !== undefined) return Promise.reject(this.#ended);
    this.#seq = (this.#seq + 1) >>> 0;
    const seq = this.#seq;
    this.#socket.write(Buffer.concat([requestHead(seq, functionID(this.#scope, name), body.length), body]));
    return new Promise((resolve, reject) => this.#waiting.set(seq, { name, resolve, reject }));
  }

  close(): void {
    this.#socket.destroy();
  }

  #read(bytes: Buffer): void {
    const all = this.#left.length === 0 ? bytes : Buffer.concat([this.#left, bytes]);
    let at = 0;
    while (all.length - at >= RESPONSE_BYTES) {
      const end = at + RESPONSE_BYTES + all.readUInt32LE(at + 8) + all.readUInt32LE(at + 12);
      if (end > all.length) break;
      const body = all.subarray(at + RESPONSE_BYTES, at + RESPONSE_BYTES + all.readUInt32LE(at + 8));
      const seq = all.readUInt32LE(at + 4);
      const waiting = this.#waiting.get(seq);
      this.#waiting.delete(seq);
      if (all[at + 2] === 0) waiting?.resolve(body);
      else waiting?.reject(new Error(`${waiting.name}: error ${all[at + 2]}: ${errorMessage(body)}`));
      at = end;
    }
    this.#left = all.subarray(at);
  }

  #end(error: Error): void {
    this.#ended ??= error;
    for (const each of this.#waiting.values()) each.reject(this.#ended);
    this.#waiting.clear();
  }
}
