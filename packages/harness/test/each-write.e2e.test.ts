// Every server with the disk full from its n-th write on, for each n: nothing acknowledged is lost, and nothing refused exists.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { countedDiskNeeds, openCountedDisk } from "../src/counted-disk.ts";
import { type Changes, tryEach } from "../src/each-write.ts";
import { needs } from "../src/needs.ts";
import { freePorts } from "../src/ports.ts";
import { openServer } from "../src/server-process.ts";
import { until } from "../src/until.ts";

const main = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url));
const metadata = ["-e", "import(process.argv[1]).then(({ main }) => main(process.argv.slice(2)))", main("store/src/metadata/main.ts")];
const VALUE_BYTES = 20_000;

/** 2xx means acknowledged and 507 refused; a full disk may cause no other answer. */
async function isTaken(answer: Promise<Response>): Promise<boolean> {
  const { status, ok, text } = await answer.then(async (response) => ({ status: response.status, ok: response.ok, text: await response.text() }));
  assert.ok(ok || status === 507, `${status}: ${text}`);
  return ok;
}

for (const durability of ["process", "disk"])
  void test(`the metadata server, durability ${durability}: values are put, replaced and deleted`, needs(...countedDiskNeeds), async (t) => {
    using disk = openCountedDisk();
    const flags = [`--home=${disk.folder}`, "--log-level=silent", `--durability=${durability}`];
    await using server = await openServer(metadata, flags, disk.env);
    const at = (key: string) => `${server.url}/metadata?key=${key}`;
    const put = (key: string, value: string) => isTaken(fetch(at(key), { method: "PUT", body: value.padEnd(VALUE_BYTES, ".") }));
    const get = async (key: string) => {
      const answer = await fetch(at(key));
      const text = await answer.text();
      return answer.ok ? text.replace(/\.*$/, "") : undefined;
    };
    const taken = (key: string, value: string) => until("room for a value", async () => ((await put(key, value)) ? true : undefined));
    let made = 0;
    const changes: Changes = {
      async put() {
        await taken("any", "room");
        const key = `put-${made++}`;
        return { act: () => put(key, "new"), isThere: async () => (await get(key)) === "new" };
      },
      async replace() {
        const key = `replace-${made++}`;
        await taken(key, "old");
        const isThere = async () => {
          const value = await get(key);
          assert.ok(value === "old" || value === "new", value);
          return value === "new";
        };
        return { act: () => put(key, "new"), isThere };
      },
      async delete() {
        const key = `delete-${made++}`;
        await taken(key, "old");
        return { act: () => isTaken(fetch(at(key), { method: "DELETE" })), isThere: async () => (await get(key)) === undefined };
      },
    };
    await tryEach((line) => t.diagnostic(line), { disk, server }, changes);
  });

void test("the cache indexer: registrations are created and removed", needs(...countedDiskNeeds), async (t) => {
  using disk = openCountedDisk();
  const flags = [`--home=${disk.folder}`, "--log-level=silent", "--indexer.snapshot_interval_seconds=1"];
  await using server = await openServer([main("indexer/src/main.ts")], flags, disk.env);
  const post = (path: string, body: unknown) => isTaken(fetch(`${server.url}${path}`, { method: "POST", body: JSON.stringify(body) }));
  const record = (instance_id: string) => ({ endpoint: "tcp://127.0.0.1:9", type: "vLLM", modelname: "m", block_size: 4, dp_rank: 0, instance_id });
  const has = async (id: string) =>
    ((await (await fetch(`${server.url}/services`)).json()) as { services: { instance_id: string }[] }).services.some(({ instance_id }) => instance_id === id);
  const end = (id: string) => post("/unregister", { instance_id: id, dp_rank: 0 });
  let made = 0;
  const changes: Changes = {
    async register() {
      const id = `register-${made++}`;
      return { act: () => post("/register", record(id)), isThere: () => has(id) };
    },
    async unregister() {
      const id = `unregister-${made++}`;
      assert.ok(await post("/register", record(id)));
      return { act: () => end(id), isThere: async () => !(await has(id)) };
    },
  };
  await tryEach((line) => t.diagnostic(line), { disk, server }, changes);
});

void test("the admin server: an acknowledged task number is never reused", needs(...countedDiskNeeds), async (t) => {
  using disk = openCountedDisk();
  const [nobody = 0] = await freePorts(1);
  await using server = await openServer([main("store-admin/src/main.ts")], [`--home=${disk.folder}`, `--master=127.0.0.1:${nobody}`], disk.env);
  const given = new Set<string>();
  const task = { authority: "store-master", tenant: "default", key: "k", source_segment: "s", target_segments: ["x"], task_executor: "e" };
  const begin = async () => {
    const answer = await fetch(`${server.url}/v1/route-migrations/copy`, { method: "POST", body: JSON.stringify(task) });
    const { task_id, error } = (await answer.json()) as { task_id?: string; error?: string };
    assert.ok(answer.ok || answer.status === 507, `${answer.status}: ${error}`);
    if (task_id === undefined) return false;
    assert.ok(!given.has(task_id), `${task_id} was given twice`);
    given.add(task_id);
    return true;
  };
  const ids = async () => ((await (await fetch(`${server.url}/v1/route-migrations`)).json()) as { tasks: { task_id: string }[] }).tasks.length;
  const changes: Changes = {
    async task() {
      let [before, acknowledged, asked] = [await ids(), false, false];
      return {
        async act() {
          acknowledged = await begin();
          return acknowledged;
        },
        // Only the numbers of tasks are stored; the tasks end with their server.
        async isThere() {
          if (!asked) assert.equal(await ids(), before + (acknowledged ? 1 : 0));
          asked = true;
          return acknowledged;
        },
      };
    },
  };
  await tryEach((line) => t.diagnostic(line), { disk, server }, changes);
});

void test("a gateway stores only its address, and starts even if any of its writes meets a full disk", needs(...countedDiskNeeds), async () => {
  using disk = openCountedDisk();
  const [nobody = 0] = await freePorts(1);
  const flags = [`--home=${disk.folder}`, "--metrics-listen=127.0.0.1:0", `--nodes=http://127.0.0.1:${nobody}`];
  await using server = await openServer([main("gateway/src/main.ts")], flags, { ...disk.env, SVC_API_KEY: "svc_0123456789abcdef0123456789abcdef" });
  for (let n = 0, refused = 1; refused > 0; n++) {
    await server.kill("SIGKILL");
    disk.fillAfter(n, n % 2 === 1);
    await server.start();
    refused = disk.refused();
    assert.match(await (await fetch(`${server.url}/health`)).text(), /./);
  }
});
