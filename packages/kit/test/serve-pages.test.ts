// The pages that a browser shows at a server's URL, without a key.
import assert from "node:assert/strict";
import { test } from "node:test";
import { operation } from "@svc/contract/operation.ts";
import { z } from "zod";
import type { PageOptions } from "../src/home-page.ts";
import { openLog } from "../src/log.ts";
import { openMetrics } from "../src/metrics.ts";
import { serve } from "../src/serve.ts";

const operations = {
  makeThing: operation({
    name: "makeThing",
    method: "POST",
    path: "/things/{thingID}",
    summary: "Makes a <thing>",
    headers: { turn: "svc-turn" },
    input: z.object({
      thingID: z.string(),
      turn: z.string().optional().meta({ internal: true }).describe("From a gateway"),
      colour: z.enum(["red", "blue"]).default("red").describe("As painted"),
    }),
    output: z.undefined(),
    success: 204,
    credential: "apiKey",
    failures: ["INVALID_REQUEST"],
  }),
};

const pages: PageOptions = {
  title: "svc thing",
  version: "1.2.3",
  about: "Things & more.",
  next: [["./svc thing", "makes one"]],
  guides: ["docs/thing.md"],
};

const app = serve({
  operations,
  handlers: { makeThing: () => undefined },
  apiKey: "secret",
  log: openLog("test", "error"),
  metrics: openMetrics(),
  pages,
});

void test("a browser gets a page that says what the server is and what to do next, without a key", async () => {
  const { statusCode, headers, body } = await app.inject({ url: "/", headers: { accept: "text/html,*/*;q=0.8" } });
  assert.equal(statusCode, 200);
  assert.match(String(headers["content-type"]), /^text\/html/);
  assert.match(String(headers["content-security-policy"]), /default-src 'none'/);
  for (const says of ["svc thing", "Things &amp; more.", "1.2.3", "./svc thing", 'href="/docs"', "docs/thing.md"]) assert.ok(body.includes(says), says);
});

void test("no link of the landing page is dead, also where the metrics are served elsewhere", async () => {
  for (const servesMetrics of [true, false]) {
    const server = serve({
      operations,
      handlers: { makeThing: () => undefined },
      apiKey: "secret",
      log: openLog("test", "error"),
      metrics: openMetrics(),
      servesMetrics,
      pages,
    });
    const { body } = await server.inject({ url: "/", headers: { accept: "text/html" } });
    const links = [...body.matchAll(/href="([^"]+)"/g)].map(([, path]) => path ?? "");
    assert.equal(links.includes("/metrics"), servesMetrics);
    // The server's own route for its health is an operation of each server's table.
    for (const path of links.filter((each) => each !== "/health")) assert.equal((await server.inject({ url: path })).statusCode, 200, path);
  }
});

void test("the reference for clients leaves out what servers of a deployment send each other", async () => {
  for (const url of ["/docs", "/openapi.json"]) assert.doesNotMatch((await app.inject({ url })).body, /svc-turn|From a gateway/, url);
});

void test("a program at the same URL gets the links as JSON", async () => {
  assert.deepEqual((await app.inject({ url: "/" })).json(), {
    name: "svc thing",
    version: "1.2.3",
    health: "/health",
    api: "/docs",
    openapi: "/openapi.json",
  });
});

void test("the API's page lists each operation with its members and answers, and escapes all markup", async () => {
  const { body } = await app.inject({ url: "/docs" });
  for (const says of [
    "POST /things/{thingID}",
    "Makes a &lt;thing&gt;",
    "path",
    "&quot;red&quot; | &quot;blue&quot;; default &quot;red&quot;; As painted",
    "204; else 400 INVALID_REQUEST",
  ])
    assert.ok(body.includes(says), says);
  const document = (await app.inject({ url: "/openapi.json" })).json() as { openapi: string; paths: object };
  assert.equal(document.openapi, "3.1.0");
  assert.deepEqual(Object.keys(document.paths), ["/things/{thingID}"]);
});

void test("all other routes still require the key", async () => {
  assert.equal((await app.inject({ method: "POST", url: "/things/a" })).statusCode, 401);
});
