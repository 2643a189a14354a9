// Sessions of the console: two halves that are derived from the API key, one-time links, and sign-out.
import { createHmac, randomBytes } from "node:crypto";
import { CONSOLE_PATH } from "@svc/contract/console.ts";
import { fail } from "@svc/contract/failures.ts";
import { SecretMap, sameSecret } from "../secret.ts";
import { TokenBucket } from "../token-bucket.ts";

/*
 * A browser sends a cookie to every port of a host, so the cookie may reach another server of this machine, for example an application
 * that `svc forward` opened on a local port. A page's storage belongs to one origin, port included. So a session needs both:
 *
 *   cookie (HttpOnly, SameSite=Strict, Path=/console)   EXPIRES.ID.MODE.MAC      lost alone to another port
 *   header x-svc-console, from the page's storage       HMAC(key, "page:" ID)    lost alone to a script in the page
 */
export type Session = { readonly id: string; readonly isReadOnly: boolean; readonly expiresMs: number };
export type Opened = { readonly session: Session; readonly cookie: string; readonly half: string };

type Link = { readonly token: string; readonly expiresMs: number; readonly isReadOnly: boolean };

export type SessionsOptions = { readonly apiKey: string; readonly keySource?: string; readonly hours: number; readonly nowMs?: () => number };

const LINK_MS = 10 * 60_000;
/** The oldest link is dropped beyond this number. */
const MAX_LINKS = 100;
const MAX_SIGNED_OUT = 10_000;
/** Refused sign-ins per second, after a burst; the API key is too long to be guessed, so the bound only keeps the log short. */
const DEPLOYMENT_KEY = "this is not the API key of this server; it is in $SVC_HOME/secrets/api-key, and ./svc auth --show says which one commands use";
const REFUSALS = { perSecond: 1, burst: 20 };

export class Sessions {
  readonly #key: string;
  readonly #apiKey: string;
  readonly #notTheKey: string;
  readonly #lifeMs: number;
  readonly #nowMs: () => number;
  readonly #signedOut = new Map<string, number>();
  #links: readonly Link[] = [];
  readonly #refusals: TokenBucket;

  constructor({ apiKey, keySource, hours, nowMs = Date.now }: SessionsOptions) {
    // A new API key ends all sessions, and a restart ends none.
    this.#key = createHmac("sha256", apiKey).update("svc:console:v1").digest("hex");
    this.#apiKey = apiKey;
    this.#notTheKey = keySource === undefined ? DEPLOYMENT_KEY : `this is not the key of this server, which comes from ${keySource}`;
    this.#lifeMs = hours * 3_600_000;
    this.#nowMs = nowMs;
    this.#refusals = new TokenBucket(REFUSALS, nowMs());
  }

  /** @throws UNAUTHENTICATED, TOO_MANY_REQUESTS. */
  signIn({ key, once, isReadOnly }: { readonly key?: string; readonly once?: string; readonly isReadOnly: boolean }): Opened {
    const link = once === undefined ? undefined : this.#redeem(once);
    if (link === undefined && !sameSecret(key, this.#apiKey)) {
      if (!this.#refusals.take(this.#nowMs())) fail("TOO_MANY_REQUESTS", "too many sign-ins were refused; wait a moment", { retryAfterSeconds: 1 });
      if (once !== undefined) fail("UNAUTHENTICATED", "this link was used already or is too old: run ./svc console for a new one, or sign in with the API key");
      fail("UNAUTHENTICATED", this.#notTheKey);
    }
    return this.#sealed({ id: randomBytes(16).toString("hex"), isReadOnly: isReadOnly || link?.isReadOnly === true, expiresMs: this.#nowMs() + this.#lifeMs });
  }

  /** Extends a session in the second half of its life; undefined before that. */
  renewed(session: Session): Opened | undefined {
    if (session.expiresMs - this.#nowMs() > this.#lifeMs / 2) return undefined;
    return this.#sealed({ ...session, expiresMs: this.#nowMs() + this.#lifeMs });
  }

  /** An application on another port may set cookies of the same name, so any one that is valid counts. */
  find(cookies: string | undefined, port: string, half: string | undefined): Session | undefined {
    const name = `${cookieName(port)}=`;
    for (const each of (cookies ?? "").split(/; ?/)) {
      const session = each.startsWith(name) ? this.#parse(each.slice(name.length)) : undefined;
      if (session !== undefined && sameSecret(half, this.#half(session.id))) return session;
    }
    return undefined;
  }

  signOut({ id, expiresMs }: Session): void {
    const now = this.#nowMs();
    for (const [each, until] of this.#signedOut) if (until < now || this.#signedOut.size >= MAX_SIGNED_OUT) this.#signedOut.delete(each);
    this.#signedOut.set(id, expiresMs);
  }

  isOver({ id, expiresMs }: Session): boolean {
    return expiresMs <= this.#nowMs() || this.#signedOut.has(id);
  }

  /** Creates the secret of a link that signs in once. */
  link(isReadOnly: boolean): { readonly token: string; readonly seconds: number } {
    const token = randomBytes(24).toString("base64url");
    this.#links = [...this.#valid(), { token, expiresMs: this.#nowMs() + LINK_MS, isReadOnly }].slice(-MAX_LINKS);
    return { token, seconds: LINK_MS / 1000 };
  }

  #valid() {
    return this.#links.filter(({ expiresMs }) => expiresMs > this.#nowMs());
  }

  #redeem(token: string) {
    this.#links = this.#valid();
    const byToken = new SecretMap<Link>();
    for (const link of this.#links) byToken.add(link.token, link);
    const found = byToken.get(token);
    this.#links = this.#links.filter((link) => link !== found);
    return found;
  }

  #sealed(session: Session): Opened {
    const text = `${session.expiresMs}.${session.id}.${session.isReadOnly ? "r" : "w"}`;
    return { session, cookie: `${text}.${this.#mac(`cookie:${text}`)}`, half: this.#half(session.id) };
  }

  #parse(cookie: string): Session | undefined {
    const [, text = "", expires = "", id = "", mode, mac] = /^((\d{1,15})\.([0-9a-f]{32})\.([rw]))\.([0-9a-f]{64})$/.exec(cookie) ?? [];
    if (!sameSecret(mac, this.#mac(`cookie:${text}`))) return undefined;
    const session = { id, isReadOnly: mode === "r", expiresMs: Number(expires) };
    return this.isOver(session) ? undefined : session;
  }

  #half(id: string): string {
    return this.#mac(`page:${id}`);
  }

  #mac(text: string): string {
    return createHmac("sha256", this.#key).update(text).digest("hex");
  }
}

/** Consoles of several servers on one host keep their cookies apart by the port. */
const cookieName = (port: string) => `svc_console_${port}`;

/** Returns the Set-Cookie header; an empty value removes the cookie. */
export function cookieHeader(port: string, value: string, maxAgeSeconds: number, isSecure: boolean): string {
  return `${cookieName(port)}=${value}; Path=${CONSOLE_PATH}; Max-Age=${Math.max(0, Math.floor(maxAgeSeconds))}; HttpOnly; SameSite=Strict${isSecure ? "; Secure" : ""}`;
}
