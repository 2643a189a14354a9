// Builds the parts that observe sandboxes: events, their streams, logs, audit log, usage, and the operations that show them.
import { join } from "node:path";
import type { Durability } from "@svc/kit/database.ts";
import type { DiskReserve } from "@svc/kit/disk-reserve.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Metrics } from "@svc/kit/metrics.ts";
import { deriveToken } from "@svc/kit/secret.ts";
import type { Handlers } from "@svc/kit/serve.ts";
import { type Denial, denialText } from "../network/denial.ts";
import type { Checkpoints } from "../records/checkpoints.ts";
import type { Clock } from "../records/clock.ts";
import { ENDED_KEPT_MS, type Records } from "../records/records.ts";
import { isOwned, isRunning, type Registry } from "../records/registry.ts";
import type { Runtime, RuntimeHandle, RuntimeName } from "../runtime/runtime.ts";
import { type Audit, openAudit } from "./audit.ts";
import { e2bEventOf, type Facts, isShownToE2b } from "./e2b-event.ts";
import { type EventStreams, openEventStreams } from "./event-streams.ts";
import { type Events, type EventType, openEvents, type Subject } from "./events.ts";
import { type Asked, type ObserveOperations, observeHandlers, openCollector } from "./handlers.ts";
import { auditNote, lifecycleEntry } from "./lifecycle-text.ts";
import { openObserveMetrics } from "./observe-metrics.ts";
import { openUsage, type UsageHandlers } from "./open-usage.ts";
import { openSandboxLogs, type SandboxLogs } from "./sandbox-logs.ts";
import { type Measured, openUsageLog, type UsageLog } from "./usage.ts";
import { openDeliveries } from "./webhook-delivery.ts";
import { openWebhookStore } from "./webhook-store.ts";
import { type WebhookHandlers, webhookHandlers } from "./webhooks.ts";

export type Report = (
  type: EventType,
  subject: { readonly sandboxID?: string | undefined; readonly templateID?: string | undefined },
  details: NonNullable<Subject["details"]>,
) => void;

export type Observe = {
  readonly events: Events;
  readonly streams: EventStreams;
  readonly logs: SandboxLogs;
  readonly usage: UsageLog;
  /** Undefined if the setting names no file. */
  readonly audit: Audit | undefined;
  readonly handlers: Handlers<ObserveOperations> & WebhookHandlers & UsageHandlers;
  /**
   * Reports what happened: an event, an entry in the sandbox's log and in the node's log, and an audit line if no request was the cause; durable
   * when
   * it returns. Never throws: the cause was or will be acknowledged, and a failed report must not undo it.
   */
  readonly report: Report;
  onDenied(denial: Denial): void;
  /** Copies envd's log of processes while the sandbox lives, before it ends or is paused. Never throws. */
  collect(sandboxID: string, boundMs?: number): Promise<void>;
  /** Starts sampling and removes logs of sandboxes that are gone; called once the records are restored. */
  start(): void;
  close(): Promise<void>;
};

export type ObserveOptions = {
  readonly home: string;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly records: Pick<Records, "ended">;
  readonly registry: Registry;
  readonly seed: string;
  /** The path of the audit log in the home; empty: no audit log. */
  readonly auditLog: string;
  /** How long events are kept, and how many. */
  readonly retained?: { readonly keptMs: number; readonly maxEvents: number };
  readonly durability: Durability;
  /** How long sums of usage are kept. */
  readonly usageKeptMs?: number;
  readonly checkpoints: Pick<Checkpoints, "find">;
  readonly clock: Pick<Clock, "wallMs">;
  readonly reserve: DiskReserve | undefined;
  nodeID(): string;
  runtimeNamed(name: RuntimeName): Runtime;
};

