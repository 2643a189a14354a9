// Histories of sandboxes on two nodes during cuts between any two of gateway, nodes, etcd and object server.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { needs } from "../src/needs.ts";

const WORLD = fileURLToPath(new URL("./cut-world.ts", import.meta.url));

export function cutsSuite(rounds: number, clients: number): void {
  const given = needs("root", "runsc", "envd", "base", "etcd", "object-server", "nft", "ip", "nsenter", "unshare", "xxh128sum");
  void test("during network cuts no sandbox runs twice, nothing acknowledged is lost, and no chunk is left behind", given, async (t) => {
    const seed = Number(process.env["SVC_CUTS_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
    t.diagnostic(`seed ${seed} (SVC_CUTS_SEED)`);
    const args = ["--net", "--kill-child", process.execPath, "--disable-warning=ExperimentalWarning", WORLD, ...[seed, rounds, clients].map(String)];
    const child = spawn("unshare", args, { stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (chunk: string) => void (said += chunk));
    const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
    assert.equal(code, 0, `seed ${seed}: ${said.slice(-30_000)}`);
    t.diagnostic(said.trim());
    const { acknowledged, chunks } = JSON.parse(said.trim().split("\n").at(-1) ?? "") as { acknowledged: Record<string, number>; chunks: number };
    // Without these operations the model would have judged nothing.
    for (const kind of ["create", "append", "pause"]) assert.ok((acknowledged[kind] ?? 0) > 0, `${kind}: ${said}`);
    assert.ok(chunks > 0, said);
  });
}
