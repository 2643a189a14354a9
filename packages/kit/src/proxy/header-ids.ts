// The headers this proxy acts on besides framing: addresses, credentials, and those that only it may send to an upstream.
import { gatewayHeaders } from "@svc/contract/cluster.ts";
import type { HeaderNames } from "./header-names.ts";

/** E2B's header names, accepted in addition to the configured brands, since clients in use send them. */
const e2b = { sandboxID: "e2b-sandbox-id", port: "e2b-sandbox-port", trafficToken: "e2b-traffic-access-token" };

/** Headers that only the proxy may set about the client; copies from outside are dropped. */
const toldByProxy = ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "forwarded", "x-real-ip"] as const;

type PairNames = { readonly sandboxID: string; readonly port: string; readonly trafficToken: string };

export function pairNames(brands: readonly string[]): PairNames[] {
  return [
    ...brands.map((brand) => ({ sandboxID: `x-${brand}-sandbox-id`, port: `x-${brand}-target-port`, trafficToken: `${brand}-traffic-access-token` })),
    e2b,
  ];
}

/** All names, in the order in which a head's table numbers them. */
export function proxyNames(brands: readonly string[]): string[] {
  return [
    ...new Set([
      "x-api-key",
      "x-access-token",
      "authorization",
      gatewayHeaders.token,
      gatewayHeaders.client,
      gatewayHeaders.scheme,
      ...toldByProxy,
      ...pairNames(brands).flatMap((pair) => [pair.sandboxID, pair.port, pair.trafficToken]),
    ]),
  ];
}

export type Pair = { readonly names: PairNames; readonly sandboxID: number; readonly port: number };

/** The numbers of the names. */
export type HeaderIDs = {
  readonly apiKey: number;
  readonly accessToken: number;
  readonly authorization: number;
  readonly toldByProxy: readonly number[];
  /** A gateway's proof of identity, the client for which it speaks, and the scheme that this client used. */
  readonly gateway: readonly [token: number, client: number, scheme: number];
  readonly pairs: readonly Pair[];
  readonly trafficTokens: readonly number[];
};

export function headerIDs(names: HeaderNames, brands: readonly string[]): HeaderIDs {
  const pairs = pairNames(brands);
  return {
    apiKey: names.id("x-api-key"),
    accessToken: names.id("x-access-token"),
    authorization: names.id("authorization"),
    toldByProxy: toldByProxy.map((name) => names.id(name)),
    gateway: [names.id(gatewayHeaders.token), names.id(gatewayHeaders.client), names.id(gatewayHeaders.scheme)],
    pairs: pairs.map((pair) => ({ names: pair, sandboxID: names.id(pair.sandboxID), port: names.id(pair.port) })),
    trafficTokens: pairs.map((pair) => names.id(pair.trafficToken)),
  };
}
