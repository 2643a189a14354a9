// A lock that allows one server of a kind per home: it ends with its process, leaves no file, and names its owner.
import { mkdirSync, statSync } from "node:fs";
import { connect, createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { fail, isDiskFull } from "@svc/contract/failures.ts";

/** The wait lets a previous server finish its shutdown. */
const WAIT_MS = 2_000;
const POLL_MS = 50;
/** A live owner answers at once; a stopped process does not. */
const ANSWER_MS = 1_000;
const MAX_ANSWER_BYTES = 16;

/**
 * Takes the lock for the rest of the process's life: an abstract socket named after the folder itself, whichever path leads to it. A server
 * must take it before it reads or writes anything.
 * @throws HOST_UNSUITABLE with the process id of the owner.
 */
export async function lockHome(home: string, server: string): Promise<void> {
  // I27
  const path = `\0svc-${server.replace(/\W+/g, "-")}-${identityOf(home)}`;
  for (let waitedMs = 0; waitedMs <= WAIT_MS; waitedMs += POLL_MS) {
    if (await taken(path)) return;
    await sleep(POLL_MS);
  }
  const pid = await holderAt(path);
  const holder = pid === undefined ? "another process, which does not answer," : `process ${pid}`;
  return fail("HOST_UNSUITABLE", `${holder} already runs svc ${server} on ${home}: stop it, or give this one its own --home`);
}

function identityOf(home: string): string {
  try {
    mkdirSync(home, { recursive: true });
  } catch (error) {
    if (!isDiskFull(error)) fail("SETTING_INVALID", `the home ${home} cannot be used: ${(error as Error).message}`, { cause: error });
  }
  const found = statSync(home, { bigint: true, throwIfNoEntry: false });
  return found === undefined ? fail("DISK_FULL", `the home ${home} cannot be created: the disk is full`) : `${found.dev}-${found.ino}`;
}

function taken(path: string): Promise<boolean> {
  const lock = createServer((socket) => socket.on("error", () => {}).end(String(process.pid))).unref();
  return new Promise((resolve, reject) => {
    lock.once("error", (error: NodeJS.ErrnoException) => (error.code === "EADDRINUSE" ? resolve(false) : reject(error)));
    lock.listen(path, () => resolve(true));
  });
}

/** Returns undefined if the owner does not answer in time. */
function holderAt(path: string): Promise<number | undefined> {
  return new Promise((resolve) => {
    let said = "";
    const socket = connect({ path });
    const end = () => {
      socket.destroy();
      resolve(/^\d+$/.test(said) ? Number(said) : undefined);
    };
    socket.setTimeout(ANSWER_MS, end);
    socket.on("error", end).on("end", end);
    socket.setEncoding("latin1").on("data", (text: string) => {
      said = (said + text).slice(0, MAX_ANSWER_BYTES);
    });
  });
}
