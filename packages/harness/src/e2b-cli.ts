// Runs the unmodified E2B CLI against a node or a gateway.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import type { TestNode } from "./node.ts";

const BOUND_MS = 60_000;
const manifest = createRequire(import.meta.url).resolve("@e2b/cli/package.json");

/** Returns the output on stdout, and on both streams. `node` may also be a gateway. */
export async function e2b(node: Pick<TestNode, "url" | "apiKey" | "home">, ...args: string[]): Promise<{ code: number | null; out: string; said: string }> {
  const env = { ...process.env, E2B_API_URL: node.url, E2B_SANDBOX_URL: node.url, E2B_API_KEY: node.apiKey, HOME: node.home };
  const child = spawn(process.execPath, [join(dirname(manifest), "dist/index.js"), ...args], { env, stdio: ["ignore", "pipe", "pipe"], timeout: BOUND_MS });
  let out = "";
  let said = "";
  child.stdout.on("data", (chunk: Buffer) => void (out += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => void (said += chunk.toString()));
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  return { code, out, said: out + said };
}
