// The certificate of this process towards the other servers of its deployment: read from a directory, and read again when it changes.
import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { createSecureContext, type SecureContext, type TLSSocket } from "node:tls";
import { fail } from "@svc/contract/failures.ts";
import type { Log } from "../log.ts";
import type { Metrics } from "../metrics.ts";
import type { ServedCertificates } from "../tls/served.ts";
import type { PeersSettings } from "./settings.ts";

/** The names that cert-manager gives the files of a secret, and svc certs as well. */
export const peerFiles = { cert: "tls.crt", key: "tls.key", ca: "ca.crt" } as const;

export type PeerPair = {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
  readonly certificate: X509Certificate;
};

type Options = { readonly directory: string; readonly log: Log; readonly metrics?: Metrics | undefined };

/** Files are polled, since mounted secrets change by a link that moves, which no watch of a file reports. */
const POLL_MS = 1_000;
const DAY_MS = 24 * 3_600_000;
/** The rest of its validity at which the log warns once a day. */
const WARN_BEFORE_MS = 7 * DAY_MS;
const MAX_SHOWN_CHARS = 200;

/** Returns undefined if the settings name no certificates: the deployment then speaks plain HTTP. @throws SETTING_INVALID. */
export function openPeerCertificates({ certs }: PeersSettings, log: Log, metrics?: Metrics): PeerCertificates | undefined {
  return certs === "" ? undefined : new PeerCertificates({ directory: certs, log, metrics });
}

export class PeerCertificates implements ServedCertificates {
  readonly #options: Options;
  readonly #listeners: ((pair: PeerPair) => void)[] = [];
  readonly #timers: NodeJS.Timeout[] = [];
  #pair: PeerPair;
  #context: SecureContext;
  /** Identifies the files' content that was tried last. */
  #tried: string;
  /** The reason why the files' present content is not used. */
  #problem: string | undefined;
  #hasWarned = false;
  #refused = 0;
  #reloads: { inc(labels: { outcome: string }, by?: number): void } | undefined;
  #strangers: { inc(labels: { reason: string }, by?: number): void } | undefined;

  /** @throws SETTING_INVALID if the directory has no usable files at the start. */
  constructor(options: Options) {
    this.#options = options;
    this.#tried = this.#stamp();
    try {
      this.#pair = readPair(options.directory);
    } catch (error) {
      fail("SETTING_INVALID", `setting peers.certs: ${(error as Error).message}`, { cause: error });
    }
    this.#context = contextOf(this.#pair);
    this.#measure(options.metrics);
    this.#timers.push(setInterval(() => this.#poll(), POLL_MS).unref());
    this.#timers.push(setInterval(() => this.#warnIfEnding(), DAY_MS).unref());
    this.#warnIfEnding();
  }

