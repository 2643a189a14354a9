// Precreated sandboxes: sandboxes made ahead, in which nothing runs, so that a resume, a fork or a start goes on in one instead of making it first.
//
// No record names one that stands ready: the next start sweeps what a kill leaves of them (I3). Who takes one owns it, and its
// end is from then on the end of the sandbox that goes on in it.
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import { agentOf } from "../agent/binary.ts";
import type { InitKeys } from "../agent/init-keys.ts";
import { openEgress } from "../egress/policy.ts";
import type { Networks } from "../network/networks.ts";
import type { Registry } from "../records/registry.ts";
import { keyOfKind } from "../runtime/precreated-kind.ts";
import type { Checkpoint, Limits, Precreated, PrecreatedKind, RootImage, Runtime } from "../runtime/runtime.ts";
import type { Images } from "../template/images.ts";
import type { Admission } from "./admission.ts";
import type { Drivers } from "./drivers.ts";
import type { NodeMetrics, Stages } from "./node-metrics.ts";
import { newSandboxID } from "./sandbox-id.ts";

/** Starts have the processors first. */
const QUIET_MS = 200;
/** Kinds of which precreated sandboxes stand ready: those used last. */
const MAX_KINDS = 8;
/** Precreated sandboxes that nobody uses hold memory for nothing. */
const IDLE_MS = 30 * 60_000;
const IDLE_CHECK_MS = 60_000;

/** A start that is to come. `from`: what it goes on from. */
export type Wanted = {
  readonly image: RootImage;
  readonly limits: Limits;
  readonly envd: string;
  readonly initKey?: string | undefined;
  readonly from: Checkpoint | undefined;
};

export interface PrecreatedPool {
  /** One that fits, where one stands ready: it is the caller's from here on. More of its kind are made when it is quiet. */
  take(runtime: Runtime, wanted: Wanted): Promise<Precreated | undefined>;
  /** Destroys one that was taken; succeeds when nothing is left of it. */
  discard(precreated: Precreated): Promise<void>;
  /** Destroys all that stand ready: what they stand on may go. */
  clear(): Promise<void>;
  /** What those that stand ready or are being made are made for. */
  standing(): readonly PrecreatedKind[];
  readonly ready: number;
  close(): Promise<void>;
}

export type PrecreatedParts = {
  readonly home: string;
  readonly initKeys: Pick<InitKeys, "unnamed">;
  /** As of every id that this node makes. */
  readonly slot: number | undefined;
  readonly networks: Pick<Networks, "attach" | "detach"> | undefined;
  readonly images: Pick<Images, "ready">;
  readonly drivers: Pick<Drivers, "named">;
  readonly admission: Admission;
  readonly registry: Pick<Registry, "runningCount">;
  readonly stages: Stages;
  readonly metrics: Pick<NodeMetrics, "precreatedTakes">;
  readonly log: Log;
};

type Stock = { readonly runtime: Runtime; readonly kind: PrecreatedKind; ready: Precreated[]; making: number; lastUseMs: number };

/** `precreated sandboxes`: of each kind. */
export type PrecreatedSettings = { readonly precreated: number; readonly refill_concurrency: number; readonly max_sandboxes: number };

