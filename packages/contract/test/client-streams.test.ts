// Logs, events and build logs that the client follows, from a server on a socket that drops connections, repeats itself and goes away.
import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { SvcClient } from "../src/client.ts";
import { EnvdClient } from "../src/envd.ts";
import { Failure } from "../src/failures.ts";

async function serve(answer: (request: IncomingMessage, response: ServerResponse, url: URL) => void) {
  const server = createServer((request, response) => answer(request, response, new URL(request.url ?? "", "http://x")));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    client: new SvcClient({ baseURL: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, apiKey: "k" }),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

const json = (response: ServerResponse, body: unknown, status = 200) => void response.writeHead(status).end(JSON.stringify(body));
const refuse = (response: ServerResponse, status: number, error_code: string) => json(response, { code: status, message: error_code, error_code }, status);
const entry = (ms: number, message: string) => ({ timestamp: new Date(ms).toISOString(), message, level: "info", fields: { kind: "process" } });

/** Pages as the server does: from the cursor on, including that millisecond. */
function page(log: readonly ReturnType<typeof entry>[], url: URL) {
  const limit = Number(url.searchParams.get("limit"));
  const cursor = url.searchParams.get("cursor");
  if (url.searchParams.get("direction") === "backward") return log.slice(-limit).toReversed();
  return log.filter(({ timestamp }) => cursor === null || Date.parse(timestamp) >= Number(cursor)).slice(0, limit);
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

void test("a log of several pages is complete, with each entry once, also identical ones of one millisecond", async () => {
  const log = Array.from({ length: 2500 }, (_, index) => entry(1000 + Math.floor(index / 7), `line ${Math.floor(index / 2)}`));
  await using server = await serve((_request, response, url) => json(response, { logs: page(log, url) }));
  assert.deepEqual(await collect(server.client.logs("i1")), log);
});

void test("a command in a sandbox that can no longer start anything fails with the reason, whether the sandbox answers or not", async () => {
  for (const isAnswered of [false, true]) {
    await using server = await serve((_request, response) => {
      if (isAnswered) response.writeHead(200, { "content-type": "application/connect+json" }).flushHeaders();
    });
    const envd = new EnvdClient({ baseURL: server.client.baseURL, sandboxID: "i1", silenceMs: 300 });
    await assert.rejects(
      collect(envd.start({ cmd: "true" })),
      (error: Failure) => error.name === "GUEST_UNRESPONSIVE" && error.message.includes("svc logs i1"),
    );
    envd.close();
  }
});

void test("more entries in one millisecond than a page holds do not stop a reader", async () => {
  const log = [...Array.from({ length: 1500 }, (_, index) => entry(1000, `flood ${index}`)), entry(2000, "after")];
  await using server = await serve((_request, response, url) => json(response, { logs: page(log, url) }));
  const messages = (await collect(server.client.logs("i1"))).map(({ message }) => message);
  assert.equal(messages.at(-1), "after");
  assert.equal(new Set(messages).size, messages.length);
});

void test("a followed log continues across an absence of the server, repeats nothing, and ends with its sandbox", async () => {
  const log = [entry(1000, "a"), entry(1000, "a"), entry(1001, "b")];
  let polls = 0;
  await using server = await serve((_request, response, url) => {
    if (!url.pathname.startsWith("/v2/")) return refuse(response, 404, "SANDBOX_NOT_FOUND");
    polls++;
    if (polls === 2) return void response.destroy();
    if (polls === 3) return refuse(response, 503, "SHUTTING_DOWN");
    if (polls === 4) log.push(entry(1001, "b"), entry(1002, "c"));
    return json(response, { logs: page(log, url) });
  });
  const reconnects: string[] = [];
  const messages = await collect(server.client.logs("i1", { follow: true, tail: 2, onReconnect: ({ name }) => reconnects.push(name) }));
  assert.deepEqual(
    messages.map(({ message }) => message),
    ["a", "b", "b", "c"],
  );
  assert.deepEqual(reconnects, ["SERVER_UNREACHABLE", "SHUTTING_DOWN"]);
});

void test("a log that does not exist is refused, followed or not", async () => {
  await using server = await serve((_request, response) => refuse(response, 404, "SANDBOX_NOT_FOUND"));
  const isMissing = (error: unknown) => error instanceof Failure && error.name === "SANDBOX_NOT_FOUND";
  await assert.rejects(collect(server.client.logs("i1")), isMissing);
  await assert.rejects(collect(server.client.logs("i1", { follow: true })), isMissing);
});

const event = (id: number, type = "sandbox.created", sandboxID = "i1") =>
  `id: ${id}\nevent: ${type}\ndata: ${JSON.stringify({ id, type, at: "2026-01-31T09:05:00Z", sandboxID, details: {} })}\n\n`;

void test("events are resumed by the last id after a lost connection, and none is repeated", async () => {
  const resumedFrom: (string | undefined)[] = [];
  await using server = await serve((request, response) => {
    const from = request.headers["last-event-id"] as string | undefined;
    resumedFrom.push(from);
    response.writeHead(200, { "content-type": "text/event-stream" });
    if (resumedFrom.length === 1) {
      response.write(`retry: 2000\nid: 40\n\n: alive\n\n${event(41)}`);
      // The connection ends within an event.
      response.write(event(42).slice(0, 20));
      setTimeout(() => response.destroy(), 50);
    } else {
      response.write(`id: ${from}\n\nevent: sandbox.renamed\ndata: later\n\n${event(41)}${event(42)}${event(43, "sandbox.ended")}`);
      response.write("event: overflow\ndata: {}\n\n");
    }
  });
  const ids: number[] = [];
  let reconnects = 0;
  for await (const { id } of server.client.events({ onReconnect: () => reconnects++ })) {
    ids.push(id);
    if (id === 43) break;
  }
  assert.deepEqual(ids, [41, 42, 43]);
  assert.deepEqual(resumedFrom, [undefined, "41"]);
  assert.equal(reconnects, 1);
});

void test("without follow events end after the newest, filters or not, and an empty log ends at once", async () => {
  const kept = [event(7), event(8, "sandbox.ended", "i2"), event(9, "template.built", "")];
  await using server = await serve((request, response) => {
    const from = request.headers["last-event-id"];
    response.writeHead(200, { "content-type": "text/event-stream" });
    if (from === undefined) response.write("id: 9\n\n");
    else response.write(`id: ${from}\n\n${kept.filter((_, index) => index + 7 > Number(from)).join("")}`);
  });
  const ids = async (options: object) => (await collect(server.client.events({ follow: false, ...options }))).map(({ id }) => id);
  assert.deepEqual(await ids({ since: 0 }), [7, 8, 9]);
  assert.deepEqual(await ids({ since: 0, sandboxID: "i2" }), [8]);
  assert.deepEqual(await ids({ since: 7, types: ["template.built"] }), [9]);
  assert.deepEqual(await ids({ since: 9 }), []);
  assert.deepEqual(await ids({}), []);
});

void test("a gap in the events is reported once, and the stream continues after it", async () => {
  await using server = await serve((_request, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(`id: 99\n\nid: 99\nevent: gap\ndata: {"asked":5,"oldest":100,"newest":101}\n\n${event(100)}`);
  });
  const gaps: object[] = [];
  for await (const { id } of server.client.events({ since: 5, onGap: (gap) => gaps.push(gap) })) {
    assert.equal(id, 100);
    break;
  }
  assert.deepEqual(gaps, [{ asked: 5, oldest: 100, newest: 101 }]);
});

void test("a signal ends a stream of events, and a refused key is not retried", async () => {
  let requests = 0;
  const abort = new AbortController();
  await using server = await serve((request, response) => {
    requests++;
    if (request.headers["last-event-id"] === "1") return refuse(response, 401, "UNAUTHENTICATED");
    response.writeHead(200, { "content-type": "text/event-stream" }).write("id: 1\n\n", () => abort.abort());
  });
  const ended = assert.rejects(collect(server.client.events({ signal: abort.signal })), { name: "AbortError" });
  await ended;
  const before = requests;
  await assert.rejects(collect(server.client.events({ since: 1 })), (error) => error instanceof Failure && error.name === "UNAUTHENTICATED");
  assert.equal(requests, before + 1);
});

void test("a build's log is read by offset to its end, across an absence of the server, and the build's reason is returned", async () => {
  const log = Array.from({ length: 130 }, (_, index) => ({ ...entry(index, `line ${index}`), step: "1" }));
  let polls = 0;
  await using server = await serve((_request, response, url) => {
    if (++polls === 2) return refuse(response, 503, "SHUTTING_DOWN");
    const from = Number(url.searchParams.get("logsOffset"));
    const isDone = polls > 4;
    const reason = { message: "RUN false ended with 1", step: "1", logEntries: [] };
    const logEntries = log.slice(from, from + 100);
    return json(response, { templateID: "t", buildID: "b", status: isDone ? "error" : "building", logs: [], logEntries, ...(isDone ? { reason } : {}) });
  });
  const entries = server.client.templates.follow({ templateID: "t", buildID: "b" });
  const messages: string[] = [];
  let next = await entries.next();
  for (; next.done !== true; next = await entries.next()) messages.push(next.value.message);
  assert.deepEqual(
    messages,
    log.map(({ message }) => message),
  );
  assert.equal(next.value?.reason?.message, "RUN false ended with 1");
});
