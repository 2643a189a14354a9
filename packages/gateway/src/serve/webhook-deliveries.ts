// The record of a webhook's deliveries at a gateway: each node has that of its own events; pages and counts are merged.
import { call } from "@svc/contract/call.ts";
import { fail } from "@svc/contract/failures.ts";
import { comparePositions, positionToken } from "@svc/contract/list-position.ts";
import { deliveryPosition, webhookDeliveryOperations as ops, statsOf } from "@svc/contract/webhook-deliveries.ts";
import type { Handlers } from "@svc/kit/serve.ts";
import type { Member } from "../members/member.ts";
import type { Members } from "../members/members.ts";
import type { Merge } from "./merge.ts";

const TIMEOUT_MS = 5_000;

export type DeliveryParts = {
  readonly members: Members;
  readonly merge: Merge;
  readonly apiKey: string;
  /** Gives every node the webhook first. @throws WEBHOOK_NOT_FOUND. */
  readonly mustExist: (webhookID: string) => Promise<unknown>;
};

export function webhookDeliveryHandlers({ members, merge, apiKey, mustExist }: DeliveryParts): Handlers<typeof ops> {
  return {
    async listWebhookDeliveries(input, context) {
      await mustExist(input.webhookID);
      const pages = await merge.answers(ops.listWebhookDeliveries, () => input, context);
      const direction = input.orderAsc === "true" ? 1 : -1;
      const all = pages.flatMap(({ value }) => value).sort((a, b) => direction * comparePositions(deliveryPosition(a), deliveryPosition(b)));
      const found = all.slice(0, input.limit);
      const last = found.at(-1);
      const hasMore = all.length > found.length || pages.some(({ headers }) => headers.has("x-next-cursor"));
      if (hasMore && last !== undefined) context.header("x-next-cursor", positionToken(deliveryPosition(last)));
      return found;
    },
    async getWebhookDelivery(input, context) {
      await mustExist(input.webhookID);
      const to = ({ url, peers, signal }: Member) => ({ baseURL: url, apiKey, send: peers.send, signals: [signal, context.signal], timeoutMs: TIMEOUT_MS });
      const answers = await Promise.allSettled(members.up.map((member) => call(ops.getWebhookDelivery, input, to(member))));
      const found = answers.find((each) => each.status === "fulfilled");
      if (found !== undefined) return found.value;
      const uncertain = members.whyUncertain("");
      if (uncertain !== "") fail("NODE_LOST", `no node that answers has delivery '${input.deliveryID}'; ${uncertain}`);
      return fail("WEBHOOK_NOT_FOUND", `delivery '${input.deliveryID}' of this webhook was not found on any node`);
    },
    async getWebhookStats(input, context) {
      await mustExist(input.webhookID);
      return statsOf((await merge.ask(ops.getWebhookStats, () => input, context)).flatMap(({ buckets }) => buckets));
    },
  };
}
