// Creates under an Idempotency-Key: at most one per key, and none under a grant ("turn") that this node has declined (I52).
import type { declineKey, registerKey } from "@svc/contract/create-keys.ts";
import { Failure, fail } from "@svc/contract/failures.ts";
import type { Output, Parsed } from "@svc/contract/operation.ts";
import { nodeIDOf } from "../../cluster/node-id.ts";
import type { Clock } from "../../records/clock.ts";
import { type CreateKeys, IDEMPOTENCY_KEPT_MS, type IdempotentCreate } from "../../records/create-keys.ts";
import { decline, highestGrant, mayCreate, register } from "../../records/key-grants.ts";

export type KeyedCreate = { readonly key: string; readonly bodyHash: string; readonly turn: number | undefined };

export interface KeyedCreates {
  /**
   * Answers with the sandbox created under the key earlier, else runs `work` to create one. @throws REQUEST_IN_FLIGHT, IDEMPOTENCY_KEY_REUSED,
   * KEY_ELSEWHERE.
   */
  once<T>(create: KeyedCreate, answer: (earlier: IdempotentCreate) => Promise<T>, work: () => Promise<T>): Promise<T>;
  register(input: Parsed<typeof registerKey>): Output<typeof registerKey>;
  decline(input: Parsed<typeof declineKey>): Output<typeof declineKey>;
}

export type KeyedCreatesParts = {
  readonly home: string;
  /** Undefined where the node runs alone. */
  readonly membership: { readonly deploymentID: string; readonly others: readonly string[] } | undefined;
  readonly records: { readonly keys: CreateKeys };
  readonly clock: Clock;
};

export function openKeyedCreates({ home, membership, records: { keys }, clock }: KeyedCreatesParts): KeyedCreates {
  const self = nodeIDOf(home);
  /** The body hashes of the creates under way, by key. */
  const inFlight = new Map<string, string>();
  const isHere = (key: string) => inFlight.has(key) || keys.created(key) !== undefined;
  /** True once this node has been in this deployment for longer than keys are kept: no other node can then have granted one of its keys. */
  function isSure(): boolean {
    const nowMs = clock.wallMs();
    return nowMs - keys.since(membership?.deploymentID ?? "", nowMs) > IDEMPOTENCY_KEPT_MS;
  }

  return {
    async once({ key, bodyHash, turn }, answer, work) {
      const earlier = keys.created(key);
      if ((inFlight.get(key) ?? earlier?.bodyHash ?? bodyHash) !== bodyHash)
        fail("IDEMPOTENCY_KEY_REUSED", `Idempotency-Key '${key}' was used with another body; use a new key for a different request`);
      if (inFlight.has(key))
        throw new Failure("REQUEST_IN_FLIGHT", `a create with Idempotency-Key '${key}' is in progress; try again when it is done`, { retryAfterSeconds: 1 });
      if (earlier !== undefined) return answer(earlier);
      if (!mayCreate(self, keys.grant(key), turn))
        fail("KEY_ELSEWHERE", `another node creates under Idempotency-Key '${key}'; send the request to a gateway, which finds it`);
      inFlight.set(key, bodyHash);
      try {
        return await work();
      } finally {
        inFlight.delete(key);
      }
    },
    register({ key, ...asked }) {
      const known = keys.grant(key);
      // A client sent the create directly to this node, so no registrar knows of it.
      if (known?.node === undefined && isHere(key)) return { registrar: self, node: self, turn: highestGrant(known), isSure: true, others: [] };
      const { answer, next } = register(self, known, asked, isSure());
      if (answer === "too many") return fail("TOO_MANY_REQUESTS", `Idempotency-Key '${key}' was handed from node to node too often; take a new key`);
      if (next !== undefined) keys.putGrant(key, next, clock.wallMs());
      return { ...answer, others: answer.isSure ? [] : [...(membership?.others ?? [])] };
    },
    decline({ key, turn, registrar }) {
      const known = keys.grant(key);
      if (isHere(key)) return { isHere: true, turn: highestGrant(known) };
      if (turn === 0) return { isHere: false, turn: highestGrant(known), registrar: known?.registrar, node: known?.node };
      const next = decline(known, turn, registrar);
      keys.putGrant(key, next, clock.wallMs());
      return { isHere: false, turn: highestGrant(known), registrar: next.registrar, node: known?.node };
    },
  };
}

export const keyHandlers = ({ register, decline }: KeyedCreates) => ({
  registerKey: async (input: Parsed<typeof registerKey>) => register(input),
  declineKey: async (input: Parsed<typeof declineKey>) => decline(input),
});
