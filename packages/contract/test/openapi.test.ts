// The OpenAPI document matches the operations.
import assert from "node:assert/strict";
import { test } from "node:test";
import { streamEvents } from "../src/observe.ts";
import { openapi } from "../src/openapi.ts";
import { nodeOperations } from "../src/sandbox.ts";

type Described = {
  operationId: string;
  security: object[];
  parameters?: { name: string; in: string; required: boolean }[];
  requestBody?: { content: { "application/json": { schema: { properties: Record<string, Record<string, unknown>>; required: string[] } } } };
  responses: Record<string, { description: string }>;
};

const document = JSON.parse(JSON.stringify(openapi(nodeOperations, { title: "svc", version: "1" }))) as {
  openapi: string;
  paths: Record<string, Record<string, Described>>;
};

function described(path: string, method: string): Described {
  const operation = document.paths[path]?.[method];
  assert.ok(operation, `${method} ${path}`);
  return operation;
}

void test("every operation is in the document under its method and path", () => {
  assert.equal(document.openapi, "3.1.0");
  for (const { name, method, path } of Object.values(nodeOperations)) assert.equal(described(path, method.toLowerCase()).operationId, name);
});

void test("the members of a path are parameters and not part of the body", () => {
  const timeout = described("/sandboxes/{sandboxID}/timeout", "post");
  assert.deepEqual(
    timeout.parameters?.map(({ name, in: place, required }) => [name, place, required]),
    [["sandboxID", "path", true]],
  );
  const schema = timeout.requestBody?.content["application/json"].schema;
  assert.deepEqual(Object.keys(schema?.properties ?? {}), ["timeout"]);
  assert.deepEqual(schema?.required, ["timeout"]);
});

void test("the body of create names its default and its header", () => {
  const create = described("/v2/sandboxes", "post");
  const schema = create.requestBody?.content["application/json"].schema;
  assert.equal(schema?.properties["timeout"]?.["default"], 300);
  assert.deepEqual(schema?.required, ["templateID"]);
  assert.ok(create.parameters?.some((parameter) => parameter.in === "header" && parameter.name === "idempotency-key"));
  assert.ok(!("secure" in (schema?.properties ?? {})), "the newer create has no secure member");
});

void test("failures that share a status are named together", () => {
  assert.equal(
    described("/v2/sandboxes", "post").responses["503"]?.description,
    "CAPACITY_EXHAUSTED, SHUTTING_DOWN, QUARANTINED, OBJECTS_UNAVAILABLE, SERVER_UNREACHABLE",
  );
});

void test("health is open, all else requires the API key", () => {
  for (const { path, method } of Object.values(nodeOperations)) {
    assert.deepEqual(described(path, method.toLowerCase()).security, path === "/health" ? [] : [{ apiKey: [] }], path);
  }
});

void test("a DELETE's members are a body, and a stream's answer is one event of it", () => {
  const removed = described("/templates/tags", "delete");
  assert.deepEqual(Object.keys(removed.requestBody?.content["application/json"].schema.properties ?? {}), ["name", "tags"]);
  assert.equal(described("/sandboxes/{sandboxID}", "delete").requestBody, undefined);
  const streams = JSON.parse(JSON.stringify(openapi({ streamEvents }, { title: "svc", version: "1" }))) as typeof document;
  const events = streams.paths["/events"]?.["get"];
  const answer = (events?.responses["200"] ?? {}) as { content?: object };
  assert.deepEqual(Object.keys(answer.content ?? {}), ["text/event-stream"]);
  assert.ok(events?.parameters?.some(({ name, in: place }) => name === "last-event-id" && place === "header"));
});
