// Restarts this process as a standby with empty memory, so that no state of its former lead remains.
import type { Log } from "@svc/kit/log.ts";

/** Keeps the pid, so that supervisors do not notice, and closes all sockets at once. */
export function restart(log: Log, reason: string): never {
  log.warn({ reason }, "this master restarts as a standby");
  process.stderr.write(`svc store master: restarts as a standby: ${reason}\n`);
  process.execve?.(process.execPath, [process.execPath, ...process.execArgv, ...process.argv.slice(1)], process.env);
  process.exit(75);
}
