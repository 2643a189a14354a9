// E2B's events and webhooks of real sandboxes, at a node and through a gateway, with receivers that fail and nodes that are killed.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import type { WebhookDelivery, WebhookDeliveryGroup, WebhookStats } from "@svc/contract/webhook-deliveries.ts";
import { type E2bEvent, e2bEvent, type Webhook } from "@svc/contract/webhooks.ts";
import { Sandbox } from "e2b";
import { startFrontedNodes } from "../src/fronted-nodes.ts";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { until } from "../src/until.ts";
import { type Receiver, startReceiver } from "../src/webhook-receiver.ts";

const runc = needs("root", "runc", "envd", "base");
const SECRET = "a-secret-of-the-test";
const all = ["created", "updated", "paused", "resumed", "checkpointed", "killed"].map((word) => `sandbox.lifecycle.${word}`);

type Entry = { readonly url: string; readonly apiKey: string };
const connectionTo = ({ url, apiKey }: Entry) => ({ apiUrl: url, sandboxUrl: url, apiKey });

async function ask<T>({ url, apiKey }: Entry, method: string, path: string, body?: object): Promise<{ status: number; value: T }> {
  const headers = { "x-api-key": apiKey, "content-type": "application/json" };
  const answer = await fetch(url + path, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
  const text = await answer.text();
  return { status: answer.status, value: (text === "" ? undefined : JSON.parse(text)) as T };
}

const register = async (entry: Entry, { url }: Receiver, events: readonly string[] = all) => {
  const { status, value } = await ask<Webhook>(entry, "POST", "/events/webhooks", { name: "test", url, events, signatureSecret: SECRET });
  assert.equal(status, 201);
  return value;
};

/** The types that a receiver accepted for one sandbox, each event once, in order of arrival. */
function accepted({ deliveries }: Receiver, sandboxID: string): string[] {
  const seen = new Map(deliveries.filter(({ status, event }) => status === 200 && event["sandboxId"] === sandboxID).map(({ event }) => [event["id"], event]));
  return [...seen.values()].map(({ type }) => String(type).replace("sandbox.lifecycle.", ""));
}

void test("what happens to a sandbox is listed as E2B lists it and pushed to webhooks, signed, in order", runc, async () => {
  await using node = await startNode({ runtime: "runc" });
  await using receiver = await startReceiver();
  const hook = await register(node, receiver);
  assert.ok(!JSON.stringify(hook).includes(SECRET));
  const sandbox = await Sandbox.create("base", { ...connectionTo(node), metadata: { job: "7" }, timeoutMs: 600_000 });
  await sandbox.setTimeout(500_000);
  await ask(node, "POST", `/sandboxes/${sandbox.sandboxId}/pause`, { memory: false });
  await Sandbox.connect(sandbox.sandboxId, connectionTo(node));
  await sandbox.kill();
  const expected = ["created", "updated", "paused", "resumed", "killed"];
  await until("five deliveries", () => (accepted(receiver, sandbox.sandboxId).length === expected.length ? true : undefined));
  assert.deepEqual(accepted(receiver, sandbox.sandboxId), expected);
  for (const { headers, body, event } of receiver.deliveries) {
    e2bEvent.parse(event);
    assert.equal(headers["e2b-webhook-id"], hook.id);
    assert.equal(headers["e2b-signature-version"], "v1");
    assert.equal(headers["content-type"], "application/json");
    assert.equal(
      headers["e2b-signature"],
      createHash("sha256")
        .update(SECRET + body)
        .digest("base64")
        .replace(/=+$/, ""),
    );
  }
  assert.equal(new Set(receiver.deliveries.map(({ headers }) => headers["e2b-delivery-id"])).size, receiver.deliveries.length);

  const listed = async (query: string) => (await ask<E2bEvent[]>(node, "GET", `/events/sandboxes${query}`)).value;
  const own = await listed(`/${sandbox.sandboxId}?orderAsc=true`);
  assert.deepEqual(
    own,
    receiver.deliveries.map(({ event }) => event),
    "the list has the events that were pushed",
  );
  const killed = own.at(-1);
  assert.equal(killed?.sandboxTemplateId.length, (own[0] as E2bEvent).sandboxTemplateId.length);
  const data = killed?.eventData as {
    sandbox_metadata: object;
    execution: { started_at: string; vcpu_count: number; memory_mb: number; execution_time: number };
  };
  assert.deepEqual(data.sandbox_metadata, { job: "7" });
  assert.ok(data.execution.execution_time > 0 && data.execution.vcpu_count > 0 && data.execution.memory_mb > 0, JSON.stringify(data));
  assert.deepEqual(
    (await listed("?limit=2")).map(({ id }) => id),
    own
      .slice(-2)
      .reverse()
      .map(({ id }) => id),
  );
  assert.deepEqual(
    (await listed("?limit=2&offset=2")).map(({ id }) => id),
    own
      .slice(1, 3)
      .reverse()
      .map(({ id }) => id),
  );
  assert.deepEqual(
    (await listed("?types=sandbox.lifecycle.killed&types=sandbox.lifecycle.paused")).map(({ type }) => type),
    ["sandbox.lifecycle.killed", "sandbox.lifecycle.paused"],
  );
});

void test("a receiver that is down gets every event once it answers again, also over kill -9 of the node", runc, async () => {
  await using node = await startNode({ runtime: "runc" });
  await using receiver = await startReceiver();
  const hook = await register(node, receiver, ["sandbox.lifecycle.created", "sandbox.lifecycle.killed"]);
  receiver.answer = 503;
  const first = await Sandbox.create("base", connectionTo(node));
  await until("a delivery that was refused", () => (receiver.deliveries.length > 0 ? true : undefined));
  const killedAt = Date.now();
  await node.kill("SIGKILL");
  await node.start();
  await Sandbox.kill(first.sandboxId, connectionTo(node));
  const second = await Sandbox.create("base", connectionTo(node));
  assert.deepEqual(accepted(receiver, first.sandboxId), []);
  receiver.answer = 200;
  await until("the events of both", () => (accepted(receiver, second.sandboxId).length === 1 ? true : undefined));
  assert.deepEqual(accepted(receiver, first.sandboxId), ["created", "killed"], "in order, and before what happened later");

  // The record of deliveries survived the kill, too.
  const path = `/events/webhooks/${hook.id}`;
  const recorded = async (query = "") => (await ask<WebhookDeliveryGroup[]>(node, "GET", `${path}/deliveries${query}`)).value;
  const groups = await until("three delivered events", async () => {
    const found = await recorded();
    return found.length === 3 && found.every(({ attempts }) => attempts[0]?.status === "success") ? found : undefined;
  });
  assert.deepEqual(
    groups.map(({ eventType, sandboxId }) => `${eventType.replace("sandbox.lifecycle.", "")} ${sandboxId}`),
    [`created ${second.sandboxId}`, `killed ${first.sandboxId}`, `created ${first.sandboxId}`],
  );
  const attempts = groups.flatMap((group) => group.attempts);
  const failed = attempts.filter(({ status }) => status === "failed");
  assert.ok(
    failed.some(({ timestamp }) => Date.parse(timestamp) < killedAt),
    "what failed before the kill is there",
  );
  for (const { errorClass, responseHttpStatusCode } of failed) assert.deepEqual([errorClass, responseHttpStatusCode], ["http_error", 503]);
  const ids = new Set(receiver.deliveries.map(({ headers }) => headers["e2b-delivery-id"]));
  assert.ok(attempts.every(({ id }) => ids.has(id)));
  const [newest] = attempts as [WebhookDelivery];
  assert.deepEqual(
    [newest.requestBody, newest.requestUrl, newest.responseHttpStatusCode, newest.errorClass],
    [receiver.deliveries.find(({ headers }) => headers["e2b-delivery-id"] === newest.id)?.body, receiver.url, 200, null],
  );
  assert.ok(!JSON.stringify(groups).includes(SECRET) && JSON.parse(newest.requestHeaders)["e2b-signature"] === "[redacted]");
  assert.deepEqual((await ask<WebhookDelivery>(node, "GET", `${path}/deliveries/${newest.id}`)).value, newest);
  assert.equal((await ask(node, "GET", `${path}/deliveries/nobody`)).status, 404);
  assert.deepEqual((await recorded("?deliveryStatus=failed")).flatMap((group) => group.attempts).length, failed.length);
  assert.deepEqual(
    (await recorded("?eventType=sandbox.lifecycle.killed&orderAsc=true")).map(({ sandboxId }) => sandboxId),
    [first.sandboxId],
  );
  assert.deepEqual(await recorded(`?start=${encodeURIComponent(new Date(Date.now() + 60_000).toISOString())}`), []);
  const stats = (await ask<WebhookStats>(node, "GET", `${path}/stats`)).value;
  assert.deepEqual([stats.total, stats.failed], [attempts.length, failed.length]);
  assert.ok(stats.durationMs.minimum <= stats.durationMs.average && stats.durationMs.average <= stats.durationMs.maximum);
  assert.equal(
    stats.buckets.reduce((sum, each) => sum + each.total, 0),
    stats.total,
  );
  const metrics = await (await fetch(`${node.url}/metrics`)).text();
  assert.match(metrics, /^svc_node_webhook_deliveries_total\{outcome="delivered"\} [1-9]/m);
});

void test("a webhook can be changed, disabled and deleted; one that rejects an event for good does not hold up the next", runc, async () => {
  await using node = await startNode({ runtime: "runc" });
  await using receiver = await startReceiver();
  await using slow = await startReceiver();
  slow.answer = 0;
  const hook = await register(node, receiver, ["sandbox.lifecycle.created"]);
  await register(node, slow);
  receiver.answer = 400;
  const refused = await Sandbox.create("base", connectionTo(node));
  await until("five rejections", () => (receiver.deliveries.length >= 5 ? true : undefined));
  receiver.answer = 200;
  const next = await Sandbox.create("base", connectionTo(node));
  await until("the next event", () => (accepted(receiver, next.sandboxId).length === 1 ? true : undefined));
  assert.deepEqual(accepted(receiver, refused.sandboxId), [], "skipped after five rejections");

  const path = `/events/webhooks/${hook.id}`;
  assert.deepEqual((await ask<Webhook>(node, "PATCH", path, { enabled: false, name: "off" })).value, { ...hook, enabled: false, name: "off" });
  const unseen = await Sandbox.create("base", connectionTo(node));
  assert.equal((await ask<Webhook>(node, "PATCH", path, { enabled: true })).value.enabled, true);
  const seen = await Sandbox.create("base", connectionTo(node));
  await until("the event after it was enabled", () => (accepted(receiver, seen.sandboxId).length === 1 ? true : undefined));
  assert.deepEqual(accepted(receiver, unseen.sandboxId), [], "what happened while it was disabled is not sent");
  assert.equal((await ask<Webhook[]>(node, "GET", "/events/webhooks")).value.length, 2);
  assert.equal((await ask(node, "DELETE", path)).status, 200);
  assert.equal((await ask(node, "GET", path)).status, 404);
  const wrong = await ask<{ message: string }>(node, "POST", "/events/webhooks", { name: "x", url: "ftp://x/", events: all, signatureSecret: "s" });
  assert.equal(wrong.status, 400);
  assert.match(wrong.value.message, /url: expected an http or https URL/);
});

void test("through a gateway, one webhook has the events of every node, also of one that was down when it was registered", runc, async () => {
  await using deployment = await startFrontedNodes({ nodes: 2 });
  const { gateway, nodes } = deployment;
  await using receiver = await startReceiver();
  await nodes[1]?.kill("SIGKILL");
  await until("one node", async () =>
    (await ask<{ status: string }[]>(gateway, "GET", "/nodes")).value.filter(({ status }) => status === "ready").length === 1 ? true : undefined,
  );
  const hook = await register(gateway, receiver, ["sandbox.lifecycle.created"]);
  await nodes[1]?.start();
  for (const node of nodes)
    await until("the webhook on each node", async () =>
      (await ask<Webhook[]>(node, "GET", "/events/webhooks")).value.some(({ id }) => id === hook.id) ? true : undefined,
    );
  const sandboxes = await Promise.all(nodes.map((node) => Sandbox.create("base", connectionTo(node))));
  for (const { sandboxId } of sandboxes) await until("each node's event", () => (accepted(receiver, sandboxId).length === 1 ? true : undefined));
  const listed = (await ask<E2bEvent[]>(gateway, "GET", "/events/sandboxes?limit=50&types=sandbox.lifecycle.created")).value.map(({ sandboxId }) => sandboxId);
  assert.deepEqual(listed.toSorted(), sandboxes.map(({ sandboxId }) => sandboxId).toSorted());
  const [one] = sandboxes as [Sandbox];
  assert.equal((await ask<E2bEvent[]>(gateway, "GET", `/events/sandboxes/${one.sandboxId}`)).value.length, 1);
  const path = `/events/webhooks/${hook.id}`;
  const groups = await until("both deliveries", async () => {
    const found = (await ask<WebhookDeliveryGroup[]>(gateway, "GET", `${path}/deliveries`)).value;
    return found.length === 2 ? found : undefined;
  });
  const paged: string[] = [];
  for (let cursor = ""; ; ) {
    const headers = { "x-api-key": gateway.apiKey };
    const answer = await fetch(`${gateway.url}${path}/deliveries?limit=1${cursor === "" ? "" : `&cursor=${cursor}`}`, { headers });
    paged.push(...((await answer.json()) as WebhookDeliveryGroup[]).map(({ eventId }) => eventId));
    cursor = answer.headers.get("x-next-cursor") ?? "";
    if (cursor === "") break;
  }
  assert.deepEqual(
    paged,
    groups.map(({ eventId }) => eventId),
    "page by page, the events of both nodes",
  );
  for (const { attempts } of groups) {
    const [attempt] = attempts as [WebhookDelivery];
    assert.deepEqual((await ask<WebhookDelivery>(gateway, "GET", `${path}/deliveries/${attempt.id}`)).value, attempt);
  }
  assert.equal((await ask<WebhookStats>(gateway, "GET", `${path}/stats`)).value.total, 2);
  assert.equal((await ask(gateway, "DELETE", path)).status, 200);
  assert.equal((await ask(gateway, "GET", `${path}/stats`)).status, 404);
  for (const node of nodes) assert.deepEqual((await ask<Webhook[]>(node, "GET", "/events/webhooks")).value, []);
});
