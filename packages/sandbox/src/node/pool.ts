// Warm sandboxes kept ready per template, so that a create is a claim; filled in the background.

import { openEgress } from "../network/networks.ts";
import type { Template } from "../template/catalogue.ts";
import { endSandbox } from "./end.ts";
import { warmShell } from "./envd.ts";
import type { Node } from "./node.ts";
import { startWarm } from "./start.ts";
import type { SandboxRecord } from "./state.ts";

/** While creates come in, refills wait for this much quiet, unless the shelf is nearly empty: both need the same cores. */
const QUIET_MS = 200;
const LOW_SHARE = 0.25;
const RETRY_MS = 5_000;
/** A clean stop ends the warm ones, which nobody owns; what is left after this bound is adopted by the next start. */
const END_BOUND_MS = 5_000;
const END_CONCURRENCY = 8;
/** Warm ones of a template that is not asked for any more hold memory for nothing. */
const IDLE_SHELF_MS = 10 * 60_000;
const IDLE_CHECK_MS = 60_000;

export interface Pool {
  /** The oldest ready sandbox of this template, or undefined; a taken one belongs to the caller. */
  take(template: Template): SandboxRecord | undefined;
  /** Puts a warm sandbox of an earlier run on its shelf; false when there is no place for it. */
  adopt(record: SandboxRecord): boolean;
  /** Forgets one that died on the shelf. */
  drop(sandboxID: string): void;
  /** Ends the ready ones of a template that was deleted, and starts no more. */
  forget(templateID: string): Promise<void>;
  ready(): ReadonlyMap<string, number>;
  start(): void;
  close(): Promise<void>;
}

/** `lastTakeMs`: a shelf that nobody takes from is cleared, unless settings name its template. */
type Shelf = { template: Template; size: number; ready: string[]; filling: number; lastTakeMs: number };

export function openPool(node: Node, sizes: ReadonlyMap<string, number>, defaultSize: number, concurrency: number): Pool {
  const shelves = new Map<string, Shelf>();
  const filling = new Set<Promise<void>>();
  let lastTakeMs = 0;
  let timer: NodeJS.Timeout | undefined;
  let closed = false;

  function shelf(template: Template): Shelf {
    const known = shelves.get(keyOf(template));
    if (known !== undefined) return known;
    // A snapshot is somebody's own moment, and may be large: only settings keep copies of one ready.
    const size = sizes.get(template.templateID) ?? sizes.get(template.name) ?? (template.source === "snapshot" ? 0 : defaultSize);
    const made: Shelf = { template, size, ready: [], filling: 0, lastTakeMs: performance.now() };
    shelves.set(keyOf(template), made);
    return made;
  }

  function fill(): void {
    clearTimeout(timer);
    if (closed) return;
    for (const each of shelves.values()) {
      const waitMs = lastTakeMs + QUIET_MS - performance.now();
      while (each.ready.length + each.filling < each.size && filling.size < concurrency) {
        if (waitMs > 0 && each.ready.length > each.size * LOW_SHARE) {
          timer = setTimeout(fill, waitMs);
          break;
        }
        refill(each);
      }
    }
  }

  function refill(each: Shelf): void {
    each.filling++;
    let failed = false;
    const work = startWarm(node, each.template, openEgress)
      .then(async (record) => {
        if (record.status.state === "warm") await warmShell(record.status.handle);
        if (closed || shelves.get(keyOf(each.template)) !== each) await endSandbox(node, record.sandboxID, "killed");
        else each.ready.push(record.sandboxID);
      })
      .catch(() => {
        failed = true; // startWarm has logged it
      })
      .finally(() => {
        each.filling--;
        filling.delete(work);
        if (failed && !closed) timer = setTimeout(fill, RETRY_MS);
        else fill();
      });
    filling.add(work);
  }

  async function clear(each: Shelf): Promise<void> {
    shelves.delete(keyOf(each.template));
    await Promise.all(each.ready.splice(0).map((id) => endSandbox(node, id, "killed")));
  }

  const isNamed = ({ templateID, name }: Template) => sizes.has(templateID) || sizes.has(name);
  const isCurrent = (template: Template) => node.catalogue.list().some((each) => keyOf(each) === keyOf(template));

  const idle = setInterval(() => {
    for (const each of [...shelves.values()]) {
      const { template } = each;
      if (performance.now() - each.lastTakeMs < IDLE_SHELF_MS || (isNamed(template) && isCurrent(template))) continue;
      void clear(each);
    }
  }, IDLE_CHECK_MS);
  idle.unref();

  return {
    take(template) {
      const each = shelf(template);
      lastTakeMs = performance.now();
      each.lastTakeMs = lastTakeMs;
      for (let id = each.ready.shift(); id !== undefined; id = each.ready.shift()) {
        const record = node.registry.get(id);
        if (record?.status.state !== "warm" || !node.runtimeNamed(record.status.handle.runtime).isAlive(record.status.handle)) continue;
        setImmediate(fill);
        return record;
      }
      setImmediate(fill);
      return undefined;
    },
    adopt(record) {
      if (record.envdVersion !== node.envdVersion || record.status.state !== "warm" || record.status.handle.runtime !== node.runtime.name) return false;
      const template = node.catalogue.list().find((each) => each.templateID === record.templateID && each.image.rootfs === record.image.rootfs);
      // One that went on from a fork's capture bears its source's template, and holds its source's secrets.
      if (template === undefined || record.captureID !== template.captureID) return false;
      const each = shelf(template);
      if (each.ready.length >= each.size) return false;
      each.ready.push(record.sandboxID);
      return true;
    },
    drop(sandboxID) {
      for (const each of shelves.values()) each.ready = each.ready.filter((id) => id !== sandboxID);
      fill();
    },
    async forget(templateID) {
      await Promise.all([...shelves.values()].filter(({ template }) => template.templateID === templateID).map(clear));
    },
    ready: () => new Map([...shelves.values()].map((each) => [each.template.name, each.ready.length])),
    start() {
      for (const [name] of sizes) {
        const template = node.catalogue.list().find((each) => each.name === name || each.templateID === name);
        if (template === undefined) node.log.warn({ template: name }, "pool.templates names a template that is not there");
        else shelf(template);
      }
      fill();
    },
    async close() {
      closed = true;
      clearTimeout(timer);
      clearInterval(idle);
      await Promise.allSettled(filling);
      const end = performance.now() + END_BOUND_MS;
      const warm = [...shelves.values()].flatMap((each) => each.ready.splice(0));
      const worker = async () => {
        for (let id = warm.pop(); id !== undefined && performance.now() < end; id = warm.pop()) await endSandbox(node, id, "killed");
      };
      await Promise.all(Array.from({ length: END_CONCURRENCY }, worker));
    },
  };
}

/** Two builds of one template are two kinds of sandboxes. */
function keyOf({ templateID, recipe }: Template): string {
  return `${templateID}/${recipe}`;
}
