// Relays one operation to a node and returns its answer, and turns a broken connection into the right failure.
import { callForAnswer, type Send } from "@svc/contract/call.ts";
import { gatewayHeaders } from "@svc/contract/cluster.ts";
import { Failure } from "@svc/contract/failures.ts";
import { roleFor } from "@svc/contract/key-access.ts";
import type { Input, Operation, Output, Parsed } from "@svc/contract/operation.ts";
import { NOT_CONNECTED } from "@svc/kit/kept-calls.ts";
import { ACTING_FOR_HEADER, actingFor } from "@svc/kit/keys/principal.ts";
import { gatewayToken } from "@svc/kit/secret.ts";
import type { Context } from "@svc/kit/serve.ts";
import type { Member } from "../members/member.ts";

/** An upper bound; each node bounds its own operations. */
const TIMEOUT_MS = 15 * 60_000;
/** Errors of a connection that was never established: the node has not seen the request. */
const neverSent: readonly unknown[] = ["ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND", "EAI_AGAIN", NOT_CONNECTED];

export type Relay = <T extends Operation>(operation: T, input: Parsed<T>, context: Context, member: Member) => Promise<Output<T>>;

export function openRelay(apiKey: string, send: Send): Relay {
  const token = gatewayToken(apiKey);
  return async (operation, input, context, member) => {
    const headers = { [gatewayHeaders.token]: token, [gatewayHeaders.client]: context.client, ...actingHeaders(operation, context), ...context.trace };
    try {
      const to = { baseURL: member.url, apiKey, headers, signals: [context.signal, member.signal], timeoutMs: TIMEOUT_MS, send };
      const answer = await callForAnswer(operation, input as Input<typeof operation>, to);
      context.status(answer.status);
      return answer.value as Output<typeof operation>;
    } catch (error) {
      throw isTransport(error) ? lostWhile(member, error) : error;
    }
  };
}

/**
 * A node does for a tenant what the tenant's key allows. Operations between servers, which no named key may call, are the gateway's own: it
 * has decided that the tenant may have what it asks for.
 */
export function actingHeaders({ name }: Operation, { principal }: Pick<Context, "principal">): Record<string, string> {
  return principal.kind === "tenant" && roleFor(name) !== undefined ? { [ACTING_FOR_HEADER]: actingFor(principal) } : {};
}

function isTransport(error: unknown): boolean {
  if (!(error instanceof Failure)) return true;
  return error.name === "SERVER_UNREACHABLE" && error.cause !== undefined;
}

/** @returns SERVER_UNREACHABLE if nothing was sent, else NODE_LOST, because the operation may have been carried out. */
function lostWhile(member: Member, error: unknown): Failure {
  const code = codeOf(error);
  const details = { node: member.name };
  if (neverSent.includes(code)) return new Failure("SERVER_UNREACHABLE", `node ${member.name} cannot be reached (${String(code)})`, { cause: error, details });
  const why = member.isUp ? "it broke the connection off" : member.reason;
  return new Failure("NODE_LOST", `node ${member.name} did not answer: ${why}; the operation may have been carried out`, { cause: error, details });
}

function codeOf(error: unknown): unknown {
  for (let each: unknown = error; each instanceof Error; each = each.cause) if ("code" in each && typeof each.code === "string") return each.code;
  return undefined;
}

/** Returns the failure for a request that only `member` could serve, while it is not up. */
export function nodeLost(member: Member, what: string): Failure {
  return new Failure("NODE_LOST", `node ${member.name}, which holds ${what}, does not answer: ${member.reason}`, { details: { node: member.name } });
}
