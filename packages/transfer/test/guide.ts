// Runs docs/transfer-engine.md: a code block with a file name becomes that file, and a bash block is a script.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
/** At least ten times what the longest block takes. */
const BOUND_MS = 15 * 60_000;

export type Guide = Disposable & {
  /** A copy of the tree's root by symbolic links, where commands may leave files. */
  readonly folder: string;
  readonly commands: readonly string[];
  /** Rejects with the complete output if a command fails. */
  run(commands: string, env?: NodeJS.ProcessEnv): Promise<string>;
};

export function openGuide(): Guide {
  const text = readFileSync(join(ROOT, "docs/transfer-engine.md"), "utf8");
  const folder = mkdtempSync(join(tmpdir(), "svc-test-"));
  for (const name of ["svc", "packages", "node_modules", "package.json", "tsconfig.json"]) symlinkSync(join(ROOT, name), join(folder, name));
  const commands: string[] = [];
  for (const [, language = "", file = "", body = ""] of text.matchAll(/^```(\w+)(?: (\S+))?\n(.*?)^```$/gms)) {
    if (language === "bash") commands.push(body);
    if (file === "") continue;
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    writeFileSync(join(folder, file), body);
  }
  return {
    folder,
    commands,
    run: (script, env = {}) => runScript(script, folder, env),
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  };
}

function runScript(script: string, cwd: string, env: NodeJS.ProcessEnv): Promise<string> {
  // The script has its own process group, so that background processes of a failed block end with it.
  const child = spawn("bash", ["-c", `set -euo pipefail\n${script}`], {
    cwd,
    env: { ...process.env, PATH: `${dirname(process.execPath)}:${process.env["PATH"]}`, ...env },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (chunk: string) => void (said += chunk));
  const end = () => {
    try {
      process.kill(-(child.pid ?? 0), "SIGKILL");
    } catch {
      // The group was already empty.
    }
  };
  const bound = setTimeout(end, BOUND_MS);
  return new Promise((resolve, reject) => {
    child.once("exit", (code) => {
      clearTimeout(bound);
      end();
      if (code === 0) resolve(said);
      else reject(new Error(`ended with ${code}:\n${script}\n${said.slice(-8000)}`));
    });
  });
}
