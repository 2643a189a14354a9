// Pauses idle sandboxes that traffic may resume: after their idle time, or sooner where memory or capacity is short.
import { freemem } from "node:os";
import type { KeyedLock } from "@svc/kit/keyed-lock.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Metrics } from "@svc/kit/metrics.ts";
import { isRunning, type Registry, type RunningRecord } from "../../records/registry.ts";
import type { Claim } from "../../records/state.ts";
import type { NodeSettings } from "../settings.ts";
import type { Drivers } from "../supply/drivers.ts";
import type { ProxyLink } from "../supply/proxy-link.ts";
import { type IdleCause, idleCauses, type Pauses } from "../verbs/pause.ts";
import { readOutbound } from "./outbound.ts";

export type IdleParts = {
  readonly lock: Pick<KeyedLock, "isHeld">;
  readonly registry: Pick<Registry, "all" | "get">;
  readonly drivers: Pick<Drivers, "named">;
  readonly pauses: Pick<Pauses, "pause">;
  readonly proxy: Pick<ProxyLink, "trafficOf">;
  readonly metrics: Metrics;
  readonly log: Log;
};

export interface Idle {
  /** Pauses the sandbox that was idle longest, to free capacity; false where none may be paused. */
  pauseOne(): Promise<boolean>;
  /** Returns the seconds of idleness after which the sandbox is paused; 0: never. */
  secondsOf(claim: Pick<Claim, "autoResume" | "idlePauseSeconds">): number;
  start(): void;
  close(): Promise<void>;
}

const LOOK_MS = 1_000;
/** The minimum idle time where memory or capacity is short; it spares a client that is between two requests. */
const SHORTEST_MS = 5_000;
/** As a fraction of one processor. An idle envd and sandbox kernel use less than 0.01. */
const IDLE_CPU = 0.02;
/** The delay after a failed pause. */
const RETRY_MS = 60_000;

/** `againMs`: no attempt before this time, set after a failed pause, which itself looks like work of the sandbox. */
type Track = { life: string; cpuNs: number; atMs: number; traffic: number; deadlineMs: number; activeMs: number; againMs: number };

