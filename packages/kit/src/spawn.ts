// Runs programs through one small forked helper: fork() of a large parent would block its event loop.
import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { diskFull, Failure, fail, isDiskFull } from "@svc/contract/failures.ts";

export type RunOptions = {
  /** The whole environment; default: the helper's own, programEnvironment. */
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Written to stdin, which is then closed. */
  readonly input?: string;
  /** After this the program is killed and the call fails with TIMED_OUT. */
  readonly timeoutMs?: number;
  /** Files for the program's stdout and stderr: for programs whose children outlive them (a pipe would never end). */
  readonly outputFile?: string;
  /** Running it twice, even at the same time, does what running it once does: it is run again when the helper died under it. */
  readonly repeatable?: boolean;
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
const MAX_ATTEMPTS = 3;
/** What programs need of a server's environment. The rest may hold secrets (SVC_API_KEY), and some programs serve code of strangers. */
const passedOn = /^(PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|XDG_RUNTIME_DIR|DBUS_SESSION_BUS_ADDRESS)$/;

export interface Spawner {
  /** The program's exit and output, whatever its code. */
  run(argv: readonly string[], options?: RunOptions): Promise<RunResult>;
  /** Stdout of a program that must exit 0; else INTERNAL, or DISK_FULL, with the command and its last words. */
  check(argv: readonly string[], options?: RunOptions): Promise<string>;
  [Symbol.asyncDispose](): Promise<void>;
}

type Call = {
  readonly request: HelperRequest;
  readonly done: (reply: HelperReply) => void;
  attempts: number;
  taken: boolean;
  helper: ChildProcess | undefined;
};

/**
 * Starts the helper; one per server. When it dies, calls that may be repeated, or that had not reached it, go to the next one;
 * the others fail, since nobody knows what became of their programs.
 */
export function openSpawner(): Spawner {
  // I28
  let child: ChildProcess | undefined;
  let nextID = 1;
  let closed = false;
  const waiting = new Map<number, Call>();

  function helper(): ChildProcess {
    if (child?.connected) return child;
    const started = fork(fileURLToPath(new URL("./spawn-helper.ts", import.meta.url)), {
      stdio: ["ignore", "inherit", "inherit", "ipc"],
      serialization: "advanced",
      execArgv: ["--disable-warning=ExperimentalWarning"],
      env: programEnvironment(),
      // Its own group: a Ctrl-C on the terminal must not end it before the server has drained.
      detached: true,
    });
    started.on("message", (reply: HelperReply) => {
      waiting.get(reply.id)?.done(reply);
      waiting.delete(reply.id);
      if (waiting.size === 0) idle(started, true);
    });
    // Without a listener a failed fork, say for want of processes, would end the server.
    started.once("error", (error) => lost(started, `the spawn helper cannot be started: ${error.message}`));
    started.once("exit", () => {
      endGroup(started.pid);
      lost(started, "the spawn helper ended");
    });
    started.unref();
    child = started;
    return started;
  }

  /** Once per helper, whichever of its events comes first. */
  function lost(gone: ChildProcess, why: string): void {
    // Its channel closes before it exits: by now another may stand in its place, and these calls are still its own.
    if (child === gone) child = undefined;
    for (const [id, call] of waiting) {
      if (call.helper !== gone) continue;
      const { repeatable = false } = call.request.options;
      if ((repeatable || !call.taken) && call.attempts < MAX_ATTEMPTS && !closed) send(call);
      else {
        waiting.delete(id);
        call.done({ id, error: why });
      }
    }
  }

  function send(call: Call): void {
    const target = helper();
    call.attempts++;
    call.helper = target;
    call.taken = false;
    idle(target, false);
    target.send(call.request, (error) => {
      // Where it was not sent, the helper's end is about to be told.
      if (error === null && call.helper === target) call.taken = true;
    });
  }

  async function run(argv: readonly string[], options: RunOptions = {}): Promise<RunResult> {
    if (waiting.size >= MAX_IN_FLIGHT) fail("TOO_MANY_REQUESTS", `${MAX_IN_FLIGHT} programs are already running, the maximum`);
    const timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    const id = nextID++;
    const reply = await new Promise<HelperReply>((done) => {
      const call: Call = { request: { id, argv, options: { ...options, timeoutMs } }, done, attempts: 0, taken: false, helper: undefined };
      waiting.set(id, call);
      send(call);
    });
    if (reply.timedOut === true) fail("TIMED_OUT", `${argv.join(" ")}: not finished within ${timeoutMs} ms`);
    if (reply.result === undefined) throw new Failure("INTERNAL", `${argv[0]}: ${reply.error ?? "no answer"}`);
    return reply.result;
  }

  return {
    run,
    async check(argv, options) {
      const result = await run(argv, options);
      if (result.code !== 0) {
        const last = (result.stderr.trim() || result.stdout.trim()).slice(-2000);
        const failed = new Failure("INTERNAL", `${argv.join(" ")}: ended with ${result.code ?? result.signal}: ${last}`);
        throw isDiskFull(failed) ? diskFull(failed) : failed;
      }
      return result.stdout;
    },
    async [Symbol.asyncDispose]() {
      closed = true;
      const ending = child;
      if (ending === undefined || ending.exitCode !== null) return;
      const ended = new Promise<void>((resolve) => ending.once("exit", () => resolve()));
      ending.ref();
      ending.disconnect();
      await ended;
    },
  };
}

/** The environment of every program that a server starts. */
export function programEnvironment(): Record<string, string> {
  // I25
  return Object.fromEntries(Object.entries(process.env).flatMap(([name, value]) => (value !== undefined && passedOn.test(name) ? [[name, value]] : [])));
}

/** What the helper ran is of its group, and would go on unseen beside what is run next; what shall outlive it has a session of its own. */
function endGroup(pid: number | undefined): void {
  try {
    if (pid !== undefined) process.kill(-pid, "SIGKILL");
  } catch {
    // nothing was left of it
  }
}

/** An idle helper must not keep the process alive; a busy one must. */
function idle(child: ChildProcess, yes: boolean): void {
  if (yes) child.channel?.unref?.();
  else child.channel?.ref?.();
}
