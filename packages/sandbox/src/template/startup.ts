// A template's start command: run in the background, and waited for until its ready command says yes.
import { Failure, fail } from "@svc/contract/failures.ts";
import { type Guest, openGuest } from "../agent/guest.ts";
import type { Runtime, RuntimeHandle } from "../runtime/runtime.ts";
import type { Startup, Surroundings } from "./build-record.ts";

/** Without a ready command a start command is taken for up after this long, or as soon as it has ended with 0. */
const SETTLE_MS = 20_000;
const FIRST_POLL_MS = 50;
const LONGEST_POLL_MS = 2_000;
/** One ready command may take this long; `sleep 20` is one that clients send. */
const READY_COMMAND_MS = 120_000;
/** A start command that is through may have put its program in the background; that has this long to be ready. */
const READY_AFTER_EXIT_MS = 30_000;
/** Of what a start command said: as much goes into the failure. */
const LAST_LINES = 10;
const LAST_CHARS = 1_000;
/** How long a sandbox that runs its start command anew may take to be up. */
const START_BOUND_MS = 60_000;

export type Told = {
  readonly shell: string;
  readonly signal: AbortSignal;
  readonly boundMs: number;
  readonly onLine?: (kind: "stdout" | "stderr", line: string) => void;
};

type Ended = { readonly code: number; readonly atMs: number } | { readonly error: unknown };

/** Returns when it is up; the command goes on inside. @throws when it ends with an error first, or is not up in time. */
export async function startUp(guest: Guest, startup: Partial<Startup>, { env, user, workdir }: Surroundings, told: Told): Promise<void> {
  const over = new AbortController();
  const failed = new AbortController();
  const signal = AbortSignal.any([told.signal, over.signal]);
  const deadline = performance.now() + told.boundMs;
  const command = { cmd: told.shell, user, env, cwd: workdir, signal };
  const { startCmd, readyCmd } = startup;
  const said: string[] = [];
  let ended: Ended | undefined;
  if (startCmd !== undefined) {
    const onLine = (kind: "stdout" | "stderr", line: string) => {
      said.push(line);
      if (said.length > LAST_LINES) said.shift();
      told.onLine?.(kind, line);
    };
    // No limit in time: the process outlives this connection, and the checkpoint.
    guest
      .run({ ...command, args: ["-c", startCmd], onLine })
      .then(
        (code): Ended => ({ code, atMs: performance.now() }),
        (error: unknown): Ended => ({ error }),
      )
      .then((end) => {
        if (over.signal.aborted) return;
        ended = end;
        // A ready command that waits by itself would wait in vain.
        if (!("code" in end) || end.code !== 0) failed.abort();
      });
  }
  const words = () => (said.length === 0 ? "; it said nothing" : `; its last words: ${said.join("\n").slice(-LAST_CHARS)}`);
  try {
    const settled = performance.now() + SETTLE_MS;
    for (let pollMs = FIRST_POLL_MS; ; pollMs = Math.min(pollMs * 1.5, LONGEST_POLL_MS)) {
      told.signal.throwIfAborted();
      const now = ended as Ended | undefined;
      if (now !== undefined && "error" in now) throw now.error;
      if (now !== undefined && now.code !== 0) fail("INVALID_REQUEST", `the start command ended with exit code ${now.code}: ${startCmd}${words()}`);
      if (readyCmd === undefined) {
        if (startCmd === undefined || now !== undefined || performance.now() > settled) return;
      } else {
        const code = await guest
          .run({
            ...command,
            signal: AbortSignal.any([signal, failed.signal]),
            args: ["-c", readyCmd],
            timeoutMs: Math.min(READY_COMMAND_MS, Math.max(1, deadline - performance.now())),
          })
          .catch((error: unknown) => {
            if (failed.signal.aborted || (error instanceof Failure && error.name === "TIMED_OUT")) return -1;
            throw error;
          });
        if (code === 0) return;
        if (failed.signal.aborted) continue;
        if (now !== undefined && performance.now() > now.atMs + READY_AFTER_EXIT_MS) {
          fail(
            "INVALID_REQUEST",
            `the start command ended with exit code 0 and ${READY_AFTER_EXIT_MS / 1000} s later the ready command had not succeeded: ${readyCmd}${words()}`,
          );
        }
      }
      if (performance.now() > deadline) fail("TIMED_OUT", `the ready command had not succeeded after ${Math.round(told.boundMs / 1000)} s: ${readyCmd}`);
      await new Promise((resolve) => setTimeout(resolve, pollMs));
    }
  } finally {
    over.abort();
  }
}

/**
 * For the node, where a template has a start command and its driver cannot keep memory: called after each start.
 * @throws SANDBOX_START_FAILED with what went wrong.
 */
export async function runStartup(handle: RuntimeHandle, runtime: Runtime, startup: Startup, surroundings: Surroundings): Promise<void> {
  const signal = new AbortController().signal;
  try {
    const guest = openGuest(handle, runtime);
    const bash = await guest.run({ cmd: "/bin/sh", args: ["-c", "test -x /bin/bash"], user: surroundings.user, timeoutMs: START_BOUND_MS, signal });
    await startUp(guest, startup, surroundings, { shell: bash === 0 ? "/bin/bash" : "/bin/sh", signal, boundMs: START_BOUND_MS });
  } catch (cause) {
    throw new Failure("SANDBOX_START_FAILED", `the template's start command: ${(cause as Error).message}`, { cause });
  }
}
