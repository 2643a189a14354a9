// The master's RPC outside its core: the table of operations that it declares, and the calls that TypeScript answers.
import type { Log } from "@svc/kit/log.ts";
import type { Denials } from "../access/denials.ts";
import type { AccessKeys } from "../access/keys.ts";
import { BodyReader, decodeBody, encodeBody } from "../rpc/body.ts";
import { codes } from "../rpc/codes.ts";
import { errorBody, wireError } from "../rpc/frame.ts";
import { nativeOperations } from "../rpc/native-operations.ts";
import { functionID, type Operation, type OperationName, operations, weightCalls } from "../rpc/operations.ts";
import { releaseOf, SERVED } from "../rpc/releases.ts";
import type { Schema } from "../rpc/schema.ts";
import type { Handlers } from "./handlers.ts";
import type { NativeMaster } from "./native.ts";
import { isForTenants, OTHER_TENANT, openRpcAccess } from "./rpc-access.ts";

/** Bounds the log lines about calls that cannot be answered: one for each kind of call. */
const MAX_COMPLAINTS = 200;
const EMPTY = Buffer.alloc(0);

type Known = { readonly name: OperationName; readonly operation: Operation };

const asBuffer = (literal: readonly number[]) => Buffer.from([...literal, 0]);
const isNative = (name: string) => (nativeOperations as readonly string[]).includes(name);

