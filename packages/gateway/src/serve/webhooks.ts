// E2B's events and webhooks at a gateway: events are merged; each webhook is kept by every node, which delivers its own events.
import { randomUUID } from "node:crypto";
import { call } from "@svc/contract/call.ts";
import { fail } from "@svc/contract/failures.ts";
import type { Parsed } from "@svc/contract/operation.ts";
import type { webhookDeliveryOperations } from "@svc/contract/webhook-deliveries.ts";
import {
  type E2bEvent,
  isLaterWebhook,
  listEventsOfSandbox,
  listSandboxEvents,
  MAX_WEBHOOK_RECORDS,
  MAX_WEBHOOKS,
  settleWebhooks,
  shownWebhook,
  type WebhookRecord,
  type webhookOperations,
} from "@svc/contract/webhooks.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Context, Handlers } from "@svc/kit/serve.ts";
import type { Member } from "../members/member.ts";
import type { Members } from "../members/members.ts";
import type { Merge } from "./merge.ts";
import { openSettling } from "./settling.ts";
import { webhookDeliveryHandlers } from "./webhook-deliveries.ts";

const TIMEOUT_MS = 5_000;
/** The same number as on a node; the records of webhooks that were deleted first go. */
const MAX_DELETED = MAX_WEBHOOK_RECORDS / 2;
/** One call of a node's list covers this many events; the offset of a page of all nodes lies within the sum of theirs. */
const NODE_PAGE = 100;

export type WebhookParts = { readonly members: Members; readonly merge: Merge; readonly apiKey: string; readonly log: Log };

export interface GatewayWebhooks {
  readonly handlers: Handlers<typeof webhookOperations & typeof webhookDeliveryOperations>;
  close(): void;
}

export function openGatewayWebhooks({ members, merge, apiKey, log }: WebhookParts): GatewayWebhooks {
  const known = new Map<string, WebhookRecord>();
  const settling = openSettling({ members, what: "webhooks", canSettle: ({ identity }) => identity?.settlesWebhooks === true, settle, log });
  const { fresh } = settling;

  /** Gives a node the later records, and learns those that it has. @throws if it does not answer. */
  async function settle(member: Member): Promise<boolean> {
    const given = [...known.values()];
    const to = { baseURL: member.url, apiKey, send: member.peers.send, signal: member.signal, timeoutMs: TIMEOUT_MS };
    const answered = await call(settleWebhooks, { webhooks: given }, to);
    const news = answered.filter((each) => isLaterWebhook(each, known.get(each.id)));
    for (const each of news) known.set(each.id, each);
    const deleted = [...known.values()].filter(({ isDeleted }) => isDeleted).sort((a, b) => b.updatedAtMs - a.updatedAtMs);
    for (const { id } of deleted.slice(MAX_DELETED)) known.delete(id);
    return news.some(({ id }) => known.has(id));
  }

  async function put(record: WebhookRecord, context: Context): Promise<void> {
    const before = known.get(record.id);
    known.set(record.id, record);
    settling.changed();
    await fresh(context).catch((error: unknown) => {
      // The client gets a failure, so nothing may have changed.
      if (before === undefined) known.delete(record.id);
      else known.set(record.id, before);
      throw error;
    });
  }

  async function living(): Promise<WebhookRecord[]> {
    await fresh();
    return [...known.values()].filter(({ isDeleted }) => !isDeleted);
  }
  async function get(id: string): Promise<WebhookRecord> {
    const found = (await living()).find((each) => each.id === id);
    return found ?? fail("WEBHOOK_NOT_FOUND", `webhook '${id}' was not found; GET /events/webhooks lists them`);
  }

  type Page = Parsed<typeof listSandboxEvents>;

  /** Reads every node's events up to the end of the page. */
  async function page({ offset, limit, orderAsc, types }: Page, context: Context, sandboxID?: string): Promise<E2bEvent[]> {
    const events: E2bEvent[] = [];
    let open: readonly Member[] = members.all;
    for (let from = 0; from < offset + limit && open.length > 0; from += NODE_PAGE) {
      const size = Math.min(NODE_PAGE, offset + limit - from);
      const more: Member[] = [];
      const asking = open;
      const query = { offset: from, limit: size, orderAsc, types };
      const answers = await Promise.all(
        asking.map(async (member) => {
          const only = (each: Member) => (each === member ? true : undefined);
          const got =
            sandboxID === undefined
              ? await merge.ask(listSandboxEvents, (each) => only(each) && query, context)
              : await merge.ask(listEventsOfSandbox, (each) => only(each) && { ...query, sandboxID }, context);
          const found = got.flat();
          if (found.length === size) more.push(member);
          return found;
        }),
      );
      events.push(...answers.flat());
      open = more;
    }
    const direction = orderAsc === "true" ? 1 : -1;
    // A sort that keeps the order of equal elements leaves each node's events in their own order.
    events.sort((a, b) => direction * (Date.parse(a.timestamp) - Date.parse(b.timestamp)));
    return events.slice(offset, offset + limit);
  }

  return {
    handlers: {
      ...webhookDeliveryHandlers({ members, merge, apiKey, mustExist: get }),
      listSandboxEvents: (input, context) => page(input, context),
      listEventsOfSandbox: ({ sandboxID, ...input }, context) => page(input, context, sandboxID),
      async createWebhook(input, context) {
        if ((await living()).length >= MAX_WEBHOOKS) fail("TOO_MANY_REQUESTS", `there are ${MAX_WEBHOOKS} webhooks, the maximum; delete one first`);
        const now = Date.now();
        const record = { ...input, id: randomUUID(), createdAtMs: now, updatedAtMs: now, isDeleted: false };
        await put(record, context);
        return shownWebhook(record);
      },
      listWebhooks: async () => (await living()).sort((a, b) => a.createdAtMs - b.createdAtMs || (a.id < b.id ? -1 : 1)).map(shownWebhook),
      getWebhook: async ({ webhookID }) => shownWebhook(await get(webhookID)),
      async updateWebhook({ webhookID, ...changes }, context) {
        const before = await get(webhookID);
        const given = Object.fromEntries(Object.entries(changes).filter(([, value]) => value !== undefined));
        const record: WebhookRecord = { ...before, ...given, updatedAtMs: Math.max(Date.now(), before.updatedAtMs + 1) };
        await put(record, context);
        return shownWebhook(record);
      },
      async deleteWebhook({ webhookID }, context) {
        const before = await get(webhookID);
        await put({ ...before, isDeleted: true, updatedAtMs: Math.max(Date.now(), before.updatedAtMs + 1) }, context);
        return undefined;
      },
    },
    close: settling.close,
  };
}
