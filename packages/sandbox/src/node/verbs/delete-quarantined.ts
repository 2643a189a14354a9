// Deletes quarantined sandboxes, and afterwards the files that only unreadable records may have referred to.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { KeyedLock } from "@svc/kit/keyed-lock.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Networks } from "../../network/networks.ts";
import type { Checkpoints } from "../../records/checkpoints.ts";
import type { Quarantine } from "../../records/quarantine.ts";
import type { Records } from "../../records/records.ts";
import type { Registry } from "../../records/registry.ts";
import { runtimeNames } from "../../runtime/runtime.ts";
import type { Drivers } from "../supply/drivers.ts";
import type { Ends } from "../supply/end.ts";
import type { Unusable } from "../supply/unusable.ts";

export type Strays = { readonly checkpoints: readonly string[]; readonly networks: readonly string[] };

export type QuarantineDeletionParts = {
  readonly home: string;
  readonly lock: KeyedLock;
  readonly records: Pick<Records, "remove">;
  readonly registry: Pick<Registry, "get">;
  readonly unusable: Pick<Unusable, "release">;
  readonly ends: Pick<Ends, "delete">;
  readonly drivers: Pick<Drivers, "runtimes" | "toEnd">;
  readonly checkpoints: Pick<Checkpoints, "remove">;
  readonly networks: Pick<Networks, "orphans" | "removeOrphan"> | undefined;
  readonly quarantine: Quarantine;
  readonly log: Log;
};

export interface QuarantineDeletion {
  /** @throws QUARANTINED when a part of it cannot be removed; the sandbox then stays quarantined. */
  delete(sandboxID: string): Promise<void>;
  /**
   * Remembers the files and networks that no readable record named at the start, while unreadable records exist. They are removed with the last
   * unreadable record; nothing created since the start is among them.
   */
  remember(strays: Strays): void;
  /** Removes the remembered files and networks if no unreadable record is left. */
  clearRemembered(): Promise<void>;
}

export function openQuarantineDeletion(parts: QuarantineDeletionParts): QuarantineDeletion {
  // I26: what only unreadable records may refer to is removed with the last of them.
  const { lock, registry, unusable, ends, checkpoints, networks, quarantine, log } = parts;
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
      unusable.release(sandboxID);
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

/** The record that would name the driver is unreadable; the marks that each driver writes show which one started the sandbox. */
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
  // The row goes last: if a step fails, the files it may name still count as owned.
  records.remove(sandboxID);
  quarantine.drop("sandbox", sandboxID);
  log.info({ sandboxID }, "a sandbox that was quarantined is deleted");
}
