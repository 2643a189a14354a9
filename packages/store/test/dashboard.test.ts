// The store's Grafana dashboard uses only metrics and labels that a working master and service have.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { startMaster } from "./master.ts";
import { startService } from "./service.ts";

type Panel = { title: string; targets: { expr: string }[] };
const dashboard = JSON.parse(readFileSync(new URL("../../../deploy/grafana/store.json", import.meta.url), "utf8")) as { panels: Panel[] };
const rules = readFileSync(new URL("../../../deploy/prometheus/store.yml", import.meta.url), "utf8");
const alerts = [...rules.matchAll(/- alert: (\w+)\n +expr: (.+)/g)].map(([, title = "", expr = ""]) => ({ title, expr }));
// The package of the admin server checks the alerts about it.
const expressions = [...dashboard.panels.flatMap(({ title, targets }) => targets.map(({ expr }) => ({ title, expr }))), ...alerts].filter(
  ({ expr }) => !expr.includes("svc_store_admin_"),
);

void test("every metric and label of the store's Grafana dashboard and alerts is in a scrape of a master and a service that work", async () => {
  await using master = await startMaster();
  await using service = await startService({ master: master.rpcPort, flags: ["--global_segment_size=16mb"] });
  assert.equal((await service.ask("PUT", "/api/put", { key: "k", value: "v" })).status, 200);
  assert.equal((await service.ask("GET", "/api/exist/k")).status, 200);
  const samples = new Map<string, Set<string>>();
  await until("a request that was counted", async () => {
    for (const { url } of [master, service])
      for (const [, name = "", labels = ""] of (await (await fetch(`${url}/metrics`)).text()).matchAll(/^(\w+)(?:\{(.*)\})? \S+$/gm)) {
        const known = samples.get(name) ?? new Set();
        samples.set(name, known);
        for (const [, label = ""] of labels.matchAll(/(\w+)="/g)) known.add(label);
      }
    return samples.get("svc_store_service_http_seconds_count")?.has("path") === true ? true : undefined;
  });
  assert.ok(expressions.length > 10 && alerts.length > 3);
  const guide = readFileSync(new URL("../../../docs/store-operations.md", import.meta.url), "utf8");
  for (const { title } of alerts) assert.ok(guide.includes(`\`${title}\``), `docs/store-operations.md says nothing of the alert ${title}`);
  for (const { title, expr } of expressions) {
    const names = expr.match(/\bsvc_(store|transfer)_[a-z_]+/g) ?? [];
    assert.ok(names.length > 0, `${title}: ${expr}`);
    const labels = new Set(names.flatMap((name) => [...(samples.get(name) ?? [])]));
    for (const name of names) assert.ok(samples.has(name), `${title} asks for ${name}`);
    // Prometheus itself adds the label of the server that was asked.
    for (const [, list = ""] of expr.matchAll(/by \(([^)]*)\)/g))
      for (const label of list.split(",").map((each) => each.trim()))
        assert.ok(label === "instance" || labels.has(label), `${title} asks for the label ${label}`);
  }
});
