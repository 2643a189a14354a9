// Deletes sandboxes that are quarantined: what nobody can read or run can still be removed, and what only it may have used goes with it.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { KeyedLock } from "@svc/kit/keyed-lock.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Networks } from "../network/networks.ts";
import type { Checkpoints } from "../records/checkpoints.ts";
import type { Quarantine } from "../records/quarantine.ts";
import type { Records } from "../records/records.ts";
import type { Registry } from "../records/registry.ts";
import { runtimeNames } from "../runtime/runtime.ts";
import type { Drivers } from "./drivers.ts";
import type { Ends } from "./end.ts";
import type { Held } from "./hold.ts";

export type Strays = { readonly checkpoints: readonly string[]; readonly networks: readonly string[] };

export type QuarantineDeletionParts = {
  readonly home: string;
  readonly lock: KeyedLock;
  readonly records: Pick<Records, "remove">;
  readonly registry: Pick<Registry, "get">;
  readonly held: Pick<Held, "release">;
  readonly ends: Pick<Ends, "delete">;
  readonly drivers: Pick<Drivers, "runtimes" | "toEnd">;
  readonly checkpoints: Pick<Checkpoints, "remove">;
  readonly networks: Pick<Networks, "orphans" | "removeOrphan"> | undefined;
  readonly quarantine: Quarantine;
  readonly log: Log;
};

export interface QuarantineDeletion {
  /** @throws QUARANTINED when a part of it resists; then it stays quarantined. */
  delete(sandboxID: string): Promise<void>;
  /**
   * What lay in the home at the start without a readable record that names it, while there are unreadable ones; to be removed when
   * the last of those is gone: nothing that was made later is among it.
   */
  remember(strays: Strays): void;
  /** Removes what is remembered, if no record that cannot be read is left. */
  clearRemembered(): Promise<void>;
}

export function openQuarantineDeletion(parts: QuarantineDeletionParts): QuarantineDeletion {
  // I26
  const { lock, registry, held, ends, checkpoints, networks, quarantine, log } = parts;
  let remembered: Strays | undefined;

  async function clearRemembered(): Promise<void> {
    const strays = remembered;
    if (strays === undefined || quarantine.isBlind) return;
    remembered = undefined;
    const left = (error: unknown) => log.error({ err: error }, "unused files could not be removed; the next start tries again");
    for (const checkpointID of strays.checkpoints) await checkpoints.remove(checkpointID).catch(left);
    const orphans = new Set((await networks?.orphans()) ?? []);
    for (const netns of strays.networks) if (orphans.has(netns)) await networks?.removeOrphan(netns).catch(left);
  }

  return {
    async delete(sandboxID) {
      held.release(sandboxID);
      if (registry.get(sandboxID) !== undefined) return ends.delete(sandboxID, "killed");
      await lock.runUnbounded(sandboxID, () => removeUnread(parts, sandboxID));
      await clearRemembered();
    },
    remember(strays) {
      remembered = strays;
    },
    clearRemembered,
  };
}

/** Its record does not say which driver started it; the drivers' own marks do. */
async function removeUnread({ home, records, drivers, quarantine, log }: QuarantineDeletionParts, sandboxID: string): Promise<void> {
  const left = { runtimeID: sandboxID, directory: join(home, "sandboxes", sandboxID) };
  try {
    for (const name of runtimeNames) {
      if (!drivers.runtimes.has(name) && !existsSync(join(home, "run/marks", name, sandboxID))) continue;
      await (await drivers.toEnd(name)).destroy(left);
    }
  } catch (error) {
    const reason = `it was to be deleted, and its parts resist: ${asFailure(error).message}`;
    quarantine.add({ kind: "sandbox", name: sandboxID, reason });
    fail("QUARANTINED", `sandbox '${sandboxID}' is quarantined: ${reason}`, { cause: error });
  }
  // The row last: where it is left, what it may name is still known to have an owner.
  records.remove(sandboxID);
  quarantine.drop("sandbox", sandboxID);
  log.info({ sandboxID }, "a sandbox that was quarantined is deleted");
}
