// The node as a client of a sandbox's envd: runs commands with their output line by line, and uploads files.
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { envelope, messagesOf } from "@svc/contract/connect-stream.ts";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import { processEventOf, shellExitCode } from "@svc/contract/process-event.ts";
import type { Runtime, RuntimeHandle } from "../runtime/runtime.ts";
import { openPace } from "./pace.ts";
import { beginCall, requestAgent } from "./request.ts";

export type Command = {
  readonly cmd: string;
  readonly args: readonly string[];
  /** A user name or number. */
  readonly user: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string | undefined;
  /** envd kills the process after this time, connected or not; absent: no limit. */
  readonly timeoutMs?: number;
  readonly signal: AbortSignal;
  readonly onLine?: (kind: "stdout" | "stderr", line: string) => void;
};

export interface Guest {
  /** Returns the exit code that a shell would show. @throws envd's error about user, program or folder; SANDBOX_NOT_RUNNING when the sandbox dies. */
  run(command: Command): Promise<number>;
  /** Writes a file as root. */
  upload(path: string, body: Readable, sizeBytes: number, signal: AbortSignal): Promise<void>;
  /** Reads a file as root; the caller reads it to its end, or destroys it. */
  download(path: string, signal: AbortSignal): Promise<Readable>;
}

/** A dying sandbox does not close its connections, so its liveness is polled. */
const ALIVE_CHECK_MS = 250;
/** Longer lines are split here. */
const MAX_LINE_CHARS = 64 * 1024;
const MAX_SENTENCE_CHARS = 1000;
/** Bounds for the login shell that does nothing, and for its output. */
const WARM_MS = 5_000;
const MAX_WARM_BYTES = 64 * 1024;
const START_PROCESS = "/process.Process/Start";
const connectHeaders = { "content-type": "application/connect+json", "connect-protocol-version": "1" };

