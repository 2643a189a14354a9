// The handlers of E2B's events and webhooks on a node.
import { randomUUID } from "node:crypto";
import { fail } from "@svc/contract/failures.ts";
import type { Parsed } from "@svc/contract/operation.ts";
import type { webhookDeliveryOperations } from "@svc/contract/webhook-deliveries.ts";
import {
  type E2bEvent,
  type listSandboxEvents,
  MAX_WEBHOOKS,
  type settleWebhooks,
  shownWebhook,
  type WebhookRecord,
  type webhookOperations,
} from "@svc/contract/webhooks.ts";
import { type Principal, tenantOf } from "@svc/kit/keys/principal.ts";
import type { Handlers } from "@svc/kit/serve.ts";
import { e2bEventOf, ownTypes } from "./e2b-event.ts";
import type { Events } from "./events.ts";
import type { Deliveries } from "./webhook-delivery.ts";
import type { WebhookStore } from "./webhook-store.ts";

export type WebhookHandlers = Handlers<typeof webhookOperations & typeof webhookDeliveryOperations & { settleWebhooks: typeof settleWebhooks }>;

export type WebhookParts = {
  readonly store: WebhookStore;
  readonly events: Events;
  readonly deliveries: Pick<Deliveries, "wake">;
  readonly nodeID: () => string;
  readonly wallMs: () => number;
};

export function webhookHandlers({ store, events, deliveries, nodeID, wallMs }: WebhookParts): WebhookHandlers {
  function page({ offset, limit, orderAsc, types }: Parsed<typeof listSandboxEvents>, principal: Principal, sandboxID?: string): E2bEvent[] {
    const wanted = types === undefined ? undefined : [types].flat();
    const found = events.list({ types: ownTypes(wanted), sandboxID, tenant: tenantOf(principal), offset, limit, ascending: orderAsc === "true" });
    return found.flatMap((event) => e2bEventOf(event, events.factsOf(event), nodeID()) ?? []);
  }
  function settle(records: readonly WebhookRecord[]): void {
    for (const { id } of store.settle(records, events.newest)) deliveries.wake(id);
  }
  /** Always later than the record before, whatever the clock says. */
  const later = (record: WebhookRecord) => Math.max(wallMs(), record.updatedAtMs + 1);

  return {
    listSandboxEvents: (input, { principal }) => page(input, principal),
    listEventsOfSandbox: ({ sandboxID, ...input }, { principal }) => page(input, principal, sandboxID),
    createWebhook(input) {
      if (store.all().length >= MAX_WEBHOOKS) fail("TOO_MANY_REQUESTS", `there are ${MAX_WEBHOOKS} webhooks, the maximum; delete one first`);
      const now = wallMs();
      const record = { ...input, id: randomUUID(), createdAtMs: now, updatedAtMs: now, isDeleted: false };
      settle([record]);
      return shownWebhook(record);
    },
    listWebhooks: () =>
      store
        .all()
        .sort((a, b) => a.createdAtMs - b.createdAtMs || (a.id < b.id ? -1 : 1))
        .map(shownWebhook),
    getWebhook: ({ webhookID }) => shownWebhook(store.get(webhookID)),
    updateWebhook({ webhookID, ...changes }) {
      const before = store.get(webhookID);
      const given = Object.fromEntries(Object.entries(changes).filter(([, value]) => value !== undefined));
      const record: WebhookRecord = { ...before, ...given, updatedAtMs: later(before) };
      settle([record]);
      return shownWebhook(record);
    },
    deleteWebhook({ webhookID }) {
      const before = store.get(webhookID);
      settle([{ ...before, updatedAtMs: later(before), isDeleted: true }]);
      return undefined;
    },
    listWebhookDeliveries(input, context) {
      store.get(input.webhookID);
      const { groups, next } = store.attempts.page(input);
      if (next !== undefined) context.header("x-next-cursor", next);
      return groups;
    },
    getWebhookDelivery: ({ webhookID, deliveryID }) => store.attempts.get(store.get(webhookID).id, deliveryID),
    getWebhookStats: ({ webhookID, start, end }) => store.attempts.stats(store.get(webhookID).id, start, end),
    settleWebhooks({ webhooks }) {
      settle(webhooks);
      return store.records();
    },
  };
}
