// `svc pause`, `resume`, `move`, `fork` and `timeout`: the verbs for an existing sandbox.
import { constants } from "node:os";
import { asFailure } from "@svc/contract/failures.ts";
import { type OutputFormat, outputFormat, printJSON, printTable } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { complain, EXIT_FAILURE, ForeseenError, remark } from "../output/complain.ts";
import { forEach } from "../output/for-each.ts";

type PauseOptions = AccessOptions & { filesOnly?: true };

export function pause(ids: readonly string[], { filesOnly, ...access }: PauseOptions): Promise<number> {
  return withClient(access, async (client) => {
    const done = await forEach(ids, async (id) => {
      try {
        await client.pause(id, { memory: filesOnly !== true });
      } catch (error) {
        // The sandbox is already in the requested state, so this counts as success.
        if (asFailure(error).name !== "SANDBOX_PAUSED") throw error;
        remark(`sandbox ${id} was paused already`);
      }
      process.stdout.write(`${id}\n`);
    });
    return done === ids.length ? 0 : EXIT_FAILURE;
  });
}

type ResumeOptions = AccessOptions & { timeout?: number; filesOnly?: true; output?: OutputFormat };

export function resume(sandboxID: string, { timeout, filesOnly, output, ...access }: ResumeOptions): Promise<number> {
  return withClient(access, async (client) => {
    const options = { memory: filesOnly !== true, ...(timeout === undefined ? {} : { timeoutSeconds: timeout }) };
    const { wasPaused, ...sandbox } = await client.resume(sandboxID, options);
    if (!wasPaused) remark(`sandbox ${sandboxID} ran already; it keeps the time it has left, if that is more`);
    if (output === "json") printJSON(sandbox);
    else process.stdout.write(`${sandbox.sandboxID}\n`);
    return 0;
  });
}

type MoveOptions = AccessOptions & { to?: string; output?: OutputFormat };

export function move(sandboxID: string, { to, output, ...access }: MoveOptions): Promise<number> {
  return withClient(access, async (client) => {
    const moved = await untilInterrupted(client.move(sandboxID, to), sandboxID, to);
    const { fromNodeID, nodeID, state, reason, stoodStillMs, pauseMs, exportMs, importMs, resumeMs, otherMs } = moved;
    if (outputFormat(output) === "json") printJSON(moved);
    else {
      const stages = `pause ${pauseMs}, export ${exportMs}, import ${importMs}, resume ${resumeMs}, other ${otherMs}`;
      process.stdout.write(`${sandboxID} moved from ${fromNodeID} to ${nodeID}; it stood still for ${stoodStillMs} ms (${stages})\n`);
    }
    if (reason === undefined) return 0;
    complain(new ForeseenError(`it is ${state} there: ${reason}`));
    return EXIT_FAILURE;
  });
}

/** The node completes the move even if nobody waits for it, so Ctrl-C ends only the waiting. */
async function untilInterrupted<T>(moving: Promise<T>, sandboxID: string, to: string | undefined): Promise<T> {
  const onInterrupt = () => {
    remark(
      `svc: the move of ${sandboxID} goes on at its node: svc events --sandbox ${sandboxID} shows its pause and resume, svc nodes show ${to ?? "NODE"} what is there`,
    );
    process.exit(128 + constants.signals.SIGINT);
  };
  process.once("SIGINT", onInterrupt);
  try {
    return await moving;
  } finally {
    process.off("SIGINT", onInterrupt);
  }
}

type ForkOptions = AccessOptions & { count: number; timeout?: number; quiet?: true; output?: OutputFormat };

export function fork(sandboxID: string, { count, timeout, quiet, output, ...access }: ForkOptions): Promise<number> {
  return withClient(access, async (client) => {
    const children = await client.fork(sandboxID, { count, ...(timeout === undefined ? {} : { timeoutSeconds: timeout }) });
    const failed = children.flatMap((child, index) => ("error" in child ? [{ index, message: child.error.message }] : []));
    if (quiet === true) {
      for (const child of children) if ("sandbox" in child) process.stdout.write(`${child.sandbox.sandboxID}\n`);
    } else if (outputFormat(output) === "json") printJSON(children);
    else {
      printTable(
        ["CHILD", "SANDBOX ID", "RESULT"],
        children.map((child, index) => [
          String(index + 1),
          "sandbox" in child ? child.sandbox.sandboxID : "",
          "sandbox" in child ? "running" : `failed: ${child.error.message}`,
        ]),
      );
    }
    const reasons = new Set(failed.map(({ message }) => message));
    if (failed.length > 0) complain(new ForeseenError(`${failed.length} of ${children.length} forks of ${sandboxID} failed: ${[...reasons].join("; ")}`));
    return failed.length > 0 || children.length < count ? EXIT_FAILURE : 0;
  });
}

export function timeout(sandboxID: string, seconds: number, access: AccessOptions): Promise<number> {
  return withClient(access, async (client) => {
    await client.setTimeout(sandboxID, seconds);
    return 0;
  });
}
