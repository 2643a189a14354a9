// Reports immediately when another program deletes a firewall table, as `nft flush ruleset` does.
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import type { Log } from "@svc/kit/log.ts";
import { programEnvironment } from "@svc/kit/spawn.ts";
import { dieWithUs, type Kept, keep, unref } from "./kept.ts";

export type TableWatchOptions = {
  /** An inet table. */
  readonly table: string;
  readonly log: Log;
  /** Called for each deletion and after a restart of the watch, during which the table may have been deleted. */
  readonly onDeleted: () => void;
};

/** @throws if the program cannot be started. */
export async function watchTable({ table, log, onDeleted }: TableWatchOptions): Promise<Kept> {
  const deletion = `delete table inet ${table}`;
  const start = async (): Promise<ChildProcess> => {
    const [command, ...argv] = [...dieWithUs, "nft", "monitor", "destroy", "tables"];
    const child = spawn(command, argv, { stdio: ["ignore", "pipe", "ignore"], env: programEnvironment() });
    await new Promise<void>((resolve, reject) => child.once("spawn", resolve).once("error", reject));
    createInterface({ input: child.stdout }).on("line", (line) => {
      if (line.trim() === deletion) onDeleted();
    });
    unref(child);
    return child;
  };
  const startNext = async (): Promise<ChildProcess> => {
    const child = await start();
    onDeleted();
    return child;
  };
  const without = "a firewall that another program empties is noticed some seconds later";
  return keep({ what: "the watch of the firewall table", without, log, first: await start(), startNext });
}
