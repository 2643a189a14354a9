// Starts the metadata server in a process of its own for a test.
import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { freePorts } from "@svc/harness/ports.ts";

const MAIN = fileURLToPath(new URL("../src/metadata/main.ts", import.meta.url));
const START = `import(process.argv[1]).then(({ main }) => main(process.argv.slice(2))).then((code) => { process.exitCode = code; })`;

export type TestServer = {
  readonly url: string;
  readonly home: string;
  readonly pid: number;
  fetch(key: string, init?: RequestInit): Promise<Response>;
  kill(signal?: NodeJS.Signals): Promise<number | null>;
  start(): Promise<void>;
} & AsyncDisposable;

/** `diskHome` is a folder of the test, which is not deleted. */
export async function startMetadataServer(flags: readonly string[] = [], diskHome?: string): Promise<TestServer> {
  const home = diskHome ?? makeHome();
  let child: ChildProcess | undefined;
  // The port stays reserved while the server is down.
  const [port] = await freePorts(1);
  let url = "";
  async function start(): Promise<void> {
    const args = ["--disable-warning=ExperimentalWarning", "-e", START, MAIN, `--listen=127.0.0.1:${port}`, `--home=${home}`, "--log-level=silent", ...flags];
    const started = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    child = started;
    url = await new Promise<string>((resolve, reject) => {
      let text = "";
      started.stdout.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
        const found = /ready at (\S+)/.exec(text)?.[1];
        if (found !== undefined) resolve(found);
      });
      started.once("exit", (code) => reject(new Error(`the metadata server ended with ${code}`)));
    });
  }
  async function kill(signal: NodeJS.Signals = "SIGKILL"): Promise<number | null> {
    const ending = child;
    child = undefined;
    if (ending === undefined || ending.exitCode !== null) return ending?.exitCode ?? null;
    const ended = new Promise<number | null>((resolve) => ending.once("exit", resolve));
    ending.kill(signal);
    return ended;
  }
  await start();
  return {
    get url() {
      return `${url}/metadata`;
    },
    home,
    get pid() {
      return child?.pid ?? 0;
    },
    fetch: (key, init) => fetch(`${url}/metadata?key=${encodeURIComponent(key)}`, init),
    kill,
    start,
    async [Symbol.asyncDispose]() {
      await kill();
      if (diskHome === undefined) removeHome(home);
    },
  };
}
