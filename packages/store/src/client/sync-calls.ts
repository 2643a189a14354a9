// Calls to the master that block the thread: the fastest way to make sequential requests.
import { Failure, fail } from "@svc/contract/failures.ts";
import { decodeBody, encodeBody } from "../rpc/body.ts";
import { refusedCall } from "../rpc/client.ts";
import { errorMessage, wireError } from "../rpc/frame.ts";
import { type ArgsOf, functionID, type Operation, type OperationName, operations, type ResultOf } from "../rpc/operations.ts";
import { type NativeCaller, nativeClient } from "./native.ts";
import type { MasterAddress } from "./session/address.ts";
import { doesNotLead } from "./session/connections.ts";
import type { Discovery } from "./session/discovery.ts";

const CONNECT_MS = 2000;
const EMPTY = Buffer.alloc(0);

export class SyncCalls {
  readonly #master: Discovery;
  /** The index of the candidate in use, and the first candidate when it was chosen. */
  #at = 0;
  #first = "";
  readonly #scope: string;
  readonly #callMs: number;
  readonly #token: string | undefined;
  readonly #functions = new Map<OperationName, number>();
  #caller: NativeCaller | undefined;

  constructor(master: Discovery, brand: string, callMs: number, token?: string) {
    this.#master = master;
    this.#scope = `${brand}::WrappedMasterService`;
    this.#callMs = callMs;
    this.#token = token;
  }

  /** @throws SERVER_UNREACHABLE: the call may have been executed all the same. */
  call<N extends OperationName>(name: N, args: ArgsOf<N>): ResultOf<N> {
    const { args: schema, argsHash, result, resultHash } = operations[name] as unknown as Operation;
    // Our own masters accept a type's hash for its literal; a master of another release does not know the hash and refuses the call.
    const body = schema === undefined ? EMPTY : encodeBody(schema, argsHash, args);
    if (this.#caller === undefined && this.#token !== undefined && name !== "Authorize") this.call("Authorize", [this.#token]);
    const [error, answer] = this.#send(name, body);
    if (error !== 0) {
      // The next call opens a new connection and presents the key again.
      if (error === wireError.noKey) this.close();
      if (error === wireError.noKey || error === wireError.otherTenant) throw refusedCall(name, error, errorMessage(answer));
      throw new Failure("HOST_UNSUITABLE", `${name}: error ${error}: ${errorMessage(answer)}`);
    }
    const decoded = decodeBody(result, resultHash, answer) as ResultOf<N>;
    if (this.#master.isMoving && doesNotLead(decoded)) this.#askAnother();
    return decoded;
  }

  close(): void {
    this.#caller?.close();
    this.#caller = undefined;
  }

  /** The watch on etcd is not served while the thread is blocked, so the candidates are tried in order. */
  #next(): MasterAddress {
    const candidates = this.#master.candidates();
    const [first] = candidates;
    if (first === undefined) return fail("SERVER_UNREACHABLE", "the leading master is not known");
    const name = `${first.host}:${first.port}`;
    if (name !== this.#first) {
      this.close();
      this.#at = 0;
      this.#first = name;
    }
    return candidates[this.#at % candidates.length] ?? first;
  }

  #askAnother(): void {
    this.close();
    this.#at++;
  }

  #send(name: OperationName, body: Buffer): [number, Buffer] {
    const id = this.#functions.get(name) ?? functionID(this.#scope, name);
    this.#functions.set(name, id);
    const { host, port, peers } = this.#next();
    if (peers !== undefined)
      fail("NOT_OFFERED", `${name}: a call that blocks the thread cannot use TLS: use the asynchronous one, which this client has for each`);
    try {
      this.#caller ??= new (nativeClient().NativeCaller)(host, port, CONNECT_MS);
      return this.#caller.call(id, body, this.#callMs);
    } catch (error) {
      this.#askAnother();
      throw new Failure("SERVER_UNREACHABLE", `${name}: the store's master at ${host}:${port}: ${(error as Error).message}`, { cause: error });
    }
  }
}
