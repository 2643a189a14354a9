// The protocol's official conformance suite against the HTTP server, in the last revision with sessions and in the first one without.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { SvcClient } from "@svc/contract/client.ts";
import { listenHttp } from "../src/http.ts";
import { SessionSandboxes } from "../src/sandboxes.ts";
import { openServer } from "../src/server.ts";
import { addConformanceTools } from "./conformance-tools.ts";

const suite = fileURLToPath(import.meta.resolve("@modelcontextprotocol/conformance/dist/index.js"));
const BOUND_MS = 300_000;

const guide = readFileSync(new URL("../../../docs/agents.md", import.meta.url), "utf8");
/** The scenarios that test features which the server does not offer: the guide names each with the reason. All others must pass. */
const [, table = ""] = /\| scenarios \| why they do not apply \|\n(.*?)\n\n/s.exec(guide) ?? [];
const notOffered = new Set([...table.matchAll(/`([\w-]+)`/g)].map(([, name = ""]) => name));
/** The number of checks of a scenario that may fail, as the guide says; all its other checks must pass. */
const checksNotOffered: Readonly<Record<string, number>> = { "server-stateless": 4 };
for (const name of Object.keys(checksNotOffered)) assert.ok(notOffered.delete(name), `the guide names ${name}`);

for (const revision of ["2025-11-25", "2026-07-28"]) {
  void test(`every scenario of the conformance suite that applies passes in revision ${revision}`, async () => {
    const client = new SvcClient({ baseURL: "http://127.0.0.1:9", apiKey: "none" });
    const server = await listenHttp({
      host: "127.0.0.1",
      port: 0,
      token: undefined,
      idleMs: 60_000,
      openSandboxes: (kind) => new SessionSandboxes(client, { template: "base", timeoutSeconds: 60, keep: false, ...kind }),
      open(sandboxes) {
        const opened = openServer(sandboxes);
        addConformanceTools(opened);
        return opened;
      },
    });
    try {
      const said = await runSuite(server.url, revision);
      const results = [...said.matchAll(/^[✓✗] ([\w-]+): (\d+) passed, (\d+) failed/gm)].map(([, name = "", passed, failed]) => ({
        name,
        passed: Number(passed),
        failed: Number(failed),
      }));
      assert.ok(results.length > 30, said);
      const failed = results.filter(({ name, failed: count }) => count > (checksNotOffered[name] ?? 0) && !notOffered.has(name));
      assert.deepEqual(failed, [], said);
      const stale = results.filter(({ name, failed: count }) => count === 0 && notOffered.has(name)).map(({ name }) => name);
      assert.deepEqual(stale, [], "these pass by now: remove them from the guide's table");
    } finally {
      await server.close();
    }
  });
}

async function runSuite(url: string, revision: string): Promise<string> {
  // The suite writes its results into the working directory.
  const folder = mkdtempSync(join(tmpdir(), "svc-conformance-"));
  try {
    const child = spawn(process.execPath, [suite, "server", "--url", url, "--suite", "all", "--spec-version", revision], { cwd: folder, timeout: BOUND_MS });
    let said = "";
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (chunk: string) => (said += chunk));
    await new Promise((resolve) => child.once("close", resolve));
    return said;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
