// Reads the target sandbox and port from a request's head: by host name, else by a pair of headers.

import { isControlPath } from "@svc/contract/control-paths.ts";
import { bareSandboxID } from "@svc/contract/fields.ts";
import { type Answer, answer } from "./answer.ts";
import type { HeaderIDs, Pair } from "./header-ids.ts";
import { carriesOwnKey, type NamedKeys } from "./own-keys.ts";
import { HOST, type RequestHead } from "./request-head.ts";

export type Address = {
  readonly sandboxID: string;
  readonly port: number;
  /** The path and query for the sandbox. */
  readonly target: string;
  /** The preview whose name the host is; undefined if the request names the port and the id itself. */
  readonly preview?: string;
};

/** The names of previews, by which hosts without a port and an id are known. */
export type PreviewNames = {
  /** The host of a request is looked up only if there are any. */
  readonly size: number;
  find(name: string): { readonly sandboxID: string; readonly port: number; readonly endedAtMs: number | null } | undefined;
};

/** `<port>-<id>` in one DNS label; the part before the first hyphen counts as a port if it begins like one. */
const labelPattern = /^([0-9+][^-]*)-([a-z0-9_-]+)$/;

const maxIDLength = 64;

function isSandboxID(text: string): boolean {
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    const lower = code | 0x20;
    if (!((lower >= 97 && lower <= 122) || (code >= 48 && code <= 57) || code === 45 || code === 95)) return false;
  }
  return text.length > 0 && text.length <= maxIDLength;
}

/** Parses exactly 1 to 65535 in decimal, without sign, white space or leading zero. */
export function parsePort(text: string): number | undefined {
  if (text.length === 0 || text.length > 5 || text.charCodeAt(0) === 48) return undefined;
  let port = 0;
  for (let at = 0; at < text.length; at++) {
    const digit = text.charCodeAt(at) - 48;
    if (digit < 0 || digit > 9) return undefined;
    port = port * 10 + digit;
  }
  return port <= 65535 ? port : undefined;
}

/** Returns the part after `/proxy` if the path lies below it, else undefined. */
export function belowProxy(target: string): string | undefined {
  if (!target.startsWith("/proxy")) return undefined;
  const rest = target.slice(6);
  if (rest === "") return "/";
  if (rest.startsWith("/")) return rest;
  return rest.startsWith("?") ? `/${rest}` : undefined;
}

/**
 * Says whether only envd serves this path. Python SDKs 2.9 to 2.15 send such requests, for sandboxes obtained by `connect`, with its token but
 * without a routing header if one URL serves all sandboxes.
 */
export function isEnvdOwn(target: string): boolean {
  return /^\/(?:files(?=[?]|$)|process\.Process\/|filesystem\.Filesystem\/)/.test(target);
}

/** The domain of trials of TLS: its names are this machine, and clients accept a wildcard below it, unlike one right below localhost. */
export const TRIAL_DOMAIN = "svc.localhost";

export class Addressing {
  readonly #ids: HeaderIDs;
  readonly #domains: ReadonlySet<string>;
  readonly #previews: PreviewNames | undefined;

  constructor(ids: HeaderIDs, domains: readonly string[], previews?: PreviewNames) {
    this.#ids = ids;
    this.#previews = previews;
    this.#domains = new Set([...domains, "localhost", TRIAL_DOMAIN].map((domain) => domain.toLowerCase().replace(/:\d+$/, "").replace(/\.$/, "")));
  }

  /**
   * Returns undefined if the request names no sandbox. The host takes precedence over headers, and so does, outside /proxy, a key of the platform
   * on a path of the control plane: some SDKs send a sandbox's headers with each call of the control plane.
   */
  read(head: RequestHead, apiKey: string, named?: NamedKeys): Address | Answer | undefined {
    return this.#byHost(head) ?? this.byPreview(head) ?? (this.#isForControl(head, apiKey, named) ? undefined : this.#byHeaders(head));
  }

