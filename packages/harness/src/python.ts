// Runs a Python unittest file with the unmodified E2B SDKs against a node or a gateway.
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { TestNode } from "./node.ts";

const BOUND_MS = 600_000;

/** Returns the exit code and the complete output. */
export async function runPython(
  at: Pick<TestNode, "url" | "apiKey">,
  file: URL,
  packages = process.env["SVC_PYTHON_CLIENTS"],
): Promise<{ code: number | null; said: string }> {
  const env = {
    ...process.env,
    PYTHONPATH: packages,
    E2B_API_URL: at.url,
    E2B_SANDBOX_URL: at.url,
    E2B_API_KEY: at.apiKey,
  };
  const child = spawn("python3", ["-W", "ignore", fileURLToPath(file)], { stdio: ["ignore", "pipe", "pipe"], env, timeout: BOUND_MS });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => void (said += chunk.toString()));
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  return { code, said };
}
