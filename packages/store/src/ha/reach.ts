// How a standby reaches its leader's replication stream: directly, or through TLS where both have certificates of the deployment.
import { lookup } from "node:dns/promises";
import type { Log } from "@svc/kit/log.ts";
import type { PeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { PeerClient } from "@svc/kit/peers/peer-client.ts";
import { openTunnel } from "@svc/kit/peers/splice.ts";
import { alpn } from "../rpc/alpn.ts";
import type { Member } from "./leadership.ts";

type Reach = (leader: Member) => Promise<{ readonly host: string; readonly port: number }>;
type ReachOptions = { readonly certificates: PeerCertificates | undefined; readonly mayBePlain: boolean; readonly log: Log };

/** With certificates, a leader without them is followed only where plain connections are allowed. */
export function reachBy({ certificates, mayBePlain, log }: ReachOptions): Reach {
  if (certificates === undefined) return plainly;
  const peers = new PeerClient(certificates, "master", alpn.log);
  let warned = "";
  return async (leader) => {
    if (leader.tls !== undefined)
      return openTunnel(peers.dial(`https://${leader.tls}`), (error) =>
        log.warn({ leader: leader.name, reason: error.message }, "the leader's replication stream cannot be reached by TLS"),
      );
    const says = `the leader ${leader.name} has no certificate of the deployment (${certificates.authorities}), and this master has one: give it --peer-certs DIR (svc certs issue master)`;
    if (!mayBePlain) throw new Error(says);
    if (warned !== leader.id) log.warn({ leader: leader.name, stream: leader.stream }, `replication is not encrypted: ${says}`);
    warned = leader.id;
    return plainly(leader);
  };
}

const plainly: Reach = async ({ stream }) => {
  const at = stream.lastIndexOf(":");
  const { address } = await lookup(stream.slice(0, at).replace(/^\[|\]$/g, ""));
  return { host: address, port: Number(stream.slice(at + 1)) };
};
