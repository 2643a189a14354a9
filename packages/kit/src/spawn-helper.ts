// The small process that forks on behalf of a server; see spawn.ts. It ends when its parent does.
import { spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import type { HelperReply, HelperRequest, RunResult } from "./spawn.ts";

const MAX_OUTPUT_BYTES = 4 * 1024 * 1024;

process.on("message", (request: HelperRequest) => {
  run(request).then(reply, (error: unknown) => reply({ id: request.id, error: String(error) }));
});
// Kills the whole group: programs of a killed server must not run concurrently with those of the next one.
process.on("disconnect", () => process.kill(-process.pid, "SIGKILL"));
// The parent decides when to end; a signal to the whole group must not stop running steps half-way.
process.on("SIGINT", () => {});
process.on("SIGTERM", () => {});

function reply(message: HelperReply): void {
  if (process.connected) process.send?.(message);
}

function run({ id, argv, options }: HelperRequest): Promise<HelperReply> {
  return new Promise((resolve) => {
    const file = options.outputFile === undefined ? undefined : openSync(options.outputFile, "a", 0o600);
    const child = spawn(argv[0] ?? "", argv.slice(1), {
      stdio: [options.input === undefined ? "ignore" : "pipe", file ?? "pipe", file ?? "pipe"],
      ...(options.env === undefined ? {} : { env: options.env }),
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    });
    if (file !== undefined) closeSync(file);
    const stdout = collect(child.stdout);
    const stderr = collect(child.stderr);
    let timedOut = false;
    const timer = setTimeout(() => {
      timedOut = true;
      child.kill("SIGKILL");
    }, options.timeoutMs);
    child.once("error", (error) => {
      clearTimeout(timer);
      resolve({ id, error: error.message });
    });
    // With pipes we wait for "close", because "exit" may come before the last output has been read.
    child.once(file === undefined ? "close" : "exit", (code: number | null, signal: string | null) => {
      clearTimeout(timer);
      const result: RunResult = { code, signal, stdout: stdout(), stderr: stderr() };
      resolve(timedOut ? { id, timedOut } : { id, result });
    });
    if (options.input !== undefined) {
      child.stdin?.on("error", () => {}); // a program may exit without reading its input
      child.stdin?.end(options.input);
    }
  });
}

/** Keeps the first MAX_OUTPUT_BYTES and discards the rest, so that the program never blocks on a full pipe. */
function collect(stream: NodeJS.ReadableStream | null): () => string {
  const chunks: Buffer[] = [];
  let size = 0;
  stream?.on("data", (chunk: Buffer) => {
    if (size < MAX_OUTPUT_BYTES) chunks.push(chunk);
    size += chunk.length;
  });
  return () => Buffer.concat(chunks).toString("utf8");
}
