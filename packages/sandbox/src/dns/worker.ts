// The thread that answers the sandboxes' DNS questions; see thread.ts for the node's side of it.
import assert from "node:assert/strict";
import { performance } from "node:perf_hooks";
import { parentPort, workerData } from "node:worker_threads";
import { type Rate, TokenBucket } from "@svc/kit/token-bucket.ts";
import { type Cidr, contains, parseAddress } from "../egress/cidr.ts";
import { hasRules } from "../egress/host-rules.ts";
import { ownAddresses } from "../egress/own-addresses.ts";
import { type EgressPolicy, nameRefusal, type ReadPolicy, readPolicy } from "../egress/policy.ts";
import { type DialledProxy, dialThrough } from "../egress/socks5.ts";
import type { Found } from "./answer.ts";
import type { Transport } from "./forward.ts";
import { openResolvers, parseUpstream } from "./resolvers.ts";
import { type Asker, openDns } from "./server.ts";

export type DnsWorkerData = {
  readonly address: string;
  readonly port: number;
  readonly upstreams: readonly string[] | undefined;
  readonly rate: Rate;
  /** Ranges in which no server of a sandbox may be. */
  readonly closed: readonly Cidr[];
};

/** Messages from the node. `call` identifies the message that is the answer. */
export type ToDns =
  | { readonly say: "policy"; readonly call: number; readonly address: string; readonly client: number; readonly policy: EgressPolicy }
  | { readonly say: "forget"; readonly address: string; readonly client: number }
  | { readonly say: "opened"; readonly call: number; readonly problem?: string }
  | { readonly say: "proxy"; readonly call: number; readonly dial: DialledProxy | undefined; readonly problem?: string }
  | { readonly say: "close" };

/** Refused names with their reasons, `unlisted`: how many more there were, and `dropped`: datagrams that the rate cut off. */
export type DnsReport = { readonly client: number; readonly refused: readonly Refused[]; readonly unlisted: number; readonly dropped: number };
export type Refused = { readonly name: string; readonly transport: Transport; readonly why: string };

export type FromDns =
  | { readonly say: "ready"; readonly port: number }
  | { readonly say: "in force"; readonly call: number }
  | { readonly say: "resolved"; readonly call: number | undefined; readonly client: number; readonly name: string; readonly found: readonly Found[] }
  /** Asks for the proxy of a sandbox, through which its questions to servers of its own go. */
  | { readonly say: "proxy"; readonly call: number; readonly client: number }
  | { readonly say: "report"; readonly reports: readonly DnsReport[] };

/** The same rate as for denied packets: enough to read, too few to be a load. */
const REPORTED: Rate = { perSecond: 5, burst: 50 };
const REPORT_MS = 100;

type Sandbox = { client: number; read: ReadPolicy; readonly reported: TokenBucket; refused: Refused[]; unlisted: number; dropped: number };

const node = parentPort;
assert.ok(node !== null, "this file is the program of a worker thread");
const send = (message: FromDns): void => node.postMessage(message);
const { address, port, upstreams, rate, closed } = workerData as DnsWorkerData;
const sandboxes = new Map<string, Sandbox>();
const dialling = new Map<number, { resolve: (dial: DialledProxy | undefined) => void; reject: (error: Error) => void }>();
const opening = new Map<number, (problem: string | undefined) => void>();
let nextCall = 1;
let reporting: NodeJS.Timeout | undefined;

function report(): void {
  reporting = undefined;
  const reports: DnsReport[] = [];
  for (const sandbox of sandboxes.values()) {
    const { client, refused, unlisted, dropped } = sandbox;
    if (refused.length === 0 && unlisted === 0 && dropped === 0) continue;
    reports.push({ client, refused, unlisted, dropped });
    Object.assign(sandbox, { refused: [], unlisted: 0, dropped: 0 });
  }
  send({ say: "report", reports });
}

function askerOf(sandbox: Sandbox): Asker {
  return {
    refuses: (name) => nameRefusal(sandbox.read, name),
    hasRules: (name) => hasRules(sandbox.read.policy.rules, name),
    denied(name, transport, why) {
      if (sandbox.reported.take(performance.now())) sandbox.refused.push({ name, transport, why });
      else sandbox.unlisted++;
      reporting ??= setTimeout(report, REPORT_MS);
    },
    dropped() {
      sandbox.dropped++;
      reporting ??= setTimeout(report, REPORT_MS);
    },
    async servers() {
      const { dnsServers, proxy } = sandbox.read.policy;
      if (dnsServers === undefined) return undefined;
      const own = proxy === undefined ? ownAddresses() : new Set<string>();
      const all = dnsServers.map(parseUpstream);
      const open = all.filter(({ address: at }) => !own.has(at) && !closed.some((cidr) => contains(cidr, parseAddress(at) ?? 0)));
      if (open.length === 0) throw new Error(`the server ${all[0]?.address} of network.dnsServers is in a range that is closed to sandboxes`);
      if (proxy === undefined) return { upstreams: open };
      const dial = await proxyOf(sandbox.client);
      if (dial === undefined) throw new Error("the sandbox's egressProxy was changed meanwhile");
      return { upstreams: open, through: (upstream, abandoned) => dialThrough(dial, upstream.address, upstream.port, abandoned) };
    },
    async resolved(name, found) {
      // Where names open nothing and redirect nothing, the node only notes them for its log.
      if (!sandbox.read.restricted && !hasRules(sandbox.read.policy.rules, name))
        return send({ say: "resolved", call: undefined, client: sandbox.client, name, found });
      const call = nextCall++;
      const problem = await new Promise<string | undefined>((resolve) => {
        opening.set(call, resolve);
        send({ say: "resolved", call, client: sandbox.client, name, found });
      });
      if (problem !== undefined) throw new Error(problem);
    },
  };
}

function proxyOf(client: number): Promise<DialledProxy | undefined> {
  const call = nextCall++;
  return new Promise((resolve, reject) => {
    dialling.set(call, { resolve, reject });
    send({ say: "proxy", call, client });
  });
}

function setPolicy(of: string, client: number, policy: EgressPolicy): void {
  const known = sandboxes.get(of);
  const read = readPolicy(policy);
  if (known?.client === client) known.read = read;
  else {
    dns.forget(of);
    sandboxes.set(of, { client, read, reported: new TokenBucket(REPORTED, performance.now()), refused: [], unlisted: 0, dropped: 0 });
  }
}

const dns = await openDns({
  address,
  port,
  rate,
  resolvers: openResolvers(upstreams),
  askerAt(of) {
    const sandbox = sandboxes.get(of);
    return sandbox === undefined ? undefined : askerOf(sandbox);
  },
});

node.on("message", (message: ToDns) => {
  switch (message.say) {
    case "policy":
      setPolicy(message.address, message.client, message.policy);
      return send({ say: "in force", call: message.call });
    case "forget":
      if (sandboxes.get(message.address)?.client !== message.client) return;
      sandboxes.delete(message.address);
      return dns.forget(message.address);
    case "opened":
      opening.get(message.call)?.(message.problem);
      opening.delete(message.call);
      return;
    case "proxy": {
      const waiting = dialling.get(message.call);
      dialling.delete(message.call);
      return message.problem === undefined ? waiting?.resolve(message.dial) : waiting?.reject(new Error(message.problem));
    }
    case "close":
      clearTimeout(reporting);
      return void dns.close().then(() => node.close());
  }
});
send({ say: "ready", port: dns.port });