/** A call that its connection's key does not allow. */
class Denied extends Error {
  readonly code: number;
  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

export type Rpc = { onRequest(connection: number, seq: number, functionID: number, body: Buffer, known: boolean): void };

export type RpcOptions = {
  readonly native: NativeMaster;
  readonly brands: readonly string[];
  readonly handlers: Handlers;
  readonly log: Log;
  /** If undefined, access control is off. */
  readonly access: { readonly keys: AccessKeys; readonly trusted: readonly string[]; readonly denials: Denials } | undefined;
  /** Returns the code with which calls about keys are refused now; 0 while they are answered. */
  refusal(): number;
};

/** Declares the operations to the core, one entry for each brand's scope. */
export function openRpc({ native, brands, handlers, log, access: guarded, refusal: refusalNow }: RpcOptions): Rpc {
  const byFunction = new Map<number, Known>();
  const notServed = new Map(brands.flatMap((brand) => weightCalls.map((name) => [functionID(`${brand}::WrappedMasterService`, name), name] as const)));
  const complaints = new Set<string>();
  for (const brand of brands)
    for (const name of Object.keys(operations) as OperationName[]) {
      const operation = operations[name] as unknown as Operation;
      const id = functionID(`${brand}::WrappedMasterService`, name);
      byFunction.set(id, { name, operation });
      const constant = handlers.constants[name];
      const literal = asBuffer(operation.result.literal);
      const kind = constant !== undefined ? "constant" : isNative(name) ? name : "script";
      const body = constant === undefined ? EMPTY : encodeBody(operation.result, operation.resultHash, constant, operation.result.literal);
      native.declare(id, operation.argsHash, operation.resultHash, kind, literal, body, isForTenants(name, operation, constant !== undefined));
    }
  const functions = [...byFunction].flatMap(([id, { name }]) => (name === "Authorize" ? [id] : []));
  const access = guarded === undefined ? undefined : openRpcAccess({ native, ...guarded, functions });

  function complain(key: string, message: string): void {
    if (complaints.size >= MAX_COMPLAINTS || complaints.has(key)) return;
    complaints.add(key);
    log.warn({ call: key }, message);
  }

  function refusal(id: number, body: Buffer): { code: number; message: string } {
    const known = byFunction.get(id);
    const foreign = notServed.get(id);
    if (foreign !== undefined) {
      const message = `${foreign} is not offered by this master, which keeps no revisions of weights`;
      complain(foreign, message);
      return { code: wireError.notRegistered, message };
    }
    if (known === undefined) {
      const names = brands.map((brand) => `${brand}::WrappedMasterService`).join(", ");
      const message = `function ${id} is not one of ${names}; a client of another brand needs it among the master's, as in --brand ${[...brands, "WORD"].join(",")}`;
      complain(`${id}`, message);
      return { code: wireError.notRegistered, message };
    }
    const { name, operation } = known;
    const hash = body.length >= 4 ? body.readUInt32LE(0) : 0;
    const release = releaseOf(hash);
    const damage = hash === operation.argsHash ? damageOf(operation, body) : undefined;
    if (damage !== undefined) return { code: wireError.invalidArguments, message: `${name}: ${damage}` };
    const message =
      `${name}: expected a client of Mooncake ${SERVED}, whose arguments have type hash ${operation.argsHash}; got type hash ${hash}, ` +
      (release === undefined ? "of a release that this master does not know" : `which Mooncake ${release} sends: upgrade the client`);
    complain(`${name}/${hash}`, message);
    return { code: wireError.invalidArguments, message };
  }

  async function handle({ name, operation }: Known, connection: number, body: Buffer): Promise<{ body: Buffer; isRefusal: boolean }> {
    const { args: schema, argsHash, result, resultHash } = operation;
    const given = schema === undefined ? [] : decodeBody(schema as Schema<readonly unknown[]>, argsHash, body);
    if (name === "Authorize") return { body: encodeBody(result, resultHash, authorize(connection, given[0] as string), result.literal), isRefusal: false };
    const args = access === undefined || refusalNow() !== codes.OK ? given : access.scoped(connection, name, operation, given);
    if (args === undefined) throw new Denied(wireError.otherTenant, OTHER_TENANT);
    const handler = handlers.byName[name] as ((...args: readonly unknown[]) => unknown) | undefined;
    let answer: unknown;
    const refused = refusalNow();
    if (refused !== codes.OK || handler === undefined) {
      // A list of outcomes needs one refusal for each item of the request: an empty list would look like success.
      const kind = result.literal[0];
      const code = refused === codes.OK ? codes.UNAVAILABLE_IN_CURRENT_MODE : refused;
      const items = given.find((each) => Array.isArray(each)) ?? [];
      answer = kind === 0x87 ? { ok: false, code } : kind === 0x84 ? items.map(() => ({ ok: false, code })) : BigInt(code);
    } else {
      answer = await handler(...args);
    }
    return { body: encodeBody(result, resultHash, answer, result.literal), isRefusal: refused !== codes.OK };
  }

  /** With access control off, any token is accepted. */
  function authorize(connection: number, token: string): { ok: true; value: string } {
    const outcome = access?.authorize(connection, token) ?? { tenant: "" };
    if ("refusal" in outcome) throw new Denied(wireError.noKey, outcome.refusal);
    return { ok: true, value: outcome.tenant };
  }

  return {
    onRequest(connection, seq, id, body, known) {
      const found = known ? byFunction.get(id) : undefined;
      if (found === undefined) {
        const { code, message } = refusal(id, body);
        native.answer(connection, seq, code, errorBody(message), true);
        return;
      }
      handle(found, connection, body).then(
        ({ body: answer, isRefusal }) => native.answer(connection, seq, 0, answer, isRefusal),
        (error: Error) => {
          if (error instanceof Denied) {
            native.answer(connection, seq, error.code, errorBody(error.message), true);
            return;
          }
          const malformed = error instanceof RangeError;
          if (malformed) complain(`${found.name}/malformed`, `${found.name}: ${error.message}`);
          else log.error({ err: error, operation: found.name }, "an RPC failed");
          native.answer(
            connection,
            seq,
            wireError.invalidArguments,
            errorBody(malformed ? `${found.name}: ${error.message}` : `${found.name}: internal error`),
            false,
          );
        },
      );
    },
  };
}

/** Returns the reason why a body of the right type cannot be decoded; undefined if it can. */
function damageOf({ args, argsHash }: Operation, body: Buffer): string | undefined {
  if (args === undefined) return undefined;
  try {
    decodeBody(args, argsHash, body);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

/** Returns the arguments' hash in a body, for tests and messages. */
export const hashOf = (body: Buffer): number => new BodyReader(body).begin().hash;