  #measure(metrics: Metrics | undefined): void {
    if (metrics === undefined) return;
    this.#reloads = metrics.counter("svc_peer_certificate_reloads_total", "Changes of the files in peers.certs, by whether they are used.", ["outcome"]);
    for (const outcome of ["used", "refused"]) this.#reloads.inc({ outcome }, 0);
    this.#strangers = metrics.counter("svc_peer_strangers_total", "Connections of callers without a valid certificate of the deployment.", ["reason"]);
    for (const reason of ["none", "invalid"]) this.#strangers.inc({ reason }, 0);
    metrics.gauge("svc_peer_certificate_expiry_seconds", "When the certificate in peers.certs expires, in seconds since 1970.", [], (gauge) =>
      gauge.set(this.#pair.certificate.validToDate.getTime() / 1000),
    );
    metrics.gauge("svc_peer_certificate_refused", "1 while the files in peers.certs cannot be used, and earlier ones are.", [], (gauge) =>
      gauge.set(this.#refused),
    );
  }

  get directory(): string {
    return this.#options.directory;
  }

  get pair(): PeerPair {
    return this.#pair;
  }

  /** The context of connections to other servers. */
  get context(): SecureContext {
    return this.#context;
  }

  /** Describes this process's own certificate for a message. */
  get described(): string {
    return describedCertificate(this.#pair.certificate);
  }

  /** Names the authorities that are trusted, for a message. */
  get authorities(): string {
    return authoritiesIn(this.#pair.ca)
      .map(({ subject }) => JSON.stringify(commonName(subject)))
      .join(" or ");
  }

  onChange(listener: (pair: PeerPair) => void): void {
    this.#listeners.push(listener);
  }

  /** Requests name the host of a sandbox, while the connection was opened to a node. */
  covers(): boolean {
    return true;
  }

  /** Returns what is wrong with the certificate of a connection that was accepted, in a sentence; undefined if nothing is. */
  strangerAt(socket: TLSSocket): string | undefined {
    if (socket.authorized) return undefined;
    const theirs = socket.getPeerX509Certificate();
    this.#strangers?.inc({ reason: theirs === undefined ? "none" : "invalid" });
    const expected = `This server expects a certificate of its deployment, signed by ${this.authorities}`;
    const advice = "give the caller one with --peer-certs DIR (svc certs issue writes it)";
    if (theirs === undefined) return `${expected}, and got none: ${advice}`;
    return `${expected}, and got one of ${describedCertificate(theirs)} (${socket.authorizationError?.toString() ?? "not trusted"}): ${advice}`;
  }

  close(): void {
    for (const timer of this.#timers) clearInterval(timer);
  }

  #poll(): void {
    const stamp = this.#stamp();
    const isNew = stamp !== this.#tried;
    if (isNew) this.#hasWarned = false;
    if (!isNew && (this.#problem === undefined || this.#hasWarned)) return;
    this.#tried = stamp;
    try {
      const pair = readPair(this.#options.directory);
      const { validTo, validToDate } = pair.certificate;
      if (validToDate.getTime() <= Date.now() && this.#pair.certificate.validToDate > validToDate) throw new Error(`the certificate expired at ${validTo}`);
      this.#use(pair);
    } catch (error) {
      this.#refuse((error as Error).message, !isNew);
    }
  }

  #use(pair: PeerPair): void {
    this.#context = contextOf(pair);
    this.#pair = pair;
    this.#problem = undefined;
    this.#refused = 0;
    for (const listener of this.#listeners) listener(pair);
    this.#reloads?.inc({ outcome: "used" });
    const { directory, log } = this.#options;
    log.info(
      { directory, certificate: this.described, expires: pair.certificate.validTo },
      "the certificates of peers were read again; new connections get them",
    );
    this.#warnIfEnding();
  }

  /** The files are written one after the other, so only files that stay unusable until the next poll are a problem. */
  #refuse(reason: string, isSettled: boolean): void {
    this.#problem = reason;
    if (!isSettled) return;
    this.#hasWarned = true;
    this.#refused = 1;
    this.#reloads?.inc({ outcome: "refused" });
    const { directory, log } = this.#options;
    log.warn({ directory, reason, used: this.#pair.certificate.validTo }, "the files in peers.certs have changed and cannot be used: the earlier ones stay");
  }

  #warnIfEnding(): void {
    const { validTo, validToDate } = this.#pair.certificate;
    const leftMs = validToDate.getTime() - Date.now();
    if (leftMs > WARN_BEFORE_MS) return;
    const { directory, log } = this.#options;
    const what = leftMs <= 0 ? "has expired, and other servers refuse it" : "expires within a week";
    log.warn({ directory, expires: validTo }, `the certificate in peers.certs ${what}: put a new one there (svc certs rotate ${directory})`);
  }

  #stamp(): string {
    return Object.values(peerFiles)
      .map((name) => stampOf(join(this.#options.directory, name)))
      .join(" ");
  }
}

const contextOf = ({ cert, key, ca }: PeerPair): SecureContext => createSecureContext({ cert, key, ca, minVersion: "TLSv1.2" });

function stampOf(path: string): string {
  try {
    const { ino, size, mtimeMs, ctimeMs } = statSync(path);
    return `${ino}:${size}:${mtimeMs}:${ctimeMs}`;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? "unreadable";
  }
}

/** @throws an Error that says what is wrong. */
export function readPair(directory: string): PeerPair {
  const text = (name: string) => readText(directory, name);
  const [cert, key, ca] = [text(peerFiles.cert), text(peerFiles.key), text(peerFiles.ca)];
  const at = (name: string) => join(directory, name);
  const certificate = parsed(cert, at(peerFiles.cert));
  parsed(ca, at(peerFiles.ca));
  let isMatch: boolean;
  try {
    isMatch = certificate.checkPrivateKey(createPrivateKey(key));
  } catch (error) {
    throw new Error(`${at(peerFiles.key)} is not a private key in PEM without a password`, { cause: error });
  }
  if (!isMatch) throw new Error(`the key in ${at(peerFiles.key)} is not that of the first certificate in ${at(peerFiles.cert)}`);
  const pair = { cert, key, ca, certificate };
  contextOf(pair);
  return pair;
}

function parsed(text: string, path: string): X509Certificate {
  try {
    return new X509Certificate(text);
  } catch (error) {
    throw new Error(`${path} has no certificate in PEM`, { cause: error });
  }
}

function readText(directory: string, name: string): string {
  try {
    return readFileSync(join(directory, name), "utf8");
  } catch (error) {
    const expected = `expected a directory with ${Object.values(peerFiles).join(", ")}, as svc certs issue and cert-manager write them`;
    throw new Error(`${join(directory, name)} cannot be read (${(error as NodeJS.ErrnoException).code}); ${expected}`, { cause: error });
  }
}

export function authoritiesIn(pem: string): X509Certificate[] {
  return (pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? []).map((each) => new X509Certificate(each));
}

export const commonName = (subject: string): string => (/^CN=(.*)$/m.exec(subject)?.[1] ?? subject.replaceAll("\n", ", ")).slice(0, MAX_SHOWN_CHARS);

export function describedCertificate({ subject, issuer, subjectAltName }: X509Certificate): string {
  const names = namesOf(subjectAltName ?? "").join(", ");
  return `${JSON.stringify(commonName(subject))}${names === "" ? "" : ` for ${names.slice(0, MAX_SHOWN_CHARS)}`}, signed by ${JSON.stringify(commonName(issuer))}`;
}

/** "DNS:a, IP Address:10.0.0.1" → ["a", "10.0.0.1"] */
export const namesOf = (subjectAltName: string): string[] =>
  subjectAltName.split(", ").flatMap((entry) => /^(?:DNS|IP Address):"?([^"]+)"?$/.exec(entry)?.[1] ?? []);
