// Mooncake clients, an HTTP metadata server and a service: clients find the service, or it refuses to start.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { startHolder } from "./holder.ts";
import { startMaster } from "./master.ts";
import { startMetadataServer } from "./server.ts";
import { startService } from "./service.ts";

const SIZE = "--global_segment_size=64mb";

void test("with a metadata server a service of the default brand refuses to start next to Mooncake's clients, and names the fix", async () => {
  await using master = await startMaster();
  await using metadata = await startMetadataServer();
  await assert.rejects(
    startService({ master: master.rpcPort, flags: [`--metadata_server=${metadata.url}`, SIZE] }),
    /also answers to mooncake.*--brand mooncake/s,
  );
  assert.equal((await (await fetch(`${master.url}/get_all_segments`)).text()).trim(), "", "it left nothing behind");
  await using alone = await startService({ master: master.rpcPort, flags: [SIZE] });
  assert.equal((await alone.ask("GET", "/health")).status, 200, "peer to peer it needs no brand");
});

void test("with --brand mooncake every put of a Mooncake client to the service is stored", needs("python-clients", "python3"), async () => {
  await using master = await startMaster();
  await using metadata = await startMetadataServer();
  await using _service = await startService({ master: master.rpcPort, flags: [`--metadata_server=${metadata.url}`, SIZE, "--brand=mooncake"] });
  await using client = await startHolder({ master: master.rpcPort, metadata: metadata.url, name: "127.0.0.1", segmentBytes: 0 });
  for (let at = 0; at < 20; at++) assert.equal(await client.put(`k${at}`, "x".repeat(1000)), 0);
  assert.equal((await client.get("k7")).length, 1000);
});
