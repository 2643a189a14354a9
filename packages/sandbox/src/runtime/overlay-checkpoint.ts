// Freezing and checkpoints where programs run on the host's own kernel: the group is frozen, and only the files are kept.
import type { Cgroups } from "./cgroup.ts";
import type { Disk } from "./disk.ts";
import type { Engine } from "./driver.ts";

type Part = Pick<Engine, "checkpoints" | "freeze" | "thaw" | "checkpoint" | "exportLayer">;

export function overlayCheckpoints(cgroups: Cgroups, disk: Disk): Part {
  /** Runs `work` while nothing inside writes, so that it sees the files at one moment. */
  async function whileFrozen(runtimeID: string, work: () => Promise<void>): Promise<void> {
    if (await cgroups.isFrozen(runtimeID)) return work();
    await cgroups.setFrozen(runtimeID, true);
    try {
      await work();
    } finally {
      await cgroups.setFrozen(runtimeID, false);
    }
  }

  return {
    checkpoints: new Set(["filesystem"]),
    freeze: ({ runtimeID }) => cgroups.setFrozen(runtimeID, true),
    thaw: ({ runtimeID }) => cgroups.setFrozen(runtimeID, false),
    checkpoint: ({ runtimeID, directory }, into) => whileFrozen(runtimeID, () => disk.pack(directory, into.directory)),
    exportLayer: ({ runtimeID, directory }, into) => whileFrozen(runtimeID, () => disk.copy(directory, into)),
  };
}
