// Shared by the proxy's benches: nginx and wrk, and the CPU time that one request costs a process.
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { cpuSeconds } from "./process-usage.ts";

const connections = 16;
const run = promisify(execFile);

/** Ends the bench with the packages to install if nginx or wrk is missing. */
export async function needPrograms(): Promise<void> {
  for (const [program, test] of [
    ["nginx", "-v"],
    ["wrk", "-v"],
  ] as const) {
    await run(program, [test]).catch((error: NodeJS.ErrnoException) => {
      // wrk exits with an error after it has printed its version.
      if (error.code !== "ENOENT") return;
      process.stderr.write(`bench proxy: needs ${program}; on Debian: apt-get install -y ${program === "nginx" ? "nginx-light" : program}\n`);
      process.exit(1);
    });
  }
}

/** Starts programs that end with the stack. */
export function starter(stack: AsyncDisposableStack): (command: string, args: readonly string[]) => ChildProcess {
  return (command, args) => {
    const started = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
    stack.defer(async () => {
      if (started.exitCode !== null) return;
      started.kill("SIGTERM");
      await once(started, "exit");
    });
    return started;
  };
}

/** The beginning of a configuration: one worker, its files in `home`. */
export const nginxBase = (home: string, name: string) =>
  `user root; daemon off; worker_processes 1; pid ${home}/${name}.pid; error_log ${home}/${name}.log; events { worker_connections 4096; }`;
export const nginxCommon = "access_log off; keepalive_requests 1000000000; client_max_body_size 0; sendfile on;";
export const nginxAnswer = 'return 200 "the quick brown fox jumps over the lazy dog\\n";';

/** Starts nginx and returns its worker's pid. */
export async function startNginx(start: ReturnType<typeof starter>, home: string, name: string, text: string): Promise<number> {
  const path = join(home, `${name}.conf`);
  writeFileSync(path, text);
  start("nginx", ["-c", path, "-p", home]);
  for (let tries = 0; tries < 100 && !existsSync(join(home, `${name}.pid`)); tries++) await sleep(50);
  await sleep(300);
  const master = readFileSync(join(home, `${name}.pid`), "utf8").trim();
  return Number(readFileSync(`/proc/${master}/task/${master}/children`, "utf8").trim().split(" ")[0]);
}

export type Load = { readonly name: string; readonly pid: number; readonly port: number; readonly headers: Readonly<Record<string, string>> };

/** Drives small requests for some seconds; returns the CPU microseconds of one, and how many were answered a second. @throws for any refusal. */
export async function drive({ pid, port, headers }: Load, seconds: number): Promise<{ microseconds: number; perSecond: number }> {
  const before = cpuSeconds(pid);
  const args = Object.entries(headers).flatMap(([name, value]) => ["-H", `${name}: ${value}`]);
  const { stdout } = await run("wrk", ["-t1", `-c${connections}`, `-d${seconds}s`, ...args, `http://127.0.0.1:${port}/process`]);
  const requests = Number(/(\d+) requests in/.exec(stdout)?.[1]);
  if (/Non-2xx/.test(stdout)) throw new Error(`not all requests succeeded: ${stdout}`);
  return { microseconds: ((cpuSeconds(pid) - before) * 1e6) / requests, perSecond: requests / seconds };
}
