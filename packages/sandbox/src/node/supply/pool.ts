// Warm sandboxes kept ready per template, so that a create only has to claim one; refilled in the background.
import type { Log } from "@svc/kit/log.ts";
import { warmShell } from "../../agent/guest.ts";
import { openEgress } from "../../egress/policy.ts";
import type { Registry } from "../../records/registry.ts";
import type { SandboxRecord } from "../../records/state.ts";
import type { Template, TemplateSource } from "../../template/template.ts";
import type { Drivers } from "./drivers.ts";
import type { Ends } from "./end.ts";
import type { StartWarm } from "./start.ts";

/** Creates and refills compete for the same cores, so refills wait for this long without a create, unless a pool is nearly empty. */
const QUIET_MS = 200;
const LOW_SHARE = 0.25;
const RETRY_MS = 5_000;
/** The time in which a clean stop ends warm sandboxes, which have no owner; the next start adopts the rest. */
const END_BOUND_MS = 5_000;
const END_CONCURRENCY = 8;
/** Warm sandboxes of a template that is no longer used waste memory, so they are ended after this time. */
const IDLE_MS = 10 * 60_000;
const IDLE_CHECK_MS = 60_000;

export interface Pool {
  /** Returns the oldest ready sandbox of this template, or undefined; it belongs to the caller from then on. */
  take(template: Template): SandboxRecord | undefined;
  /** Adopts a warm sandbox of an earlier run; false when the pool is full or it no longer matches its template. */
  adopt(record: SandboxRecord): boolean;
  /** Removes a sandbox that died. */
  drop(sandboxID: string): void;
  /** Ends the ready sandboxes of a deleted template, and starts no more. */
  forget(templateID: string): Promise<void>;
  ready(): ReadonlyMap<string, number>;
  start(): void;
  close(): Promise<void>;
}

/** `cold`: the ready sandboxes in which no shell has run yet. `lastTakeMs`: an unused pool is cleared after IDLE_MS, unless settings name its template. */
type TemplatePool = { template: Template; size: number; ready: string[]; cold: Set<string>; filling: number; lastTakeMs: number };

export type PoolParts = {
  readonly start: StartWarm;
  readonly ends: Pick<Ends, "end">;
  readonly templateIndex: Pick<TemplateSource, "list">;
  readonly drivers: Pick<Drivers, "runtime" | "named">;
  readonly registry: Pick<Registry, "get">;
  /** The version of the envd in new sandboxes. */
  readonly envdVersion: string;
  readonly log: Log;
};

