// Runs a tcpdump that reads the firewall's messages about denied packets.
import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import type { Log } from "@svc/kit/log.ts";
import { programEnvironment } from "@svc/kit/spawn.ts";
import { dieWithUs, keep, unref } from "./kept.ts";
import { type Noted, NotedStream } from "./nflog.ts";

/** Lists the groups in use, one per line, the group number first. */
const BOUND_GROUPS = "/proc/net/netfilter/nfnetlink_log";
const LAST_GROUP = 65_535;
/** Rules without a group of their own write to group 0. */
const FIRST_GROUP = 1;
const MAX_GROUPS_TRIED = 16;
const READY_MS = 20_000;
const SNAPLEN_BYTES = 256;
const MAX_OUTPUT_CHARS = 500;

export type DenialReader = {
  /** Firewall rules write to this group. */
  readonly group: number;
  close(): void;
};

export type ReaderOptions = {
  /** A number of the home, where the search for a free group begins. */
  readonly seed: number;
  readonly log: Log;
  readonly onNoted: (noted: Noted) => void;
  /** Called when another program took the group while no reader used it, so that the rules name the new group. */
  readonly onGroup?: (group: number) => void;
};

type Started = { readonly child: ChildProcess; readonly group: number };

/** @throws with the program's own message if denied packets cannot be read on this host. */
export async function openDenialReader({ seed, log, onNoted, onGroup }: ReaderOptions): Promise<DenialReader> {
  const { child: first, group: firstGroup } = await start(seed, onNoted);
  let group = firstGroup;
  const startNext = async (): Promise<ChildProcess> => {
    const next = await start(group, onNoted);
    const moved = next.group !== group;
    group = next.group;
    if (moved) onGroup?.(group);
    return next.child;
  };
  const kept = keep({ what: "the reader of denied packets", without: "the network logs lack them", log, first, startNext });
  return {
    get group() {
      return group;
    },
    close: kept.close,
  };
}

/** Starts a reader on the first unused group from `seed` on. Another program may take the group before the start; then the next one is tried. */
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
    return new Set(); // the first reader loads the module
  }
}

/**
 * Resolves when the program listens. tcpdump only copies messages (-w) and parses none, so running it as root is safe; and only a program that
 * keeps its user also keeps the parent-death signal, by which it dies with a killed node.
 */
function listen(group: number, onNoted: (noted: Noted) => void): Promise<ChildProcess> {
  const [command, ...argv] = [...dieWithUs, "tcpdump", "-i", `nflog:${group}`, "-Z", "root", "-s", String(SNAPLEN_BYTES), "-U", "-w", "-"];
  const child = spawn(command, argv, { stdio: ["ignore", "pipe", "pipe"], env: programEnvironment() });
  const stream = new NotedStream();
  let output = "";
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => child.kill("SIGKILL"), READY_MS);
    child.once("error", (error) => {
      clearTimeout(timer);
      reject(error);
    });
    child.once("close", (code, signal) => reject(new Error(`tcpdump ended with ${code ?? signal}: ${output.trim()}`)));
    child.stderr.on("data", (chunk: Buffer) => {
      output = (output + chunk.toString()).slice(-MAX_OUTPUT_CHARS);
      if (!output.includes("listening on")) return;
      clearTimeout(timer);
      unref(child);
      resolve(child);
    });
    child.once("exit", () => clearTimeout(timer));
    child.stdout.on("data", (chunk: Buffer) => {
      try {
        for (const noted of stream.take(chunk)) onNoted(noted);
      } catch {
        child.kill("SIGKILL"); // The stream is corrupt; the reader that is started next begins with a header again.
      }
    });
  });
}
