// A real node with a real sandbox, and the `svc` command pointed at them, without a terminal and on one.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { type NodeOptions, startNode } from "@svc/harness/node.ts";
import { until } from "@svc/harness/until.ts";
import { mainFile, openPlace, type RunOptions } from "./svc.ts";

export type Live = Awaited<ReturnType<typeof openLive>>;

export async function openLive(options: NodeOptions = {}) {
  await using undo = new AsyncDisposableStack();
  const node = undo.use(await startNode(options));
  const place = undo.use(openPlace());
  const env = { SDK_API_KEY: node.apiKey, SVC_URL: node.url };
  const svc = (args: readonly string[], more: RunOptions = {}) => place.svc(args, { ...more, env: { ...env, ...more.env } });
  const started = await svc(["start", "base", "-d", "--timeout", "3600"]);
  assert.equal(started.code, 0, started.stderr);
  const owned = undo.move();
  return {
    node,
    place,
    svc,
    sandboxID: started.stdout.trim(),
    /** Starts the command without waiting for its end. */
    spawn(args: readonly string[]) {
      const child = spawn(process.execPath, [mainFile, ...args], { env: place.env(env), cwd: place.directory, stdio: "pipe" });
      child.stdin.on("error", () => {}); // The command may end before it has read everything.
      return child;
    },
    terminal: (args: readonly string[]) => openTerminal(args, place.env({ ...env, TERM: "xterm-256color" }), place.directory),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

const ptyFile = fileURLToPath(new URL("./on-terminal.py", import.meta.url));

/** Runs the command on a terminal of 30 rows and 100 columns. */
export function openTerminal(args: readonly string[], env: Record<string, string>, cwd: string) {
  const child = spawn("python3", [ptyFile, process.execPath, mainFile, ...args], { env, cwd, stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.on("error", () => {}); // The command may end before it has read everything.
  let screen = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    screen += text;
  });
  const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
  const seen = (text: string) => {
    if (screen.includes(text)) return true;
    if (child.exitCode !== null) throw new Error(`${JSON.stringify(text)} was not on the terminal when it ended with ${child.exitCode}`);
    return undefined;
  };
  return {
    type: (keys: string) => child.stdin.write(keys),
    /** Waits for the text, and drops the screen's content up to its end. */
    async sees(text: string): Promise<void> {
      await until(`${JSON.stringify(text)} on the terminal of svc ${args.join(" ")}`, () => seen(text)).catch((error: Error) => {
        throw new Error(`${error.message}; it shows ${JSON.stringify(screen.slice(-1000))}`);
      });
      screen = screen.slice(screen.indexOf(text) + text.length);
    },
    grow: () => child.kill("SIGUSR1"),
    /** Returns the screen's content at the end, and the exit code. */
    async end(): Promise<{ code: number | null; screen: string }> {
      return { code: await ended, screen };
    },
    [Symbol.dispose]() {
      child.kill("SIGKILL");
    },
  };
}
