// A sandbox's egress proxy: the SOCKS5 server through which all of its TCP connections leave.
import { isIPv4, isIPv6 } from "node:net";
import { createSecureContext } from "node:tls";
import { fail } from "@svc/contract/failures.ts";
import type { EgressProxyInput } from "@svc/contract/network.ts";
import { referencesOf } from "./host-rules.ts";

/** As records keep it: the password is encrypted. */
export type EgressProxy = {
  /** `host:port`. */
  readonly address: string;
  readonly username?: string;
  readonly sealedPassword?: string;
  /** Present: the connection to the proxy is TLS. */
  readonly tls?: { readonly serverName?: string; readonly caCert?: string };
};

/** RFC 1929: a length of one byte. */
const MAX_CREDENTIAL_BYTES = 255;
const HOST = /^(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*$/;

/** @throws INVALID_REQUEST with the member. */
export function egressProxyOf(input: EgressProxyInput | null | undefined, seal: (password: string) => string): EgressProxy | undefined {
  if (input === null || input === undefined) return undefined;
  const { username, password } = input;
  const { host, port } = splitProxyAddress(input.address);
  for (const [member, value] of Object.entries({ username, password })) {
    if (value !== undefined && Buffer.byteLength(value) > MAX_CREDENTIAL_BYTES)
      fail("INVALID_REQUEST", `network.egressProxy.${member}: expected at most ${MAX_CREDENTIAL_BYTES} bytes, got ${Buffer.byteLength(value)}`);
  }
  if (password !== undefined && username === undefined) fail("INVALID_REQUEST", "network.egressProxy.password: needs a username; give both, or neither");
  // E2B's servers take placeholders in rules alone. Passed on as text, one would only look like a wrong password.
  for (const value of [username, password])
    if (value !== undefined && referencesOf(value).length > 0)
      fail("INVALID_REQUEST", "network.egressProxy: placeholders of secrets are not filled in here; give the user name and password themselves");
  const tls = tlsOf(input.tls);
  return {
    address: `${host}:${port}`,
    ...(tls === undefined ? {} : { tls }),
    ...(username === undefined ? {} : { username }),
    ...(password === undefined ? {} : { sealedPassword: seal(password) }),
  };
}

function tlsOf(input: EgressProxyInput["tls"]): EgressProxy["tls"] {
  if (input === null || input === undefined) return undefined;
  const { enabled, serverName, caCert } = input;
  if (!enabled)
    return serverName === undefined && caCert === undefined
      ? undefined
      : fail("INVALID_REQUEST", "network.egressProxy.tls: serverName and caCert need enabled: true");
  if (serverName !== undefined && !HOST.test(serverName.toLowerCase()))
    fail("INVALID_REQUEST", `network.egressProxy.tls.serverName: expected the name of a host, got ${JSON.stringify(serverName)}`);
  if (caCert !== undefined && !isAuthority(caCert)) fail("INVALID_REQUEST", "network.egressProxy.tls.caCert: expected certificates of authorities in PEM");
  return { ...(serverName === undefined ? {} : { serverName: serverName.toLowerCase() }), ...(caCert === undefined ? {} : { caCert }) };
}

function isAuthority(text: string): boolean {
  try {
    createSecureContext({ ca: text });
    return text.includes("-----BEGIN CERTIFICATE-----");
  } catch {
    return false;
  }
}

/** @throws INVALID_REQUEST. */
export function splitProxyAddress(text: string): { readonly host: string; readonly port: number } {
  const refuse = (why: string): never => fail("INVALID_REQUEST", `network.egressProxy.address: ${JSON.stringify(text)} ${why}`);
  const colon = text.lastIndexOf(":");
  const host = text.slice(0, colon).toLowerCase();
  const port = /^\d{1,5}$/.test(text.slice(colon + 1)) ? Number(text.slice(colon + 1)) : 0;
  if (colon < 0 || port < 1 || port > 65_535) refuse("is not the address of a SOCKS5 proxy; write it as proxy.example.com:1080");
  if (isIPv6(host.replace(/^\[|\]$/g, ""))) refuse("is an IPv6 address, which svc does not reach; name an IPv4 address or a host");
  const isNumeric = /^[\d.]+$/.test(host);
  if (isNumeric ? !isIPv4(host) : !HOST.test(host)) refuse("names no host; write it as proxy.example.com:1080, without a scheme");
  return { host, port };
}

export const shownProxy = ({ address, username, tls }: EgressProxy) => ({
  address,
  ...(username === undefined ? {} : { username }),
  ...(tls === undefined ? {} : { tls: { enabled: true as const, ...(tls.serverName === undefined ? {} : { serverName: tls.serverName }) } }),
});
