// Precreated sandboxes, in which nothing runs yet, so that a resume, a fork or a start uses one instead of creating a sandbox first.
//
// No record names a ready one: after a kill the next start of the node sweeps them (I3). The caller that takes one owns it, and the
// precreated sandbox is destroyed with the sandbox that was started in it.
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import { agentOf } from "../../agent/binary.ts";
import type { InitKeys } from "../../agent/init-keys.ts";
import { openEgress } from "../../egress/policy.ts";
import type { Networks } from "../../network/networks.ts";
import type { Registry } from "../../records/registry.ts";
import { keyOfKind } from "../../runtime/precreated-kind.ts";
import type { Checkpoint, Limits, Precreated, PrecreatedKind, RootImage, Runtime } from "../../runtime/runtime.ts";
import type { Images } from "../../template/images.ts";
import type { Admission } from "./admission.ts";
import type { Drivers } from "./drivers.ts";
import type { NodeMetrics, Stages } from "./node-metrics.ts";
import { newSandboxID } from "./sandbox-id.ts";

/** Starts take precedence: precreation waits for this long without one. */
const QUIET_MS = 200;
/** The number of kinds of precreated sandboxes that are kept ready: the most recently used ones. */
const MAX_KINDS = 8;
/** Unused precreated sandboxes waste memory, so they are destroyed after this time. */
const IDLE_MS = 30 * 60_000;
const IDLE_CHECK_MS = 60_000;

/** The start that a precreated sandbox is for. `from`: the checkpoint it starts from. */
export type Wanted = {
  readonly image: RootImage;
  readonly limits: Limits;
  readonly envd: string;
  readonly initKey?: string | undefined;
  readonly from: Checkpoint | undefined;
};

export interface PrecreatedPool {
  /**
   * Returns a matching precreated sandbox, which the caller owns from then on, or undefined. More of its kind are made later, while no start is
   * under way.
   */
  take(runtime: Runtime, wanted: Wanted): Promise<Precreated | undefined>;
  /** Destroys a sandbox that was taken; never throws, since the next start of the node sweeps what is left. */
  discard(precreated: Precreated): Promise<void>;
  /** Destroys all ready ones, since the files they were made from may be removed. */
  clear(): Promise<void>;
  /** The kinds that are ready or being made. */
  standing(): readonly PrecreatedKind[];
  readonly ready: number;
  close(): Promise<void>;
}

export type PrecreatedParts = {
  readonly home: string;
  readonly initKeys: Pick<InitKeys, "unnamed">;
  /** The node's slot, part of every id that it makes. */
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

/** `precreated`: the number per kind. */
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
  /** True if this number fits in addition to the running sandboxes. */
  const hasCapacity = (count: number) => registry.runningCount + count <= max_sandboxes;
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
      while (each.ready.length + each.making < size && making() < concurrency && hasCapacity(ready() + making() + 1)) refill(each);
    }
  }

  function refill(stock: Stock): void {
    const { runtime, kind } = stock;
    stock.making++;
    const work = admission
      .run(() => make(runtime, kind))
      .then(async (precreated) => {
        // The kind was dropped in the meantime.
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
    // The map is ordered by use, the most recent last.
    byKind.delete(key);
    byKind.set(key, stock);
    lastUseMs = stock.lastUseMs = performance.now();
    if (byKind.size > MAX_KINDS) void drop(all().slice(0, 1));
    return stock;
  }

  /** Removes the sandbox from the list in the same step in which it is found, so that each is used once. */
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
      // A full node has no capacity for unused sandboxes.
      if (!hasCapacity(ready() + 1)) void drop(all());
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
