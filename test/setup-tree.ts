// A copy of the entry and its set-up scripts with a separate cache and home, for tests that break and remove things.
import { spawn } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { onPath } from "@svc/harness/needs.ts";

const root = join(import.meta.dirname, "..");
/** At least ten times what the slowest command of these tests takes. */
const LIMIT_MS = 120_000;

export type Run = { readonly code: number | string; readonly stdout: string; readonly stderr: string };
export type Running = { readonly done: Promise<Run>; readonly pid: number; readonly says: () => string };

export class SetupTree implements Disposable {
  /** The path contains a space, which every script must handle. */
  readonly folder = mkdtempSync(join(tmpdir(), "svc-test setup-"));
  readonly tree = join(this.folder, "tree");
  readonly cache = join(this.folder, "cache");
  readonly home = join(this.folder, "home");

  constructor() {
    for (const name of ["test", "packages"]) mkdirSync(join(this.tree, name), { recursive: true });
    for (const name of ["svc", "setup"]) cpSync(join(root, name), join(this.tree, name), { recursive: true });
  }

  start(args: readonly string[], env: Readonly<Record<string, string>> = {}): Running {
    const inherited = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(SVC|XDG)_/.test(name)));
    const child = spawn(join(this.tree, "svc"), args, {
      cwd: this.folder,
      env: { ...inherited, HOME: this.folder, SVC_CACHE: this.cache, SVC_HOME: this.home, ...env },
      stdio: ["ignore", "pipe", "pipe"],
      timeout: LIMIT_MS,
    });
    const { promise: done, resolve } = Promise.withResolvers<Run>();
    let stdout = "";
    let stderr = "";
    child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
      stdout += chunk;
    });
    child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
      stderr += chunk;
    });
    child.once("close", (code, signal) => resolve({ code: code ?? signal ?? "?", stdout, stderr }));
    return { done, pid: child.pid ?? 0, says: () => stderr };
  }

  run(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Run> {
    return this.start(args, env).done;
  }

  /** Returns a PATH with the programs of every system, and none that could install anything. */
  barePath(...without: readonly string[]): string {
    const bare = join(this.folder, `bin-${readdirSync(this.folder).length}`);
    mkdirSync(bare);
    const installers = ["apt-get", "apt-cache", "apt-config", "dpkg", "dpkg-query", "node", "npm", "npx", "pip", "pip3", "python", "python3", "go", ...without];
    for (const folder of (process.env["PATH"] ?? "").split(delimiter).filter((name) => /^\/(usr\/)?s?bin$/.test(name))) {
      for (const name of readdirSync(folder)) {
        if (installers.includes(name) || !/^[a-z[]/.test(name)) continue;
        try {
          symlinkSync(join(folder, name), join(bare, name));
        } catch {
          // /bin and /usr/bin are often the same folder.
        }
      }
    }
    return bare;
  }

  /** Sends SIGKILL to every process that works for this tree, identified by its environment. */
  killAll(): number {
    const ours = readdirSync("/proc").filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid && this.#owns(name));
    for (const pid of ours) {
      try {
        process.kill(Number(pid), "SIGKILL");
      } catch {
        // The process ended by itself.
      }
    }
    return ours.length;
  }

  #owns(pid: string): boolean {
    try {
      return readFileSync(`/proc/${pid}/environ`, "latin1").split("\0").includes(`SVC_CACHE=${this.cache}`);
    } catch {
      return false;
    }
  }

  /** Returns a Node that only prints its arguments. */
  echoNode(): string {
    const file = join(this.folder, "echo-node");
    writeFileSync(file, '#!/bin/sh\nprintf "%s\\n" "$@"\n', { mode: 0o755 });
    return file;
  }

  [Symbol.dispose](): void {
    this.killAll();
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 });
  }
}

export const hasBubblewrap = (): boolean => onPath("bwrap");

/** Creates a complete set of npm packages: one, in the version of the lock file. */
export function layModules(tree: SetupTree): void {
  const lock =
    '{\n  "packages": {\n    "node_modules/left": {\n      "version": "1.2.3"\n    },\n    "node_modules/far": {\n      "version": "1.0.0",\n      "optional": true\n    }\n  }\n}\n';
  writeFileSync(join(tree.tree, "package-lock.json"), lock);
  mkdirSync(join(tree.tree, "node_modules/left"), { recursive: true });
  writeFileSync(join(tree.tree, "node_modules/left/package.json"), '{\n  "name": "left",\n  "version": "1.2.3"\n}\n');
  writeFileSync(join(tree.tree, "node_modules/.package-lock.json"), "{}");
}
