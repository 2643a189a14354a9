// The headers of a message on its way through: what the connection owns is removed, what the rules set is replaced.

/** Headers of one connection (RFC 9110, 7.6.1), in addition to those that `Connection` names. */
const HOP = new Set(["connection", "keep-alive", "proxy-connection", "te", "upgrade", "http2-settings"]);
/** It offers another way to the host, on which no header would be set. */
const RESPONSE_ONLY = new Set(["alt-svc"]);

/** Returns the pairs of a raw list, names as they were written. */
function* pairsOf(raw: readonly string[]): Generator<readonly [string, string, string]> {
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const name = raw[at] ?? "";
    yield [name, name.toLowerCase(), raw[at + 1] ?? ""];
  }
}

function ownedBy(raw: readonly string[]): ReadonlySet<string> {
  let owned: Set<string> = HOP;
  for (const [, name, value] of pairsOf(raw)) {
    if (name !== "connection") continue;
    owned = new Set([...owned, ...value.split(",").map((word) => word.trim().toLowerCase())]);
  }
  return owned;
}

/** Returns the request's headers for the upstream. `kept` are headers of the connection that go on, as those of an upgrade. */
export function requestHeaders(raw: readonly string[], set: readonly (readonly [string, string])[], kept: readonly string[] = []): string[] {
  const owned = ownedBy(raw);
  const replaced = new Set(set.map(([name]) => name));
  const headers: string[] = [];
  for (const [name, lower, value] of pairsOf(raw)) {
    if (replaced.has(lower)) continue;
    if (lower === "te" && /\btrailers\b/i.test(value)) headers.push(name, "trailers");
    else if (!owned.has(lower) || kept.includes(lower)) headers.push(name, value);
  }
  for (const [name, value] of set) headers.push(name, value);
  return headers;
}

export function responseHeaders(raw: readonly string[], kept: readonly string[] = []): string[] {
  const owned = ownedBy(raw);
  const headers: string[] = [];
  for (const [name, lower, value] of pairsOf(raw)) {
    if ((owned.has(lower) || RESPONSE_ONLY.has(lower)) && !kept.includes(lower)) continue;
    headers.push(name, value);
  }
  return headers;
}

export function hasHeader(raw: readonly string[], wanted: string): boolean {
  for (const [, name] of pairsOf(raw)) if (name === wanted) return true;
  return false;
}

/** Returns the host of a Host header or an :authority, without the port of HTTPS. */
function hostOf(authority: string): string {
  return authority.toLowerCase().replace(/:443$/, "").replace(/\.$/, "");
}

/** Returns the host that a request names; undefined if it names none, or several that differ, of which its receiver might take any. */
export function hostAsked(authorities: readonly string[]): string | undefined {
  const [host, ...others] = new Set(authorities.map(hostOf));
  return others.length === 0 ? host : undefined;
}

/** Returns every authority that an HTTP/1.1 request names: each Host header, and that of a target in absolute form. */
export function authoritiesOf(raw: readonly string[], target: string): string[] {
  const named = [...pairsOf(raw)].flatMap(([, name, value]) => (name === "host" ? [value] : []));
  if (target.startsWith("/") || target === "*") return named;
  return [...named, /^[a-z]+:\/\/([^/?#]*)/i.exec(target)?.[1] ?? target];
}
