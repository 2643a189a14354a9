// Beginning anew as a standby: the same process with an empty memory, so that nothing of a former lead is left.
import type { Log } from "@svc/kit/log.ts";

/** Supervisors see nothing of it: the process keeps its number. All its sockets close at once. */
export function restart(log: Log, reason: string): never {
  log.warn({ reason }, "this master restarts as a standby");
  process.stderr.write(`svc store master: begins anew as a standby: ${reason}\n`);
  process.execve?.(process.execPath, [process.execPath, ...process.execArgv, ...process.argv.slice(1)], process.env);
  process.exit(75);
}
