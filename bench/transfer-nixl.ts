// NIXL (nixl-cu12) between two processes of this host, for the transfer bench.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { LineChild } from "../packages/transfer/test/parts.ts";
import { AREA_BYTES, type Measured } from "./transfer-peers.ts";

const PYTHON_FOLDER = process.env["SVC_PYTHON_PEERS"] ?? "";

export type Nixl = { write(length: number, batch: number, seconds: number): Promise<Measured>; close(): Promise<void> };
type Started = { readonly address: string; readonly metadata: string };

/** Returns undefined if NIXL is not installed. */
export async function startNixl(): Promise<Nixl | undefined> {
  if (!existsSync(PYTHON_FOLDER)) return undefined;
  const script = fileURLToPath(new URL("peers/nixl_peer.py", import.meta.url));
  // NIXL would otherwise use every interface of the host, and fail at those that come and go.
  const env = { PYTHONPATH: PYTHON_FOLDER, UCX_NET_DEVICES: "lo", UCX_LOG_LEVEL: "fatal" };
  const [from, to] = [new LineChild("python3", [script], env), new LineChild("python3", [script], env)];
  for (const child of [from, to]) await child.line();
  await from.ask<Started>({ op: "start", name: "from", length: AREA_BYTES });
  const there = await to.ask<Started>({ op: "start", name: "to", length: AREA_BYTES });
  const target = await from.ask<string>({ op: "connect", metadata: there.metadata });
  const both = [from, to] as const;
  // Its threads spin and would occupy both processors during other measurements.
  for (const child of both) await child.freeze();
  return {
    async write(length, batch, seconds) {
      for (const child of both) child.thaw();
      const measured = await from.ask<Measured>({ op: "repeat", target, remote: there.address, length, batch, seconds, area: AREA_BYTES });
      for (const child of both) await child.freeze();
      return measured;
    },
    async close() {
      for (const child of both) child.thaw();
      const last = { op: "bytes", at: 0, length: 4096 };
      // NIXL may report a write as done before the other side has the bytes.
      await new Promise((resolve) => setTimeout(resolve, 500));
      assert.equal(await to.ask(last), await from.ask(last), "NIXL moved the bytes");
      for (const child of [from, to]) await child[Symbol.asyncDispose]();
    },
  };
}
