// The setting of the certificates by which the servers of a deployment know each other.
import { fail } from "@svc/contract/failures.ts";
import { z } from "zod";
import type { ListenAddress } from "../listen.ts";
import type { Log } from "../log.ts";
import { isLoopback } from "./loopback.ts";

export const peersSettings = z.object({ certs: z.string() });

export type PeersSettings = z.output<typeof peersSettings>;

export const peersFlagNames = { "peer-certs": "peers.certs" } as const;

/** Logs once which servers of a fixed list are reached by plain HTTP on a network. */
export function warnIfPlainNodes(log: Log, urls: readonly string[]): void {
  const plain = urls.filter((url) => url.startsWith("http:") && !isLoopback(new URL(url).hostname));
  if (plain.length === 0) return;
  log.warn({ urls: plain }, "traffic to these servers is not encrypted: on a network that is not trusted, give both sides --peer-certs DIR (svc certs)");
}

/** Logs once that the traffic of this server can be read on the network, unless only this machine reaches it. */
export function warnIfPlain(log: Log, listen: ListenAddress, what: string): void {
  if (isLoopback(listen.host)) return;
  log.warn(
    { listen: `${listen.host}:${listen.port}` },
    `${what} is not encrypted and can be reached from other machines: on a network that is not trusted, give --peer-certs DIR (svc certs)`,
  );
}

/** @throws SETTING_INVALID for an `https://` server while this process has no certificates. */
export function needsPeerCertificates(setting: string, urls: readonly string[], { certs }: PeersSettings): void {
  const secure = urls.find((url) => url.startsWith("https:"));
  if (secure !== undefined && certs === "")
    fail(
      "SETTING_INVALID",
      `setting ${setting} has ${secure}, and this process has no certificate to show there: expected also peers.certs (--peer-certs DIR), which svc certs issue writes`,
    );
}
