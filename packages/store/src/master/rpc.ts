// The master's RPC beside its core: which operations it declares, and the answers that come from the script.
import type { Log } from "@svc/kit/log.ts";
import { BodyReader, decodeBody, encodeBody } from "../rpc/body.ts";
import { codes } from "../rpc/codes.ts";
import { errorBody, wireError } from "../rpc/frame.ts";
import { functionID, type Operation, type OperationName, operations } from "../rpc/operations.ts";
import type { Schema } from "../rpc/schema.ts";
import type { Handlers } from "./handlers.ts";
import { type NativeMaster, nativeOperations } from "./native.ts";

/** Log lines about calls that nobody can answer: one for each kind, and no more than this many kinds. */
const MAX_COMPLAINTS = 200;
const EMPTY = Buffer.alloc(0);

type Known = { readonly name: OperationName; readonly operation: Operation; readonly release: string };

const release = "0.3.13";
const asBuffer = (literal: readonly number[]) => Buffer.from([...literal, 0]);
const isNative = (name: string) => (nativeOperations as readonly string[]).includes(name);

export type Rpc = { onRequest(connection: number, seq: number, functionID: number, body: Buffer, known: boolean): void };

export type RpcOptions = {
  readonly native: NativeMaster;
  readonly brands: readonly string[];
  readonly handlers: Handlers;
  readonly log: Log;
  serving(): boolean;
};

/** Hands the core its table of operations, one entry for each brand's scope. */
export function openRpc({ native, brands, handlers, log, serving }: RpcOptions): Rpc {
  const byFunction = new Map<number, Known>();
  const complaints = new Set<string>();
  for (const brand of brands)
    for (const name of Object.keys(operations) as OperationName[]) {
      const operation = operations[name] as unknown as Operation;
      const id = functionID(`${brand}::WrappedMasterService`, name);
      byFunction.set(id, { name, operation, release });
      const constant = handlers.constants[name];
      const literal = asBuffer(operation.result.literal);
      const kind = constant !== undefined ? "constant" : isNative(name) ? name : "script";
      const body = constant === undefined ? EMPTY : encodeBody(operation.result, operation.resultHash, constant, operation.result.literal);
      native.declare(id, operation.argsHash, operation.resultHash, kind, literal, body);
    }

  function complain(key: string, message: string): void {
    if (complaints.size >= MAX_COMPLAINTS || complaints.has(key)) return;
    complaints.add(key);
    log.warn({ call: key }, message);
  }

  function refusal(id: number, body: Buffer): { code: number; message: string } {
    const known = byFunction.get(id);
    if (known === undefined) {
      const message = `function ${id} is not one of ${brands.map((brand) => `${brand}::WrappedMasterService`).join(", ")}; a client of another brand needs --brand`;
      complain(`${id}`, message);
      return { code: wireError.notRegistered, message };
    }
    const { name, operation } = known;
    const hash = body.length >= 4 ? body.readUInt32LE(0) : 0;
    const message =
      `${name}: expected the arguments of release ${known.release} (type hash ${operation.argsHash}), got type hash ${hash}; ` +
      "the client is of another release, whose types this master does not know";
    complain(`${name}/${hash}`, message);
    return { code: wireError.invalidArguments, message };
  }

  async function handle({ name, operation }: Known, body: Buffer): Promise<Buffer> {
    const { args: schema, argsHash, result, resultHash } = operation;
    const args = schema === undefined ? [] : decodeBody(schema as Schema<readonly unknown[]>, argsHash, body);
    const handler = handlers.byName[name] as ((...args: readonly unknown[]) => unknown) | undefined;
    let answer: unknown;
    if (!serving() || handler === undefined) {
      // Lists of outcomes have none to give; the one operation that answers a number gives the code.
      const kind = result.literal[0];
      answer = kind === 0x87 ? { ok: false, code: codes.UNAVAILABLE_IN_CURRENT_MODE } : kind === 0x84 ? [] : BigInt(codes.UNAVAILABLE_IN_CURRENT_MODE);
    } else {
      answer = await handler(...args);
    }
    return encodeBody(result, resultHash, answer, result.literal);
  }

  return {
    onRequest(connection, seq, id, body, known) {
      const found = known ? byFunction.get(id) : undefined;
      if (found === undefined) {
        const { code, message } = refusal(id, body);
        native.answer(connection, seq, code, errorBody(message));
        return;
      }
      handle(found, body).then(
        (answer) => native.answer(connection, seq, 0, answer),
        (error: Error) => {
          const malformed = error instanceof RangeError;
          if (malformed) complain(`${found.name}/malformed`, `${found.name}: ${error.message}`);
          else log.error({ err: error, operation: found.name }, "an RPC failed");
          native.answer(
            connection,
            seq,
            wireError.invalidArguments,
            errorBody(malformed ? `${found.name}: ${error.message}` : `${found.name}: internal error`),
          );
        },
      );
    },
  };
}

/** The arguments' hash of a body, for tests and messages. */
export const hashOf = (body: Buffer): number => new BodyReader(body).begin().hash;
