// Quotas of tenants at a real server: the same at a node and at a gateway.
import assert from "node:assert/strict";
import { test } from "node:test";
import { getTenant, type Quotas, setTenantQuotas } from "@svc/contract/tenants.ts";
import { until } from "@svc/harness/until.ts";
import { ask, keyFor, type Server } from "./tenants.suite.ts";

type Refusal = { error_code: string; quota: string; limit: number };

export function quotasSuite(server: () => Server): void {
  async function tenant(name: string, quotas: Quotas) {
    const { key } = await keyFor(server(), name);
    await server().call(setTenantQuotas, { tenant: name, quotas });
    return {
      key,
      create: () => ask(server(), key, "POST", "/v2/sandboxes", { templateID: "base" }),
      used: async () => (await server().call(getTenant, { tenant: name })).used,
    };
  }
  const idOf = async (answer: Response) => ((await answer.json()) as { sandboxID: string }).sandboxID;
  const refusalOf = async (answer: Response) => {
    assert.equal(answer.status, 429, await answer.clone().text());
    return (await answer.json()) as Refusal;
  };

  void test("a hundred creates at once never exceed the quota, and one that ends makes room for another", async () => {
    const capped = await tenant("capped", { sandboxes: 3 });
    const answers = await Promise.all(Array.from({ length: 100 }, capped.create));
    const made = answers.filter(({ status }) => status === 201);
    assert.equal(made.length, 3);
    for (const answer of answers.filter(({ status }) => status !== 201)) {
      const { error_code, quota, limit } = await refusalOf(answer);
      assert.deepEqual([error_code, quota, limit], ["QUOTA_EXCEEDED", "sandboxes", 3]);
      assert.ok(Number(answer.headers.get("retry-after")) > 0);
    }
    await until("three in use", async () => ((await capped.used()).sandboxes === 3 ? true : undefined));
    const listed = await ask(server(), capped.key, "GET", "/sandboxes");
    assert.equal(listed.headers.get("svc-quota"), "sandboxes=3");
    assert.equal(listed.headers.get("svc-quota-left"), "sandboxes=0");
    const ids = await Promise.all(made.map(idOf));
    assert.equal((await ask(server(), capped.key, "DELETE", `/sandboxes/${ids[0]}`)).status, 204);
    const next = await until("room for one more", async () => {
      const answer = await capped.create();
      return answer.status === 201 ? answer : undefined;
    });
    await idOf(next);
    await refusalOf(await capped.create());
  });

  void test("processors, memory and disk are limited as well, and a limit that is removed limits nothing", async () => {
    for (const quota of ["processors", "memoryMB", "diskMB"] as const) {
      const small = await tenant("small", { [quota]: 0 });
      assert.equal((await refusalOf(await small.create())).quota, quota);
    }
    const free = await tenant("small", {});
    const answer = await free.create();
    assert.equal(answer.status, 201);
    assert.equal(answer.headers.get("svc-quota"), null);
    const sandboxID = await idOf(answer);
    const used = await until("its usage", async () => {
      const now = await free.used();
      return now.sandboxes === 1 ? now : undefined;
    });
    assert.ok(used.processors > 0 && used.memoryMB > 0 && used.diskMB > 0);
    assert.equal((await ask(server(), free.key, "DELETE", `/sandboxes/${sandboxID}`)).status, 204);
    await until("no usage", async () => ((await free.used()).diskMB === 0 ? true : undefined));
  });

  void test("many volumes made at once never exceed the quota of volumes, and a deleted one makes room", async () => {
    const full = await tenant("full", { volumes: 2 });
    const make = (name: string) => ask(server(), full.key, "POST", "/volumes", { name, sizeMB: 16 });
    const answers = await Promise.all(["a", "b", "c", "d", "e"].map(make));
    const made = answers.filter(({ status }) => status === 201);
    assert.equal(made.length, 2);
    for (const answer of answers.filter(({ status }) => status !== 201)) {
      const { error_code, quota, limit } = await refusalOf(answer);
      assert.deepEqual([error_code, quota, limit], ["QUOTA_EXCEEDED", "volumes", 2]);
      assert.ok(Number(answer.headers.get("retry-after")) > 0);
      assert.equal(answer.headers.get("svc-quota"), "volumes=2");
    }
    assert.equal((await full.used()).volumes, 2);
    const { volumeID } = (await (made[0] as Response).json()) as { volumeID: string };
    assert.equal((await ask(server(), full.key, "DELETE", `/volumes/${volumeID}`)).status, 204);
    assert.equal((await make("f")).status, 201);
    await refusalOf(await make("g"));
    const free = await tenant("free", {});
    assert.equal((await ask(server(), free.key, "POST", "/volumes", { name: "a", sizeMB: 16 })).status, 201);
  });

  void test("creates a minute are limited, and the refusal says when to try again", async () => {
    const hasty = await tenant("hasty", { createsPerMinute: 2 });
    const answers = [await hasty.create(), await hasty.create(), await hasty.create()];
    assert.deepEqual(
      answers.map(({ status }) => status),
      [201, 201, 429],
    );
    const last = answers[2] as Response;
    assert.ok(Number(last.headers.get("retry-after")) >= 1);
    assert.equal((await refusalOf(last)).quota, "createsPerMinute");
  });

  void test("a paused sandbox uses disk alone, and is not resumed above the quota", async () => {
    const sleepy = await tenant("sleepy", { sandboxes: 1 });
    const first = await idOf(await sleepy.create());
    assert.equal((await ask(server(), sleepy.key, "POST", `/sandboxes/${first}/pause`, { memory: false })).status, 204);
    const used = await until("the pause", async () => {
      const now = await sleepy.used();
      return now.sandboxes === 0 ? now : undefined;
    });
    assert.ok(used.diskMB > 0 && used.memoryMB === 0);
    const second = await idOf(await sleepy.create());
    assert.equal((await refusalOf(await ask(server(), sleepy.key, "POST", `/sandboxes/${first}/resume`, { timeout: 60 }))).quota, "sandboxes");
    assert.equal((await ask(server(), sleepy.key, "DELETE", `/sandboxes/${second}`)).status, 204);
    await until("room to resume", async () => {
      const { status } = await ask(server(), sleepy.key, "POST", `/sandboxes/${first}/resume`, { timeout: 60 });
      return status === 201 ? true : undefined;
    });
  });

  void test("a tenant sees its own quotas, and only the deployment's own key sets them", async () => {
    const { key } = await tenant("curious", { sandboxes: 7 });
    const shown = (await (await ask(server(), key, "GET", "/tenants/curious")).json()) as { quotas: Quotas };
    assert.deepEqual(shown.quotas, { sandboxes: 7 });
    assert.equal((await ask(server(), key, "GET", "/tenants/capped")).status, 403);
    assert.equal((await ask(server(), key, "PUT", "/tenants/curious", { quotas: {} })).status, 403);
    assert.equal((await ask(server(), key, "GET", "/tenants")).status, 403);
  });
}
