// Access control on the RPC: the calls that a connection's key allows, and the tenant that they act for.

import type { Denials } from "../access/denials.ts";
import type { AccessKeys } from "../access/keys.ts";
import { errorBody } from "../rpc/frame.ts";
import type { Operation, OperationName } from "../rpc/operations.ts";
import { type NativeMaster, rights, segmentRows } from "./native.ts";

const NO_KEY =
  "this master asks for a key: show a token of store.access_file (svc store --token-file, SVC_STORE_TOKEN) first; clients that know none come from store.access_trusted_cidrs";
const WRONG_KEY = "the token is not one of this master's (store.access_file, SVC_STORE_TOKEN)";
export const OTHER_TENANT = "this connection's key is for one tenant's keys: other tenants, memory and tasks need a key without a tenant";

/** Calls without a tenant argument that a tenant's key may make nevertheless, since clients that only read and write need them. */
const openCalls: readonly OperationName[] = [
  "Authorize",
  "ServiceReady",
  "HasTenants",
  "GetFsdir",
  "GetStorageConfig",
  "Ping",
  "ReMountSegment",
  "Leave",
  "ReturnExtents",
  "QueryTask",
];

/** A constant answer is given without checking the tenant. */
export const isForTenants = (name: OperationName, { tenantAt }: Operation, isConstant: boolean): boolean =>
  openCalls.includes(name) || (tenantAt >= 0 && !isConstant);

export type RpcAccess = {
  /** Returns the tenant of the key ("" for an unrestricted key), or a refusal for an unknown token. */
  authorize(connection: number, token: string): { readonly tenant: string } | { readonly refusal: string };
  /** Returns the arguments with the connection's tenant applied, or undefined if the connection may not make this call. */
  scoped(connection: number, name: OperationName, operation: Operation, args: readonly unknown[]): readonly unknown[] | undefined;
};

export type RpcAccessOptions = {
  readonly native: NativeMaster;
  readonly keys: AccessKeys;
  readonly trusted: readonly string[];
  readonly denials: Denials;
  /** The ids of Authorize, one for each brand. */
  readonly functions: readonly number[];
};

export function openRpcAccess({ native, keys, trusted, denials, functions }: RpcAccessOptions): RpcAccess {
  native.guard(functions, trusted, errorBody(NO_KEY), errorBody(OTHER_TENANT));
  return {
    authorize(connection, token) {
      const key = keys.find(token);
      const peer = native.authorize(connection, key === undefined ? rights.none : key.tenant === undefined ? rights.all : rights.tenant, key?.tenant ?? "");
      if (key !== undefined) return { tenant: key.tenant ?? "" };
      denials.note(peer, "an RPC client showed a token that is not one of this master's");
      return { refusal: WRONG_KEY };
    },
    scoped(connection, name, { tenantAt }, args) {
      const { rights: allowed, tenant } = native.callerOf(connection);
      if (allowed === rights.all) return args;
      if (allowed === rights.none) return undefined;
      if (tenantAt >= 0) return args[tenantAt] === "" || args[tenantAt] === tenant ? args.with(tenantAt, tenant) : undefined;
      if (name !== "ReMountSegment") return args;
      // Every client remounts when it joins, even without memory. A tenant's key neither mounts memory, nor unmounts that of another client.
      const [segments, clientID] = args as [readonly unknown[], string];
      return segments.length > 0 || segmentRows(native).some((row) => row.clientID === clientID) ? undefined : args;
    },
  };
}
