// The addresses of this machine's own master and admin server, for local processes that are given none.
import { announceServer, type OwnServer, ownServer, withdrawServer } from "@svc/kit/own-server.ts";

/** `rpc` is HOST:PORT of its RPC, as this machine dials it. */
export type OwnMaster = OwnServer & { readonly rpc: string };

export const announceMaster = (home: string, master: OwnMaster): void => announceServer(home, "master", master);
export const announceAdmin = (home: string, admin: OwnServer): void => announceServer(home, "admin", admin);
export const withdraw = (home: string, kind: "master" | "admin"): void => withdrawServer(home, kind);

export function ownMaster(home: string): OwnMaster | undefined {
  const master = ownServer<OwnMaster>(home, "master");
  return typeof master?.rpc === "string" ? master : undefined;
}

export const ownAdmin = (home: string): OwnServer | undefined => ownServer(home, "admin");
