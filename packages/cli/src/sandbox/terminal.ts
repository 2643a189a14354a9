// Connects this terminal to one in a sandbox: raw keys in, screen out, size changes, and a key to detach.
import { spawnSync } from "node:child_process";
import { constants } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import type { EnvdClient, TerminalSize } from "@svc/contract/envd.ts";
import { Failure } from "@svc/contract/failures.ts";
import { type ProcessEvent, shellExitCode } from "@svc/contract/process-event.ts";
import { UsageError } from "../output/complain.ts";
import { UnwrittenError, write } from "../output/write.ts";

export type TerminalOptions = {
  readonly envd: EnvdClient;
  readonly events: AsyncGenerator<ProcessEvent>;
  readonly user?: string | undefined;
  /** The byte that detaches; undefined if there is none. */
  readonly detachByte?: number | undefined;
  /** false: keys are not sent. */
  readonly sendsInput?: boolean;
  /** The process was already running, so it must be made to redraw its screen. */
  readonly redraws?: boolean;
};

export type TerminalEnd = { readonly exitCode: number; readonly isDetached: boolean };

/** The pause between two changes of a terminal's size, in which its program notices the first. */
const REDRAW_MS = 100;

/** A shell that does not read yet, or runs a program, misses a Ctrl-D, so it is repeated. */
const END_OF_INPUT_MS = 500;

const LEAVING = ["SIGTERM", "SIGHUP"] as const;

/** Runs until the process ends, the user detaches, or a signal arrives. Then the terminal is restored. */
export async function runTerminal(options: TerminalOptions): Promise<TerminalEnd> {
  const { envd, events, user, sendsInput = true } = options;
  let leave: (end: TerminalEnd) => void = () => {};
  const left = new Promise<TerminalEnd>((resolve) => {
    leave = resolve;
  });
  const leaveBySignal = (signal: NodeJS.Signals) => leave({ exitCode: 128 + constants.signals[signal], isDetached: true });
  using restore = new DisposableStack();
  if (sendsInput && process.stdin.isTTY) {
    process.stdin.setRawMode(true);
    // Node's raw mode still converts LF to CR LF, but full-screen programs use LF as "down". Leaving raw mode restores this setting.
    spawnSync("stty", ["-opost"], { stdio: ["inherit", "ignore", "ignore"] });
    const cooked = () => process.stdin.setRawMode(false);
    process.once("exit", cooked);
    restore.defer(() => {
      process.off("exit", cooked);
      cooked();
    });
  }
  for (const signal of LEAVING) process.on(signal, leaveBySignal);
  restore.defer(() => {
    for (const signal of LEAVING) process.off(signal, leaveBySignal);
    if (sendsInput) process.stdin.pause().removeAllListeners("data").unref?.();
  });

  async function showEvents(): Promise<TerminalEnd> {
    for await (const event of events) {
      if (event.type === "end") return { exitCode: shellExitCode(event), isDetached: false };
      if (event.type !== "start") await write(process.stdout, event.data);
      else {
        const { pid } = event;
        const resize = (size: TerminalSize) => envd.resize({ pid }, size, { user }).catch(() => {});
        const resized = () => void resize(terminalSize());
        process.stdout.on("resize", resized);
        restore.defer(() => process.stdout.off("resize", resized));
        if (options.redraws === true) {
          // Programs redraw when their size changes; setting the same size again would have no effect.
          const size = terminalSize();
          await resize({ cols: size.cols, rows: Math.max(1, size.rows - 1) });
          await delay(REDRAW_MS); // A program may see two changes in quick succession as none.
          await resize(size);
        }
        if (sendsInput) sendKeys(envd, pid, user, options.detachByte, leave, restore);
      }
    }
    throw new Failure("SERVER_UNREACHABLE", "the terminal's stream ended before its process did");
  }

  try {
    return await Promise.race([showEvents(), left]);
  } catch (error) {
    // The window was closed.
    if (error instanceof UnwrittenError) return { exitCode: 128 + constants.signals.SIGHUP, isDetached: true };
    throw error;
  } finally {
    void events.return(undefined).catch(() => {});
  }
}

/** Sends keys in the order typed; those typed during a request go into the next one. */
function sendKeys(
  envd: EnvdClient,
  pid: number,
  user: string | undefined,
  detachByte: number | undefined,
  leave: (end: TerminalEnd) => void,
  restore: DisposableStack,
): void {
  let waiting: Buffer[] = [];
  let isSending = false;
  const flush = async () => {
    if (isSending) return;
    isSending = true;
    while (waiting.length > 0) {
      const data = Buffer.concat(waiting);
      waiting = [];
      process.stdin.resume();
      // A process that has ended accepts no keys; its end event reports the end.
      await envd.sendInput({ pid }, "pty", data, { user }).catch(() => {});
    }
    isSending = false;
  };
  process.stdin.on("data", (chunk: Buffer) => {
    const at = detachByte === undefined ? -1 : chunk.indexOf(detachByte);
    if (at !== -1) return leave({ exitCode: 0, isDetached: true });
    waiting.push(chunk);
    // At most one request and one chunk are pending; further input stays in the terminal.
    if (isSending) process.stdin.pause();
    void flush();
  });
  process.stdin.once("end", () => {
    // Byte 4 (Ctrl-D) is what a terminal sends at the end of its input.
    const sendEnd = () => {
      waiting.push(Buffer.from([4]));
      void flush();
    };
    sendEnd();
    const repeated = setInterval(sendEnd, END_OF_INPUT_MS);
    restore.defer(() => clearInterval(repeated));
  });
}

export function terminalSize(): TerminalSize {
  return { cols: process.stdout.columns || 80, rows: process.stdout.rows || 24 };
}

/** This terminal's type, so that programs use the right escapes, and a character set that every image has. */
export function terminalEnvironment(): Record<string, string> {
  return { TERM: process.env["TERM"] ?? "xterm-256color", LANG: "C.UTF-8", LC_ALL: "C.UTF-8" };
}

/** Converts "ctrl-]" to 0x1d; "none" to undefined. */
export function detachByteOf(key: string): number | undefined {
  if (key === "none") return undefined;
  const symbol = /^(?:ctrl-|\^)([a-z@[\\\]^_])$/i.exec(key)?.[1];
  if (symbol === undefined) throw new UsageError(`--detach-key: expected ctrl- and a letter or one of @ [ \\ ] ^ _, or none; got ${JSON.stringify(key)}`);
  return symbol.toUpperCase().charCodeAt(0) & 0x1f;
}
