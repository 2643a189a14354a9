// Runs programs through a small helper process, because fork() of a large parent would block its event loop.
import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { diskFull, Failure, fail, isDiskFull } from "@svc/contract/failures.ts";

export type RunOptions = {
  /** The complete environment; by default the helper's own, see programEnvironment. */
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Text for stdin, which is then closed. */
  readonly input?: string;
  /** After this time the program is killed and the call fails with TIMED_OUT. */
  readonly timeoutMs?: number;
  /** A file for stdout and stderr: needed for programs whose children outlive them, because those would keep a pipe open. */
  readonly outputFile?: string;
  /** True if running the program twice, even concurrently, has the effect of running it once. It is then retried if the helper dies. */
  readonly repeatable?: boolean;
};

export type RunResult = {
  readonly code: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
};

/** The messages to the helper and its replies; see spawn-helper.ts. */
export type HelperRequest = { id: number; argv: readonly string[]; options: RunOptions & { timeoutMs: number } };
export type HelperReply = { id: number; result?: RunResult; timedOut?: boolean; error?: string };

const DEFAULT_TIMEOUT_MS = 60_000;
const MAX_IN_FLIGHT = 1024;
const MAX_ATTEMPTS = 3;
/** The variables that programs need. Others may hold secrets (SVC_API_KEY), and some programs run code of strangers. */
const passedOn = /^(PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|XDG_RUNTIME_DIR|DBUS_SESSION_BUS_ADDRESS)$/;

export interface Spawner {
  /** Returns the program's exit code and output; a nonzero code is not a failure. */
  run(argv: readonly string[], options?: RunOptions): Promise<RunResult>;
  /**
   * Returns the stdout of a program that must exit with 0. Otherwise it throws INTERNAL or DISK_FULL, with the command and the end of its
   * output.
   */
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
 * Starts the helper; one per server. If it dies, calls that are repeatable or had not reached it move to the next helper. The others fail,
 * because the state of their programs is unknown.
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
      // The helper has its own process group, so that Ctrl-C on the terminal does not end it before the server has drained.
      detached: true,
    });
    started.on("message", (reply: HelperReply) => {
      waiting.get(reply.id)?.done(reply);
      waiting.delete(reply.id);
      if (waiting.size === 0) idle(started, true);
    });
    // Without this listener a failed fork, for example at the process limit, would crash the server.
    started.once("error", (error) => lost(started, `the spawn helper cannot be started: ${error.message}`));
    started.once("exit", () => {
      endGroup(started.pid);
      lost(started, "the spawn helper ended");
    });
    started.unref();
    child = started;
    return started;
  }

  /** Fails or resends the calls of a helper that ended. Several events call this; only the first has calls left to handle. */
  function lost(gone: ChildProcess, why: string): void {
    // The channel closes before the process exits, so another helper may already be in use; only the calls of the lost one are handled
    // here.
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
      // If sending failed, the helper's exit event follows and handles the call.
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

/**
 * Kills the programs that the helper started, since they share its group and would otherwise continue unseen. A program that must survive
 * has its own session.
 */
function endGroup(pid: number | undefined): void {
  try {
    if (pid !== undefined) process.kill(-pid, "SIGKILL");
  } catch {
    // The group was already empty.
  }
}

/** Only a busy helper may keep the server's process alive. */
function idle(child: ChildProcess, yes: boolean): void {
  if (yes) child.channel?.unref?.();
  else child.channel?.ref?.();
}
