// Access of the console to the inside of sandboxes: a client of envd for each, with the token that only this process sees.
import type { SvcClient } from "@svc/contract/client.ts";
import type { EnvdClient, FileEntry, ProcessInfo } from "@svc/contract/envd.ts";
import { fail } from "@svc/contract/failures.ts";

const MAX_CLIENTS = 256;
const KEPT_MS = 60_000;
/** A path that a page may name; the kernel's own bound. */
const MAX_PATH = 4_096;

export class Inside {
  readonly client: SvcClient;
  readonly #clients = new Map<string, { readonly envd: EnvdClient; readonly untilMs: number }>();

  constructor(client: SvcClient) {
    this.client = client;
  }

  /** @throws SANDBOX_NOT_FOUND, SANDBOX_NOT_RUNNING: a page must not resume a sandbox by looking at it. */
  async envd(sandboxID: string): Promise<EnvdClient> {
    const known = this.#clients.get(sandboxID);
    const { state, envdAccessToken } = await this.client.get(sandboxID);
    if (state !== "running") fail("SANDBOX_NOT_RUNNING", `sandbox ${sandboxID} is paused: resume it first`);
    if (known !== undefined && known.untilMs > Date.now()) return known.envd;
    const envd = this.client.envd({ sandboxID, envdAccessToken });
    this.#clients.delete(sandboxID);
    this.#clients.set(sandboxID, { envd, untilMs: Date.now() + KEPT_MS });
    const [oldest] = this.#clients.keys();
    if (this.#clients.size > MAX_CLIENTS && oldest !== undefined) this.#clients.delete(oldest);
    known?.envd.close();
    return envd;
  }

  async act(sandboxID: string, act: InsideAct): Promise<readonly FileEntry[] | readonly ProcessInfo[] | FileEntry | null> {
    const envd = await this.envd(sandboxID);
    switch (act.verb) {
      case "list":
        return await envd.listDir(pathOf(act.path), 1, userOf(act));
      case "stat":
        return await envd.stat(pathOf(act.path), userOf(act));
      case "makeDir":
        return await envd.makeDir(pathOf(act.path), userOf(act));
      case "move":
        return await envd.move(pathOf(act.path), pathOf(act.to), userOf(act));
      case "remove":
        await envd.remove(pathOf(act.path), userOf(act));
        return null;
      case "processes":
        return await envd.processes();
      case "signal":
        if (typeof act.pid !== "number") fail("INVALID_REQUEST", "pid: expected a number");
        await envd.sendSignal({ pid: act.pid }, act.signal === "SIGKILL" ? "SIGKILL" : "SIGTERM");
        return null;
      default:
        return fail("INVALID_REQUEST", `verb: expected list, stat, makeDir, move, remove, processes or signal; got ${JSON.stringify((act as InsideAct).verb)}`);
    }
  }

  close(): void {
    for (const { envd } of this.#clients.values()) envd.close();
  }
}

export type InsideAct = {
  readonly verb: "list" | "stat" | "makeDir" | "move" | "remove" | "processes" | "signal";
  readonly path?: string;
  readonly to?: string;
  readonly user?: string;
  readonly pid?: number;
  readonly signal?: string;
};

export function pathOf(path: unknown): string {
  if (typeof path !== "string" || path === "" || path.length > MAX_PATH || path.includes("\0"))
    fail("INVALID_REQUEST", "path: expected the path of a file in the sandbox");
  return path;
}

const userOf = ({ user }: InsideAct) => (user === undefined || user === "" ? {} : { user: String(user) });
