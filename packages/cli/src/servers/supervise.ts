// Keeps one server running: starts it as a child, waits for its ready line, and restarts it when it crashes.
import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, fstatSync, openSync, readFileSync, renameSync, statSync } from "node:fs";
import { copyFile, rm, stat, truncate } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Failure } from "@svc/contract/failures.ts";
import { type ProcessName, startTicksOf, type UpServer } from "../access/up-state.ts";
import { EXIT_USAGE } from "../output/complain.ts";
import { canBeLeftOut, slugOf } from "./programs.ts";
import type { ChosenServer } from "./up-flags.ts";

const READY_BOUND_MS = 120_000;
/** Longer than the 10 s in which a server stops by itself. */
const STOP_BOUND_MS = 11_000;
const FIRST_BACKOFF_MS = 500;
const MAX_CRASHES_IN_A_ROW = 6;
const SLOW_BACKOFF_MS = 15_000;
/** Once a server has run this long, its earlier crashes no longer count. */
const STEADY_MS = 60_000;
const MAX_LOG_BYTES = 64 * 1024 * 1024;
const LOG_CHECK_MS = 30_000;
const HEALTH_MS = 2_000;
const HEALTH_EACH_MS = 100;
const SHOWN_LOG_LINES = 15;
const SHOWN_LOG_BYTES = 64 * 1024;

/** `folder`: the home of all servers, with the logs; `portAdvice`: what to do when its port is taken. */
export type ServerSpec = ChosenServer & { readonly folder: string };

export type Watcher = {
  /** Its process exists, but does not accept requests yet. */
  spawned(name: string, process: ProcessName): void;
  /** It accepts requests: after its first start and after each restart. */
  ready(server: UpServer): void;
  restarting(name: string, why: string, delayMs: number): void;
  /** It crashed many times in a row, and is restarted more slowly from now on. */
  slowed(name: string, why: string): void;
};

/** Marks the failure of a server that the others can run without. */
export const mayFollowLater = { mayFollowLater: 1 } as const;

export class Supervised {
  readonly #spec: ServerSpec;
  readonly #watcher: Watcher;
  #child: ChildProcess | undefined;
  #log: Log | undefined;
  #isStopping = false;
  #isReady = false;
  #crashes = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(spec: ServerSpec, watcher: Watcher) {
    this.#spec = spec;
    this.#watcher = watcher;
  }

  /** true for a program that is not a server of svc's but that they need. */
  get isForeign(): boolean {
    return this.#spec.program !== undefined;
  }

  /** true if the other servers are useless without it. */
  get isNeeded(): boolean {
    return this.#spec.name === "node" || !canBeLeftOut(this.#spec.name);
  }

  get isReady(): boolean {
    return this.#isReady;
  }

  /** Resolves when the server accepts requests; fails with its last log lines if it ends before that. */
  async start(): Promise<void> {
    const { name, argv, folder, home = folder, command: verb = name.split(" "), program } = this.#spec;
    const log = openLog(join(folder, "logs", `${slugOf(name)}.log`));
    this.#log = log;
    const main = fileURLToPath(new URL("../main.ts", import.meta.url));
    const own = { command: process.execPath, args: [...process.execArgv, main, ...verb, "--home", home, ...argv] };
    const { command, args } = program ?? own;
    const child = spawn(command, args, {
      stdio: ["ignore", "pipe", log.fd],
      env: { ...process.env, ...this.#spec.env, SVC_HOME: home },
      // The child has its own process group, so that Ctrl-C reaches it only through us: it gets one signal, not two.
      detached: true,
    });
    closeSync(log.fd);
    this.#child = child;
    if (child.pid !== undefined) this.#watcher.spawned(name, { pid: child.pid, startTicks: startTicksOf(child.pid) ?? 0 });
    const url = await this.#readyURL(child);
    const startedAt = Date.now();
    const rotating = setInterval(() => void rotateLog(log).catch(() => {}), LOG_CHECK_MS).unref();
    child.once("exit", () => clearInterval(rotating));
    child.once("exit", (code, signal) => this.#onExit(startedAt, `ended with ${code === null ? signal : `code ${code}`}`));
    const pid = child.pid ?? 0;
    this.#isReady = true;
    this.#watcher.ready({ name, pid, startTicks: startTicksOf(pid) ?? 0, url: url.replace("//0.0.0.0:", "//localhost:").replace("//[::]:", "//localhost:") });
    if (child.exitCode !== null || child.signalCode !== null) this.#onExit(startedAt, "ended at once");
  }

  /** Retries after a failed start, more slowly each time. */
  startLater(why: string): void {
    this.#crashes = MAX_CRASHES_IN_A_ROW - 1;
    this.#onExit(Date.now(), why);
  }

  /** Sends SIGTERM, then SIGKILL after the time limit; resolves when the process is gone. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    clearTimeout(this.#timer);
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
    child.kill("SIGTERM");
    const hard = setTimeout(() => child.kill("SIGKILL"), STOP_BOUND_MS);
    await gone;
    clearTimeout(hard);
  }

  #readyURL(child: ChildProcess): Promise<string> {
    const { name, program } = this.#spec;
    return new Promise((resolve, reject) => {
      let seen = "";
      const settle = (act: () => void) => {
        clearTimeout(timer);
        child.off("exit", onExit);
        act();
      };
      const refuse = (why: string, mayFollow = true) =>
        reject(new Failure("INTERNAL", `${name} ${why}`, { details: mayFollow && !this.isNeeded ? mayFollowLater : {} }));
      const onExit = (code: number | null, signal: string | null) =>
        settle(() => {
          const port = this.#portInUse();
          const end = code === null ? signal : `exit code ${code}`;
          const how = canBeLeftOut(name) ? `${end}; --without ${slugOf(name)} leaves it out` : end;
          refuse(port === undefined ? `cannot start (${how}); ${this.#logTail()}` : `cannot start (${port})`, port === undefined && code !== EXIT_USAGE);
        });
      const timer = setTimeout(
        () =>
          settle(() => {
            child.kill("SIGKILL");
            refuse(`was not ready within ${READY_BOUND_MS / 1000} s; ${this.#logTail()}`);
          }),
        READY_BOUND_MS,
      );
      child.once("exit", onExit);
      child.once("error", (error: NodeJS.ErrnoException) => {
        const missing = `${name} is not installed: apt-get install etcd-server, and start svc up again`;
        settle(() => reject(error.code === "ENOENT" && program !== undefined ? new Failure("HOST_UNSUITABLE", missing) : error));
      });
      if (program !== undefined) void this.#healthy(program.url, child).then(() => settle(() => resolve(program.url)));
      child.stdout?.setEncoding("utf8").on("data", (text: string) => {
        // The pipe is read after the ready line, too, since a full pipe would block the server.
        if (seen.length > SHOWN_LOG_BYTES) return;
        seen += text;
        const url = / ready at (https?:\/\/\S+)\n/.exec(seen)?.[1];
        if (url !== undefined) settle(() => resolve(url));
      });
    });
  }

  async #healthy(url: string, child: ChildProcess): Promise<void> {
    while (child.exitCode === null && child.signalCode === null) {
      const answer = await fetch(`${url}/health`, { signal: AbortSignal.timeout(HEALTH_MS) }).catch(() => undefined);
      if (answer?.ok === true) return;
      await new Promise((resolve) => setTimeout(resolve, HEALTH_EACH_MS));
    }
    // The child has ended; its exit handler settles the promise.
    await new Promise(() => {});
  }

  #logTail(): string {
    return this.#log === undefined ? "no log" : `the last lines of ${this.#log.path}:\n${lastLines(this.#log)}`;
  }

  /** Names the occupied port, and how to do without it; undefined if that is not the cause. */
  #portInUse(): string | undefined {
    const lines = this.#log === undefined ? "" : lastLines(this.#log);
    if (!/EADDRINUSE|in use/.test(lines)) return undefined;
    const parts = lines.split("\n").flatMap((line) => (/EADDRINUSE|in use/.test(line) ? line.split(/[\s,;]+/) : []));
    const address = parts.map((word) => word.replace(/:$/, "")).find((word) => /^(\[[\da-fA-F:]+\]|[\w.-]+):\d{1,5}$/.test(word));
    return `${address === undefined ? "its port" : address} is in use: end what holds it, ${this.#spec.portAdvice}`;
  }

  #onExit(startedAt: number, why: string): void {
    if (this.#isStopping) return;
    this.#crashes = Date.now() - startedAt > STEADY_MS ? 1 : this.#crashes + 1;
    const { name } = this.#spec;
    const isSlow = this.#crashes >= MAX_CRASHES_IN_A_ROW;
    if (isSlow) this.#watcher.slowed(name, `${why}, ${this.#crashes} times in a row; ${this.#logTail()}`);
    const delayMs = isSlow ? SLOW_BACKOFF_MS : FIRST_BACKOFF_MS * 2 ** (this.#crashes - 1);
    this.#watcher.restarting(name, why, delayMs);
    this.#timer = setTimeout(() => {
      const again = Date.now();
      this.start().catch((error: Error) => this.#onExit(again, error.message.split("; the last lines")[0]?.replace(`${name} `, "") ?? "cannot start"));
    }, delayMs);
  }
}