export function openPrecreatedPool(parts: PrecreatedParts, settings: PrecreatedSettings): PrecreatedPool {
  const { precreated: size, refill_concurrency: concurrency, max_sandboxes } = settings;
  const { home, initKeys, slot, networks, images, drivers, admission, registry, stages, metrics, log } = parts;
  const byKind = new Map<string, Stock>();
  const underWay = new Set<Promise<void>>();
  let lastUseMs = 0;
  let timer: NodeJS.Timeout | undefined;
  let closed = false;

  const all = () => [...byKind.values()];
  const making = () => all().reduce((sum, each) => sum + each.making, 0);
  /** Beside the sandboxes that run. */
  const hasRoom = (count: number) => registry.runningCount + count <= max_sandboxes;
  const ready = () => all().reduce((sum, each) => sum + each.ready.length, 0);

  function kindOf(runtime: Runtime, { image, limits, envd, initKey = initKeys.unnamed, from }: Wanted): Promise<PrecreatedKind | undefined> {
    return runtime.precreation?.kindOf({ image, limits, envd: agentOf(home, envd, initKey), from }) ?? Promise.resolve(undefined);
  }

  async function make({ precreation, name }: Runtime, kind: PrecreatedKind): Promise<Precreated> {
    if (precreation === undefined) fail("INTERNAL", `the ${name} driver does not support precreated sandboxes`);
    await images.ready(kind.image);
    const runtimeID = newSandboxID(slot);
    const network = await networks?.attach(openEgress);
    try {
      return await stages(name)("precreate", () => precreation.make(kind, { runtimeID, directory: join(home, "sandboxes", runtimeID), network }));
    } catch (error) {
      if (network !== undefined) await networks?.detach(network);
      throw error;
    }
  }

  async function discard({ handle }: Precreated): Promise<void> {
    try {
      await drivers.named(handle.runtime).destroy(handle);
      if (handle.network !== undefined) await networks?.detach(handle.network);
    } catch (error) {
      log.error({ err: error, runtimeID: handle.runtimeID }, "a precreated sandbox could not be destroyed; the next start of the node tries again");
    }
  }

  function later(delayMs: number): void {
    if (closed) return;
    clearTimeout(timer);
    timer = setTimeout(fill, delayMs);
    timer.unref();
  }

  function fill(): void {
    if (closed) return;
    const lacking = all().filter((each) => each.ready.length + each.making < size);
    if (lacking.length === 0) return;
    const isBusy = admission.waiting > 0 || admission.running > making() || performance.now() - lastUseMs < QUIET_MS;
    if (isBusy) later(QUIET_MS);
    for (const each of isBusy ? [] : lacking) {
      while (each.ready.length + each.making < size && making() < concurrency && hasRoom(ready() + making() + 1)) refill(each);
    }
  }

  function refill(stock: Stock): void {
    const { runtime, kind } = stock;
    stock.making++;
    const work = admission
      .run(() => make(runtime, kind))
      .then(async (precreated) => {
        // Nobody asks for its kind any more.
        if (closed || byKind.get(keyOfKind(kind)) !== stock) await discard(precreated);
        else stock.ready.push(precreated);
      })
      .catch(async (error: unknown) => {
        log.warn({ err: error }, "a precreated sandbox could not be created; retrying when one is needed");
        await drop([stock]);
      })
      .finally(() => {
        stock.making--;
        underWay.delete(work);
        later(0);
      });
    underWay.add(work);
  }

  async function drop(stocks: readonly Stock[]): Promise<void> {
    for (const each of stocks) byKind.delete(keyOfKind(each.kind));
    await Promise.all(stocks.flatMap((each) => each.ready.splice(0)).map(discard));
  }

  function stockOf(runtime: Runtime, kind: PrecreatedKind): Stock {
    const key = keyOfKind(kind);
    const stock = byKind.get(key) ?? { runtime, kind, ready: [], making: 0, lastUseMs: 0 };
    // Last in order is used last.
    byKind.delete(key);
    byKind.set(key, stock);
    lastUseMs = stock.lastUseMs = performance.now();
    if (byKind.size > MAX_KINDS) void drop(all().slice(0, 1));
    return stock;
  }

  /** One of each is handed out once: it leaves the list in the same step in which it is found. */
  function takeReady(stock: Stock): Precreated | undefined {
    // I40
    for (let precreated = stock.ready.shift(); precreated !== undefined; precreated = stock.ready.shift()) {
      if (stock.runtime.isAlive(precreated.handle)) return precreated;
      void discard(precreated);
    }
    return undefined;
  }

  const idle = setInterval(() => void drop(all().filter((each) => performance.now() - each.lastUseMs >= IDLE_MS)), IDLE_CHECK_MS);
  idle.unref();

  return {
    async take(runtime, wanted) {
      if (size === 0 || closed) return undefined;
      const kind = await kindOf(runtime, wanted);
      if (kind === undefined) return undefined;
      const precreated = takeReady(stockOf(runtime, kind));
      metrics.precreatedTakes.inc({ source: precreated === undefined ? "none" : "ready" });
      // A full node has no place for what nobody uses.
      if (!hasRoom(ready() + 1)) void drop(all());
      later(QUIET_MS);
      return precreated;
    },
    discard,
    clear: () => drop(all()),
    standing: () => all().map(({ kind }) => kind),
    get ready() {
      return ready();
    },
    async close() {
      closed = true;
      clearTimeout(timer);
      clearInterval(idle);
      await Promise.all(underWay);
      await drop(all());
    },
  };
}
