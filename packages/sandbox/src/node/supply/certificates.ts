// The certificate that the node's port serves to clients, checked against the other settings.
import { fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Metrics } from "@svc/kit/metrics.ts";
import { type Certificates, openCertificates } from "@svc/kit/tls/certificates.ts";
import type { NodeSettings } from "../settings.ts";

/** @throws SETTING_INVALID for a node of a deployment, whose clients are gateways and other nodes. */
export function certificatesOf({ tls, cluster, peers, proxy }: NodeSettings, home: string, log: Log, metrics: Metrics): Certificates | undefined {
  const certificates = openCertificates(tls, { home, domains: proxy.domains, log, metrics });
  if (certificates !== undefined && cluster.etcd.length > 0)
    fail(
      "SETTING_INVALID",
      "settings cluster.etcd and tls are both given: TLS of clients ends at the gateways of a deployment; give that certificate to them, set tls.mode to off for nodes, and see peers.certs for TLS between gateways and nodes",
    );
  if (certificates !== undefined && peers.certs !== "")
    fail(
      "SETTING_INVALID",
      "settings tls and peers.certs are both given, and a node has one port: expected tls for clients that use this node directly, or peers.certs for a node behind gateways",
    );
  if (peers.certs !== "" && cluster.advertise.startsWith("http:"))
    fail("SETTING_INVALID", `setting cluster.advertise: expected https://HOST:PORT, since peers.certs is given, got ${cluster.advertise}`);
  if (peers.certs === "" && cluster.advertise.startsWith("https:"))
    fail("SETTING_INVALID", `setting cluster.advertise: expected http://HOST:PORT, since peers.certs is empty, got ${cluster.advertise}`);
  return certificates;
}
