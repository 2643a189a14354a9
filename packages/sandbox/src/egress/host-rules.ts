// Rules by host: which headers the node sets in HTTPS requests to a host, and the placeholders in their values.
import { fail } from "@svc/contract/failures.ts";
import type { HostRuleInput } from "@svc/contract/network.ts";

/** Keyed by host name or `*.example.com`; lists of transforms, in the order in which they apply. Values are templates, never secrets. */
export type HostRules = Readonly<Record<string, readonly HostRule[]>>;
export type HostRule = { readonly transform?: { readonly headers?: Readonly<Record<string, string>> } };

/** A header as a rule sets it: its name in lower case, and its template. */
export type HeaderTemplate = { readonly name: string; readonly template: string };

export type Reference = { readonly kind: "secret" | "token"; readonly name: string };

const PLACEHOLDER = /\$\{e2b\.(secrets|identity\.tokens)\.([^{}]+)\}/g;
const MAX_HOSTS = 64;
const MAX_BYTES = 64 * 1024;
/** These belong to the connection or to the message's framing, or would send the request to another host. */
const OWN = new Set([
  "connection",
  "content-length",
  "expect",
  "host",
  "http2-settings",
  "keep-alive",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/** Returns the rules with their hosts normalized by `hostOf`. @throws INVALID_REQUEST with the host and the header. */
export function hostRulesOf(
  input: Readonly<Record<string, readonly HostRuleInput[]>> | null | undefined,
  hostOf: (host: string) => string,
  tokens: readonly string[],
): HostRules | undefined {
  const entries = Object.entries(input ?? {});
  if (entries.length === 0) return undefined;
  if (entries.length > MAX_HOSTS) fail("INVALID_REQUEST", `network.rules: expected at most ${MAX_HOSTS} hosts, got ${entries.length}`);
  if (Buffer.byteLength(JSON.stringify(input)) > MAX_BYTES) fail("INVALID_REQUEST", `network.rules: expected at most ${MAX_BYTES} bytes in all`);
  const rules: Record<string, HostRule[]> = {};
  for (const [written, list] of entries) {
    const host = hostOf(written);
    if (Object.hasOwn(rules, host)) fail("INVALID_REQUEST", `network.rules: "${written}" and another entry mean the same host; write it once`);
    rules[host] = list.map((rule) => {
      const headers = rule.transform?.headers;
      if (headers === undefined || headers === null) return {};
      for (const [name, value] of Object.entries(headers)) checkHeader(`network.rules["${written}"]`, name, value, tokens);
      return { transform: { headers: { ...headers } } };
    });
  }
  return rules;
}

function checkHeader(position: string, name: string, value: string, tokens: readonly string[]): void {
  if (OWN.has(name.toLowerCase())) fail("INVALID_REQUEST", `${position}: header "${name}" belongs to the connection, and no rule can set it`);
  for (const reference of referencesOf(value)) {
    if (reference.kind === "secret" || tokens.includes(reference.name)) continue;
    const known = tokens.length === 0 ? "this sandbox has none" : `this sandbox has ${tokens.map((token) => `"${token}"`).join(", ")}`;
    fail("INVALID_REQUEST", `${position}: header "${name}" names the identity token "${reference.name}"; ${known} (iam.tokens of the create)`);
  }
  if (value.replace(PLACEHOLDER, "").includes("${e2b."))
    fail("INVALID_REQUEST", `${position}: header "${name}": a placeholder is \${e2b.secrets.NAME} or \${e2b.identity.tokens.NAME}`);
}

export function referencesOf(template: string): Reference[] {
  return [...template.matchAll(PLACEHOLDER)].map(([, kind, name = ""]) => ({ kind: kind === "secrets" ? "secret" : "token", name }));
}

/** Replaces each placeholder; what `valueFor` returns is inserted as it is, never read as a template again. */
export function filled(template: string, valueFor: (reference: Reference) => string): string {
  return template.replace(PLACEHOLDER, (_, kind: string, name: string) => valueFor({ kind: kind === "secrets" ? "secret" : "token", name }));
}

/** Returns the headers that rules set for this host; undefined if it has no rules: an exact entry, else the longest wildcard that matches. */
export function headersFor(rules: HostRules | undefined, host: string): HeaderTemplate[] | undefined {
  const key = ruleKeyOf(rules, host);
  if (key === undefined) return undefined;
  const headers = new Map<string, string>();
  for (const { transform } of rules?.[key] ?? [])
    for (const [name, template] of Object.entries(transform?.headers ?? {})) headers.set(name.toLowerCase(), template);
  return [...headers].map(([name, template]) => ({ name, template }));
}

export function hasRules(rules: HostRules | undefined, host: string): boolean {
  return ruleKeyOf(rules, host) !== undefined;
}

function ruleKeyOf(rules: HostRules | undefined, host: string): string | undefined {
  if (rules === undefined) return undefined;
  if (Object.hasOwn(rules, host)) return host;
  let best: string | undefined;
  for (const key of Object.keys(rules)) {
    if (key.startsWith("*.") && host.endsWith(key.slice(1)) && host.length > key.length - 1 && key.length > (best?.length ?? 0)) best = key;
  }
  return best;
}
