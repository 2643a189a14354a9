// Where this machine's own master and admin server answer: a file each in their home, for what runs beside them and is told no address.
import { mkdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { removeStateFile, writeStateFile } from "@svc/contract/state-file.ts";

/** `url`: of its HTTP. */
type OwnServer = { readonly url: string; readonly pid: number };
/** `rpc`: HOST:PORT of its RPC, as this machine dials it. */
export type OwnMaster = OwnServer & { readonly rpc: string };

const files = { master: "store/master.json", admin: "store-admin/address.json" } as const;
type Kind = keyof typeof files;

const fileOf = (home: string, kind: Kind) => join(home, files[kind]);

export const announceMaster = (home: string, master: OwnMaster): void => announce(home, "master", master);
export const announceAdmin = (home: string, admin: OwnServer): void => announce(home, "admin", admin);

/** Another server of the same kind and home may have written its own since. */
export function withdraw(home: string, kind: Kind): void {
  if (noted(home, kind)?.pid === process.pid) removeStateFile(fileOf(home, kind));
}

export function ownMaster(home: string): OwnMaster | undefined {
  const master = noted(home, "master");
  return typeof master?.rpc === "string" ? (master as OwnMaster) : undefined;
}

export const ownAdmin = (home: string): OwnServer | undefined => noted(home, "admin");

function announce(home: string, kind: Kind, server: OwnServer): void {
  try {
    mkdirSync(dirname(fileOf(home, kind)), { recursive: true });
    writeStateFile(fileOf(home, kind), `${JSON.stringify(server)}\n`);
  } catch {
    // On a full disk, or one that cannot be written, the server matters more than a note about it.
  }
}

function noted(home: string, kind: Kind): (Partial<OwnMaster> & OwnServer) | undefined {
  try {
    const server = JSON.parse(readFileSync(fileOf(home, kind), "utf8")) as OwnMaster;
    return typeof server.url === "string" ? server : undefined;
  } catch {
    return undefined;
  }
}
