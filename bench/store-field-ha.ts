// Mooncake's masters with etcd, one of which is killed: how long its client's puts fail, and which acknowledged objects remain.

import { spawn } from "node:child_process";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { endWithUs } from "@svc/harness/children.ts";
import { startEtcd } from "../packages/harness/src/etcd.ts";
import { freePorts } from "../packages/harness/src/ports.ts";
import { bytesOf, Holder, MIB } from "../packages/store/test/holder.ts";

const KEYS = 100;
const BOUND_MS = 60_000;
const RETRY_MS = 20;
const START_MS = 3_000;

export type FieldTakeover = { readonly gapMs: number; readonly left: number; readonly of: number };

function startOne(endpoints: string, rpcPort: number, httpPort: number): { kill(): Promise<void> } {
  const folder = process.env["SVC_PYTHON_CLIENTS"] ?? "";
  const flags = [
    "--enable_ha=true",
    `--etcd_endpoints=${endpoints}`,
    "--rpc_address=127.0.0.1",
    `--rpc_port=${rpcPort}`,
    `--metrics_port=${httpPort}`,
    "--metrics_host=127.0.0.1",
  ];
  const child = spawn(join(folder, "mooncake/mooncake_master"), flags, { stdio: "ignore", env: { ...process.env, PYTHONPATH: folder } });
  endWithUs(child);
  return {
    async kill() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGKILL");
      await ended;
    },
  };
}

/** Returns undefined if they cannot serve a client at all. */
export async function fieldTakeover(): Promise<FieldTakeover | undefined> {
  await using etcd = await startEtcd();
  const endpoints = etcd.endpoints.map((each) => each.replace("http://", "")).join(";");
  const [rpc = 0, http = 0, otherRpc = 0, otherHttp = 0] = await freePorts(4);
  const first = startOne(endpoints, rpc, http);
  // The first one becomes the leader.
  await sleep(START_MS);
  const second = startOne(endpoints, otherRpc, otherHttp);
  await using client = new Holder();
  try {
    await client.ask();
    const code = await client.call<number>("setup", "127.0.0.1", "P2PHANDSHAKE", 64 * MIB, 16 * MIB, "tcp", "", `etcd://${endpoints}`);
    if (code !== 0) return undefined;
    const put = (key: string) => client.call<number>("put", key, bytesOf("value"));
    for (let at = 0; at < KEYS; at++) if ((await put(`before-${at}`)) !== 0) return undefined;
    await first.kill();
    const begun = performance.now();
    for (let at = 0; (await put(`after-${at}`)) !== 0; at++) {
      if (performance.now() - begun > BOUND_MS) break;
      await sleep(RETRY_MS);
    }
    const gapMs = performance.now() - begun;
    let left = 0;
    for (let at = 0; at < KEYS; at++) left += (await client.call<number>("is_exist", `before-${at}`)) === 1 ? 1 : 0;
    return { gapMs, left, of: KEYS };
  } finally {
    await first.kill();
    await second.kill();
  }
}
