// A build's sandbox, spoken to through its envd: commands with their output line by line, and files sent in.
import { request } from "node:http";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { envelope, messagesOf } from "@svc/contract/connect-stream.ts";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import { processEventOf, shellExitCode } from "@svc/contract/process-event.ts";
import { envdOf } from "../runtime/ask-guest.ts";
import type { Runtime, RuntimeHandle } from "../runtime/runtime.ts";

export type Command = {
  readonly cmd: string;
  readonly args: readonly string[];
  /** By name or number. */
  readonly user: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string | undefined;
  /** envd ends the process after this, connected or not; absent: no limit. */
  readonly timeoutMs?: number;
  readonly signal: AbortSignal;
  readonly onLine?: (kind: "stdout" | "stderr", line: string) => void;
};

export interface Guest {
  /** The exit code a shell would show. @throws what envd says of user, program or folder; SANDBOX_NOT_RUNNING when the sandbox dies. */
  run(command: Command): Promise<number>;
  /** Writes a file as root. */
  upload(path: string, body: Readable, sizeBytes: number, signal: AbortSignal): Promise<void>;
}

/** A sandbox that dies says no goodbye on its connections. */
const ALIVE_CHECK_MS = 250;
/** A line that never ends is cut here. */
const MAX_LINE_CHARS = 64 * 1024;
const MAX_SENTENCE_CHARS = 1000;

export function openGuest(handle: RuntimeHandle, runtime: Pick<Runtime, "isAlive" | "deathReason">): Guest {
  const where = envdOf(handle);

  /** A signal that also goes off when the sandbox is gone. */
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
        const says = reason === "oom" ? "it ran out of memory; ask for more memoryMB" : "it crashed";
        throw new Failure("SANDBOX_NOT_RUNNING", `the build's sandbox ended: ${says}`, { cause: error });
      }
      throw asFailure(error);
    } finally {
      clearInterval(timer);
    }
  }

  async function* stream(path: string, headers: Record<string, string>, body: Buffer, signal: AbortSignal) {
    const response = await new Promise<import("node:http").IncomingMessage>((resolve, reject) => {
      const call = request(
        { ...where, method: "POST", path, headers: { ...headers, "content-length": String(body.length), connection: "close" }, signal },
        resolve,
      );
      call.once("error", reject);
      call.end(body);
    });
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
          "content-type": "application/connect+json",
          "connect-protocol-version": "1",
          ...(timeoutMs === undefined ? {} : { "connect-timeout-ms": String(Math.max(1, Math.ceil(timeoutMs))) }),
          authorization: `Basic ${Buffer.from(`${user}:`).toString("base64")}`,
        };
        const lines = { stdout: openLines((line) => onLine?.("stdout", line)), stderr: openLines((line) => onLine?.("stderr", line)) };
        let code: number | undefined;
        for await (const wire of stream("/process.Process/Start", headers, envelope(message), alive)) {
          const event = processEventOf(wire);
          if (event?.type === "stdout" || event?.type === "stderr") lines[event.type].push(event.data);
          if (event?.type === "end") code = shellExitCode(event);
        }
        lines.stdout.end();
        lines.stderr.end();
        return code ?? fail("INTERNAL", "envd did not tell the command's end");
      }),
    upload: (path, body, sizeBytes, signal) =>
      whileAlive(signal, async (alive) => {
        const query = new URLSearchParams({ path, username: "root" });
        const headers = { "content-type": "application/octet-stream", "content-length": String(sizeBytes), connection: "close" };
        const call = request({ ...where, method: "POST", path: `/files?${query}`, headers, signal: alive });
        const answered = new Promise<import("node:http").IncomingMessage>((resolve, reject) => call.once("response", resolve).once("error", reject));
        answered.catch(() => undefined);
        // An answer may come before the upload is through (507): it counts.
        await Promise.race([pipeline(body, call, { signal: alive }), answered]);
        const response = await answered;
        let said = "";
        for await (const chunk of response) {
          said += String(chunk);
          // What is inside could answer without end.
          if (said.length > MAX_SENTENCE_CHARS) break;
        }
        said = said.slice(0, MAX_SENTENCE_CHARS);
        if (response.statusCode === 507) fail("DISK_FULL", "the files do not fit on the build's disk; ask for more minFreeDiskMb");
        if (response.statusCode !== 200) fail("INTERNAL", `envd refused the files: HTTP ${response.statusCode} ${said}`);
      }),
  };
}

/** Cuts output into lines, whatever the chunks; a carriage return begins a progress bar anew, of which the last state counts. */
export function openLines(onLine: (line: string) => void): { push(chunk: Buffer): void; end(): void } {
  const decoder = new TextDecoder();
  let rest = "";
  const say = (line: string) => {
    const shown = line.replace(/\r+$/, "");
    onLine(shown.slice(shown.lastIndexOf("\r") + 1));
  };
  return {
    push(chunk) {
      const parts = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = parts.pop() ?? "";
      for (const part of parts) say(part);
      if (rest.length > MAX_LINE_CHARS) {
        say(rest);
        rest = "";
      }
    },
    end() {
      const last = rest + decoder.decode();
      if (last !== "") say(last);
      rest = "";
    },
  };
}
