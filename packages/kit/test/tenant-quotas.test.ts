// Quotas of tenants: any number of creates at once, and the headers that say what is left.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import type { Quotas, Usage } from "@svc/contract/tenants.ts";
import { sum, TenantQuotas } from "@svc/kit/keys/tenant-quotas.ts";

const one: Usage = { sandboxes: 1, processors: 2, memoryMB: 512, diskMB: 1024 };

function open(quotas: Quotas) {
  let used: Usage = { sandboxes: 0, processors: 0, memoryMB: 0, diskMB: 0 };
  let most = 0;
  let nowMs = 0;
  const tenants = new TenantQuotas({ quotasOf: (tenant) => (tenant === "acme" ? quotas : undefined), usedBy: () => used, nowMs: () => nowMs });
  return {
    tenants,
    get most() {
      return most;
    },
    later: (ms: number) => void (nowMs += ms),
    create: (tenant = "acme", isFailing = false) =>
      tenants.run({ tenant, usage: one }, async () => {
        for (let turn = 0; turn < 3; turn++) await setImmediate();
        if (isFailing) throw new Error("the start failed");
        used = sum(used, one);
        most = Math.max(most, used.sandboxes);
      }),
    end: () => void (used = sum(used, one, -1)),
  };
}

void test("a thousand creates at once never exceed the quota", async () => {
  const world = open({ sandboxes: 10 });
  const results = await Promise.allSettled(Array.from({ length: 1_000 }, () => world.create()));
  assert.equal(results.filter(({ status }) => status === "fulfilled").length, 10);
  assert.equal(world.most, 10);
  await assert.rejects(world.create(), { name: "QUOTA_EXCEEDED", details: { quota: "sandboxes", limit: 10, used: 10, asked: 1 } });
  world.end();
  await world.create();
});

void test("the scarcest quota decides, and a create that fails gives back what it took", async () => {
  const world = open({ sandboxes: 10, processors: 5, memoryMB: 4096 });
  await Promise.all([assert.rejects(world.create("acme", true), /the start failed/), assert.rejects(world.create("acme", true), /the start failed/)]);
  const results = await Promise.allSettled(Array.from({ length: 5 }, () => world.create()));
  assert.equal(results.filter(({ status }) => status === "fulfilled").length, 2);
  assert.deepEqual(world.tenants.headersFor("acme"), {
    "svc-quota": "sandboxes=10, processors=5, memoryMB=4096",
    "svc-quota-left": "sandboxes=8, processors=1, memoryMB=3072",
  });
});

void test("tenants without quotas, and the deployment's own key, are never refused", async () => {
  const world = open({ sandboxes: 0 });
  await world.create("globex");
  await world.tenants.run({ tenant: undefined, usage: one }, async () => {});
  assert.deepEqual(world.tenants.headersFor("globex"), {});
});

void test("creates a minute refill evenly, and a new limit applies at once", () => {
  const quotas: { createsPerMinute: number } = { createsPerMinute: 2 };
  const world = open(quotas);
  world.tenants.takeCreate("acme");
  world.tenants.takeCreate("acme");
  assert.throws(() => world.tenants.takeCreate("acme"), { name: "QUOTA_EXCEEDED", retryAfterSeconds: 30 });
  world.later(30_000);
  world.tenants.takeCreate("acme");
  quotas.createsPerMinute = 0;
  assert.throws(() => world.tenants.takeCreate("acme"), { name: "QUOTA_EXCEEDED" });
});
