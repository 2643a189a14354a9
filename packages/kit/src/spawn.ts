// Runs programs through one small forked helper: fork() of a large parent would block its event loop.
import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { Failure, fail } from "@svc/contract/failures.ts";

export type RunOptions = {
  /** The whole environment; default: the helper's own. */
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Written to stdin, which is then closed. */
  readonly input?: string;
  /** After this the program is killed and the call fails with TIMED_OUT. */
  readonly timeoutMs?: number;
  /** Files for the program's stdout and stderr: for programs whose children outlive them (a pipe would never end). */
  readonly outputFile?: string;
};

export type RunResult = {
  readonly code: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
};

/** What the helper is told, and answers; see spawn-helper.ts. */
export type HelperRequest = { id: number; argv: readonly string[]; options: RunOptions & { timeoutMs: number } };
export type HelperReply = { id: number; result?: RunResult; timedOut?: boolean; error?: string };

const DEFAULT_TIMEOUT_MS = 60_000;
const MAX_IN_FLIGHT = 1024;

export interface Spawner {
  /** The program's exit and output, whatever its code. */
  run(argv: readonly string[], options?: RunOptions): Promise<RunResult>;
  /** Stdout of a program that must exit 0; else INTERNAL with the command and its last words. */
  check(argv: readonly string[], options?: RunOptions): Promise<string>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Starts the helper; one per server. A helper that dies fails what was in flight and is started anew by the next call. */
export function openSpawner(): Spawner {
  let child: ChildProcess | undefined;
  let nextID = 1;
  const waiting = new Map<number, { resolve: (reply: HelperReply) => void }>();

  function helper(): ChildProcess {
    if (child?.connected) return child;
    const started = fork(fileURLToPath(new URL("./spawn-helper.ts", import.meta.url)), {
      stdio: ["ignore", "inherit", "inherit", "ipc"],
      serialization: "advanced",
      execArgv: ["--disable-warning=ExperimentalWarning"],
      // Its own group: a Ctrl-C on the terminal must not end it before the server has drained.
      detached: true,
    });
    started.on("message", (reply: HelperReply) => {
      waiting.get(reply.id)?.resolve(reply);
      waiting.delete(reply.id);
      if (waiting.size === 0) idle(started, true);
    });
    started.once("exit", () => {
      if (child === started) child = undefined;
      for (const [id, { resolve }] of waiting) resolve({ id, error: "the spawn helper ended" });
      waiting.clear();
    });
    started.unref();
    child = started;
    return started;
  }

  async function run(argv: readonly string[], options: RunOptions = {}): Promise<RunResult> {
    if (waiting.size >= MAX_IN_FLIGHT) fail("TOO_MANY_REQUESTS", `${MAX_IN_FLIGHT} programs are being run already`);
    const timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    const id = nextID++;
    const target = helper();
    idle(target, false);
    const reply = await new Promise<HelperReply>((resolve) => {
      waiting.set(id, { resolve });
      target.send({ id, argv, options: { ...options, timeoutMs } } satisfies HelperRequest, (error) => {
        if (error !== null && waiting.delete(id)) resolve({ id, error: `the spawn helper cannot be reached: ${error.message}` });
      });
    });
    if (reply.timedOut === true) fail("TIMED_OUT", `${argv.join(" ")}: no end within ${timeoutMs} ms`);
    if (reply.result === undefined) throw new Failure("INTERNAL", `${argv[0]}: ${reply.error ?? "no answer"}`);
    return reply.result;
  }

  return {
    run,
    async check(argv, options) {
      const result = await run(argv, options);
      if (result.code !== 0) {
        const last = (result.stderr.trim() || result.stdout.trim()).slice(-2000);
        throw new Failure("INTERNAL", `${argv.join(" ")}: ended with ${result.code ?? result.signal}: ${last}`);
      }
      return result.stdout;
    },
    async [Symbol.asyncDispose]() {
      const ending = child;
      child = undefined;
      if (ending === undefined || ending.exitCode !== null) return;
      const ended = new Promise<void>((resolve) => ending.once("exit", () => resolve()));
      ending.ref();
      ending.disconnect();
      await ended;
    },
  };
}

/** An idle helper must not keep the process alive; a busy one must. */
function idle(child: ChildProcess, yes: boolean): void {
  if (yes) child.channel?.unref?.();
  else child.channel?.ref?.();
}
