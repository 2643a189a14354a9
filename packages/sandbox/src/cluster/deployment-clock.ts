// The deployment's clock on this node: the node's own clock, corrected if it is more than two seconds off those of etcd and the other nodes.
import { CLOCK_LIMIT_MS, clockReason } from "@svc/contract/clock.ts";
import { Failure } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { PeerClient } from "@svc/kit/peers/peer-client.ts";
import { type Clock, hostWallMs, systemClock } from "../records/clock.ts";
import { type Apart, askClock, skewOf } from "./clock-skew.ts";

export interface DeploymentClock extends Clock {
  /** How many milliseconds our clock is ahead; undefined while no other clock has answered. */
  readonly skewMs: number | undefined;
  /** @throws CAPACITY_EXHAUSTED while the skew exceeds the limit, since this node is then not ready for new sandboxes. */
  check(): void;
  /** Measures once, then repeatedly in the background. */
  start(): Promise<void>;
  close(): Promise<void>;
}

export type DeploymentClockParts = {
  readonly nodeID: string;
  readonly etcd: readonly string[];
  /** How etcd and other nodes are asked; absent: by the usual `fetch`. */
  readonly fetch?: { readonly etcd: PeerClient["fetch"]; readonly nodes: PeerClient["fetch"] };
  /** The URLs of the other nodes. */
  readonly others: () => readonly string[];
  readonly log: Log;
};

const MEASURE_MS = 30_000;
const ATTEMPTS = 8;
/** The clocks of this many other nodes, chosen at random each time, are as good a sample as all of them. */
const MAX_OTHERS = 8;
/** Bounds this narrow end a measurement; the first measurement may end earlier if a clock is certainly within the limit. */
const FINE_MS = 250;
const RETRY_AFTER_SECONDS = 30;

export function openDeploymentClock({ nodeID, etcd, fetch: ask, others, log }: DeploymentClockParts): DeploymentClock {
  let skewMs: number | undefined;
  let timer: NodeJS.Timeout | undefined;
  let isClosed = false;
  const isOff = () => skewMs !== undefined && Math.abs(skewMs) > CLOCK_LIMIT_MS;

  async function measure(isEnough: (apart: Apart) => boolean): Promise<void> {
    const nodes = [...others()].sort(() => Math.random() - 0.5).slice(0, MAX_OTHERS);
    const answers = await Promise.all([
      ...etcd.map((url) => askClock(new URL("/version", url).href, hostWallMs, ATTEMPTS, isEnough, ask?.etcd)),
      ...nodes.map((url) => askClock(`${url}/health`, hostWallMs, ATTEMPTS, isEnough, ask?.nodes)),
    ]);
    const found = skewOf(answers.flatMap((apart) => apart ?? []));
    if (found === undefined) return;
    const wasOff = isOff();
    skewMs = found;
    if (isOff() && !wasOff) log.error({ skewMs }, `node ${nodeID} is not ready: ${clockReason(skewMs)}`);
    if (!isOff() && wasOff) log.info({ skewMs }, "this node's clock is right again: it is ready for new sandboxes");
  }
  function later(): void {
    if (isClosed) return;
    timer = setTimeout(() => void measure(({ low, high }) => high - low <= FINE_MS).finally(later), MEASURE_MS);
    timer.unref();
  }

  return {
    monotonicMs: systemClock.monotonicMs,
    // Corrects only a skew above the limit; a smaller one is as likely an error of the measurement.
    wallMs: () => systemClock.wallMs() - (isOff() ? (skewMs ?? 0) : 0),
    get skewMs() {
      return skewMs;
    },
    check() {
      if (skewMs !== undefined && isOff())
        throw new Failure("CAPACITY_EXHAUSTED", `node ${nodeID} takes no new sandboxes: ${clockReason(skewMs)}`, { retryAfterSeconds: RETRY_AFTER_SECONDS });
    },
    async start() {
      // At the start, an answer that is certainly within the limit is enough, and so is a precise one that is certainly beyond it.
      await measure(
        ({ low, high }) => (low > -CLOCK_LIMIT_MS && high < CLOCK_LIMIT_MS) || (high - low <= FINE_MS && (low > CLOCK_LIMIT_MS || high < -CLOCK_LIMIT_MS)),
      );
      later();
    },
    async close() {
      isClosed = true;
      clearTimeout(timer);
    },
  };
}
