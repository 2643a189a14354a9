// The store's alerts in Prometheus' own checker: its rules are valid, and each fires when it should and not before.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { needs } from "@svc/harness/needs.ts";
import { makeFolder } from "./ssd.ts";

const needsChecker = needs("promtool");
const pathOf = (name: string) => fileURLToPath(new URL(`../../../deploy/prometheus/${name}`, import.meta.url));
const rules = pathOf("store.yml");

type Case = { readonly series: Readonly<Record<string, string>>; readonly at: string; readonly fires: boolean };
const healthy = { 'svc_store_leader{instance="a"}': "1x40", 'svc_store_leader{instance="b"}': "0x40" };
/** One sample a minute. */
const cases: Readonly<Record<string, readonly Case[]>> = {
  StoreNoLeader: [
    { series: healthy, at: "10m", fires: false },
    { series: { 'svc_store_leader{instance="a"}': "0x40", 'svc_store_leader{instance="b"}': "0x40" }, at: "10m", fires: true },
    // All masters are down, so that no sample reports a value of 0.
    { series: { 'svc_store_leader{instance="a"}': "1 1 stale" }, at: "10m", fires: true },
  ],
  StoreNoStandbyInSync: [
    { series: { svc_store_standbys_in_sync: "1x40", svc_store_epoch: "3x40" }, at: "10m", fires: false },
    { series: { svc_store_standbys_in_sync: "0x40", svc_store_epoch: "3x40" }, at: "10m", fires: true },
    // A single master, without etcd.
    { series: { svc_store_standbys_in_sync: "0x40", svc_store_epoch: "0x40" }, at: "10m", fires: false },
  ],
  StoreLeaderFlapping: [
    { series: { svc_store_epoch: "1x10 2x30" }, at: "15m", fires: false },
    { series: { svc_store_epoch: "1 2 3 4 5 6 7x40" }, at: "10m", fires: true },
  ],
  StoreStandbyBehind: [
    { series: { svc_store_standby_lag_records: "100x40" }, at: "10m", fires: false },
    { series: { svc_store_standby_lag_records: "200000x40" }, at: "10m", fires: true },
  ],
  StoreLogFull: [
    { series: { 'svc_store_log_full{instance="a"}': "0x40", 'svc_store_log_full{instance="b"}': "0x40" }, at: "10m", fires: false },
    { series: { 'svc_store_log_full{instance="a"}': "1x40", 'svc_store_log_full{instance="b"}': "0x40" }, at: "10m", fires: true },
  ],
  StoreDeviceFull: [
    { series: { svc_store_admin_device_used_bytes: "90x40", svc_store_admin_device_capacity_bytes: "100x40" }, at: "10m", fires: false },
    { series: { svc_store_admin_device_used_bytes: "97x40", svc_store_admin_device_capacity_bytes: "100x40" }, at: "10m", fires: true },
  ],
  StoreDeviceFailed: [
    { series: { 'svc_store_admin_devices{state="ready"}': "2x40", 'svc_store_admin_devices{state="failed"}': "0x40" }, at: "10m", fires: false },
    { series: { 'svc_store_admin_devices{state="failed"}': "1x40" }, at: "10m", fires: true },
  ],
  StoreFolderNotSwept: [
    { series: { svc_store_folder_dropped_files: "50x40" }, at: "30m", fires: false },
    { series: { svc_store_folder_dropped_files: "20000x40" }, at: "30m", fires: true },
  ],
  StoreFolderFails: [
    { series: { svc_store_folder_failures_total: "0+1x40" }, at: "30m", fires: false },
    { series: { svc_store_folder_failures_total: "0+200x40" }, at: "30m", fires: true },
  ],
  StoreOffloadBacklog: [
    { series: { svc_store_offloads_waiting: "100x40" }, at: "30m", fires: false },
    { series: { svc_store_offloads_waiting: "20000x40" }, at: "30m", fires: true },
  ],
};

void test("every alert of the store has valid rules, fires when what it is named after happens, and not otherwise", needsChecker, async () => {
  execFileSync("promtool", ["check", "rules", rules, pathOf("gateway-alerts.yml")], { stdio: "pipe" });
  const named = [...readFileSync(rules, "utf8").matchAll(/- alert: (\w+)/g)].map(([, name = ""]) => name);
  assert.deepEqual(Object.keys(cases).sort(), named.sort());
  await using folder = makeFolder();
  const tests = Object.entries(cases).flatMap(([alertname, each]) =>
    each.map(({ series, at, fires }) => ({
      interval: "1m",
      input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
      // Alerts have the labels of their series; those that aggregate have none.
      promql_expr_test: [
        { expr: `count(ALERTS{alertname="${alertname}",alertstate="firing"}) or vector(0)`, eval_time: at, exp_samples: [{ value: fires ? 1 : 0 }] },
      ],
    })),
  );
  const file = join(folder.path, "tests.yml");
  writeFileSync(file, JSON.stringify({ rule_files: [rules], evaluation_interval: "15s", tests }));
  execFileSync("promtool", ["test", "rules", file], { stdio: "pipe" });
});