  /** Always false below /proxy, where no path belongs to the control plane and a key decides nothing. */
  #isForControl(head: RequestHead, apiKey: string, named: NamedKeys | undefined): boolean {
    const { apiKey: key } = this.#ids;
    return head.has(key) && isControlPath(head.target) && head.agrees(key) && carriesOwnKey(head, key, apiKey, named);
  }

  #byHost(head: RequestHead): Address | Answer | undefined {
    if (!head.hostHasHyphen) return undefined;
    const host = head.value(HOST) as string;
    const name = host.toLowerCase().replace(/:\d*$/, "").replace(/\.$/, "");
    const dot = name.indexOf(".");
    if (dot < 0 || !this.#domains.has(name.slice(dot + 1))) return undefined;
    const label = labelPattern.exec(name.slice(0, dot));
    if (label === null) return undefined;
    const port = parsePort(label[1] as string);
    if (port === undefined) return badPort(`The host ${name}`, label[1] as string);
    return { sandboxID: bareSandboxID(label[2] as string), port, target: head.target };
  }

  /** Returns undefined unless the host is a preview's. */
  byPreview(head: RequestHead): Address | Answer | undefined {
    if (this.#previews === undefined || this.#previews.size === 0) return undefined;
    const host = head.value(HOST);
    if (host === undefined) return undefined;
    const name = host.toLowerCase().replace(/:\d*$/, "").replace(/\.$/, "");
    const dot = name.indexOf(".");
    if (dot < 0 || !this.#domains.has(name.slice(dot + 1))) return undefined;
    const label = name.slice(0, dot);
    const found = this.#previews.find(label);
    if (found === undefined) return undefined;
    const { sandboxID, port, endedAtMs } = found;
    if (endedAtMs === null) return { sandboxID, port, target: head.target, preview: label };
    const endedAt = new Date(endedAtMs).toISOString();
    const message = `The preview '${label}' leads to port ${port} of sandbox ${sandboxID}, which ended at ${endedAt}`;
    return answer(502, message, { sandboxId: sandboxID, preview: label, endedAt }, { "x-svc-reason": "not_found" });
  }

  #byHeaders(head: RequestHead): Address | Answer | undefined {
    let found: Pair | undefined;
    for (const pair of this.#ids.pairs) {
      if (!head.has(pair.sandboxID) && !head.has(pair.port)) continue;
      const problem = pairProblem(head, pair);
      if (problem !== undefined) return answer(400, problem);
      if (found !== undefined && !sameTarget(head, found, pair)) return answer(400, "The request's routing headers name two different targets; send one pair");
      found = pair;
    }
    if (found === undefined) return undefined;
    const sandboxID = bareSandboxID(head.value(found.sandboxID) as string);
    if (!isSandboxID(sandboxID)) return answer(400, "The sandbox id in the routing header is not one: it has letters and digits only");
    const port = parsePort(head.value(found.port) as string);
    if (port === undefined) return badPort("The routing header", head.value(found.port) as string);
    const { target } = head;
    return { sandboxID, port, target: belowProxy(target) ?? target };
  }

  /** The answer to requests below /proxy that name no target. */
  get missing(): Answer {
    const pairs = this.#ids.pairs.map(({ names }) => `${names.sandboxID} and ${names.port}`).join(", or ");
    return answer(400, `A request to /proxy needs the headers ${pairs}`);
  }
}

function sameTarget(head: RequestHead, one: Pair, other: Pair): boolean {
  return head.value(one.sandboxID) === head.value(other.sandboxID) && head.value(one.port) === head.value(other.port);
}

function pairProblem(head: RequestHead, { names, sandboxID, port }: Pair): string | undefined {
  if (!head.has(sandboxID)) return `The header ${names.port} came without ${names.sandboxID}; send both`;
  if (!head.has(port)) return `The header ${names.sandboxID} came without ${names.port}; send both`;
  if (head.repeated[sandboxID] !== 0) return `The header ${names.sandboxID} was sent more than once`;
  if (head.repeated[port] !== 0) return `The header ${names.port} was sent more than once`;
  return undefined;
}

function badPort(where: string, found: string): Answer {
  return answer(400, `${where} has the port ${JSON.stringify(found.slice(0, 32))}; a port is a decimal number from 1 to 65535 without leading zeros`);
}
