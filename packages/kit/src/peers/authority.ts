// The certificate authority of a deployment, in a directory: it signs the certificates of servers, and its own successor.
import { createPrivateKey, generateKeyPairSync, type KeyObject, randomBytes, type X509Certificate } from "node:crypto";
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { authorityCertificate, leafCertificate, parseCertificate } from "../tls/x509.ts";
import { authoritiesIn, commonName, namesOf, peerFiles, readPair } from "./peer-certificates.ts";

const DAY_MS = 24 * 3_600_000;
/** Clocks of other machines may be behind. */
const BEFORE_MS = DAY_MS;
/** The share of its validity after which a certificate is due for renewal. */
const DUE_SHARE = 2 / 3;

export type Issued = { readonly directory: string; readonly subject: string; readonly names: readonly string[]; readonly until: Date };

/**
 * ca.key    signs certificates
 * ca.crt    every authority that servers trust, the one of ca.key first
 * cross.crt the one of ca.key, signed by its predecessor, for servers that do not trust it yet; absent before the first rotation
 */
const files = { key: "ca.key", cert: "ca.crt", cross: "cross.crt" } as const;

export class DeploymentAuthority {
  readonly #directory: string;
  readonly #key: KeyObject;
  readonly #certificates: readonly X509Certificate[];

  /** @throws SETTING_INVALID if the directory has no authority. */
  constructor(directory: string) {
    this.#directory = directory;
    const at = (name: string) => join(directory, name);
    if (!existsSync(at(files.key)))
      fail("SETTING_INVALID", `${at(files.key)} does not exist: expected the directory of an authority; svc certs init makes one, and --from DIR names it`);
    this.#key = createPrivateKey(readFileSync(at(files.key)));
    this.#certificates = authoritiesIn(readFileSync(at(files.cert), "utf8"));
    if (this.#certificates[0]?.checkPrivateKey(this.#key) !== true)
      fail("SETTING_INVALID", `the first certificate in ${at(files.cert)} is not that of the key in ${at(files.key)}: restore both files from one backup`);
  }

  /** @throws SETTING_INVALID if the directory has an authority already, since servers would not trust what a second one signs. */
  static init(directory: string, nowMs: number): DeploymentAuthority {
    const { key: keyFile, cert } = files;
    if (existsSync(join(directory, keyFile)) || existsSync(join(directory, cert)))
      fail("SETTING_INVALID", `${directory} has an authority already: to replace it without an interruption, use svc certs rotate --authority`);
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const key = newKey();
    write(join(directory, keyFile), pemOf(key));
    write(join(directory, cert), authorityCertificate(key, newName(), nowMs, { authoritiesBelow: 1 }));
    return new DeploymentAuthority(directory);
  }

  get certificates(): readonly X509Certificate[] {
    return this.#certificates;
  }

  /** Writes a key, a certificate and the trusted authorities into a directory. */
  issue(directory: string, subject: string, names: readonly string[], days: number, nowMs: number): Issued {
    const key = newKey();
    const [from, until] = [new Date(nowMs - BEFORE_MS), new Date(nowMs + days * DAY_MS)];
    const text = readFileSync(join(this.#directory, files.cert), "utf8");
    const issuer = { key: this.#key, certificate: parseCertificate(text) };
    const leaf = leafCertificate(issuer, { subject, key, names, from, until });
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    write(join(directory, peerFiles.ca), text);
    write(join(directory, peerFiles.key), pemOf(key));
    write(join(directory, peerFiles.cert), leaf + this.#cross());
    return { directory, subject, names, until };
  }

  /** Issues a directory's certificate again, with a new key and the same names and validity. */
  reissue(directory: string, nowMs: number): Issued {
    const { certificate } = readPair(directory);
    const days = Math.max(1, Math.round((certificate.validToDate.getTime() - certificate.validFromDate.getTime() - BEFORE_MS) / DAY_MS));
    return this.issue(directory, commonName(certificate.subject), namesOf(certificate.subjectAltName ?? ""), days, nowMs);
  }

  /**
   * Replaces the authority by a new one that both signs: a server that trusts only the old one verifies new certificates through cross.crt,
   * so certificates of either can be replaced in any order.
   */
  rotate(nowMs: number): DeploymentAuthority {
    const at = (name: string) => join(this.#directory, name);
    const old = readFileSync(at(files.cert), "utf8");
    const [key, name] = [newKey(), newName()];
    const own = authorityCertificate(key, name, nowMs, { authoritiesBelow: 1 });
    const cross = authorityCertificate(key, name, nowMs, { issuer: { key: this.#key, certificate: parseCertificate(old) } });
    const predecessor = this.#certificates[0] as X509Certificate;
    write(at(files.cross), cross);
    write(at(files.cert), own + predecessor.toString());
    write(at(files.key), pemOf(key));
    return new DeploymentAuthority(this.#directory);
  }

  /** Ends the trust in the predecessor. */
  dropOld(): DeploymentAuthority {
    const [own] = this.#certificates as [X509Certificate];
    write(join(this.#directory, files.cert), own.toString());
    rmSync(join(this.#directory, files.cross), { force: true });
    return new DeploymentAuthority(this.#directory);
  }

  #cross(): string {
    const path = join(this.#directory, files.cross);
    return existsSync(path) ? readFileSync(path, "utf8") : "";
  }
}

export function isDue({ validFromDate, validToDate }: X509Certificate, nowMs: number): boolean {
  const [from, to] = [validFromDate.getTime(), validToDate.getTime()];
  return nowMs >= from + (to - from) * DUE_SHARE;
}

const newKey = (): KeyObject => generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
const pemOf = (key: KeyObject): string => key.export({ type: "pkcs8", format: "pem" }) as string;
/** Two authorities of one deployment need different names, by which messages tell them apart. */
const newName = (): string => `svc deployment authority ${randomBytes(4).toString("hex")}`;

function write(path: string, text: string): void {
  writeFileSync(`${path}.new`, text, { mode: 0o600 });
  // A file that was left behind keeps its former mode.
  chmodSync(`${path}.new`, 0o600);
  renameSync(`${path}.new`, path);
}
