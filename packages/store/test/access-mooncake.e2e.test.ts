// Access control and Mooncake's unmodified client, which has no keys.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { startGuarded } from "./access.ts";
import { startHolder } from "./holder.ts";

void test("Mooncake's client is refused by a master with keys, and works from a trusted address", needs("python-clients", "python3"), async () => {
  await using master = await startGuarded();
  await assert.rejects(startHolder({ master: master.rpcPort }), /Mooncake's client did not set up: -?\d+/);
  await until("a line in the log", () => (/RPC calls of a client that showed no key were refused/.test(master.log()) ? true : undefined));
  await using trusting = await startGuarded(["--store.access_trusted_cidrs=127.0.0.0/8"]);
  await using holder = await startHolder({ master: trusting.rpcPort });
  assert.equal(await holder.put("k", "value"), 0);
  assert.equal(await holder.get("k"), "value");
});
