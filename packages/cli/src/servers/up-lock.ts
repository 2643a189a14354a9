// Allows one `svc up` per home: a lock that its process holds until it ends, and that identifies the process.
import { createHash } from "node:crypto";
import { existsSync, realpathSync } from "node:fs";
import { connect, createServer, type Server } from "node:net";
import { type ProcessName, startTicksOf } from "../access/up-state.ts";

const ANSWER_MS = 1_000;
const MAX_ANSWER_BYTES = 16;

/** The kernel frees an abstract socket when its process ends, for whatever reason; returns undefined if another `up` has it. */
export async function takeLock(home: string): Promise<Server | undefined> {
  const server = createServer((socket) => socket.on("error", () => {}).end(String(process.pid)));
  return await new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => (error.code === "EADDRINUSE" ? resolve(undefined) : reject(error)));
    server.listen({ path: lockOf(home) }, () => resolve(server));
  });
}

/** Returns the `up` that has the lock, even if a full disk prevented up.json; undefined if there is none, or it does not answer in time. */
export function lockHolder(home: string): Promise<ProcessName | undefined> {
  if (!existsSync(home)) return Promise.resolve(undefined);
  return new Promise((resolve) => {
    let said = "";
    const socket = connect({ path: lockOf(home) });
    const end = () => {
      socket.destroy();
      const startTicks = /^\d+$/.test(said) ? startTicksOf(Number(said)) : undefined;
      resolve(startTicks === undefined ? undefined : { pid: Number(said), startTicks });
    };
    socket.setTimeout(ANSWER_MS, end);
    socket.on("error", end).on("end", end);
    socket.setEncoding("latin1").on("data", (text: string) => {
      said = (said + text).slice(0, MAX_ANSWER_BYTES);
    });
  });
}

function lockOf(home: string): string {
  const name = createHash("sha256")
    .update(`${process.getuid?.()}:${realpathSync(home)}`)
    .digest("hex")
    .slice(0, 32);
  return `\0svc-up-${name}`;
}
