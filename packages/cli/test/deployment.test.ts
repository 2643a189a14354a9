// Tests the conclusions of `svc doctor --deployment` from a node's row, a node's metrics and the masters' views.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ShownNode } from "@svc/contract/nodes.ts";
import { ofScrape, ofShown } from "../src/deployment/cluster.ts";
import { bySeverity } from "../src/deployment/finding.ts";
import { ofCluster } from "../src/deployment/store.ts";

const GIB = 2 ** 30;
const node = (more: Partial<ShownNode> = {}, usedBytes = GIB): ShownNode =>
  ({
    id: "one",
    status: "ready",
    sandboxCount: 1,
    sandboxStartingCount: 0,
    sandboxMax: 10,
    metrics: { memoryUsedBytes: GIB, memoryTotalBytes: 8 * GIB, disks: [{ usedBytes, totalBytes: 100 * GIB }] },
    ...more,
  }) as ShownNode;
const brief = (found: readonly { severity: string; says: string }[]) => found.map(({ severity, says }) => `${severity}: ${says}`);

void test("a node that is well has no line; one that is full, or whose disk fills up, has one", () => {
  assert.deepEqual(ofShown(node()), []);
  assert.deepEqual(brief(ofShown(node({ sandboxCount: 9, sandboxStartingCount: 1 }))), ["warning: is full: 10 of 10 sandboxes"]);
  assert.deepEqual(brief(ofShown(node({}, 92 * GIB))), ["warning: its disk is 92 % full"]);
  assert.deepEqual(brief(ofShown(node({}, 98 * GIB))), ["critical: its disk is 98 % full"]);
});

void test("a node with a wrong clock gets the command for the clock, and not the one that restarts it", () => {
  const [found, ...more] = ofShown(node({ status: "unhealthy", clockSkewMs: 3_000, reason: "its clock is 3.0 s ahead" }));
  assert.deepEqual(more, []);
  assert.match(found?.fix ?? "", /timedatectl/);
  assert.match(ofShown(node({ status: "unhealthy", reason: "it was silent" }))[0]?.fix ?? "", /restart svc-node.*svc nodes remove one --dead/);
});

void test("a certificate that ends soon, newer files that are refused and lost events are read from the metrics", () => {
  const now = Date.UTC(2030, 0, 1);
  const scrape = (days: number) => `svc_tls_certificate_expiry_seconds ${now / 1000 + days * 86_400}\n`;
  assert.deepEqual(ofScrape("one", `${scrape(30)}svc_tls_certificate_refused 0\nsvc_node_events_lost 0\n`, now), []);
  assert.deepEqual(brief(ofScrape("one", `${scrape(3.5)}svc_node_events_lost 7\n`, now)), [
    "warning: its certificate expires in 3 days",
    "warning: lost 7 lifecycle events since its start",
  ]);
  assert.deepEqual(brief(ofScrape("one", scrape(-1), now)), ["critical: its certificate has expired"]);
});

void test("masters without a leader, or without a standby in sync, are critical; a single master is not", () => {
  const view = { success: true, name: "a", role: "leader", state: "serving", reason: "", leader: null, in_sync: ["a"], standbys: [] };
  const standby = { name: "b", http: "http://b", in_sync: true, lag: 0 };
  assert.deepEqual(ofCluster([]), []);
  assert.deepEqual(ofCluster([{ ...view, standbys: [standby] }]), []);
  assert.match(brief(ofCluster([{ ...view, role: "standby", state: "recovering" }]))[0] ?? "", /^critical: none of them leads/);
  const behind = ofCluster([{ ...view, standbys: [{ ...standby, in_sync: false }] }]);
  assert.deepEqual(
    bySeverity([...behind].reverse()).map(({ severity }) => severity),
    ["critical", "warning"],
  );
});
