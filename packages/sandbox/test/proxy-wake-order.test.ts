// Random pipelines of requests on several connections, over sandboxes that sleep and wake meanwhile: each request gets its own answer.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as tick } from "node:timers/promises";
import { fail } from "@svc/contract/failures.ts";
import fc from "fast-check";
import { dial, type Fixture, openFixture } from "./proxy-fixture.ts";

type Request = { readonly sandbox: number; readonly kind: "GET" | "counted" | "chunked"; readonly bytes: number; readonly awaits: boolean };
type Connection = { readonly requests: readonly Request[]; readonly cuts: readonly number[]; readonly leavesAfter: number | undefined };
type Run = {
  readonly connections: readonly Connection[];
  /** Ticks of the event loop that each wake takes; if the number is negative, the wake fails after that many. */
  readonly wakes: readonly number[];
  /** The sandboxes to pause, each after a number of further ticks. */
  readonly pauses: readonly { readonly sandbox: number; readonly ticks: number }[];
};

const sandboxCount = 3;
const request: fc.Arbitrary<Request> = fc.record({
  sandbox: fc.nat(sandboxCount - 1),
  kind: fc.constantFrom("GET", "counted", "chunked"),
  bytes: fc.oneof(fc.nat(200), fc.nat(120_000)),
  awaits: fc.boolean(),
});
const connection: fc.Arbitrary<Connection> = fc.record({
  requests: fc.array(request, { minLength: 1, maxLength: 6 }),
  cuts: fc.array(fc.nat(300_000), { maxLength: 8 }),
  leavesAfter: fc.option(fc.nat(60), { nil: undefined, freq: 4 }),
});
const calm = { pauses: fc.constant([]), wakes: fc.array(fc.nat(40), { minLength: 1, maxLength: 5 }) };
const wild = {
  pauses: fc.array(fc.record({ sandbox: fc.nat(sandboxCount - 1), ticks: fc.nat(60) }), { maxLength: 8 }),
  wakes: fc.array(fc.integer({ min: -10, max: 40 }), { minLength: 1, maxLength: 5 }),
};
const connections = fc.array(connection, { minLength: 1, maxLength: 6 });
const runs: fc.Arbitrary<Run> = fc.oneof(fc.record({ connections, ...calm }), fc.record({ connections, ...wild }));

/** Everything here is one process: if it pauses for a while, no client was slow. */
const standstill = { headMs: 300_000, connectMs: 300_000, wakeMs: 300_000 };

async function ticks(count: number): Promise<void> {
  for (let done = 0; done < count; done++) await tick();
}

/** Returns the body at `start` of `text` and its end, or undefined if it is incomplete. */
function bodyAt(text: string, start: number, length: number | undefined): { body: string; end: number } | undefined {
  if (length !== undefined) return start + length > text.length ? undefined : { body: text.slice(start, start + length), end: start + length };
  let body = "";
  for (let at = start; ; ) {
    const line = text.indexOf("\r\n", at);
    if (line < 0) return undefined;
    const size = Number.parseInt(text.slice(at, line), 16);
    at = line + 2 + size + 2;
    if (at > text.length) return undefined;
    if (size === 0) return { body, end: at };
    body += text.slice(line + 2, at - 2);
  }
}

/** Returns the complete answers in `text`, in order. */
function answersIn(text: string): { status: number; body: string }[] {
  const answers: { status: number; body: string }[] = [];
  for (let at = 0; ; ) {
    const headEnd = text.indexOf("\r\n\r\n", at);
    if (headEnd < 0) return answers;
    const head = text.slice(at, headEnd);
    const length = /\r\ncontent-length: (\d+)/i.exec(head)?.[1];
    const found = bodyAt(text, headEnd + 4, length === undefined ? undefined : Number(length));
    if (found === undefined) return answers;
    answers.push({ status: Number(head.slice(9, 12)), body: found.body });
    at = found.end;
  }
}

async function openWorld(fixture: Fixture) {
  const seen = new Map<string, number>();
  const sandboxes = await Promise.all(
    Array.from({ length: sandboxCount }, async () => {
      const sandbox = fixture.sandbox();
      const { port, server } = await fixture.serve(sandbox.host, 0, async (incoming, response) => {
        const url = incoming.url ?? "";
        seen.set(url, (seen.get(url) ?? 0) + 1);
        let bytes = 0;
        try {
          for await (const piece of incoming) bytes += piece.length;
        } catch {
          return;
        }
        // The answer is sent in one piece with its length, or in chunks some ticks apart.
        const body = `${sandbox.sandboxID} ${url} ${bytes} `;
        if (bytes % 2 === 0) return void response.end(body);
        response.write(body.slice(0, 9));
        await ticks(bytes % 7);
        response.end(body.slice(9));
      });
      // Another test covers upstreams that close idle connections during a pause of the machine.
      server.keepAliveTimeout = 0;
      return { sandbox, host: `${port}-${sandbox.sandboxID}.localhost` };
    }),
  );
  return { seen, sandboxes };
}

