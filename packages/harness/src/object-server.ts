// An S3-compatible server for a test, on loopback, which checks every signature and keeps its objects in memory.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { inside, type Namespace } from "./namespaces.ts";

export type ObjectServer = AsyncDisposable & {
  readonly endpoint: string;
  readonly bucket: string;
  /** The credentials for a client's environment. */
  readonly env: Readonly<Record<string, string>>;
};

const READY_MS = 30_000;

/** Needs object-server. The server ends with this process. */
export async function startObjectServer(namespace?: Namespace): Promise<ObjectServer> {
  const env = { AWS_ACCESS_KEY_ID: "test-key-id", AWS_SECRET_ACCESS_KEY: "test/secret+key" };
  const flags = ["-bucket", "test", "-listen", `${namespace?.host ?? "127.0.0.1"}:0`];
  const [program = "", ...args] = inside(namespace, [process.env["SVC_OBJECT_SERVER"] ?? "", ...flags]);
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "ignore"], env: { ...process.env, ...env } });
  const end = () => void child.kill("SIGKILL");
  process.once("exit", end);
  const [line] = (await once(createInterface(child.stdout), "line", { signal: AbortSignal.timeout(READY_MS) })) as [string];
  return {
    endpoint: line.replace("ready at ", ""),
    bucket: "test",
    env,
    async [Symbol.asyncDispose]() {
      process.off("exit", end);
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, "exit");
      end();
      await ended;
    },
  };
}
