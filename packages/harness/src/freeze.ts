// Stops a process with SIGSTOP and continues it with SIGCONT.
import { readdir, readFile } from "node:fs/promises";
import { until } from "./until.ts";

/** Resolves when all threads are stopped: they stop one by one, and a running thread still answers. */
export async function freeze(pid: number): Promise<void> {
  process.kill(pid, "SIGSTOP");
  const tasks = `/proc/${pid}/task`;
  const isStopped = async (task: string) => /\) [TZX] /.test(await readFile(`${tasks}/${task}/stat`, "latin1").catch(() => ") X "));
  await until(`every thread of ${pid} to stop`, async () => (await Promise.all((await readdir(tasks)).map(isStopped))).every(Boolean) || undefined, 1);
}

export function thaw(pid: number): void {
  process.kill(pid, "SIGCONT");
}
