// The Grafana dashboard and the alerts of nodes query only metrics and labels that nodes and gateways have.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { forkSandbox, pauseSandbox, resumeSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox } from "@svc/contract/sandbox.ts";
import { KEY, startMember } from "../src/fronted-nodes.ts";
import { startGateway } from "../src/gateway.ts";
import { needs } from "../src/needs.ts";
import { makePeerCerts } from "../src/peer-certs.ts";
import { until } from "../src/until.ts";

type Panel = { title: string; targets: { expr: string }[] };
const read = (path: string) => readFileSync(new URL(`../../../${path}`, import.meta.url), "utf8");
const { panels } = JSON.parse(read("deploy/grafana/node.json")) as { panels: Panel[] };
const alerts = [...read("deploy/prometheus/node-alerts.yml").matchAll(/- alert: (\w+)\n(?:\s+#.*\n)?\s+expr: (.*)$/gm)].map(([, title = "", expr = ""]) => ({
  title,
  expr,
}));
const expressions = [...panels.flatMap(({ title, targets }) => targets.map(({ expr }) => ({ title, expr }))), ...alerts];
/** Prometheus adds it to every sample. */
const OWN_LABEL = "instance";

void test("every metric and label of the node's dashboard and alerts is in a scrape", needs("root", "envd", "base", "runsc"), async () => {
  await using stack = new AsyncDisposableStack();
  const objects = mkdtempSync(join(tmpdir(), "svc-objects-"));
  stack.defer(() => rmSync(objects, { recursive: true, force: true }));
  const node = stack.use(await startMember({ runtime: "gvisor", isSecure: true, flags: ["--tls=self-signed", `--objects.url=file://${objects}`] }));
  // A gateway reaches members by plain HTTP, which a node serves to programs of its own machine.
  const gateway = stack.use(await startGateway({ nodes: [node.localURL], apiKey: KEY }));
  // Only a server with certificates of the deployment measures them; the node that it looks for is not there.
  const certs = stack.use(makePeerCerts());
  const secured = stack.use(await startGateway({ nodes: ["https://127.0.0.1:9"], apiKey: KEY, flags: [`--peer-certs=${certs.issue("gateway")}`] }));
  const { sandboxID } = await node.call(createSandbox, { templateID: "base" });
  await node.call(forkSandbox, { sandboxID });
  await node.call(pauseSandbox, { sandboxID });
  await node.call(resumeSandbox, { sandboxID, timeout: 300 });
  await node.call(deleteSandbox, { sandboxID });
  const samples = new Map<string, Set<string>>();
  // The first export happens in the background.
  await until("bytes that were sent to object storage", async () => {
    for (const url of [gateway.metricsURL, secured.metricsURL, node.localURL]) {
      const scrape = await (await fetch(`${url}/metrics`)).text();
      for (const [, name = ""] of scrape.matchAll(/^# TYPE (\w+) /gm)) samples.set(name, samples.get(name) ?? new Set([OWN_LABEL]));
      for (const [, name = "", labels = ""] of scrape.matchAll(/^(\w+)(?:\{(.*)\})? \S+$/gm)) {
        const known = samples.get(name) ?? new Set([OWN_LABEL]);
        samples.set(name, known);
        for (const [, label = ""] of labels.matchAll(/(\w+)="/g)) known.add(label);
      }
    }
    return samples.get("svc_node_snapshot_transfer_bytes_total")?.has("direction") === true ? true : undefined;
  });
  assert.ok(alerts.length >= 10 && panels.length >= 18, `${alerts.length} alerts, ${panels.length} panels`);
  const guide = read("docs/operations.md");
  for (const { title } of alerts) assert.ok(guide.includes(`\`${title}\``), `docs/operations.md says nothing of the alert ${title}`);
  for (const { title, expr } of expressions) {
    const names = expr.match(/\bsvc_(gateway|node|tls|peer)_[a-z_]+/g) ?? [];
    assert.ok(names.length > 0, `${title}: ${expr}`);
    for (const name of names) assert.ok(samples.has(name), `${title} asks for ${name}`);
    const labels = new Set(names.flatMap((name) => [...(samples.get(name) ?? [])]));
    const asked = [...expr.matchAll(/by \(([^)]*)\)|(\w+)[!=]~?"/g)].flatMap(([, list, one]) => (list ?? one ?? "").split(",").map((label) => label.trim()));
    for (const label of asked) assert.ok(labels.has(label), `${title} asks for the label ${label}`);
  }
});
