// The Grafana dashboard and the alerts of gateways query only metrics and labels that a running gateway and node have.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { startFrontedNodes } from "@svc/harness/fronted-nodes.ts";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";

type Panel = { title: string; targets: { expr: string }[] };
const read = (path: string) => readFileSync(new URL(`../../../deploy/${path}`, import.meta.url), "utf8");
const { panels } = JSON.parse(read("grafana/gateway.json")) as { panels: Panel[] };
const alerts = [...read("prometheus/gateway-alerts.yml").matchAll(/- alert: (\w+)\n\s+expr: (.*)$/gm)].map(([, title = "", expr = ""]) => ({ title, expr }));
const expressions = [...panels.flatMap(({ title, targets }) => targets.map(({ expr }) => ({ title, expr }))), ...alerts];

void test("every metric and label of the gateway's dashboard and alerts is in a scrape", needs("root", "envd", "base", "runc"), async () => {
  await using deployment = await startFrontedNodes({ nodes: 1 });
  const { gateway, nodes } = deployment;
  await gateway.call(createSandbox, { templateID: "base" });
  const samples = new Map<string, Set<string>>();
  await until("requests that were counted", async () => {
    for (const url of [gateway.metricsURL, nodes[0]?.url ?? ""])
      for (const [, name = "", labels = ""] of (await (await fetch(`${url}/metrics`)).text()).matchAll(/^(\w+)(?:\{(.*)\})? \S+$/gm)) {
        const known = samples.get(name) ?? new Set(["instance"]);
        samples.set(name, known);
        for (const [, label = ""] of labels.matchAll(/(\w+)="/g)) known.add(label);
      }
    return samples.get("svc_gateway_request_seconds_count")?.has("target") === true ? true : undefined;
  });
  assert.ok(alerts.length >= 5 && panels.length > 10);
  for (const { title, expr } of expressions) {
    const names = expr.match(/\bsvc_(gateway|node)_[a-z_]+/g) ?? [];
    assert.ok(names.length > 0, `${title}: ${expr}`);
    for (const name of names) assert.ok(samples.has(name), `${title} asks for ${name}`);
    const labels = new Set(names.flatMap((name) => [...(samples.get(name) ?? [])]));
    for (const [, list = ""] of expr.matchAll(/by \(([^)]*)\)/g))
      for (const label of list.split(",").map((each) => each.trim())) assert.ok(labels.has(label), `${title} asks for the label ${label}`);
  }
});
