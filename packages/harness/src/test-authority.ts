// A certificate authority of a test, for the servers of a simulated internet.
import { generateKeyPairSync } from "node:crypto";
import { authorityCertificate, hostCertificate, parseCertificate } from "@svc/sandbox/secrets/certificates.ts";
import type { HttpsHost } from "./outside-https.ts";

export type TestAuthority = {
  /** PEM. */
  readonly certificate: string;
  host(name: string, protocols?: readonly string[]): HttpsHost;
};

const newKey = () => generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;

export function makeAuthority(name: string): TestAuthority {
  const key = newKey();
  const certificate = authorityCertificate(key, name, Date.now());
  return {
    certificate,
    host(host, protocols) {
      const hostKey = newKey();
      const issued = hostCertificate({ key, certificate: parseCertificate(certificate) }, host, hostKey, Date.now());
      const pem = hostKey.export({ type: "pkcs8", format: "pem" }).toString();
      return { name: host, certificate: issued, key: pem, ...(protocols === undefined ? {} : { protocols }) };
    },
  };
}