type World = Awaited<ReturnType<typeof openWorld>>;

function textOf({ kind, bytes, sandbox }: Request, url: string, world: World): string {
  const head = `${kind === "GET" ? "GET" : "POST"} ${url} HTTP/1.1\r\nHost: ${world.sandboxes[sandbox]?.host}\r\n`;
  if (kind === "GET") return `${head}\r\n`;
  const body = "b".repeat(bytes);
  if (kind === "counted") return `${head}Content-Length: ${bytes}\r\n\r\n${body}`;
  const chunks = body.match(/.{1,5000}/g) ?? [];
  return `${head}Transfer-Encoding: chunked\r\n\r\n${chunks.map((chunk) => `${chunk.length.toString(16)}\r\n${chunk}\r\n`).join("")}0\r\n\r\n`;
}

/** Plays one connection, and checks that each answer belongs to its request. */
async function play(connection: Connection, name: string, world: World, port: number, mayFail: boolean): Promise<void> {
  using client = dial(port);
  client.socket.setNoDelay(true);
  const { requests, cuts } = connection;
  const leaves = connection.leavesAfter;
  if (leaves !== undefined) void ticks(leaves).then(() => client.socket.destroy());
  const gone = () => client.closed || client.socket.destroyed;
  for (const [index, request] of requests.entries()) {
    const text = textOf(request, `/${name}-${index}`, world);
    const places = [...new Set([0, ...cuts.map((cut) => cut % text.length), text.length])].sort((a, b) => a - b);
    for (const [place, start] of places.slice(0, -1).entries()) {
      client.send(text.slice(start, places[place + 1]));
      await ticks(2);
    }
    if (request.awaits) await client.until((received, closed) => closed || gone() || answersIn(received).length > index);
  }
  await client.until((received, closed) => closed || gone() || answersIn(received).length === requests.length);
  const answers = answersIn(client.received);
  for (const [index, { status, body }] of answers.entries()) {
    const { sandbox, kind, bytes } = requests[index] as Request;
    const id = world.sandboxes[sandbox]?.sandbox.sandboxID;
    if (status === 200) assert.equal(body, `${id} /${name}-${index} ${kind === "GET" ? 0 : bytes} `);
    else {
      assert.ok(mayFail, `${status} ${body}`);
      assert.deepEqual([status, JSON.parse(body).sandboxId], [502, id]);
    }
  }
  if (leaves === undefined && !mayFail) assert.equal(answers.length, requests.length);
}

void test("every request gets its own answer and arrives no more than once, whichever sandboxes sleep and wake meanwhile", async () => {
  // Each run has its own proxy, since a wake continues after its waiting clients have left.
  const once = async ({ connections, wakes, pauses }: Run) => {
    await using fixture = await openFixture({ limits: standstill });
    const world = await openWorld(fixture);
    let wake = 0;
    fixture.waking.meanwhile = async () => {
      const latency = wakes[wake++ % wakes.length] as number;
      await ticks(Math.abs(latency));
      if (latency < 0) fail("CAPACITY_EXHAUSTED", "the node is full");
    };
    for (const { sandbox } of world.sandboxes) fixture.sleep(sandbox);
    const pausing = (async () => {
      for (const { sandbox, ticks: wait } of pauses) {
        await ticks(wait);
        const paused = world.sandboxes[sandbox]?.sandbox;
        if (paused !== undefined && fixture.entries.has(paused.sandboxID)) fixture.sleep(paused);
      }
    })();
    const mayFail = pauses.length > 0 || wakes.some((latency) => latency < 0);
    await Promise.all(connections.map((connection, index) => play(connection, String(index), world, fixture.port, mayFail)));
    await pausing;
    for (const [url, times] of world.seen) assert.equal(times, 1, `${url} arrived ${times} times`);
    while (!(await fixture.metrics.text()).includes("svc_proxy_waiting 0\n")) await tick();
  };
  await fc.assert(fc.asyncProperty(runs, once), { numRuns: 120, timeout: 120_000 });
});
