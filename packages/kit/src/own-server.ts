// Where a server of this machine answers: a file in its home while it runs, for commands on the same machine that are given no address.
import { mkdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { ownServerFiles } from "@svc/contract/home.ts";
import { removeStateFile, writeStateFile } from "@svc/contract/state-file.ts";

/** `url`: of its HTTP. */
export type OwnServer = { readonly url: string; readonly pid: number };

export type OwnServerKind = keyof typeof ownServerFiles;

const fileOf = (home: string, kind: OwnServerKind) => join(home, ownServerFiles[kind]);

export function announceServer(home: string, kind: OwnServerKind, server: OwnServer): void {
  try {
    mkdirSync(dirname(fileOf(home, kind)), { recursive: true });
    writeStateFile(fileOf(home, kind), `${JSON.stringify(server)}\n`);
  } catch {
    // A failure to write this file, for example on a full disk, must not prevent the server from starting.
  }
}

/** Removes the file unless another server of the same kind and home has replaced it since. */
export function withdrawServer(home: string, kind: OwnServerKind): void {
  if (ownServer(home, kind)?.pid === process.pid) removeStateFile(fileOf(home, kind));
}

export function ownServer<T extends OwnServer = OwnServer>(home: string, kind: OwnServerKind): T | undefined {
  try {
    const server = JSON.parse(readFileSync(fileOf(home, kind), "utf8")) as T;
    return typeof server.url === "string" ? server : undefined;
  } catch {
    return undefined;
  }
}