export type Log = { readonly path: string; readonly fd: number; startBytes: number };

/** Opens a log for appending; if it is too long, it is first renamed to NAME.1, which replaces the previous one. */
export function openLog(path: string): Log {
  try {
    if (statSync(path).size > MAX_LOG_BYTES) renameSync(path, `${path}.1`);
  } catch {
    // There is no log yet.
  }
  const fd = openSync(path, "a", 0o600);
  return { path, fd, startBytes: fstatSync(fd).size };
}

/**
 * Rotates a log while its server writes to it: copies the content to NAME.1 and truncates the file. Both sides append, so that the server continues at the new
 * end. Lines written between the two steps are lost; if the copy does not fit on the disk, the whole content is.
 */
export async function rotateLog(log: Log, maxBytes = MAX_LOG_BYTES): Promise<void> {
  if ((await stat(log.path)).size <= maxBytes) return;
  await copyFile(log.path, `${log.path}.1`).catch(() => rm(`${log.path}.1`, { force: true }));
  await truncate(log.path);
  log.startBytes = 0;
}

/** Returns the last lines that were written since the log was opened. */
export function lastLines({ path, startBytes }: Log): string {
  try {
    return readFileSync(path)
      .subarray(startBytes)
      .toString("utf8")
      .slice(-SHOWN_LOG_BYTES)
      .trimEnd()
      .split("\n")
      .slice(-SHOWN_LOG_LINES)
      .map(readable)
      .join("\n");
  } catch (error) {
    return `(no log: ${(error as Error).message})`;
  }
}

/** Formats a JSON line for people. */
function readable(line: string): string {
  try {
    const { level, time, msg, err, ...rest } = JSON.parse(line) as Record<string, unknown>;
    const more = Object.entries(rest).filter(([key]) => !["pid", "hostname", "server", "name"].includes(key));
    const cause = (err as { message?: string } | undefined)?.message;
    return `  ${time} ${level} ${msg}${cause === undefined ? "" : `: ${cause}`}${more.length === 0 ? "" : ` ${JSON.stringify(Object.fromEntries(more))}`}`;
  } catch {
    return `  ${line}`;
  }
}
