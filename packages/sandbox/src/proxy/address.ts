// Reads from a request's head which sandbox and port it is for: by host name, else by a pair of headers.
import { type Answer, answer } from "@svc/kit/proxy/answer.ts";
import { HOST, type RequestHead } from "@svc/kit/proxy/request-head.ts";
import type { HeaderIDs, Pair } from "./header-ids.ts";

export type Address = {
  readonly sandboxID: string;
  readonly port: number;
  /** The path and query for the sandbox. */
  readonly target: string;
};

const sandboxIDPattern = /^[A-Za-z0-9_-]{1,64}$/;
/** `<port>-<id>`, all of one DNS label; whatever stands before the first hyphen is taken for a port when it begins like one. */
const labelPattern = /^([0-9+][^-]*)-([a-z0-9_-]+)$/;

/** Exactly 1 to 65535 in decimal, without sign, blank or leading zero. */
export function parsePort(text: string): number | undefined {
  if (!/^[1-9][0-9]{0,4}$/.test(text)) return undefined;
  const port = Number(text);
  return port <= 65535 ? port : undefined;
}

/** What follows `/proxy` when the path lies below it; undefined otherwise. */
export function belowProxy(target: string): string | undefined {
  if (!target.startsWith("/proxy")) return undefined;
  const rest = target.slice(6);
  if (rest === "") return "/";
  if (rest.startsWith("/")) return rest;
  return rest.startsWith("?") ? `/${rest}` : undefined;
}

export class Addressing {
  readonly #ids: HeaderIDs;
  readonly #domains: ReadonlySet<string>;

  constructor(ids: HeaderIDs, domains: readonly string[]) {
    this.#ids = ids;
    this.#domains = new Set([...domains, "localhost"].map((domain) => domain.toLowerCase().replace(/:\d+$/, "").replace(/\.$/, "")));
  }

  /** Undefined when the request names no sandbox. The host wins over headers. */
  read(head: RequestHead): Address | Answer | undefined {
    return this.#byHost(head) ?? this.#byHeaders(head);
  }

  #byHost(head: RequestHead): Address | Answer | undefined {
    const host = head.value(HOST);
    if (host === undefined || !host.includes("-")) return undefined;
    const name = host.toLowerCase().replace(/:\d*$/, "").replace(/\.$/, "");
    const dot = name.indexOf(".");
    if (dot < 0 || !this.#domains.has(name.slice(dot + 1))) return undefined;
    const label = labelPattern.exec(name.slice(0, dot));
    if (label === null) return undefined;
    const port = parsePort(label[1] as string);
    if (port === undefined) return badPort(`The host ${name}`, label[1] as string);
    return { sandboxID: label[2] as string, port, target: head.target };
  }

  #byHeaders(head: RequestHead): Address | Answer | undefined {
    let found: { sandboxID: string; port: string } | undefined;
    for (const pair of this.#ids.pairs) {
      const sandboxID = head.value(pair.sandboxID);
      const port = head.value(pair.port);
      if (sandboxID === undefined && port === undefined) continue;
      const problem = pairProblem(head, pair);
      if (problem !== undefined) return answer(400, problem);
      if (found !== undefined && (found.sandboxID !== sandboxID || found.port !== port)) return answer(400, "The request's routing headers name two different targets; send one pair");
      found = { sandboxID: sandboxID as string, port: port as string };
    }
    if (found === undefined) return undefined;
    if (!sandboxIDPattern.test(found.sandboxID)) return answer(400, "The sandbox id in the routing header is not one: it has letters and digits only");
    const port = parsePort(found.port);
    if (port === undefined) return badPort("The routing header", found.port);
    const { target } = head;
    return { sandboxID: found.sandboxID, port, target: belowProxy(target) ?? target };
  }

  /** Said to requests below /proxy that name no target. */
  get missing(): Answer {
    const pairs = this.#ids.pairs.map(({ names }) => `${names.sandboxID} and ${names.port}`).join(", or ");
    return answer(400, `A request to /proxy needs the headers ${pairs}`);
  }
}

function pairProblem(head: RequestHead, { names, sandboxID, port }: Pair): string | undefined {
  for (const [id, name, other] of [
    [sandboxID, names.sandboxID, names.port],
    [port, names.port, names.sandboxID],
  ] as const) {
    if (!head.has(id)) return `The header ${other} came without ${name}; send both`;
    if (head.repeated[id] !== 0) return `The header ${name} was sent more than once`;
  }
  return undefined;
}

function badPort(where: string, found: string): Answer {
  return answer(400, `${where} has the port ${JSON.stringify(found.slice(0, 32))}; a port is a decimal number from 1 to 65535 without leading zeros`);
}
