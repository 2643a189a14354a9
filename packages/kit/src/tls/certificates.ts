// The certificate of a server: read from files, and read again when they change; a pair that is not usable never replaces one that is.
import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { isIP } from "node:net";
import { createSecureContext } from "node:tls";
import { fail } from "@svc/contract/failures.ts";
import type { Log } from "../log.ts";
import type { Metrics } from "../metrics.ts";
import { TRIAL_DOMAIN } from "../proxy/address.ts";
import { keepSelfSigned, ownNames, type SelfSigned } from "./self-signed.ts";
import type { ServedCertificates } from "./served.ts";
import { type TlsChoice, type TlsSettings, tlsChoice } from "./settings.ts";

export type Pair = { readonly cert: string; readonly key: string; readonly certificate: X509Certificate };

/** Files are polled, since mounted secrets change by a link that moves, which no watch of a file reports. */
const POLL_MS = 1_000;
const RENEWAL_CHECK_MS = 12 * 3_600_000;
/** Names whose answer is remembered; the memory is emptied beyond this number. */
const MAX_NAMES = 1_000;
const ADVICE = "expected PEM files of a certificate, with its chain, and of its unencrypted private key";

export type CertificateOptions = {
  readonly choice: NonNullable<TlsChoice>;
  readonly home: string;
  /** Domains of sandboxes, which a self-signed certificate covers. */
  readonly domains: readonly string[];
  readonly log: Log;
  readonly metrics: Metrics;
};

/** Returns undefined if the settings choose plain HTTP. @throws SETTING_INVALID. */
export function openCertificates(settings: TlsSettings, rest: Omit<CertificateOptions, "choice">): Certificates | undefined {
  const choice = tlsChoice(settings);
  return choice === undefined ? undefined : new Certificates({ ...rest, choice });
}

export class Certificates implements ServedCertificates {
  #pair: Pair;
  #covered = new Map<string, boolean>();
  /** Identifies the files' content that was tried last. */
  #tried: string;
  /** The reason why the files' present content is not served. */
  #problem: string | undefined;
  #hasWarned = false;
  #onChange: (pair: Pair) => void = () => {};
  readonly #options: CertificateOptions;
  readonly #files: { readonly certFile: string; readonly keyFile: string };
  readonly #timers: NodeJS.Timeout[] = [];
  readonly #reloads: { inc(labels: { outcome: string }, by?: number): void };
  /** The file with the authority that signed a self-signed certificate. */
  readonly authorityFile: string | undefined;

