// A certificate authority of a test, for the servers of a simulated internet.
import { generateKeyPairSync, type KeyObject } from "node:crypto";
import { authorityCertificate, hostCertificate, parseCertificate } from "@svc/kit/tls/x509.ts";
import type { HttpsHost } from "./outside-https.ts";

export type TestAuthority = {
  /** PEM. */
  readonly certificate: string;
  readonly key: string;
  host(name: string, protocols?: readonly string[]): HttpsHost;
};

const pemOf = (key: KeyObject): string => key.export({ type: "pkcs8", format: "pem" }).toString();
const newKey = () => generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;

export function makeAuthority(name: string): TestAuthority {
  const key = newKey();
  const certificate = authorityCertificate(key, name, Date.now());
  return {
    certificate,
    key: pemOf(key),
    host(host, protocols) {
      const hostKey = newKey();
      const issued = hostCertificate({ key, certificate: parseCertificate(certificate) }, host, hostKey, Date.now());
      return { name: host, certificate: issued, key: pemOf(hostKey), ...(protocols === undefined ? {} : { protocols }) };
    },
  };
}
