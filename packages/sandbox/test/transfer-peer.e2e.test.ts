// Chunks of a paused sandbox from the node that has it: verified, and read from object storage if that node cannot serve them.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { serve } from "@svc/kit/serve.ts";
import { claimWith, recordWith } from "./record-fixture.ts";
import { MIB, openTransferHome, type TransferHome } from "./transfer-fixture.ts";

const API_KEY = "k".repeat(40);
const SANDBOX = "i0123456789abcdefghi";
const PAGES_BYTES = 9 * MIB;

/** Serves a home to other nodes. */
async function serving({ transfer }: TransferHome): Promise<AsyncDisposable & { readonly url: string }> {
  const app = serve({
    operations: {},
    handlers: {},
    apiKey: API_KEY,
    log: openLog("test", "fatal"),
    metrics: openMetrics(),
    raw: (scope) => transfer.routes(scope),
  });
  await app.listen({ host: "127.0.0.1", port: 0 });
  return { url: `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`, [Symbol.asyncDispose]: () => app.close() };
}

void describe("a paused sandbox whose node is up", needs("root", "xxh128sum"), () => {
  void test("comes from that node; chunks that it damaged, refuses or does not serve come from object storage", async () => {
    const folder = mkdtempSync(join(tmpdir(), "svc-storage-"));
    const objects = `file://${folder}`;
    {
      await using source = await openTransferHome({ objects });
      await using peer = await serving(source);
      const pages = randomBytes(PAGES_BYTES);
      const { checkpointID, kind, runtime, image, limits, envd } = source.records.snapshots.find(await source.keep({ "pages.img": pages })) ?? assert.fail();
      const status = { state: "paused", claim: claimWith(), kept: { checkpointID, kind, runtime }, pausedAtWallMs: 7 } as const;
      source.registry.add({ ...recordWith(status, SANDBOX), image, limits, envd });
      const { manifest } = (await source.transfer.stored?.exportSandbox(SANDBOX)) ?? assert.fail();
      const own = join((await source.checkpoints.find(checkpointID)).directory, "pages.img");
      const chunks = readdirSync(join(folder, "chunks"), { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map((entry) => join(entry.parentPath, entry.name));
      const arrives = async (at: { readonly url: string; readonly apiKey: string }) => {
        await using target = await openTransferHome({ objects });
        const record = await target.transfer.importSandbox(manifest, async () => {}, at);
        assert.equal(record.sandboxID, SANDBOX);
        assert.ok(readFileSync(join((await target.checkpoints.find(checkpointID)).directory, "pages.img")).equals(pages));
      };

      // Object storage has lost the largest chunks, so only the node can serve them.
      const large = chunks.filter((path) => readFileSync(path).length >= MIB && pages.includes(readFileSync(path)));
      const kept = large.map((path) => readFileSync(path));
      assert.equal(large.length, 3);
      for (const path of large) rmSync(path);
      await arrives({ url: peer.url, apiKey: API_KEY });
      await assert.rejects(arrives({ url: peer.url, apiKey: "x".repeat(40) }), { name: "SNAPSHOT_DAMAGED", message: /is not in file:/ });
      for (const [at, path] of large.entries()) writeFileSync(path, kept[at] ?? "");

      // The node's own file is damaged, so the second chunk that it serves is wrong.
      const damaged = Buffer.from(pages);
      damaged.fill(1, 5 * MIB, 6 * MIB);
      writeFileSync(own, damaged);
      await arrives({ url: peer.url, apiKey: API_KEY });
      await arrives({ url: "http://127.0.0.1:9", apiKey: API_KEY });
    }
    rmSync(folder, { recursive: true });
  });
});
