// Keeps a tcpdump that reads the firewall's messages about denied packets: started anew when it dies, dead when the node is.
import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import type { Socket } from "node:net";
import type { Log } from "@svc/kit/log.ts";
import { type Noted, NotedStream } from "./nflog.ts";

/** Lists the groups that somebody reads, one a line, the group first. */
const BOUND_GROUPS = "/proc/net/netfilter/nfnetlink_log";
const LAST_GROUP = 65_535;
/** Group 0 is where rules without a group of their own write. */
const FIRST_GROUP = 1;
const MAX_GROUPS_TRIED = 16;
const READY_MS = 20_000;
const MIN_RESTART_MS = 100;
const MAX_RESTART_MS = 30_000;
const CAPTURED_BYTES = 256;
const MAX_LAST_WORDS = 500;

export type DenialReader = {
  /** Firewall rules write to this group. */
  readonly group: number;
  close(): void;
};

export type ReaderOptions = {
  /** A home's own number: where the search for a free group begins. */
  readonly seed: number;
  readonly log: Log;
  readonly onNoted: (noted: Noted) => void;
  /** Another program took the group while no reader held it: the rules must name the new one. */
  readonly onGroup?: (group: number) => void;
};

type Started = { readonly child: ChildProcess; readonly group: number };

/** @throws with the program's own words when denied packets cannot be read on this host. */
export async function openDenialReader({ seed, log, onNoted, onGroup }: ReaderOptions): Promise<DenialReader> {
  let current = await start(seed, onNoted);
  let closed = false;
  let restartMs = MIN_RESTART_MS;
  let timer: NodeJS.Timeout | undefined;

  function watch({ child }: Started): void {
    const begun = performance.now();
    child.once("exit", (code, signal) => {
      if (closed) return;
      // One that lived for a while may come back at once; one that dies again and again is tried less and less often.
      restartMs = performance.now() - begun > MAX_RESTART_MS ? MIN_RESTART_MS : Math.min(restartMs * 2, MAX_RESTART_MS);
      log.warn({ code, signal, restartMs }, "the reader of denied packets ended; it is started anew");
      timer = setTimeout(() => void restart(), restartMs).unref();
    });
  }

  async function restart(): Promise<void> {
    try {
      const next = await start(current.group, onNoted);
      if (closed) return void next.child.kill("SIGKILL");
      const moved = next.group !== current.group;
      current = next;
      watch(next);
      if (moved) onGroup?.(next.group);
    } catch (error) {
      if (closed) return;
      restartMs = Math.min(restartMs * 2, MAX_RESTART_MS);
      log.warn({ err: error, restartMs }, "denied packets cannot be read for now; the network logs lack them");
      timer = setTimeout(() => void restart(), restartMs).unref();
    }
  }

  watch(current);
  return {
    get group() {
      return current.group;
    },
    close() {
      closed = true;
      clearTimeout(timer);
      current.child.kill("SIGKILL");
    },
  };
}

/** The first group from `seed` on that nobody reads. Between the look and the start another may take it: then the next one. */
async function start(seed: number, onNoted: (noted: Noted) => void): Promise<Started> {
  const bound = boundGroups();
  let failure: unknown;
  for (let step = 0; step < MAX_GROUPS_TRIED; step++) {
    const group = FIRST_GROUP + ((seed - FIRST_GROUP + step) % (LAST_GROUP - FIRST_GROUP + 1));
    if (bound.has(group)) continue;
    try {
      return { child: await listen(group, onNoted), group };
    } catch (error) {
      failure = error;
      if (!String(error).includes("listen on group")) break;
    }
  }
  throw failure ?? new Error(`the nflog groups from ${seed} on are all in use`);
}

function boundGroups(): Set<number> {
  try {
    return new Set(
      readFileSync(BOUND_GROUPS, "utf8")
        .split("\n")
        .filter((line) => line.trim() !== "")
        .map((line) => Number.parseInt(line, 10)),
    );
  } catch {
    return new Set(); // the module is loaded by the first reader
  }
}

/**
 * Resolves when the program listens. It copies messages and looks into none (-w), so root is no risk; and only a
 * program that keeps its user also keeps the order to die with its parent, which a killed node depends on.
 */
function listen(group: number, onNoted: (noted: Noted) => void): Promise<ChildProcess> {
  const argv = ["--pdeathsig", "KILL", "tcpdump", "-i", `nflog:${group}`, "-Z", "root", "-s", String(CAPTURED_BYTES), "-U", "-w", "-"];
  const child = spawn("setpriv", argv, { stdio: ["ignore", "pipe", "pipe"] });
  const stream = new NotedStream();
  let words = "";
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => child.kill("SIGKILL"), READY_MS);
    child.once("error", (error) => {
      clearTimeout(timer);
      reject(error);
    });
    child.once("close", (code, signal) => reject(new Error(`tcpdump ended with ${code ?? signal}: ${words.trim()}`)));
    child.stderr.on("data", (chunk: Buffer) => {
      words = (words + chunk.toString()).slice(-MAX_LAST_WORDS);
      if (!words.includes("listening on")) return;
      clearTimeout(timer);
      unref(child);
      resolve(child);
    });
    child.once("exit", () => clearTimeout(timer));
    child.stdout.on("data", (chunk: Buffer) => {
      try {
        for (const noted of stream.take(chunk)) onNoted(noted);
      } catch {
        child.kill("SIGKILL"); // no stream of ours any more: a new one begins with a header
      }
    });
  });
}

/** A reader keeps no process alive that has nothing else to do. */
function unref(child: ChildProcess): void {
  child.unref();
  // Pipes are sockets, which the types do not say.
  for (const pipe of [child.stdout, child.stderr]) (pipe as Socket | null)?.unref();
}
