// A client is stopped past its leases right after a put began; client-stopped.long.test.ts tries more moments.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "@svc/harness/until.ts";
import { startClient } from "./client.ts";
import { clientStoppedSuite } from "./client-stopped.suite.ts";
import { startMaster } from "./master.ts";

clientStoppedSuite([0, 2]);

void test("a client that is stopped in a put until the master has given it up, and for longer than the put may take, mounts again and continues", async () => {
  await using master = await startMaster({ flags: ["--client_ttl=1s", "--store.suspect_after_ms=500", "--put_start_discard_timeout_sec=1"] });
  await using writer = await startClient(master, { segmentBytes: 4 << 20, timeoutMs: 3000 });
  const segments = async () => (await (await fetch(`${master.url}/get_all_segments`)).text()).trim();
  for (const [round, afterMs] of [0, 1, 3].entries()) {
    const key = `late-${round}`;
    const put = writer.ask("put", key, Buffer.alloc(8192, key).toString("base64"));
    await sleep(afterMs);
    await writer.freeze();
    await until("the master has given it up", async () => ((await segments()) === "" ? true : undefined));
    await sleep(4000);
    writer.thaw();
    assert.equal(await put, true);
    await until("its memory is there again", async () => ((await segments()) === "" ? undefined : true));
    assert.equal(await writer.ask("put", `next-${round}`, Buffer.alloc(8192, "next").toString("base64")), true);
  }
});
