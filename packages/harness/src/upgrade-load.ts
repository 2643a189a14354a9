// Clients that keep working through the gateways of a deployment while its nodes are replaced, and what was acknowledged to them.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { SvcClient } from "@svc/contract/client.ts";
import { Failure, type FailureName } from "@svc/contract/failures.ts";

/** Failures that a client may meet while a node is replaced, each with the promise that the same request succeeds later. */
const RETRIED: readonly FailureName[] = [
  ...(["NODE_LOST", "SERVER_UNREACHABLE", "SANDBOX_CHANGING_STATE", "SANDBOX_NOT_RUNNING", "SANDBOX_MOVED"] as const),
  ...(["CAPACITY_EXHAUSTED", "TOO_MANY_REQUESTS", "ETCD_UNAVAILABLE", "REQUEST_IN_FLIGHT"] as const),
];
const RETRY_MS = 200;
/** At least ten times what the replacement of one node takes. */
const SUCCEEDS_WITHIN_MS = 180_000;
const REST_MS = 100;
/** A client's own sandbox is paused in every third round. */
const ROUNDS_PER_PAUSE = 3;

export type LoadReport = { readonly acknowledged: number; readonly retried: Readonly<Record<string, number>>; readonly slowestMs: number };
export type Load = {
  /** Ends the clients, and checks that nothing acknowledged is lost. @throws the first failure of a client that a retry did not resolve. */
  finish(): Promise<LoadReport>;
};

/** Starts `count` clients, each with one sandbox of its own that stays, and one more in each round. */
export function startLoad(urls: readonly string[], apiKey: string, count: number): Load {
  const clients = urls.map((baseURL) => new SvcClient({ baseURL, apiKey }));
  const stop = new AbortController();
  const retried: Record<string, number> = {};
  let acknowledged = 0;
  let slowestMs = 0;
  let turn = 0;

  /** Sends a request until it is acknowledged, each time through the next gateway. Each request here may be repeated. */
  async function acknowledge<T>(what: string, request: (client: SvcClient) => Promise<T>): Promise<T> {
    const began = performance.now();
    for (;;) {
      try {
        const answer = await request(clients[turn++ % clients.length] ?? assert.fail("no gateway"));
        acknowledged++;
        slowestMs = Math.max(slowestMs, performance.now() - began);
        return answer;
      } catch (error) {
        const isTyped = error instanceof Failure && RETRIED.includes(error.name);
        if (!isTyped || performance.now() - began > SUCCEEDS_WITHIN_MS) throw new Error(`${what}: ${String(error)}`, { cause: error });
        const key = `${what}: ${error.name}`;
        if (retried[key] === undefined) process.stderr.write(`${key}: ${error.message}\n`);
        retried[key] = (retried[key] ?? 0) + 1;
        await delay(RETRY_MS);
      }
    }
  }

  /** A create is safe to repeat by its key. */
  const create = (timeout: number) => {
    const idempotencyKey = randomUUID();
    const options = { templateID: "base", timeout, autoPause: true, autoResume: { enabled: true }, idempotencyKey };
    return acknowledge("create", (client) => client.create(options));
  };
  const remove = (sandboxID: string) =>
    acknowledge("delete", (client) =>
      // A repeated delete finds that the first one was carried out.
      client.delete(sandboxID).catch((error: unknown) => {
        if (!(error instanceof Failure && error.name === "SANDBOX_NOT_FOUND")) throw error;
      }),
    );
  const pause = (sandboxID: string) =>
    acknowledge("pause", (client) =>
      client.pause(sandboxID).catch((error: unknown) => {
        if (!(error instanceof Failure && error.name === "SANDBOX_PAUSED")) throw error;
      }),
    );

  async function work(): Promise<() => Promise<void>> {
    const own = await create(3600);
    const read = () => acknowledge("read", async (client) => text((await client.envd(own).download("/home/user/round")).body));
    let round = 0;
    let written = "";
    while (!stop.signal.aborted) {
      round++;
      const content = `round ${round}`;
      await acknowledge("write", (client) => client.envd(own).upload("/home/user/round", Buffer.from(content)));
      written = content;
      if (round % ROUNDS_PER_PAUSE === 0) await pause(own.sandboxID);
      assert.equal(await read(), written, `sandbox ${own.sandboxID} has what was acknowledged last`);
      const other = await create(600);
      assert.equal(await acknowledge("command", (client) => outputOf(client, other)), "42\n");
      await remove(other.sandboxID);
      await delay(REST_MS);
    }
    return async () => {
      assert.equal(await read(), written, `sandbox ${own.sandboxID} has what was acknowledged last`);
      await remove(own.sandboxID);
    };
  }

  const working = Array.from({ length: count }, work);
  // A failure is reported by finish; until then it must not end the process.
  for (const each of working) each.catch(() => stop.abort());
  return {
    async finish() {
      stop.abort();
      for (const check of await Promise.all(working)) await check();
      return { acknowledged, retried, slowestMs: Math.round(slowestMs) };
    },
  };
}

async function outputOf(client: SvcClient, sandbox: { sandboxID: string; envdAccessToken?: string | undefined }): Promise<string> {
  let said = "";
  for await (const event of client.envd(sandbox).start({ cmd: "echo", args: ["42"], stdin: false })) {
    if (event.type === "stdout") said += Buffer.from(event.data).toString();
  }
  return said;
}
