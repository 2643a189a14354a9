// The address that a program dialled before the firewall redirected its connection to the node.
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import type { Socket } from "node:net";
import { fileURLToPath } from "node:url";

const path = process.env["SVC_SOCKETS_NATIVE"] || fileURLToPath(new URL("../../native/build/svc_sockets.node", import.meta.url));

type Addon = { originalDestination(descriptor: number): string };
let addon: Addon | undefined;

/** False where the addon was not built: no sandbox can have an egress proxy there. */
export const hasOriginalDestination = (): boolean => existsSync(path);

/** @throws if the addon is missing, or the connection was not redirected. */
export function originalDestination(socket: Socket): { readonly address: string; readonly port: number } {
  addon ??= createRequire(import.meta.url)(path) as Addon;
  // Node offers a socket's descriptor nowhere else.
  const { fd } = (socket as unknown as { _handle?: { fd: number } })._handle ?? { fd: -1 };
  const [address = "", port = ""] = addon.originalDestination(fd).split(":");
  return { address, port: Number(port) };
}
