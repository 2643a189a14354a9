// A sandbox's network as clients configure it: what it may reach, who may reach it, and changes while it runs.
import { z } from "zod";
import { ENVD_PORT } from "./envd-http.ts";
import { fail } from "./failures.ts";
import { sandboxID } from "./fields.ts";
import { operation } from "./operation.ts";

export const networkLimits = { rules: 256, ruleLength: 256, transforms: 16, httpsPorts: 64, dnsServers: 3, proxyAuthorityBytes: 8192 } as const;

const rule = z.string().min(1).max(networkLimits.ruleLength);
const rules = z.array(rule).max(networkLimits.rules);

/** Null and an empty list ask for nothing. */
const notOffered = (member: string, why: string) =>
  z
    .unknown()
    .transform((value): undefined => {
      const isNothing = value === undefined || value === null || (Array.isArray(value) && value.length === 0);
      return isNothing ? undefined : fail("NOT_OFFERED", `network.${member}: svc does not offer this; ${why}`);
    })
    .optional();

const absent = (value: string | null | undefined): string | undefined => value ?? undefined;

/** RFC 9110, field-name. */
const headerName = z
  .string()
  .max(256)
  .regex(/^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/, "is not the name of a header");
const headerValue = z
  .string()
  .max(8192)
  .regex(/^[\t\x20-\x7e\x80-\xff]*$/, "has characters that no header may have, such as line breaks");
const hostRule = z
  .object({
    transform: z
      .object({ headers: z.record(headerName, headerValue).nullish() })
      .strict()
      .nullish(),
  })
  .strict()
  .describe("Headers to set in HTTPS requests to the host; values may contain the placeholders of secrets and identity tokens");
export type HostRuleInput = z.output<typeof hostRule>;

const hostRules = z
  .record(z.string().min(1).max(networkLimits.ruleLength), z.array(hostRule).max(networkLimits.transforms))
  .describe("Rules by host (example.com, or *.example.com for every name below it); they allow nothing by themselves");

const proxyTls = z
  .object({
    enabled: z.boolean(),
    serverName: z.string().min(1).max(253).nullish().transform(absent),
    caCert: z.string().min(1).max(networkLimits.proxyAuthorityBytes).nullish().transform(absent),
  })
  .strict()
  .describe("TLS to the proxy: the name that its certificate must have (the host of the address), and authorities in PEM instead of the node's own");

const egressProxy = z
  .object({
    address: z.string().min(1).max(260).describe("host:port; the host is a name or an IPv4 address"),
    username: z.string().min(1).max(255).nullish().transform(absent),
    password: z.string().min(1).max(255).nullish().transform(absent),
    tls: proxyTls.nullish(),
  })
  .strict()
  .describe("A SOCKS5 proxy through which allowed TCP connections leave; without it they leave directly, and if it fails they fail");
export type EgressProxyInput = z.output<typeof egressProxy>;

/** The destinations that a sandbox may reach; null and absent are the same. */
export const egressMembers = {
  allowOut: rules.nullish().describe("CIDR blocks, addresses and domains (*.example.com too) that may be reached; wins over denyOut"),
  denyOut: rules.nullish().describe("CIDR blocks and addresses that may not be reached"),
  dnsServers: z
    .array(z.string().min(1).max(64))
    .max(networkLimits.dnsServers)
    .nullish()
    .describe("DNS servers, by IPv4 address, that alone answer this sandbox's questions; the rules must allow them"),
  egressProxy: egressProxy.nullish(),
  rules: hostRules.nullish(),
};

const httpsPorts = z
  .array(
    z
      .number()
      .int()
      .min(1)
      .max(65_535)
      .refine((port) => port !== ENVD_PORT, `${ENVD_PORT} is envd's own port, which speaks plain HTTP`),
  )
  .max(networkLimits.httpsPorts)
  .nullish()
  .transform((ports) => (ports === null || ports === undefined || ports.length === 0 ? undefined : [...new Set(ports)]))
  .describe("Ports whose servers speak TLS themselves; their certificates are not verified");

export const network = z
  .object({
    allowPublicTraffic: z
      .boolean()
      .nullish()
      .transform((value) => value ?? true)
      .describe("false: applications demand trafficAccessToken"),
    maskRequestHost: z
      .string()
      .min(1)
      .max(255)
      .regex(/^[A-Za-z0-9.$\-_{}:[\]]+$/)
      .optional()
      .describe("Host header that applications see; PORT in braces behind a dollar sign stands for the port"),
    httpsPorts,
    ...egressMembers,
  })
  .strict();
export type NetworkInput = z.output<typeof network>;

/** A sandbox's network as its details show it. */
export const shownNetwork = z.object({
  allowPublicTraffic: z.boolean(),
  maskRequestHost: z.string().optional(),
  allowOut: z.array(z.string()).optional(),
  denyOut: z.array(z.string()).optional(),
  rules: hostRules.optional(),
  dnsServers: z.array(z.string()).optional(),
  httpsPorts: z.array(z.number()).optional(),
  egressProxy: z
    .object({
      address: z.string(),
      username: z.string().optional(),
      tls: z.object({ enabled: z.literal(true), serverName: z.string().optional() }).optional(),
    })
    .optional(),
});

export const setSandboxNetwork = operation({
  name: "setSandboxNetwork",
  method: "PUT",
  path: "/sandboxes/{sandboxID}/network",
  summary: "Replaces what the sandbox may reach, at once and as a whole; an omitted member is cleared",
  input: z.object({
    sandboxID,
    ...egressMembers,
    httpsPorts: notOffered("httpsPorts", "they are set when a sandbox is created, and stay"),
    allow_internet_access: z.boolean().nullish().describe("false: nothing leaves the sandbox but to allowOut"),
  }),
  output: z.undefined(),
  success: 204,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED", "NOT_OFFERED", "SANDBOX_NOT_FOUND", "SANDBOX_CHANGING_STATE", "TOO_MANY_REQUESTS", "DISK_FULL"],
});
