// The events of a process inside a sandbox (start, output, end), decoded from envd's stream messages.
import { Failure } from "./failures.ts";

export type ProcessEvent =
  | { readonly type: "start"; readonly pid: number }
  | { readonly type: "stdout" | "stderr" | "pty"; readonly data: Buffer }
  /** `exitCode` is -1 after a signal, and `status` then reads "signal: killed". */
  | { readonly type: "end"; readonly exitCode: number; readonly exited: boolean; readonly status: string; readonly error: string | undefined };

type Wire = {
  event?: {
    start?: { pid?: number };
    data?: { stdout?: string; stderr?: string; pty?: string };
    end?: { exitCode?: number; exit_code?: number; exited?: boolean; status?: string; error?: string };
    keepalive?: object;
  };
};

/** Decodes the event of a stream message; undefined for keepalives. */
export function processEventOf(message: Record<string, unknown>): ProcessEvent | undefined {
  const event = (message as Wire).event;
  if (event?.data !== undefined) {
    const { stdout, stderr, pty } = event.data;
    if (stdout !== undefined) return { type: "stdout", data: Buffer.from(stdout, "base64") };
    if (stderr !== undefined) return { type: "stderr", data: Buffer.from(stderr, "base64") };
    return pty === undefined ? undefined : { type: "pty", data: Buffer.from(pty, "base64") };
  }
  if (event?.start !== undefined) return { type: "start", pid: event.start.pid ?? 0 };
  if (event?.end !== undefined) {
    // proto3 JSON omits default values: an absent exitCode is 0.
    const { exitCode, exit_code, exited, status, error } = event.end;
    return { type: "end", exitCode: exitCode ?? exit_code ?? 0, exited: exited ?? false, status: status ?? "", error };
  }
  if (event?.keepalive !== undefined) return undefined;
  throw new Failure("INTERNAL", `envd sent an event this client does not know: ${JSON.stringify(message).slice(0, 200)}`);
}

const signalNumbers: Readonly<Record<string, number>> = {
  hangup: 1,
  interrupt: 2,
  quit: 3,
  "illegal instruction": 4,
  trap: 5,
  "trace/breakpoint trap": 5,
  aborted: 6,
  "bus error": 7,
  "floating point exception": 8,
  killed: 9,
  "user defined signal 1": 10,
  "segmentation fault": 11,
  "user defined signal 2": 12,
  "broken pipe": 13,
  "alarm clock": 14,
  terminated: 15,
};

/** Returns the exit code that a shell would show: the process's own, or 128 plus the number of the signal that ended it. */
export function shellExitCode(end: Extract<ProcessEvent, { type: "end" }>): number {
  if (end.exitCode >= 0 && (end.exited || end.exitCode !== 0 || !end.status.startsWith("signal"))) return end.exitCode;
  const signal = /signal: ([^(]+?)(?: \(core dumped\))?$/.exec(end.status)?.[1];
  const number = signal === undefined ? undefined : (signalNumbers[signal] ?? Number(/^signal (\d+)$/.exec(signal)?.[1]));
  return number === undefined || Number.isNaN(number) ? 1 : 128 + number;
}