  /** @throws SETTING_INVALID if there is no usable pair at the start. */
  constructor(options: CertificateOptions) {
    const { choice, home, domains, metrics } = options;
    this.#options = options;
    const renew = (): SelfSigned => keepSelfSigned(home, ownNames(domains));
    const own = choice.kind === "self-signed" ? renew() : undefined;
    this.authorityFile = own?.authorityFile;
    this.#files = choice.kind === "files" ? choice : (own as SelfSigned);
    this.#tried = this.#stamp();
    try {
      this.#pair = readPair(this.#files);
    } catch (error) {
      fail("SETTING_INVALID", `settings tls.cert_file and tls.key_file: ${(error as Error).message}`, { cause: error });
    }
    this.#reloads = metrics.counter("svc_tls_reloads_total", "Changes of the certificate's files, by whether the new pair is served.", ["outcome"]);
    for (const outcome of ["served", "refused"]) this.#reloads.inc({ outcome }, 0);
    metrics.gauge("svc_tls_certificate_expiry_seconds", "When the served certificate expires, in seconds since 1970.", [], (gauge) =>
      gauge.set(this.#pair.certificate.validToDate.getTime() / 1000),
    );
    metrics.gauge("svc_tls_certificate_refused", "1 while the certificate's files cannot be served, and an earlier pair is.", [], (gauge) =>
      gauge.set(this.#problem === undefined ? 0 : 1),
    );
    this.#timers.push(setInterval(() => this.#poll(), POLL_MS).unref());
    if (own !== undefined) this.#timers.push(setInterval(renew, RENEWAL_CHECK_MS).unref());
    this.#warnIfExpired();
  }

  /** The domains of sandboxes: the given ones, and for a trial without any that of trials. */
  get domains(): readonly string[] {
    const { domains } = this.#options;
    return domains.length > 0 || this.authorityFile === undefined ? domains : [TRIAL_DOMAIN];
  }

  get pair(): Pair {
    return this.#pair;
  }

  /** Calls `listener` whenever another pair is to be served. */
  onChange(listener: (pair: Pair) => void): void {
    this.#onChange = listener;
  }

  /** Says whether the served certificate is valid for a host name or address. */
  covers(host: string): boolean {
    const known = this.#covered.get(host);
    if (known !== undefined) return known;
    if (this.#covered.size >= MAX_NAMES) this.#covered.clear();
    const { certificate } = this.#pair;
    const is = isIP(host) === 0 ? certificate.checkHost(host) !== undefined : certificate.checkIP(host) !== undefined;
    this.#covered.set(host, is);
    return is;
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
      const pair = readPair(this.#files);
      const endsAt = pair.certificate.validToDate.getTime();
      if (endsAt <= Date.now() && this.#pair.certificate.validToDate.getTime() > endsAt)
        throw new Error(`the certificate expired at ${pair.certificate.validTo}`);
      this.#serve(pair);
    } catch (error) {
      this.#refuse((error as Error).message, !isNew);
    }
  }

  #serve(pair: Pair): void {
    this.#pair = pair;
    this.#covered = new Map();
    this.#problem = undefined;
    this.#onChange(pair);
    this.#reloads.inc({ outcome: "served" });
    this.#options.log.info({ ...this.#files, expires: pair.certificate.validTo }, "the certificate was read again; new connections get it");
    this.#warnIfExpired();
  }

  /** The two files are written one after the other, so only a pair that stays unusable until the next poll is a problem. */
  #refuse(reason: string, isSettled: boolean): void {
    this.#problem = reason;
    if (!isSettled) return;
    this.#hasWarned = true;
    this.#reloads.inc({ outcome: "refused" });
    this.#options.log.warn(
      { ...this.#files, reason, served: this.#pair.certificate.validTo },
      "the files of the certificate have changed and cannot be served: the earlier certificate stays; put a matching pair there",
    );
  }

  #warnIfExpired(): void {
    const { validTo, validToDate } = this.#pair.certificate;
    if (validToDate.getTime() <= Date.now())
      this.#options.log.warn({ expired: validTo }, "the certificate has expired, and clients refuse it: replace the files");
  }

  #stamp(): string {
    return [this.#files.certFile, this.#files.keyFile].map(stampOf).join(" ");
  }
}

function stampOf(path: string): string {
  try {
    const { ino, size, mtimeMs, ctimeMs } = statSync(path);
    return `${ino}:${size}:${mtimeMs}:${ctimeMs}`;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? "unreadable";
  }
}

/** @throws an Error that says what is wrong. */
function readPair({ certFile, keyFile }: { readonly certFile: string; readonly keyFile: string }): Pair {
  const cert = readText(certFile);
  const key = readText(keyFile);
  let certificate: X509Certificate;
  try {
    certificate = new X509Certificate(cert);
  } catch (error) {
    throw new Error(`${certFile} is not a certificate in PEM; ${ADVICE}`, { cause: error });
  }
  let isMatch: boolean;
  try {
    isMatch = certificate.checkPrivateKey(createPrivateKey(key));
  } catch (error) {
    throw new Error(`${keyFile} is not a private key in PEM; ${ADVICE}`, { cause: error });
  }
  if (!isMatch)
    throw new Error(`the key in ${keyFile} is not the key of the certificate in ${certFile}; the first certificate in that file must be the server's`);
  createSecureContext({ cert, key });
  return { cert, key, certificate };
}

function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw new Error(`${path} cannot be read (${(error as NodeJS.ErrnoException).code}); ${ADVICE}`, { cause: error });
  }
}