export function openPool(parts: PoolParts, sizes: ReadonlyMap<string, number>, defaultSize: number, concurrency: number): Pool {
  const { start, ends, templateIndex, drivers, registry, envdVersion, log } = parts;
  const pools = new Map<string, TemplatePool>();
  const filling = new Set<Promise<void>>();
  let lastTakeMs = 0;
  let timer: NodeJS.Timeout | undefined;
  let closed = false;

  function poolOf(template: Template): TemplatePool {
    const known = pools.get(keyOf(template));
    if (known !== undefined) return known;
    // A snapshot is a client's private state and may be large, so only settings make the pool keep copies of one.
    const size = sizes.get(template.templateID) ?? sizes.get(template.name) ?? (template.source === "snapshot" ? 0 : defaultSize);
    const made: TemplatePool = { template, size, ready: [], cold: new Set(), filling: 0, lastTakeMs: performance.now() };
    pools.set(keyOf(template), made);
    return made;
  }

  const waitUntilQuiet = () => lastTakeMs + QUIET_MS - performance.now();
  const isQuiet = () => waitUntilQuiet() <= 0;

  function fillIn(ms: number): void {
    clearTimeout(timer);
    timer = setTimeout(fill, ms);
  }

  function fill(): void {
    clearTimeout(timer);
    if (closed) return;
    for (const each of pools.values()) {
      const waitMs = waitUntilQuiet();
      while (each.ready.length + each.filling < each.size && filling.size < concurrency) {
        if (waitMs > 0 && each.ready.length > each.size * LOW_SHARE) {
          fillIn(waitMs);
          break;
        }
        refill(each);
      }
      if (each.cold.size === 0 || filling.size >= concurrency) continue;
      if (waitMs > 0) fillIn(waitMs);
      else warmOne(each);
    }
  }

  function refill(each: TemplatePool): void {
    run(each, async () => {
      const { sandboxID } = await start(each.template, openEgress);
      if (isQuiet()) await warm(each, sandboxID);
      else each.cold.add(sandboxID);
      return sandboxID;
    });
  }

  /**
   * Runs the first shell of a cold sandbox ahead of its claim. A claimed cold sandbox runs it anyway, so this is done only while no create needs
   * the cores.
   */
  function warmOne(each: TemplatePool): void {
    const sandboxID = each.ready.find((id) => each.cold.has(id));
    // At most one sandbox per template is warmed at a time; the others stay available for creates.
    if (sandboxID === undefined || each.filling > 0) return;
    // It is not claimable meanwhile, so that no client finds a process in it that is not its own.
    each.ready = each.ready.filter((id) => id !== sandboxID);
    each.cold.delete(sandboxID);
    run(each, async () => {
      await warm(each, sandboxID);
      return sandboxID;
    });
  }

  async function warm({ template }: TemplatePool, sandboxID: string): Promise<void> {
    const record = registry.get(sandboxID);
    // A server that was restored from the template's checkpoint answers its first client sooner once its ready command has asked it.
    const readyCmd = template.checkpointID === undefined ? undefined : template.startup?.readyCmd;
    if (record?.status.state === "warm") await warmShell(record.status.handle, readyCmd);
  }

  /** Runs `work`, which resolves with the id of a ready sandbox. */
  function run(each: TemplatePool, work: () => Promise<string>): void {
    each.filling++;
    let failed = false;
    const running = work()
      .then(async (sandboxID) => {
        if (closed || pools.get(keyOf(each.template)) !== each) await ends.end(sandboxID, "killed");
        else if (registry.get(sandboxID)?.status.state === "warm") each.ready.push(sandboxID);
      })
      .catch(() => {
        failed = true; // start has logged it
      })
      .finally(() => {
        each.filling--;
        filling.delete(running);
        if (failed && !closed) fillIn(RETRY_MS);
        else fill();
      });
    filling.add(running);
  }

  async function clear(each: TemplatePool): Promise<void> {
    pools.delete(keyOf(each.template));
    await Promise.all(each.ready.splice(0).map((id) => ends.end(id, "killed")));
  }

  const isNamed = ({ templateID, name }: Template) => sizes.has(templateID) || sizes.has(name);
  const isCurrent = (template: Template) => templateIndex.list().some((each) => keyOf(each) === keyOf(template));

  const idle = setInterval(() => {
    for (const each of [...pools.values()]) {
      const { template } = each;
      if (performance.now() - each.lastTakeMs < IDLE_MS || (isNamed(template) && isCurrent(template))) continue;
      void clear(each);
    }
  }, IDLE_CHECK_MS);
  idle.unref();

  return {
    take(template) {
      const each = poolOf(template);
      lastTakeMs = performance.now();
      each.lastTakeMs = lastTakeMs;
      for (let id = each.ready.shift(); id !== undefined; id = each.ready.shift()) {
        const record = registry.get(id);
        each.cold.delete(id);
        if (record?.status.state !== "warm" || !drivers.named(record.status.handle.runtime).isAlive(record.status.handle)) continue;
        setImmediate(fill);
        return record;
      }
      setImmediate(fill);
      return undefined;
    },
    adopt(record) {
      if (record.envdVersion !== envdVersion || record.status.state !== "warm" || record.status.handle.runtime !== drivers.runtime.name) return false;
      const template = templateIndex.list().find((each) => each.templateID === record.templateID && each.image.rootfs === record.image.rootfs);
      // A sandbox started from a fork's checkpoint carries its source's template ID, but contains its source's secrets.
      if (template === undefined || record.checkpointID !== template.checkpointID) return false;
      const each = poolOf(template);
      if (each.ready.length >= each.size) return false;
      each.ready.push(record.sandboxID);
      return true;
    },
    drop(sandboxID) {
      for (const each of pools.values()) {
        each.ready = each.ready.filter((id) => id !== sandboxID);
        each.cold.delete(sandboxID);
      }
      fill();
    },
    async forget(templateID) {
      await Promise.all([...pools.values()].filter(({ template }) => template.templateID === templateID).map(clear));
    },
    ready: () => new Map([...pools.values()].map((each) => [each.template.name, each.ready.length])),
    start() {
      for (const [name] of sizes) {
        const template = templateIndex.list().find((each) => each.name === name || each.templateID === name);
        if (template === undefined) log.warn({ template: name }, "pool.templates names a template that does not exist");
        else poolOf(template);
      }
      fill();
    },
    async close() {
      closed = true;
      clearTimeout(timer);
      clearInterval(idle);
      await Promise.allSettled(filling);
      const end = performance.now() + END_BOUND_MS;
      const warm = [...pools.values()].flatMap((each) => each.ready.splice(0));
      const worker = async () => {
        for (let id = warm.pop(); id !== undefined && performance.now() < end; id = warm.pop()) await ends.end(id, "killed");
      };
      await Promise.all(Array.from({ length: END_CONCURRENCY }, worker));
    },
  };
}

/** Two builds of one template give different sandboxes, so they have separate pools. */
function keyOf({ templateID, recipe }: Template): string {
  return `${templateID}/${recipe}`;
}
