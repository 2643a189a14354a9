// The master's ports: plain ones of the core, and one for other servers of the deployment, which ends TLS in front of them.
import { fail } from "@svc/contract/failures.ts";
import { dialledAt, type ListenAddress } from "@svc/kit/listen.ts";
import type { Log } from "@svc/kit/log.ts";
import type { PeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { PeerListener } from "@svc/kit/peers/peer-listener.ts";
import { warnIfPlain } from "@svc/kit/peers/settings.ts";
import { spliceTo } from "@svc/kit/peers/splice.ts";
import { configureReplication } from "../ha/open.ts";
import { alpn } from "../rpc/alpn.ts";
import type { HttpConnections } from "./http-connections.ts";
import type { NativeMaster } from "./native.ts";
import type { MasterSettings } from "./settings.ts";

const LOOPBACK = "127.0.0.1";

/** Returns the host of a plain port: only this machine reaches it where other machines need TLS. */
export const plainHost = (host: string, settings: MasterSettings, certificates: PeerCertificates | undefined): string =>
  certificates === undefined || settings.plain_clients ? host : LOOPBACK;

/** @throws SETTING_INVALID. */
export function listenRpc(native: NativeMaster, settings: MasterSettings, certificates: PeerCertificates | undefined): ListenAddress {
  const { rpc_address, rpc_port } = settings;
  const host = plainHost(rpc_address, settings, certificates);
  try {
    return { host, port: native.listen(host, rpc_port) };
  } catch (error) {
    return fail("SETTING_INVALID", `settings store.rpc_address and store.rpc_port: ${host}:${rpc_port}: ${(error as Error).message}`, { cause: error });
  }
}

/** @throws SETTING_INVALID. */
export function listenPeers(native: NativeMaster, settings: MasterSettings, certificates: PeerCertificates | undefined): ListenAddress {
  configureReplication(native, settings);
  const host = plainHost(settings.rpc_address, settings, certificates);
  try {
    return { host, port: native.listenPeers(host, settings.replication_port) };
  } catch (error) {
    return fail("SETTING_INVALID", `setting store.replication_port: ${host}:${settings.replication_port}: ${(error as Error).message}`, { cause: error });
  }
}

type SecurePortOptions = {
  readonly certificates: PeerCertificates | undefined;
  readonly settings: MasterSettings;
  readonly rpc: ListenAddress;
  readonly stream: ListenAddress | undefined;
  readonly http: HttpConnections;
  readonly log: Log;
};

/** Returns undefined without certificates. @throws SETTING_INVALID. */
export async function openSecurePort({ certificates, settings, rpc, stream, http, log }: SecurePortOptions): Promise<PeerListener | undefined> {
  const { rpc_address: host, tls_port: port, plain_clients } = settings;
  if (certificates === undefined || plain_clients) warnIfPlain(log, rpc, "traffic to the store's master");
  if (certificates === undefined) return undefined;
  const listener = new PeerListener({
    listen: { host, port },
    certificates,
    protocols: Object.values(alpn),
    what: "the store's master",
    log,
    take({ socket, protocol, stranger, reset }) {
      if (protocol === alpn.http) http.carry(socket, { reset, ...(stranger === undefined ? {} : { stranger }) });
      else if (stranger !== undefined || (protocol === alpn.log && stream === undefined)) reset();
      else spliceTo(socket, reached(protocol === alpn.log && stream !== undefined ? stream : rpc));
    },
  });
  await listener
    .listen()
    .catch((error: Error) => fail("SETTING_INVALID", `settings store.rpc_address and store.tls_port: ${host}:${port}: ${error.message}`, { cause: error }));
  return listener;
}

function reached({ host, port }: ListenAddress): ListenAddress {
  return { host: new URL(dialledAt(host, port)).hostname.replace(/^\[|\]$/g, ""), port };
}
