// Tests that the Grafana dashboard uses only metrics, labels and outcomes that the indexer has.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { outcomes } from "../src/index/native.ts";
import { startIndexer } from "./indexer.ts";
import { needsPublishers, startPublisher } from "./publisher.ts";

type Panel = { title: string; targets?: { expr: string }[]; panels?: Panel[] };
const dashboard = JSON.parse(readFileSync(new URL("../../../deploy/grafana/indexer.json", import.meta.url), "utf8")) as { panels: Panel[] };
const guide = readFileSync(new URL("../../../docs/indexer.md", import.meta.url), "utf8");
const all = (panels: readonly Panel[]): Panel[] => panels.flatMap((panel) => [panel, ...all(panel.panels ?? [])]);
const expressions = all(dashboard.panels).flatMap(({ title, targets }) => (targets ?? []).map(({ expr }) => ({ title, expr })));
const METRIC = /\bsvc_indexer_[a-z_]+/g;

void test("every metric and label of the Grafana dashboard and of the guide is in a scrape of a working indexer", needsPublishers(), async () => {
  await using indexer = await startIndexer();
  await using publisher = await startPublisher({ rank: 0 });
  await indexer.register({
    endpoint: publisher.endpoint,
    replay_endpoint: publisher.replayEndpoint,
    type: "vLLM",
    modelname: "m",
    instance_id: "e",
    block_size: 4,
    dp_rank: 0,
  });
  await publisher.send({ events: [{ kind: "stored", block_hashes: [1], parent_block_hash: null, token_ids: [1, 2, 3, 4], block_size: 4 }] });
  await indexer.taken("e", 1);
  await indexer.query({ model: "m", block_size: 4, token_ids: [1, 2, 3, 4] });
  const scrape = await (await fetch(`${indexer.url}/metrics`)).text();
  // The metric name and label names of each sample line.
  const samples = new Map<string, Set<string>>();
  for (const [, name = "", labels = ""] of scrape.matchAll(/^(\w+)(?:\{(.*)\})? \S+$/gm)) {
    const known = samples.get(name) ?? new Set();
    samples.set(name, known);
    for (const [, label = ""] of labels.matchAll(/(\w+)="/g)) known.add(label);
  }
  assert.ok(expressions.length > 10);
  for (const { title, expr } of expressions) {
    const names = expr.match(METRIC) ?? [];
    assert.ok(names.length > 0, `${title}: ${expr}`);
    const labels = new Set(names.flatMap((name) => [...(samples.get(name) ?? [])]));
    for (const name of names) assert.ok(samples.has(name), `${title} asks for ${name}`);
    const asked = [...expr.matchAll(/by \(([^)]*)\)|(\w+)[!=]~?"/g)].flatMap(([, list, one]) => (list ?? one ?? "").split(",").map((label) => label.trim()));
    for (const label of asked) assert.ok(labels.has(label), `${title} asks for the label ${label}`);
    // Patterns name event outcomes: each must exist.
    for (const [, pattern = ""] of expr.matchAll(/events_total\{outcome[!=]~"([^"]*)"/g))
      for (const outcome of pattern.split("|")) assert.ok((outcomes as readonly string[]).includes(outcome), `${title}: ${outcome}`);
  }
  const scraped = [...samples.keys()].map((name) => name.replace(/_(bucket|sum|count)$/, ""));
  for (const name of guide.match(METRIC) ?? []) assert.ok(scraped.includes(name) || samples.has(name), `the guide speaks of ${name}`);
  for (const name of new Set(scraped))
    if (name.startsWith("svc_indexer_")) assert.ok(guide.includes(name) || name.includes("snapshot") || name.includes("registrations"), name);
  const figure = (name: string) => Number(new RegExp(`^${name} (\\S+)$`, "m").exec(scrape)?.[1]);
  const memory = [...scrape.matchAll(/^svc_indexer_memory_bytes\{.*\} (\S+)$/gm)].reduce((sum, [, bytes]) => sum + Number(bytes), 0);
  assert.ok(memory > 0 && memory <= figure("svc_indexer_memory_budget_bytes"));
});