export function openGuest(handle: RuntimeHandle, runtime: Pick<Runtime, "isAlive" | "deathReason">): Guest {
  /** Runs `work` with a signal that also aborts when the sandbox dies. */
  async function whileAlive<T>(outer: AbortSignal, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    outer.throwIfAborted();
    const died = new AbortController();
    const timer = setInterval(() => {
      if (!runtime.isAlive(handle)) died.abort();
    }, ALIVE_CHECK_MS);
    try {
      return await work(AbortSignal.any([outer, died.signal]));
    } catch (error) {
      if (outer.aborted) throw outer.reason;
      if (died.signal.aborted || !runtime.isAlive(handle)) {
        const reason = await runtime.deathReason(handle).catch(() => "crashed" as const);
        const cause = reason === "oom" ? "it ran out of memory; ask for more memoryMB" : "it crashed";
        throw new Failure("SANDBOX_NOT_RUNNING", `the build's sandbox ended: ${cause}`, { cause: error });
      }
      throw asFailure(error);
    } finally {
      clearInterval(timer);
    }
  }

  async function* stream(path: string, headers: Record<string, string>, body: Buffer, signal: AbortSignal) {
    const { call, answered } = beginCall(handle, { method: "POST", path, headers: { ...headers, "content-length": String(body.length) }, signal });
    call.end(body);
    const response = await answered;
    try {
      if (response.statusCode !== 200) fail("INTERNAL", `envd answered HTTP ${response.statusCode}`);
      yield* messagesOf(response as AsyncIterable<Buffer>, path.slice(1));
    } finally {
      response.destroy();
    }
  }

  return {
    run: ({ cmd, args, user, env = {}, cwd, timeoutMs, signal, onLine }) =>
      whileAlive(signal, async (alive) => {
        const message = { process: { cmd, args, envs: env, ...(cwd === undefined ? {} : { cwd }) }, stdin: false };
        const headers = {
          ...connectHeaders,
          ...(timeoutMs === undefined ? {} : { "connect-timeout-ms": String(Math.max(1, Math.ceil(timeoutMs))) }),
          authorization: `Basic ${Buffer.from(`${user}:`).toString("base64")}`,
        };
        const lines = { stdout: openLines((line) => onLine?.("stdout", line)), stderr: openLines((line) => onLine?.("stderr", line)) };
        let code: number | undefined;
        const pace = openPace(performance.now());
        for await (const wire of stream(START_PROCESS, headers, envelope(message), alive)) {
          const event = processEventOf(wire);
          if (event?.type === "stdout" || event?.type === "stderr") {
            lines[event.type].push(event.data);
            const waitMs = pace(event.data.length, performance.now());
            if (waitMs > 0) await sleep(waitMs, undefined, { signal: alive });
          }
          if (event?.type === "end") code = shellExitCode(event);
        }
        lines.stdout.end();
        lines.stderr.end();
        return code ?? fail("INTERNAL", "envd did not report how the command ended");
      }),
    upload: (path, body, sizeBytes, signal) =>
      whileAlive(signal, async (alive) => {
        const query = new URLSearchParams({ path, username: "root" });
        const headers = { "content-type": "application/octet-stream", "content-length": String(sizeBytes) };
        const { call, answered } = beginCall(handle, { method: "POST", path: `/files?${query}`, headers, signal: alive });
        // envd may answer before the upload is complete (507); that answer counts.
        await Promise.race([pipeline(body, call, { signal: alive }), answered]);
        const response = await answered;
        let text = "";
        for await (const chunk of response) {
          text += String(chunk);
          // Code in the sandbox could send an endless body.
          if (text.length > MAX_SENTENCE_CHARS) break;
        }
        text = text.slice(0, MAX_SENTENCE_CHARS);
        if (response.statusCode === 507) fail("DISK_FULL", "the files do not fit on the build's disk; request more with minFreeDiskMb");
        if (response.statusCode !== 200) fail("INTERNAL", `envd refused the files: HTTP ${response.statusCode} ${text}`);
      }),
    async download(path, signal) {
      const query = new URLSearchParams({ path, username: "root" });
      const { call, answered } = beginCall(handle, { method: "GET", path: `/files?${query}`, signal });
      call.end();
      const response = await answered;
      if (response.statusCode === 200) return response;
      response.destroy();
      return fail("INTERNAL", `envd did not send a file: HTTP ${response.statusCode}`);
    },
  };
}

/**
 * Runs a login shell that does nothing, or the template's ready command, so that files, libraries and memory are cached before a client's first
 * command. Called only before the identity is sent, while envd requires no token. A failure is ignored: the sandbox works without it.
 */
export async function warmShell(handle: RuntimeHandle, readyCmd = "true"): Promise<void> {
  const headers = { ...connectHeaders, "connect-timeout-ms": String(WARM_MS) };
  const body = envelope({ process: { cmd: "/bin/bash", args: ["-l", "-c", readyCmd] }, stdin: false });
  await requestAgent(handle, { method: "POST", path: START_PROCESS, headers, body, boundMs: WARM_MS, maxBytes: MAX_WARM_BYTES }).catch(() => undefined);
}

/** Splits output into lines across chunks. After a carriage return, as in a progress bar, only the last part of the line counts. */
export function openLines(onLine: (line: string) => void): { push(chunk: Buffer): void; end(): void } {
  const decoder = new TextDecoder();
  let rest = "";
  const emit = (line: string) => {
    const shown = line.replace(/\r+$/, "");
    onLine(shown.slice(shown.lastIndexOf("\r") + 1));
  };
  return {
    push(chunk) {
      const parts = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = parts.pop() ?? "";
      for (const part of parts) emit(part);
      if (rest.length > MAX_LINE_CHARS) {
        emit(rest);
        rest = "";
      }
    },
    end() {
      const last = rest + decoder.decode();
      if (last !== "") emit(last);
      rest = "";
    },
  };
}