export function openIdle(parts: IdleParts, settings: Pick<NodeSettings["sandbox"], "idle_pause_seconds" | "idle_pause_below_memory_mb">): Idle {
  const { registry, drivers, pauses, proxy, metrics, log } = parts;
  const tracks = new Map<string, Track>();
  const counter = metrics.counter("svc_node_idle_pauses_total", "Idle sandboxes that were paused, by cause.", ["cause"]);
  for (const cause of idleCauses) counter.inc({ cause }, 0);
  let timer: NodeJS.Timeout | undefined;
  let looking: Promise<void> | undefined;
  /** Serializes the requests for capacity, since each pauses one sandbox. */
  let pausing: Promise<unknown> = Promise.resolve();
  let isClosed = false;

  const secondsOf: Idle["secondsOf"] = (claim) => (claim.autoResume ? (claim.idlePauseSeconds ?? settings.idle_pause_seconds) : 0);
  const limitMs = ({ status }: RunningRecord) => secondsOf(status.claim) * 1000;
  const lifeOf = ({ handle }: RunningRecord["status"]) => `${handle.runtimeID}:${handle.pid}:${handle.pidStartTicks}`;

  function* candidates(): Iterable<RunningRecord> {
    for (const record of registry.all()) if (isRunning(record) && limitMs(record) > 0) yield record;
  }

  /** True if requests came since the last look, or are open. */
  function hasTraffic({ sandboxID, status }: RunningRecord, track: Track): boolean {
    const { open, begun } = proxy.trafficOf(sandboxID);
    return open > 0 || begun !== track.traffic || status.claim.deadlineMs !== track.deadlineMs;
  }

  async function look(record: RunningRecord): Promise<void> {
    const { sandboxID, status } = record;
    const usage = await drivers
      .named(status.handle.runtime)
      .usage(status.handle)
      .catch(() => undefined);
    const nowMs = performance.now();
    const life = lifeOf(status);
    const known = tracks.get(sandboxID);
    const { begun } = proxy.trafficOf(sandboxID);
    const now = { life, cpuNs: usage?.cpuNs ?? 0, atMs: nowMs, traffic: begun, deadlineMs: status.claim.deadlineMs };
    const worked = known === undefined || usage === undefined ? 1 : (usage.cpuNs - known.cpuNs) / 1e6 / Math.max(1, nowMs - known.atMs);
    const isActive = known === undefined || known.life !== life || worked > IDLE_CPU || hasTraffic(record, known);
    tracks.set(sandboxID, { ...now, activeMs: isActive ? nowMs : known.activeMs, againMs: known?.life === life ? known.againMs : 0 });
  }

  /** Returns the sandboxes idle for at least this time, longest first. */
  function idleFor(leastMs: (record: RunningRecord) => number): RunningRecord[] {
    const nowMs = performance.now();
    const activeMs = ({ sandboxID }: RunningRecord) => tracks.get(sandboxID)?.activeMs ?? nowMs;
    const mayTry = ({ sandboxID }: RunningRecord) => (tracks.get(sandboxID)?.againMs ?? 0) <= nowMs;
    return [...candidates()].filter((record) => mayTry(record) && nowMs - activeMs(record) >= leastMs(record)).sort((a, b) => activeMs(a) - activeMs(b));
  }

  /** @returns true if the sandbox is paused now. */
  async function sleep(record: RunningRecord, outbound: ReadonlySet<string> | undefined, cause: IdleCause): Promise<boolean> {
    const { sandboxID, status } = record;
    const track = tracks.get(sandboxID);
    // I50: an idle pause never waits for a lock, whose holder may wait for the capacity that this pause frees.
    if (track === undefined || parts.lock.isHeld(sandboxID)) return false;
    const address = status.handle.network?.guestAddress;
    if (address !== undefined && outbound?.has(address) === true) {
      track.activeMs = performance.now();
      return false;
    }
    const isBusy = () => {
      const current = registry.get(sandboxID);
      return !isRunning(current) || lifeOf(current.status) !== track.life || hasTraffic(current, track);
    };
    try {
      await pauses.pause(sandboxID, { kind: "memory", cause, unless: isBusy });
    } catch (error) {
      const latest = tracks.get(sandboxID) ?? track;
      latest.againMs = performance.now() + RETRY_MS;
      log.warn({ err: error, sandboxID }, "an idle sandbox could not be paused; it keeps running, retrying");
      return false;
    }
    if (isRunning(registry.get(sandboxID))) return false;
    counter.inc({ cause });
    return true;
  }

  async function lookAtAll(): Promise<void> {
    const running = new Set<string>();
    for (const record of candidates()) {
      running.add(record.sandboxID);
      await look(record);
    }
    for (const sandboxID of tracks.keys()) if (!running.has(sandboxID)) tracks.delete(sandboxID);
    const due = idleFor(limitMs);
    const isShort = () => freemem() / 2 ** 20 < settings.idle_pause_below_memory_mb;
    const spare = isShort() ? idleFor(() => SHORTEST_MS) : [];
    if (due.length + spare.length === 0) return;
    const outbound = await readOutbound();
    for (const record of due) if (!isClosed) await sleep(record, outbound, "idle");
    for (const record of spare) if (!isClosed && isShort() && !due.includes(record)) await sleep(record, outbound, "memory");
  }

  async function pauseLongestIdle(): Promise<boolean> {
    const idle = idleFor(() => SHORTEST_MS);
    if (idle.length === 0) return false;
    const outbound = await readOutbound();
    for (const record of idle) if (await sleep(record, outbound, "places")) return true;
    return false;
  }

  return {
    secondsOf,
    pauseOne() {
      const paused = pausing.then(pauseLongestIdle, pauseLongestIdle);
      pausing = paused.catch(() => undefined);
      return paused;
    },
    start() {
      timer ??= setInterval(() => {
        looking ??= lookAtAll()
          .catch((error: unknown) => log.error({ err: error }, "idle sandboxes could not be determined; retrying"))
          .finally(() => {
            looking = undefined;
          });
      }, LOOK_MS).unref();
    },
    async close() {
      isClosed = true;
      clearInterval(timer);
      await looking;
    },
  };
}
