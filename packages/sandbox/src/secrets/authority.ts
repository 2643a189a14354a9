// The deployment's certificate authority for egress: its key is derived from the deployment secret, so that every node has the same one.
import { createECDH, createPrivateKey, generateKeyPairSync, hash, hkdfSync, type KeyObject, X509Certificate } from "node:crypto";
import { join } from "node:path";
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { EgressAuthority } from "@svc/contract/secrets.ts";
import { readSecretFile, replaceSecretFile } from "@svc/kit/secret.ts";
import { authorityCertificate, hostCertificate, LEAF_VALID_MS, nameHash, parseCertificate } from "@svc/kit/tls/x509.ts";

/** A certificate of one host with its key, both PEM, as the thread that serves it gets them. */
export type HostCertificate = { readonly certificate: string; readonly key: string; readonly untilMs: number };

export interface Authority {
  readonly certificate: string;
  /** The name under which OpenSSL looks it up in a directory, without its number. */
  readonly nameHash: string;
  readonly fingerprint: string;
  readonly shown: EgressAuthority;
  issue(host: string): HostCertificate;
}

export const authorityPath = (home: string) => join(home, "secrets/egress-ca.pem");
/** Only where an operator supplies an authority of his own; otherwise the key is in no file. */
const ownKeyPath = (home: string) => join(home, "secrets/egress-ca-key.pem");
const MAX_PEM_BYTES = 64 * 1024;
/** A certificate is issued again before it expires, also for connections that stay open. */
const RENEW_MS = LEAF_VALID_MS / 2;
/** An authority with less time than this gets a new certificate, under the same key. */
const AUTHORITY_LEFT_MS = 90 * 24 * 3600_000;

/** @throws SETTING_INVALID where files of an operator's own do not fit together. */
export function openAuthority(home: string, deploymentKey: string, now: () => number): Authority {
  const ownKey = readSecretFile(ownKeyPath(home), MAX_PEM_BYTES);
  const key = ownKey === undefined ? derivedKey(deploymentKey, "egress-ca") : readKey(ownKeyPath(home), ownKey);
  const certificate = certificateOf(home, key, ownKey !== undefined, now());
  const issuer = { key, certificate: parseCertificate(certificate) };
  const known = new X509Certificate(certificate);
  // One key serves all hosts: it never leaves this machine, and a key per host would cost a generation each.
  const hostKey = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
  const hostKeyPem = hostKey.export({ type: "pkcs8", format: "pem" }).toString();
  return {
    certificate,
    nameHash: nameHash(issuer.certificate),
    fingerprint: known.fingerprint256,
    shown: { certificate, fingerprint: known.fingerprint256, expiresAt: new Date(known.validTo).toISOString() },
    issue: (host) => ({ certificate: hostCertificate(issuer, host, hostKey, now()), key: hostKeyPem, untilMs: now() + RENEW_MS }),
  };
}

function certificateOf(home: string, key: KeyObject, isOwn: boolean, nowMs: number): string {
  const path = authorityPath(home);
  const text = readSecretFile(path, MAX_PEM_BYTES);
  try {
    if (text !== undefined) {
      const known = new X509Certificate(text);
      const fits = known.ca && known.checkPrivateKey(key);
      if (isOwn && !fits) fail("SETTING_INVALID", `${path} is not the certificate of an authority with the key in ${ownKeyPath(home)}`);
      if (isOwn || (fits && Date.parse(known.validTo) - nowMs > AUTHORITY_LEFT_MS)) return `${text}\n`;
    }
  } catch (error) {
    if (isOwn) fail("SETTING_INVALID", `${path} cannot be used as the authority for egress: ${asFailure(error).message}`, { cause: error });
  }
  if (isOwn) fail("SETTING_INVALID", `${path} is missing: expected the certificate of the authority whose key is in ${ownKeyPath(home)}`);
  // It can be made again from the deployment's secret at any time, so a damaged or foreign file is replaced.
  const made = authorityCertificate(key, `svc egress ${hash("sha256", publicBytes(key)).slice(0, 8)}`, nowMs);
  replaceSecretFile(path, made.trimEnd());
  return made;
}

function readKey(path: string, text: string): KeyObject {
  try {
    const key = createPrivateKey(text);
    if (key.asymmetricKeyType !== "ec") throw new Error("its key is not an elliptic-curve key");
    return key;
  } catch (error) {
    return fail("SETTING_INVALID", `${path} cannot be used as the key of the authority for egress: ${(error as Error).message}`, { cause: error });
  }
}

const publicBytes = (key: KeyObject): string => JSON.stringify(key.export({ format: "jwk" }).x);

/** Derives a P-256 key of the deployment for one purpose. */
export function derivedKey(deploymentKey: string, purpose: string): KeyObject {
  const curve = createECDH("prime256v1");
  for (let attempt = 0; ; attempt++) {
    const scalar = Buffer.from(hkdfSync("sha256", deploymentKey, "", `svc:${purpose}:${attempt}:v1`, 32));
    try {
      curve.setPrivateKey(scalar);
    } catch {
      continue; // The chance that 32 random bytes are no key of the curve is 2^-32.
    }
    const point = curve.getPublicKey();
    const part = (from: number) => point.subarray(from, from + 32).toString("base64url");
    return createPrivateKey({ key: { kty: "EC", crv: "P-256", d: scalar.toString("base64url"), x: part(1), y: part(33) }, format: "jwk" });
  }
}
