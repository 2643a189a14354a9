// A certificate for trials: an authority of this home's own, kept in the home, and the certificate of the server that it signs.
import { createPrivateKey, generateKeyPairSync, type KeyObject, X509Certificate } from "node:crypto";
import { chmodSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { hostname, networkInterfaces } from "node:os";
import { join } from "node:path";
import { TRIAL_DOMAIN } from "../proxy/address.ts";
import { authorityCertificate, leafCertificate, parseCertificate } from "./x509.ts";

const DAY_MS = 24 * 3_600_000;
/** The clock of a client may be behind. */
const BEFORE_MS = DAY_MS;
/** Clients refuse certificates of servers that are valid for more than 398 days. */
const SERVER_MS = 390 * DAY_MS;
const RENEW_BEFORE_MS = 30 * DAY_MS;
const SERVER_SUBJECT = "svc self-signed";

export type SelfSigned = { readonly certFile: string; readonly keyFile: string; readonly authorityFile: string };

export const selfSignedFiles = (home: string): SelfSigned => {
  const at = (name: string) => join(home, "tls", name);
  return { certFile: at("certificate.pem"), keyFile: at("certificate.key"), authorityFile: at("authority.pem") };
};

/** Returns the files of the home's certificate; it is made or renewed first if it is absent, lacks a name, or ends within 30 days. */
export function keepSelfSigned(home: string, names: readonly string[], nowMs = Date.now()): SelfSigned {
  const files = selfSignedFiles(home);
  mkdirSync(join(home, "tls"), { recursive: true, mode: 0o700 });
  const authority = readPair(files.authorityFile, join(home, "tls", "authority.key"), nowMs) ?? makeAuthority(home, files, nowMs);
  const server = readPair(files.certFile, files.keyFile, nowMs);
  const isGood = server?.certificate.checkIssued(authority.certificate) === true && names.every((name) => covers(server.certificate, name));
  if (isGood) return files;
  const { key, pem } = newKey();
  const issuer = { key: authority.key, certificate: parseCertificate(authority.certificate.toString()) };
  const [from, until] = [new Date(nowMs - BEFORE_MS), new Date(nowMs + SERVER_MS)];
  const certificate = leafCertificate(issuer, { subject: SERVER_SUBJECT, key, names, usages: ["server"], from, until });
  write(files.keyFile, pem);
  write(files.certFile, certificate);
  return files;
}

/** The names at which clients reach a server of this machine: local ones, its own, and those below the domains. */
export function ownNames(domains: readonly string[]): string[] {
  const bare = domains.map((domain) => domain.replace(/:\d+$/, "").replace(/\.$/, ""));
  const addresses = Object.values(networkInterfaces()).flatMap((list) => (list ?? []).map(({ address }) => address));
  const own = hostname().toLowerCase();
  const wildcards = ["localhost", TRIAL_DOMAIN, ...bare].flatMap((name) => [name, `*.${name}`]);
  const usable = [...wildcards, own, "127.0.0.1", "::1", ...addresses].filter((name) => !name.includes("%") && !/[^a-z0-9.:*_-]/i.test(name));
  return [...new Set(usable)];
}

function makeAuthority(home: string, files: SelfSigned, nowMs: number) {
  const { key, pem } = newKey();
  const subject = `svc trial authority of ${hostname()}`.slice(0, 64);
  const text = authorityCertificate(key, subject, nowMs);
  write(join(home, "tls", "authority.key"), pem);
  write(files.authorityFile, text);
  return { key, certificate: new X509Certificate(text) };
}

function newKey(): { key: KeyObject; pem: string } {
  const { privateKey: key } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  return { key, pem: key.export({ type: "pkcs8", format: "pem" }) as string };
}

/** Returns undefined if there is no such pair, if it is damaged, or if it ends soon. */
function readPair(certFile: string, keyFile: string, nowMs: number) {
  try {
    const certificate = new X509Certificate(readFileSync(certFile));
    const key = createPrivateKey(readFileSync(keyFile));
    const isUsable = certificate.checkPrivateKey(key) && certificate.validToDate.getTime() - nowMs > RENEW_BEFORE_MS;
    return isUsable ? { certificate, key } : undefined;
  } catch {
    return undefined;
  }
}

function covers(certificate: X509Certificate, name: string): boolean {
  const [found] = name.includes(":") || /^[\d.]+$/.test(name) ? [certificate.checkIP(name)] : [certificate.checkHost(name.replace("*", "x"))];
  return found !== undefined;
}

function write(path: string, text: string): void {
  writeFileSync(`${path}.new`, text, { mode: 0o600 });
  // A file that was left behind keeps its former mode.
  chmodSync(`${path}.new`, 0o600);
  renameSync(`${path}.new`, path);
}
