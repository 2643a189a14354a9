// Trusts the authority that SVC_CA_FILE names, for all connections of this process.
import { readFileSync } from "node:fs";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { UsageError } from "../output/complain.ts";

export function trustCaFile(env: NodeJS.ProcessEnv = process.env): void {
  const path = env["SVC_CA_FILE"];
  if (path === undefined || path === "") return;
  let pem: string;
  try {
    pem = readFileSync(path, "utf8");
  } catch (error) {
    throw new UsageError(`SVC_CA_FILE: expected the path of a file with certificates in PEM, got ${JSON.stringify(path)}: ${(error as Error).message}`);
  }
  const certificates = pem.match(/-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g) ?? [];
  if (certificates.length === 0) throw new UsageError(`SVC_CA_FILE: expected a file with certificates in PEM, and ${path} has none`);
  try {
    setDefaultCACertificates([...getCACertificates("default"), ...certificates]);
  } catch (error) {
    throw new UsageError(`SVC_CA_FILE: a certificate in ${path} cannot be read: ${(error as Error).message}`);
  }
}
