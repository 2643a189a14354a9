// The node's drivers: the one for new sandboxes, and those that existing records need. A missing driver is quarantined and opened once it is back.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Quarantine } from "../../records/quarantine.ts";
import { type OpenRuntime, openRuntime, openToEnd, type RuntimeOptions } from "../../runtime/open-runtime.ts";
import { type RuntimeName, runtimeNames } from "../../runtime/runtime.ts";

export interface Drivers {
  readonly runtime: OpenRuntime;
  readonly runtimes: ReadonlyMap<RuntimeName, OpenRuntime>;
  /** @throws QUARANTINED with the reason when the driver cannot be used now. */
  named(name: RuntimeName): OpenRuntime;
  /** As `named`, for destroying only: works even if the driver's program is gone. */
  toEnd(name: RuntimeName): Promise<OpenRuntime>;
  /** Opens missing drivers that are available again; returns their names. */
  reopen(): Promise<RuntimeName[]>;
  /** Closes the drivers that `toEnd` opened; with `everything`, also those that only left files in the home. */
  closeToEnd(options: { readonly everything: boolean }): Promise<void>;
}

export type DriversOptions = {
  readonly wanted: RuntimeName | "auto";
  /** The drivers that records, snapshots and templates name. */
  readonly needed: ReadonlySet<RuntimeName>;
  readonly log: Log;
  readonly quarantine: Quarantine;
  readonly host: RuntimeOptions;
};

/** @throws HOST_UNSUITABLE when no driver can start sandboxes here. */
export async function openDrivers({ wanted, needed, log, quarantine, host }: DriversOptions): Promise<Drivers> {
  const runtimes = new Map<RuntimeName, OpenRuntime>();
  const missing = new Map<RuntimeName, string>();
  const toEnd = new Map<RuntimeName, Promise<OpenRuntime>>();
  let runtime: OpenRuntime | undefined;
  const refusals: string[] = [];
  for (const name of wanted === "auto" ? runtimeNames : [wanted]) {
    try {
      runtime = await openRuntime(name, host);
      runtimes.set(name, runtime);
      break;
    } catch (error) {
      refusals.push(`${name}: ${asFailure(error).message}`);
    }
  }
  if (runtime === undefined) fail("HOST_UNSUITABLE", `no sandbox can run here (${refusals.join("; ")}); \`./svc doctor\` says how to fix it`);
  if (refusals.length > 0) log.warn({ refusals, runtime: runtime.name }, "a preferred driver does not work here");
  for (const name of needed) if (!runtimes.has(name)) await open(name);

  async function open(name: RuntimeName): Promise<boolean> {
    try {
      runtimes.set(name, await openRuntime(name, host));
      missing.delete(name);
      quarantine.drop("driver", name);
      return true;
    } catch (error) {
      const reason = asFailure(error).message;
      missing.set(name, reason);
      quarantine.add({ kind: "driver", name, reason: `sandboxes, snapshots or templates need it: ${reason}` });
      return false;
    }
  }

  async function openedToEnd(name: RuntimeName): Promise<OpenRuntime> {
    const found = runtimes.get(name);
    if (found !== undefined) return found;
    const opened = toEnd.get(name) ?? openToEnd(name, host);
    toEnd.set(name, opened);
    return opened;
  }

  return {
    runtime,
    runtimes,
    named(name) {
      const found = runtimes.get(name);
      if (found !== undefined) return found;
      return fail("QUARANTINED", `the ${name} driver cannot be used: ${missing.get(name) ?? "it was not needed when the node started; restart the node"}`);
    },
    toEnd: openedToEnd,
    async reopen() {
      const back: RuntimeName[] = [];
      for (const name of [...missing.keys()]) if (await open(name)) back.push(name);
      return back;
    },
    async closeToEnd(options) {
      if (options.everything) for (const name of runtimeNames) if (existsSync(join(host.home, "run", name))) await openedToEnd(name);
      for (const opened of toEnd.values()) await (await opened).close(options);
    },
  };
}
