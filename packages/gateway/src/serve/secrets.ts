// Secrets at a gateway: every node has all of them, sealed; a gateway passes them on between nodes and cannot open them.
import { call } from "@svc/contract/call.ts";
import { fail } from "@svc/contract/failures.ts";
import type { Operation, Parsed } from "@svc/contract/operation.ts";
import {
  type EgressAuthority,
  isLaterSecret,
  MAX_SECRET_RECORDS,
  secretOperations as ops,
  type SecretRecord,
  secretBatch,
  settleSecrets,
  stampOf,
} from "@svc/contract/secrets.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Context, Handlers } from "@svc/kit/serve.ts";
import type { Member } from "../members/member.ts";
import type { Members } from "../members/members.ts";
import { weightOf } from "../place/place.ts";
import type { Merge } from "./merge.ts";
import type { Relay } from "./relay.ts";
import { openSettling } from "./settling.ts";

const TIMEOUT_MS = 5_000;

export type GatewaySecretParts = { readonly members: Members; readonly merge: Merge; readonly relay: Relay; readonly apiKey: string; readonly log: Log };

export interface GatewaySecrets {
  readonly handlers: Handlers<typeof ops>;
  /** Gives nodes that have just come up the secrets, before a sandbox is placed there. */
  settle(): Promise<void>;
  close(): void;
}

export function openGatewaySecrets({ members, merge, relay, apiKey, log }: GatewaySecretParts): GatewaySecrets {
  const known = new Map<string, SecretRecord>();
  const settling = openSettling({ members, what: "secrets", canSettle: ({ identity }) => identity?.settlesSecrets === true, settle, log });

  async function settle(member: Member): Promise<boolean> {
    const to = { baseURL: member.url, apiKey, send: member.peers.send, signal: member.signal, timeoutMs: TIMEOUT_MS };
    const { stamps } = await call(settleSecrets, { stamps: true }, to);
    const later = stamps.filter((stamp) => isLaterSecret(stamp, stampOfKnown(stamp.name)));
    for (let at = 0; at < later.length; at += secretBatch.names) {
      const names = later.slice(at, at + secretBatch.names).map(({ name }) => name);
      const { records } = await call(settleSecrets, { names }, to);
      for (const record of records) if (isLaterSecret(stampOf(record), stampOfKnown(record.name))) known.set(record.name, record);
    }
    const its = new Map(stamps.map((stamp) => [stamp.name, stamp]));
    const lacking = [...known.values()].filter((record) => isLaterSecret(stampOf(record), its.get(record.name)));
    for (const records of batches(lacking)) {
      const { refused } = await call(settleSecrets, { records }, to);
      // Sealed under a seed that the nodes have no longer: a node that has the secret seals it again.
      for (const name of refused) known.delete(name);
    }
    const deleted = [...known.values()].filter(({ sealed }) => sealed === null).sort((a, b) => Date.parse(b.updatedAt) - Date.parse(a.updatedAt));
    for (const { name } of deleted.slice(MAX_SECRET_RECORDS / 2)) known.delete(name);
    return later.length > 0;
  }

  function stampOfKnown(name: string) {
    const record = known.get(name);
    return record === undefined ? undefined : stampOf(record);
  }

  /** Every gateway picks the same node, which thereby decides between two changes at once. */
  async function deciding(context: Context): Promise<Member> {
    await settling.fresh(context);
    const [chosen] = settling.settled().sort((a, b) => weightOf("secrets", b.name) - weightOf("secrets", a.name));
    return chosen ?? fail("SERVER_UNREACHABLE", "no node of this deployment that keeps secrets answers; GET /nodes says why", { retryAfterSeconds: 1 });
  }

  const read =
    <T extends Operation>(operation: T) =>
    async (input: Parsed<T>, context: Context) =>
      relay(operation, input, context, await deciding(context));

  /** Answers once every node that answers has the change: none of them uses a replaced or deleted value afterwards. */
  const change =
    <T extends Operation>(operation: T) =>
    async (input: Parsed<T>, context: Context) => {
      try {
        return await relay(operation, input, context, await deciding(context));
      } finally {
        settling.changed();
        await settling.fresh(context).catch(() => {});
      }
    };

  return {
    handlers: {
      createSecret: change(ops.createSecret),
      async listSecrets(input, context) {
        const member = await deciding(context);
        const [page] = await merge.answers(ops.listSecrets, (each) => (each === member ? input : undefined), context);
        const next = page?.headers.get("x-next-token") ?? undefined;
        if (next !== undefined) context.header("x-next-token", next);
        return page?.value ?? [];
      },
      getSecret: read(ops.getSecret),
      updateSecret: change(ops.updateSecret),
      deleteSecret: change(ops.deleteSecret),
      async getEgressAuthority(_, context) {
        const all = await merge.ask(ops.getEgressAuthority, () => ({}), context);
        const [first, ...others] = new Map(all.map((each) => [each.fingerprint, each])).values();
        if (first === undefined || others.length > 0)
          fail(
            "SETTING_INVALID",
            "the nodes have different authorities for egress, because their deployment secrets differ: give every node the same node.deployment_secret_file, or ask a node for its own certificate",
          );
        return first satisfies EgressAuthority;
      },
    },
    settle: settling.once,
    close: settling.close,
  };
}

/** Splits records into what one request may carry. */
function* batches(records: readonly SecretRecord[]): Generator<SecretRecord[]> {
  let batch: SecretRecord[] = [];
  let bytes = 0;
  for (const record of records) {
    const size = Buffer.byteLength(JSON.stringify(record));
    if (batch.length === secretBatch.records || (batch.length > 0 && bytes + size > secretBatch.bytes)) {
      yield batch;
      batch = [];
      bytes = 0;
    }
    batch.push(record);
    bytes += size;
  }
  if (batch.length > 0) yield batch;
}
