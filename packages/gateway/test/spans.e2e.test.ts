// Spans of requests reach the collector that the environment names, and a collector that never answers does no harm.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { startGateway } from "@svc/harness/gateway.ts";
import { needs } from "@svc/harness/needs.ts";
import { startNode } from "@svc/harness/node.ts";
import { until } from "@svc/harness/until.ts";

const KEY = "k".repeat(40);
const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT = "00f067aa0ba902b7";

type Attribute = { key: string; value: { stringValue?: string; intValue?: number } };
type Exported = { traceId: string; spanId: string; parentSpanId?: string; name: string; attributes: Attribute[] };
type Body = { resourceSpans: { resource: { attributes: Attribute[] }; scopeSpans: { spans: Exported[] }[] }[] };
type Seen = Exported & { readonly service: string; attribute(name: string): string | number | undefined };

/** Accepts spans as a collector does; a `deaf` one never answers. */
async function startCollector(isDeaf = false) {
  const spans: Seen[] = [];
  const headers: NodeJS.Dict<string | string[]>[] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    if (isDeaf) return;
    assert.equal(request.url, "/v1/traces");
    headers.push(request.headers);
    const valueFor = (attributes: readonly Attribute[], name: string) => {
      const value = attributes.find(({ key }) => key === name)?.value;
      return value?.stringValue ?? value?.intValue;
    };
    for (const { resource, scopeSpans } of (JSON.parse(Buffer.concat(chunks).toString()) as Body).resourceSpans)
      for (const span of scopeSpans.flatMap((scope) => scope.spans))
        spans.push({ ...span, service: String(valueFor(resource.attributes, "service.name")), attribute: (name) => valueFor(span.attributes, name) });
    response.setHeader("content-type", "application/json").end("{}");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    spans,
    headers,
    env: { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, OTEL_EXPORTER_OTLP_HEADERS: "x-tenant=me" },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
    },
  };
}

const create = async (url: string, more: Record<string, string>, body: object) =>
  fetch(`${url}/sandboxes`, { method: "POST", headers: { "x-api-key": KEY, "content-type": "application/json", ...more }, body: JSON.stringify(body) });

void test(
  "a create is a span of the gateway under the client's, and one of the node under the gateway's; a request without a trace begins one",
  needs("root"),
  async () => {
    await using collector = await startCollector();
    const secrets = { SVC_API_KEY: KEY, SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: "s".repeat(40) };
    await using node = await startNode({ runtime: "bubblewrap", env: { ...secrets, ...collector.env } });
    await using gateway = await startGateway({ nodes: [node.url], apiKey: KEY, env: { ...collector.env, OTEL_SERVICE_NAME: "edge" } });
    await until("the node", async () => ((await fetch(`${gateway.url}/health`)).ok ? true : undefined));
    assert.equal((await create(gateway.url, { traceparent: `00-${TRACE}-${PARENT}-01` }, { templateID: "host" })).status, 201);
    assert.equal((await create(gateway.url, {}, { templateID: "no-such" })).status, 404);
    assert.equal((await create(gateway.url, { traceparent: `00-${"a".repeat(32)}-${PARENT}-00` }, { templateID: "no-such" })).status, 404);
    const of = (service: string, status: number) =>
      collector.spans.find((span) => span.service === service && span.name === "POST /sandboxes" && span.attribute("http.response.status_code") === status);
    const [edge, begun] = await until("the gateway's spans", () => {
      const found = [of("edge", 201), of("edge", 404)] as const;
      return found[0] !== undefined && found[1] !== undefined ? (found as readonly [Seen, Seen]) : undefined;
    });
    assert.deepEqual([edge.traceId, edge.parentSpanId, edge.attribute("http.request.method")], [TRACE, PARENT, "POST"]);
    const below = await until("the node's span", () => collector.spans.find((span) => span.service === "svc-node" && span.parentSpanId === edge.spanId));
    assert.equal(below.traceId, TRACE);
    assert.ok((begun.parentSpanId ?? "") === "" && begun.traceId !== TRACE);
    assert.ok(collector.headers.every((each) => each["x-tenant"] === "me"));
    // The client's trace header says that this trace is not sampled.
    assert.ok(collector.spans.every((span) => span.traceId !== "a".repeat(32)));
  },
);

void test("a collector that never answers delays neither requests nor the shutdown", needs("root"), async () => {
  await using collector = await startCollector(true);
  await using node = await startNode({ runtime: "bubblewrap", env: { SVC_API_KEY: KEY, ...collector.env } });
  for (let times = 0; times < 3; times++) assert.equal((await create(node.url, {}, { templateID: "no-such" })).status, 404);
  await node.restart("SIGTERM");
  assert.match(node.log(), /spans of requests are sent by OTLP/);
});
