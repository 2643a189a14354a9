// Decides which requests the console answers at all, and which headers protect its answers.
import { isIP } from "node:net";
import { hostname } from "node:os";
import { fail } from "@svc/contract/failures.ts";
import type { FastifyReply, FastifyRequest } from "fastify";

export type Names = {
  /** Host names of this console, besides addresses and localhost. */
  readonly hosts: readonly string[];
  /** Domains of sandboxes, with or without a port. */
  readonly domains: readonly string[];
};

/** A request's own host as the browser wrote it; `port` is that of the URL, also if it is the scheme's default. */
export type OwnHost = { readonly host: string; readonly name: string; readonly port: string; readonly isSecure: boolean };

type Head = {
  readonly host?: string | undefined;
  readonly origin?: string | undefined;
  readonly "sec-fetch-site"?: string | string[] | undefined;
  readonly "x-forwarded-proto"?: string | string[] | undefined;
};

export class Guard {
  readonly #names: ReadonlySet<string>;

  constructor({ hosts, domains }: Names) {
    const bare = domains.map((domain) => domain.replace(/:\d+$/, "").replace(/\.$/, ""));
    this.#names = new Set(["localhost", hostname().toLowerCase(), ...hosts, ...bare]);
  }

  /**
   * Refuses host names that are not this console's: an attacker's name may resolve to this address (DNS rebinding), and a sandbox's host name
   * belongs to the sandbox.
   * @throws ACCESS_DENIED.
   */
  own(headers: Head): OwnHost {
    const host = (headers.host ?? "").toLowerCase();
    const [, name = "", port] = /^(\[[0-9a-f:]+\]|[a-z0-9.-]+?)(?::(\d{1,5}))?$/.exec(host) ?? [];
    const bare = name.replace(/^\[|\]$/g, "").replace(/\.$/, "");
    if (bare === "" || (isIP(bare) === 0 && !this.#names.has(bare)))
      fail("ACCESS_DENIED", `the console does not answer at the host ${JSON.stringify(host.slice(0, 200))}: add its name to the setting console.hosts`);
    // The proxy in front says by which scheme the request came; a further one before it shows in the origin alone.
    const isSecure = headers.origin?.startsWith("https:") === true || headers["x-forwarded-proto"] === "https";
    return { host, name: bare, port: port ?? (isSecure ? "443" : "80"), isSecure };
  }

  /**
   * Accepts requests of the console's own pages only. A sandbox's application may be on the same site, where SameSite allows its requests, so
   * the origin decides.
   * @throws ACCESS_DENIED.
   */
  ownOrigin(headers: Head): OwnHost {
    const own = this.own(headers);
    const { origin } = headers;
    const site = headers["sec-fetch-site"];
    const isOwn = origin === undefined || origin.replace(/^https?:\/\//, "").toLowerCase() === own.host;
    if (!isOwn || (site !== undefined && site !== "same-origin" && site !== "none"))
      fail("ACCESS_DENIED", "this request comes from a page that is not this console's");
    return own;
  }

  /** The policy allows nothing inline except styles with this answer's nonce, and frames only of sandboxes. */
  policy({ host }: OwnHost, nonce: string, domain: string): string {
    // A policy's grammar has no IPv6 addresses; 'self' is a little wider, as it has no path.
    const isPlain = !host.startsWith("[");
    const assets = isPlain ? `${host}/console/assets/` : "'self'";
    const calls = isPlain ? `${host}/console/ ws://${host}/console/ wss://${host}/console/` : "'self'";
    return [
      "default-src 'none'",
      `script-src ${assets}`,
      `style-src ${assets} 'nonce-${nonce}'`,
      "img-src data: blob:",
      `connect-src ${calls}`,
      `frame-src ${domain === "" ? "'none'" : `http://*.${domain} https://*.${domain}`}`,
      "base-uri 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
    ].join("; ");
  }
}

/** Every answer of the console gets these, whatever its content. */
export function protect(request: FastifyRequest, reply: FastifyReply): void {
  // serve() lets pages of any origin read the API's answers, which need the key; the console's need a cookie.
  for (const name of ["access-control-allow-origin", "access-control-expose-headers"]) reply.removeHeader(name);
  reply
    .header("cache-control", request.url.startsWith("/console/assets/") ? "public, max-age=31536000, immutable" : "no-store")
    .header("content-security-policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
    .header("cross-origin-opener-policy", "same-origin")
    .header("cross-origin-resource-policy", "same-origin")
    .header("referrer-policy", "no-referrer")
    .header("x-content-type-options", "nosniff")
    .header("x-frame-options", "DENY");
}