export function openObserve(options: ObserveOptions): Observe {
  const { home, log, metrics, records, registry, seed, auditLog, retained, durability, usageKeptMs, checkpoints, clock, reserve, nodeID, runtimeNamed } =
    options;
  const parts = () => ({ events, streams, logs, usage, audit });
  const { wallMs } = clock;
  const counted = openObserveMetrics(metrics, parts);
  const events = openEvents({ path: join(home, "events.db"), log, durability, wallMs, ...retained, onRecord: (type) => counted.events.inc({ type }) });
  const streams = openEventStreams(events);
  const audit = auditLog === "" ? undefined : openAudit({ path: join(home, auditLog), log, wallMs });

  function hasEnded(sandboxID: string): boolean {
    const ended = isOwned(registry.get(sandboxID)) ? undefined : records.ended(sandboxID);
    return ended !== undefined && wallMs() - ended.endedAtWallMs < ENDED_KEPT_MS;
  }
  function ask(sandboxID: string): Asked | undefined {
    const { status } = registry.owned(sandboxID);
    if (status.state !== "running") return undefined;
    const { secure, startedAtWallMs } = status.claim;
    return { handle: status.handle, accessToken: secure ? deriveToken(seed, "envd", sandboxID) : undefined, startedAtWallMs };
  }
  function find(sandboxID: string): Measured | undefined {
    const record = registry.get(sandboxID);
    return isRunning(record) ? { sandboxID, handle: record.status.handle, limits: record.limits } : undefined;
  }
  function* running(): Generator<Measured> {
    for (const record of registry.all()) if (isRunning(record)) yield { sandboxID: record.sandboxID, handle: record.status.handle, limits: record.limits };
  }

  const logs = openSandboxLogs({
    directory: join(home, "logs"),
    log,
    wallMs,
    isKept: (sandboxID) => registry.get(sandboxID) !== undefined || hasEnded(sandboxID),
  });
  const measure = (handle: RuntimeHandle) => runtimeNamed(handle.runtime).usage(handle);
  const metered = openUsage({ path: join(home, "usage.db"), keptMs: usageKeptMs, durability, registry, checkpoints, measure, metrics, log, wallMs });
  const { meter } = metered;
  const usage = openUsageLog({
    running,
    wallMs,
    find,
    isKept: (sandboxID) => isOwned(registry.get(sandboxID)),
    measure,
    onReading: meter.sampled,
    onCpu: (seconds) => counted.cpu.inc(seconds),
  });
  const collect = openCollector({ ask, logs });
  const store = openWebhookStore({ path: join(home, "webhooks.db"), durability, reserve, wallMs });
  const deliveries = openDeliveries({
    store,
    events,
    shown: ({ event }) => (isShownToE2b(event.type) ? e2bEventOf(event, events.factsOf(event), nodeID()) : undefined),
    onOutcome: (outcome, count) => counted.deliveries.inc({ outcome }, count),
    log,
    wallMs,
  });
  const factsOf = (sandboxID: string): Facts | undefined => {
    const record = registry.get(sandboxID);
    if (record === undefined || !("claim" in record.status) || record.status.claim === undefined) return undefined;
    const { templateID, guestBootID, limits } = record;
    const { metadata, startedAtWallMs, tenant } = record.status.claim;
    return { templateID, executionID: guestBootID, metadata, cpuCount: limits.cpuCount, memoryMB: limits.memoryMB, startedAtMs: startedAtWallMs, tenant };
  };

  return {
    events,
    streams,
    logs,
    usage,
    audit,
    handlers: {
      ...observeHandlers({ ask, hasEnded, collect, usage, logs }),
      ...webhookHandlers({ store, events, deliveries, nodeID, wallMs }),
      ...metered.handlers,
    },
    report(type, { sandboxID, templateID }, given) {
      const details = { ...given, ...metered.onEvent(type, sandboxID) };
      const subject = { ...(sandboxID === undefined ? {} : { sandboxID }), ...(templateID === undefined ? {} : { templateID }) };
      try {
        events.record(type, { ...subject, details, facts: sandboxID === undefined || !isShownToE2b(type) ? undefined : factsOf(sandboxID) });
        const entry = lifecycleEntry(type, given);
        if (entry !== undefined && sandboxID !== undefined) logs.write(sandboxID, entry);
        const note = auditNote(type, { sandboxID }, given);
        if (note !== undefined) audit?.note(note);
      } catch (error) {
        log.error({ err: error, type, ...subject }, "an event could not be reported");
      }
      log.info({ ...subject, ...details }, type);
    },
    onDenied(denial) {
      for (const { sandboxID, status } of registry.all()) {
        if (!("handle" in status) || status.handle?.network?.netns !== denial.slot.netns) continue;
        const { protocol, address, port, name, reason, repeated } = denial;
        const fields = { protocol, address, port, name, reason, repeated };
        const known = Object.entries(fields).flatMap(([member, value]) => (value === undefined || value === "" ? [] : [[member, String(value)] as const]));
        logs.writeDenial(sandboxID, { text: denialText(denial), fields: Object.fromEntries(known) });
        return;
      }
    },
    async collect(sandboxID, boundMs) {
      await Promise.all([collect(sandboxID, boundMs).catch(() => {}), meter.read(sandboxID)]);
    },
    start() {
      logs.sweep();
      usage.start();
      meter.start();
      deliveries.start();
    },
    async close() {
      streams.end();
      await deliveries.close();
      store.close();
      usage.close();
      await metered.close();
      logs.close();
      await audit?.close();
      events.close();
    },
  };
}
