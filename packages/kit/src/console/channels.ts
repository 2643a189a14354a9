// The channels that a page opens over its socket: a terminal in a sandbox, and a sandbox's log as it grows.
import type { ConsoleLogEntry } from "@svc/contract/console.ts";
import type { EnvdClient, TerminalSize } from "@svc/contract/envd.ts";
import { asFailure, fail } from "@svc/contract/failures.ts";
import { type ProcessEvent, shellExitCode } from "@svc/contract/process-event.ts";
import type { Inside } from "./inside.ts";

export type Channel = {
  /** Resolves with the exit code of a program that ended; undefined if the page closed the channel. */
  readonly ended: Promise<number | undefined>;
  input?(bytes: Buffer): void;
  resize?(size: TerminalSize): void;
  close(): void;
};

const LOG_TAIL = 500;
const LOG_BATCH_MS = 100;
/** The pause between two changes of a terminal's size, in which its program notices the first. */
const REDRAW_MS = 100;

export type TerminalOptions = {
  readonly inside: Inside;
  readonly sandboxID: string;
  /** The name by which a page that comes back finds its shell. */
  readonly session: string;
  readonly size: TerminalSize;
  readonly onStarted: (pid: number) => void;
  readonly onBytes: (bytes: Buffer) => Promise<void>;
};

/** Opens a login shell, or attaches to the one of this session. The shell stays in the sandbox after the page has left. */
export function openTerminal({ inside, sandboxID, session, size, onStarted, onBytes }: TerminalOptions): Channel {
  const closing = new AbortController();
  let pid: number | undefined;
  let envd: EnvdClient | undefined;
  let waiting: Buffer[] = [];
  let isSending = false;

  /** Concurrent calls of sendInput may arrive in any order, so only one runs at a time; keys typed meanwhile go into the next one. */
  async function flush(): Promise<void> {
    if (isSending || envd === undefined || pid === undefined) return;
    isSending = true;
    while (waiting.length > 0) {
      const data = Buffer.concat(waiting);
      waiting = [];
      // A process that has ended accepts no keys; its end event reports the end.
      await envd.sendInput({ pid }, "pty", data).catch(() => {});
    }
    isSending = false;
  }

  async function run(): Promise<number | undefined> {
    if (!/^[A-Za-z0-9._-]{1,64}$/.test(session)) fail("INVALID_REQUEST", "session: expected 1 to 64 letters, digits, '.', '_' or '-'");
    const own = await inside.envd(sandboxID);
    envd = own;
    const tag = `svc-terminal-${session}`;
    const open = (await own.processes()).find((each) => each.tag === tag);
    const events = open === undefined ? startShell(own, tag, size, closing.signal) : own.connect({ pid: open.pid }, { signal: closing.signal });
    for await (const event of events) {
      if (event.type === "end") return shellExitCode(event);
      if (event.type !== "start") {
        await onBytes(event.data);
        continue;
      }
      ({ pid } = event);
      onStarted(pid);
      if (open !== undefined) await redraw(own, pid, size);
      void flush();
    }
    return undefined;
  }

  const ended = run().catch((error: unknown) => {
    if (closing.signal.aborted) return undefined;
    throw error;
  });
  return {
    ended,
    input(bytes) {
      waiting.push(bytes);
      void flush();
    },
    resize(next) {
      if (envd !== undefined && pid !== undefined) void envd.resize({ pid }, next).catch(() => {});
    },
    close: () => closing.abort(),
  };
}

/** Starts bash as a login shell, or sh if the image has no bash. */
async function* startShell(envd: EnvdClient, tag: string, pty: TerminalSize, signal: AbortSignal): AsyncGenerator<ProcessEvent> {
  const terminal = { envs: { TERM: "xterm-256color", LANG: "C.UTF-8" }, pty, tag, signal };
  let hasStarted = false;
  try {
    for await (const event of envd.start({ ...terminal, cmd: "/bin/bash", args: ["-i", "-l"] })) {
      hasStarted = true;
      yield event;
    }
  } catch (error) {
    const { name, message } = asFailure(error);
    const isMissing = name === "PROCESS_NOT_FOUND" || (name === "INVALID_REQUEST" && /no such file|not found/i.test(message));
    if (hasStarted || !isMissing) throw error;
    yield* envd.start({ ...terminal, cmd: "/bin/sh", args: ["-i", "-l"] });
  }
}

/** Programs redraw when their size changes; setting the same size again would have no effect. */
async function redraw(envd: EnvdClient, pid: number, size: TerminalSize): Promise<void> {
  await envd.resize({ pid }, { cols: size.cols, rows: Math.max(1, size.rows - 1) }).catch(() => {});
  await new Promise((resolve) => setTimeout(resolve, REDRAW_MS));
  await envd.resize({ pid }, size).catch(() => {});
}

export type LogOptions = { readonly inside: Inside; readonly sandboxID: string; readonly onEntries: (entries: readonly ConsoleLogEntry[]) => void };

export function openLogChannel({ inside, sandboxID, onEntries }: LogOptions): Channel {
  const closing = new AbortController();
  let waiting: ConsoleLogEntry[] = [];
  let timer: NodeJS.Timeout | undefined;
  const flush = () => {
    timer = undefined;
    if (waiting.length > 0) onEntries(waiting);
    waiting = [];
  };
  const ended = (async () => {
    for await (const entry of inside.client.logs(sandboxID, { tail: LOG_TAIL, follow: true, signal: closing.signal })) {
      waiting.push(entry);
      timer ??= setTimeout(flush, LOG_BATCH_MS);
    }
    return undefined;
  })().catch((error: unknown) => {
    if (closing.signal.aborted) return undefined;
    throw error;
  });
  return {
    ended: ended.finally(() => {
      clearTimeout(timer);
      flush();
    }),
    close: () => closing.abort(),
  };
}
