// The nodes of a deployment as seen by creates under an Idempotency-Key.
import { call, type Send } from "@svc/contract/call.ts";
import { declineKey, registerKey } from "@svc/contract/create-keys.ts";
import { asFailure, Failure } from "@svc/contract/failures.ts";
import type { Context } from "@svc/kit/serve.ts";
import type { EtcdDirectory } from "../members/etcd-directory.ts";
import type { Lookups } from "../members/lookups.ts";
import type { Member } from "../members/member.ts";
import type { Members } from "../members/members.ts";
import type { KeyNodes } from "./keyed-create.ts";
import { beganNothing } from "./template-nodes.ts";

const TIMEOUT_MS = 5_000;

export type KeyNodesParts = {
  readonly members: Members;
  readonly lookups: Lookups;
  readonly directory: () => Pick<EtcdDirectory, "isDead" | "gone" | "agrees"> | undefined;
  readonly apiKey: string;
  readonly send: Send;
  readonly context: Pick<Context, "signal">;
  readonly templateID: string;
};

export function keyNodes({ members, lookups, directory, apiKey, send, context, templateID }: KeyNodesParts): KeyNodes<Member> {
  const to = (member: Member) => ({ baseURL: member.url, apiKey, send, timeoutMs: TIMEOUT_MS, signals: [context.signal, member.signal] });

  return {
    isFixed: directory() === undefined,
    peers() {
      const all = members.all.filter((member) => member.status.state !== "refused" && (member.isUp || directory()?.isDead(member) !== true));
      const nameless = all.find(({ nodeID }) => nodeID === undefined);
      if (nameless === undefined) return all;
      const said = `the node at ${nameless.url} has not answered since this gateway started (${nameless.reason}), and may have created a sandbox under this Idempotency-Key`;
      throw new Failure("NODE_LOST", `${said}; start the gateway without its URL where it is gone, or send no key`, { details: { node: nameless.url } });
    },
    gone: () => (directory()?.gone() ?? []).filter((name) => members.named(name)?.isUp !== true),
    isCurrent: async () => (await directory()?.agrees()) === true,
    beganNothing: (error, member) => beganNothing(error, member, templateID),
    register(member, asked) {
      // A node of an earlier version has no turns, so its record of the key decides.
      return orEarlier(call(registerKey, asked, to(member)), async () => {
        const node = (await lookups.hasCreated(asked.key, member)) ? member.name : asked.node;
        const turn = node === undefined ? undefined : (asked.after ?? asked.from ?? 0) + 1;
        return { registrar: member.name, node, turn, isSure: true, others: [] };
      });
    },
    decline(member, declined) {
      return orEarlier(call(declineKey, declined, to(member)), async () => ({ isHere: await lookups.hasCreated(declined.key, member), turn: 0 }));
    },
  };
}

async function orEarlier<T>(asked: Promise<T>, earlier: () => Promise<T>): Promise<T> {
  try {
    return await asked;
  } catch (error) {
    if (asFailure(error).name === "ROUTE_NOT_FOUND") return earlier();
    throw error;
  }
}
