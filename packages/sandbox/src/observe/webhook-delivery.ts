// Delivers events to webhooks: each webhook has a position in the log of events and sends one event at a time, in order, until it is accepted.
import type { E2bEvent, WebhookRecord } from "@svc/contract/webhooks.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Entry, Events } from "./events.ts";
import { post } from "./webhook-post.ts";
import type { WebhookStore } from "./webhook-store.ts";

/*
 *   idle ──an event of its types──▶ sending ──2xx──▶ position + 1 ──▶ idle
 *                                    │   ▲
 *              refused, unreachable  ▼   │ after the pause
 *                                   waiting ──a client error, MAX_REFUSALS times──▶ position + 1 (skipped)
 *
 * The log of events is the queue: it is bounded by its own size and age, and survives kill -9. A webhook that falls behind it loses the oldest.
 */

const PAGE = 64;
/** A receiver that has rejected the same event this many times is not expected to accept it later. */
const MAX_REFUSALS = 5;
const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 5 * 60_000;

export type Outcome = "delivered" | "failed" | "skipped" | "lost";

export type DeliveryParts = {
  readonly store: WebhookStore;
  readonly events: Events;
  readonly shown: (entry: Entry) => E2bEvent | undefined;
  readonly onOutcome: (outcome: Outcome, count: number) => void;
  readonly log: Log;
  readonly wallMs: () => number;
};

export interface Deliveries {
  start(): void;
  /** Looks for work of this webhook, which has changed. */
  wake(id: string): void;
  close(): Promise<void>;
}

export function openDeliveries({ store, events, shown, onOutcome, log, wallMs }: DeliveryParts): Deliveries {
  const working = new Map<string, Promise<void>>();
  const timers = new Map<string, NodeJS.Timeout>();
  const stopping = new AbortController();
  let stopWatching: (() => void) | undefined;

  const enabled = (id: string): WebhookRecord | undefined => store.all().find((each) => each.id === id && each.enabled);

  function wake(id: string): void {
    if (stopping.signal.aborted || working.has(id)) return;
    clearTimeout(timers.get(id));
    timers.delete(id);
    const webhook = enabled(id);
    if (webhook === undefined) return;
    const waitMs = (store.position(id)?.nextAtMs ?? 0) - wallMs();
    if (waitMs > 0) {
      // A clock that was set back must not hold a delivery for longer than the longest pause.
      timers.set(id, setTimeout(wake, Math.min(waitMs, MAX_PAUSE_MS), id).unref());
      return;
    }
    const work = drain(id).then(
      () => {
        working.delete(id);
        // Events that were recorded after the last read of the log, and pauses, are looked at again.
        const { nextAtMs = 0, eventID = Number.POSITIVE_INFINITY } = store.position(id) ?? {};
        if (nextAtMs > wallMs() || eventID < events.newest) setImmediate(wake, id);
      },
      (error: unknown) => {
        working.delete(id);
        log.error({ err: error, webhookID: id }, "a webhook's position could not be written; its deliveries continue, and after a kill some are repeated");
        timers.set(id, setTimeout(wake, FIRST_PAUSE_MS, id).unref());
      },
    );
    working.set(id, work);
  }

  /** Sends until nothing is left or a delivery failed. */
  async function drain(id: string): Promise<void> {
    while (!stopping.signal.aborted) {
      const position = store.position(id);
      if (position === undefined || enabled(id) === undefined) return;
      let { eventID } = position;
      if (eventID < events.oldest - 1) {
        onOutcome("lost", events.oldest - 1 - eventID);
        log.error({ webhookID: id, after: eventID, oldest: events.oldest }, "a webhook has fallen behind the log of events: the events between are lost to it");
        eventID = events.oldest - 1;
      }
      const entries = events.read(eventID, PAGE);
      if (entries.length === 0) return;
      for (const entry of entries) {
        const webhook = enabled(id);
        if (webhook === undefined || stopping.signal.aborted) return;
        const event = shown(entry);
        const isWanted = event !== undefined && webhook.events.includes(event.type);
        if (isWanted && !(await deliver(webhook, entry.id, event))) return;
        eventID = entry.id;
      }
      // Events that this webhook does not want move its position, too; one write covers the whole page.
      store.setPosition(id, { eventID, attempts: 0, nextAtMs: 0 });
    }
  }

  /** Returns true if the event needs no further attempt, because it was delivered or is skipped. */
  async function deliver(webhook: WebhookRecord, eventID: number, event: E2bEvent): Promise<boolean> {
    const { id } = webhook;
    const attempts = (store.position(id)?.attempts ?? 0) + 1;
    const { attempt, refusal } = await post(webhook, event, { stopping: stopping.signal, wallMs });
    if (stopping.signal.aborted) return false;
    // A webhook that was deleted meanwhile has no record.
    if (store.all().some((each) => each.id === id) && !store.attempts.add(attempt))
      log.warn({ webhookID: id, deliveryID: attempt.id }, "the disk is full: a delivery to a webhook is not recorded");
    if (refusal === undefined) {
      onOutcome("delivered", 1);
      store.setPosition(id, { eventID, attempts: 0, nextAtMs: 0 });
      return true;
    }
    const isHopeless = refusal.isFinal && attempts >= MAX_REFUSALS;
    const failed = { webhookID: id, url: withoutSecrets(webhook.url), eventID, type: event.type, attempts, why: refusal.why };
    if (isHopeless) {
      onOutcome("skipped", 1);
      log.error(failed, "a webhook's receiver rejected an event repeatedly: it is skipped");
      store.setPosition(id, { eventID, attempts: 0, nextAtMs: 0 });
      return true;
    }
    onOutcome("failed", 1);
    if (attempts === 1 || attempts % 10 === 0) log.warn(failed, "a delivery to a webhook failed and is repeated");
    const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** (attempts - 1), MAX_PAUSE_MS);
    store.setPosition(id, { eventID: eventID - 1, attempts, nextAtMs: wallMs() + pauseMs });
    return false;
  }

  return {
    start() {
      stopWatching ??= events.watch(() => {
        for (const { id } of store.all()) if (!timers.has(id)) wake(id);
      });
      for (const { id } of store.all()) wake(id);
    },
    wake,
    async close() {
      stopping.abort();
      stopWatching?.();
      for (const timer of timers.values()) clearTimeout(timer);
      await Promise.allSettled(working.values());
    },
  };
}

function withoutSecrets(url: string): string {
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname}`;
}
