// Runs the thread that answers DNS for sandboxes: sends it their policies, opens the addresses it resolved, and restarts it when it dies.
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Rate } from "@svc/kit/token-bucket.ts";
import type { Cidr } from "../egress/cidr.ts";
import type { EgressPolicy } from "../egress/policy.ts";
import type { DialledProxy } from "../egress/socks5.ts";
import type { Found } from "./answer.ts";
import type { DnsReport, DnsWorkerData, FromDns, ToDns } from "./worker.ts";

/** The limit of the thread's heap; beyond it the thread ends and is restarted. Connections and messages are outside, limited by server.ts. */
const MAX_HEAP_MB = 128;
const MIN_RESTART_MS = 50;
const MAX_RESTART_MS = 10_000;
const CLOSE_MS = 2_000;

/** A sandbox in the thread's view: the address its questions come from, and its policy. */
export type DnsClient = {
  /** Unique within the process, unlike addresses, which are used again. */
  readonly id: number;
  readonly slot: { readonly guestAddress: string };
  readonly policy: EgressPolicy;
};

export type DnsThreadOptions<Client extends DnsClient> = {
  readonly address: string;
  readonly port: number;
  /** Undefined: the host's resolvers are used. */
  readonly upstreams: readonly string[] | undefined;
  readonly rate: Rate;
  /** Ranges in which no server of a sandbox may be. */
  readonly closed: readonly Cidr[];
  /** Returns the sandbox's proxy. @throws with the reason why it cannot be dialled. */
  readonly proxyOf: (client: Client) => Promise<DialledProxy | undefined>;
  readonly log: Log;
  /** Lists every sandbox with an address, for a thread that starts. */
  readonly clients: () => Iterable<Client>;
  /** Opens the addresses; they are open when it resolves. */
  readonly resolved: (client: Client, name: string, found: readonly Found[]) => Promise<void>;
  readonly onReport: (client: Client, report: DnsReport) => void;
  /** Called when a restarted thread has another port, since its old one was in use. */
  readonly onPort: (port: number) => void;
};

export interface DnsThread<Client extends DnsClient> {
  readonly port: number;
  /** The client's policy is in force when this resolves. */
  setPolicy(client: Client): Promise<void>;
  forget(client: Client): void;
  close(): Promise<void>;
}

export async function openDnsThread<Client extends DnsClient>(options: DnsThreadOptions<Client>): Promise<DnsThread<Client>> {
  const { log } = options;
  const known = new Map<number, Client>();
  const waiting = new Map<number, () => void>();
  let nextCall = 1;
  let port = options.port;
  let closed = false;
  let restartMs = MIN_RESTART_MS;
  let worker: Worker | undefined = await start();

  const send = (message: ToDns): void => worker?.postMessage(message);

  async function start(): Promise<Worker> {
    const workerData: DnsWorkerData = {
      address: options.address,
      port,
      upstreams: options.upstreams,
      rate: options.rate,
      closed: options.closed,
    };
    const started = new Worker(new URL("./worker.ts", import.meta.url), {
      workerData,
      name: "dns",
      // The thread must not see the key and the seed (I25), nor this process's arguments.
      env: {},
      execArgv: ["--disable-warning=ExperimentalWarning"],
      resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
    });
    const ended = once(started, "exit").then(() => fail("INTERNAL", "the thread that answers DNS ended at its start"));
    const [ready] = (await Promise.race([once(started, "message"), ended])) as [FromDns & { say: "ready" }];
    ended.catch(() => {});
    port = ready.port;
    started.unref();
    started.on("message", (message: FromDns) => void onMessage(message));
    started.on("error", (error) => log.error({ err: error }, "the thread that answers DNS for sandboxes failed"));
    const begun = performance.now();
    started.once("exit", () => {
      worker = undefined;
      if (performance.now() - begun > MAX_RESTART_MS) restartMs = MIN_RESTART_MS;
      if (!closed) void startAgain();
    });
    return started;
  }

  async function startAgain(): Promise<void> {
    while (!closed && worker === undefined) {
      await sleep(restartMs, undefined, { ref: false });
      restartMs = Math.min(restartMs * 2, MAX_RESTART_MS);
      if (closed) return;
      const before = port;
      try {
        worker = await start();
      } catch (error) {
        log.error({ err: error, restartMs }, "sandboxes have no DNS at the moment: its thread cannot be started");
        continue;
      }
      if (closed) return void worker.terminate();
      log.warn("the thread that answers DNS for sandboxes was restarted");
      if (port !== before) options.onPort(port);
      const late = [...waiting.values()];
      waiting.clear();
      await Promise.all([...options.clients()].map(setPolicy));
      for (const done of late) done();
    }
  }

  function setPolicy(client: Client): Promise<void> {
    known.set(client.id, client);
    if (worker === undefined) return Promise.resolve(); // the next thread starts with this policy
    const call = nextCall++;
    const done = new Promise<void>((resolve) => waiting.set(call, resolve));
    send({ say: "policy", call, address: client.slot.guestAddress, client: client.id, policy: client.policy });
    return done;
  }

  async function onMessage(message: FromDns): Promise<void> {
    switch (message.say) {
      case "in force":
        waiting.get(message.call)?.();
        waiting.delete(message.call);
        return;
      case "report":
        for (const report of message.reports) {
          const client = known.get(report.client);
          if (client !== undefined) options.onReport(client, report);
        }
        return;
      case "proxy": {
        const { call } = message;
        const client = known.get(message.client);
        try {
          return send({ say: "proxy", call, dial: client === undefined ? undefined : await options.proxyOf(client) });
        } catch (error) {
          return send({ say: "proxy", call, dial: undefined, problem: asFailure(error).message });
        }
      }
      case "resolved": {
        const { call, name, found } = message;
        const client = known.get(message.client);
        const problem = client === undefined ? "the sandbox is gone" : await opened(client, name, found);
        if (call !== undefined) send({ say: "opened", call, ...(problem === undefined ? {} : { problem }) });
        return;
      }
      default:
        return;
    }
  }

  async function opened(client: Client, name: string, found: readonly Found[]): Promise<string | undefined> {
    try {
      await options.resolved(client, name, found);
      return undefined;
    } catch (error) {
      return asFailure(error).message;
    }
  }

  return {
    get port() {
      return port;
    },
    setPolicy,
    forget(client) {
      known.delete(client.id);
      send({ say: "forget", address: client.slot.guestAddress, client: client.id });
    },
    async close() {
      closed = true;
      for (const done of waiting.values()) done();
      const ending = worker;
      if (ending === undefined) return;
      const ended = once(ending, "exit");
      ending.postMessage({ say: "close" } satisfies ToDns);
      const timer = setTimeout(() => void ending.terminate(), CLOSE_MS);
      await ended;
      clearTimeout(timer);
    },
  };
}
