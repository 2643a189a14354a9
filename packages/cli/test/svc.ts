// Runs the `svc` command as a person would: in its own process, with its own home and configuration.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const mainFile = fileURLToPath(new URL("../src/main.ts", import.meta.url));
const BOUND_MS = 120_000;

export type Result = { code: number | null; signal: string | null; stdout: string; stderr: string };
export type RunOptions = { env?: Record<string, string>; input?: string | Buffer; cwd?: string };

export type Place = {
  readonly directory: string;
  readonly home: string;
  readonly credentials: string;
  /** The command's environment, without the tester's own settings. */
  env(more?: Record<string, string>): Record<string, string>;
  svc(args: readonly string[], options?: RunOptions): Promise<Result>;
  [Symbol.asyncDispose](): Promise<void>;
};

export function openPlace(): Place {
  const directory = mkdtempSync(join(tmpdir(), "svc-cli-"));
  const home = join(directory, "home");
  const env = (more: Record<string, string> = {}) => {
    const kept = Object.fromEntries(
      ["PATH", "HOME", "XDG_CACHE_HOME", "LANG"].flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name] as string]])),
    );
    return { ...kept, XDG_CONFIG_HOME: join(directory, "config"), SVC_HOME: home, ...more };
  };
  return {
    directory,
    home,
    credentials: join(directory, "config", "svc", "credentials"),
    env,
    async svc(args, options = {}) {
      const child = spawn(process.execPath, [mainFile, ...args], { env: env(options.env), cwd: options.cwd ?? directory, stdio: "pipe" });
      const timer = setTimeout(() => child.kill("SIGKILL"), BOUND_MS);
      const stdout: Buffer[] = [];
      const stderr: Buffer[] = [];
      child.stdout.on("data", (chunk: Buffer) => stdout.push(chunk));
      child.stderr.on("data", (chunk: Buffer) => stderr.push(chunk));
      child.stdin.on("error", () => {}).end(options.input ?? "");
      const [code, signal] = await new Promise<[number | null, string | null]>((resolve, reject) => {
        child.once("error", reject);
        child.once("close", (...end) => resolve(end));
      });
      clearTimeout(timer);
      return { code, signal, stdout: Buffer.concat(stdout).toString(), stderr: Buffer.concat(stderr).toString() };
    },
    async [Symbol.asyncDispose]() {
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
