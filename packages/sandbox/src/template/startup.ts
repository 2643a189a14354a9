// A template's start command: it runs in the background until its ready command succeeds.
import { Failure, fail } from "@svc/contract/failures.ts";
import { type Guest, openGuest } from "../agent/guest.ts";
import type { Runtime, RuntimeHandle } from "../runtime/runtime.ts";
import type { Startup, Surroundings } from "./build-record.ts";

/** Without a ready command, a start command counts as ready after this time, or once it has ended with 0. */
const SETTLE_MS = 20_000;
const FIRST_POLL_MS = 50;
const LONGEST_POLL_MS = 2_000;
/** The bound for one run of a ready command; clients send `sleep 20`, for example. */
const READY_COMMAND_MS = 120_000;
/** A start command that has ended may have started a program in the background, which then has this long to be ready. */
const READY_AFTER_EXIT_MS = 30_000;
/** Bounds the output of a start command that a failure quotes. */
const LAST_LINES = 10;
const LAST_CHARS = 1_000;
/** The bound for a sandbox that runs its start command itself to become ready. */
const START_BOUND_MS = 60_000;

export type StartUpOptions = {
  readonly shell: string;
  readonly signal: AbortSignal;
  readonly boundMs: number;
  readonly onLine?: (kind: "stdout" | "stderr", line: string) => void;
};

type Ended = { readonly code: number; readonly atMs: number } | { readonly error: unknown };

/** Returns when it is ready; the command continues inside. @throws if it ends with an error first, or is not ready in time. */
export async function startUp(guest: Guest, startup: Partial<Startup>, { env, user, workdir }: Surroundings, options: StartUpOptions): Promise<void> {
  const over = new AbortController();
  const failed = new AbortController();
  const signal = AbortSignal.any([options.signal, over.signal]);
  const deadline = performance.now() + options.boundMs;
  const command = { cmd: options.shell, user, env, cwd: workdir, signal };
  const { startCmd, readyCmd } = startup;
  const said: string[] = [];
  let ended: Ended | undefined;
  if (startCmd !== undefined) {
    const onLine = (kind: "stdout" | "stderr", line: string) => {
      said.push(line);
      if (said.length > LAST_LINES) said.shift();
      options.onLine?.(kind, line);
    };
    // There is no time limit, because the process outlives this connection and the checkpoint.
    guest
      .run({ ...command, args: ["-c", startCmd], onLine })
      .then(
        (code): Ended => ({ code, atMs: performance.now() }),
        (error: unknown): Ended => ({ error }),
      )
      .then((end) => {
        if (over.signal.aborted) return;
        ended = end;
        // Aborts a running ready command, which could wait forever for a failed start command.
        if (!("code" in end) || end.code !== 0) failed.abort();
      });
  }
  const lastOutput = () => (said.length === 0 ? "; it said nothing" : `; its last words: ${said.join("\n").slice(-LAST_CHARS)}`);
  try {
    const settled = performance.now() + SETTLE_MS;
    for (let pollMs = FIRST_POLL_MS; ; pollMs = Math.min(pollMs * 1.5, LONGEST_POLL_MS)) {
      options.signal.throwIfAborted();
      const now = ended as Ended | undefined;
      if (now !== undefined && "error" in now) throw now.error;
      if (now !== undefined && now.code !== 0) fail("INVALID_REQUEST", `the start command ended with exit code ${now.code}: ${startCmd}${lastOutput()}`);
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
            `the start command ended with exit code 0 and ${READY_AFTER_EXIT_MS / 1000} s later the ready command had not succeeded: ${readyCmd}${lastOutput()}`,
          );
        }
      }
      if (performance.now() > deadline) fail("TIMED_OUT", `the ready command had not succeeded after ${Math.round(options.boundMs / 1000)} s: ${readyCmd}`);
      await new Promise((resolve) => setTimeout(resolve, pollMs));
    }
  } finally {
    over.abort();
  }
}

/**
 * Called by the node after each start, if a template has a start command and its driver cannot keep memory.
 * @throws SANDBOX_START_FAILED with the reason.
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
