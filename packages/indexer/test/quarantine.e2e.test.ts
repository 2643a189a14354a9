// Tests that unreadable files are quarantined at the start under their names, with the reason, and that everything else starts.
import assert from "node:assert/strict";
import { closeSync, existsSync, ftruncateSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync, writeSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { fetchSibling } from "../src/state/sibling.ts";
import { startIndexer, type TestIndexer } from "./indexer.ts";

const record = { endpoint: "tcp://127.0.0.1:9", type: "vLLM", modelname: "m", block_size: 4, dp_rank: 0 };
const instances = async (indexer: TestIndexer): Promise<string[]> => (await indexer.services()).map(({ instance_id }) => instance_id).sort();

void test("a truncated registration is quarantined and named, and is restored from the snapshot if that has it", async () => {
  await using indexer = await startIndexer();
  for (const instance_id of ["a", "b", "c"]) await indexer.register({ ...record, instance_id });
  const folder = join(indexer.home, "indexer/registrations");
  const [first = "", second = ""] = readdirSync(folder);
  await indexer.kill("SIGKILL");
  // There is no snapshot yet, so the registration is lost and reported.
  truncateSync(join(folder, first), 10);
  await indexer.start();
  assert.equal((await instances(indexer)).length, 2);
  assert.match(await indexer.doctor(), new RegExp(`quarantine/${first}: this registration cannot be read`));
  assert.match(indexer.log(), new RegExp(first));
  assert.ok(existsSync(join(indexer.home, "indexer/quarantine", first)));
  const left = await instances(indexer);
  // A clean stop writes a snapshot.
  await indexer.kill("SIGTERM");
  truncateSync(join(folder, second), 10);
  await indexer.start();
  assert.deepEqual(await instances(indexer), left);
  assert.match(await indexer.doctor(), new RegExp(`quarantine/${second}`));
});

void test("the registrations file of a former version is used, and a truncated one is quarantined without a stack trace", async () => {
  await using indexer = await startIndexer();
  await indexer.kill("SIGKILL");
  const file = join(indexer.home, "indexer/registrations.json");
  mkdirSync(join(indexer.home, "indexer"), { recursive: true });
  writeFileSync(
    file,
    JSON.stringify([
      { ...record, instance_id: "old" },
      { ...record, instance_id: "odd", type: "another" },
    ]),
  );
  await indexer.start();
  assert.deepEqual(await instances(indexer), ["old"]);
  assert.match(await indexer.doctor(), /registrations.json, record 1: this registration cannot be read: type: expected vLLM/);
  assert.equal(existsSync(file), false);
  await indexer.kill("SIGKILL");
  writeFileSync(file, '[{"endpoint": "tcp://127.0');
  await indexer.start();
  assert.deepEqual(await instances(indexer), ["old"]);
  assert.match(await indexer.doctor(), /quarantine\/registrations.json: the registrations cannot be read/);
});

void test("a registration whose endpoint is in use when the indexer starts is named, kept, and started at a later start", async () => {
  await using indexer = await startIndexer();
  const [port = 0] = await freePorts(1);
  await indexer.register({ ...record, endpoint: `tcp://*:${port}`, instance_id: "bound" });
  await indexer.register({ ...record, instance_id: "other" });
  await indexer.kill("SIGKILL");
  const taken = createServer().listen(port, "0.0.0.0");
  await new Promise((resolve) => taken.once("listening", resolve));
  await indexer.start();
  assert.deepEqual(await instances(indexer), ["other"]);
  assert.match(await indexer.doctor(), /bound\|default\|0: this registration could not begin: .*cannot be listened on/);
  await indexer.kill("SIGKILL");
  await new Promise((resolve) => taken.close(resolve));
  await indexer.start();
  assert.deepEqual(await instances(indexer), ["bound", "other"]);
});

void test("a snapshot that is truncated, of another version, or damaged beyond 2 GiB is quarantined with its reason, and the indexer starts empty", async () => {
  await using indexer = await startIndexer();
  await indexer.register({ ...record, instance_id: "e" });
  await indexer.kill("SIGTERM");
  const file = join(indexer.home, "indexer/index.snapshot");
  const sound = readFileSync(file);
  const damages: [RegExp, () => void][] = [
    [/its checksum is wrong: it is damaged or truncated/, () => writeFileSync(file, sound.subarray(0, sound.length - 100))],
    [/it is of another version of the indexer/, () => writeFileSync(file, Buffer.concat([Buffer.from("SVCVIX99"), sound.subarray(8)]))],
    [/it is empty/, () => writeFileSync(file, "")],
    [
      /its checksum is wrong: it is damaged or truncated/,
      () => {
        const large = openSync(file, "w");
        writeSync(large, sound);
        ftruncateSync(large, 2.5 * 1024 ** 3);
        closeSync(large);
      },
    ],
  ];
  for (const [reason, damage] of damages) {
    damage();
    await indexer.start();
    assert.deepEqual(await instances(indexer), ["e"]);
    const says = await indexer.doctor();
    assert.match(says, reason);
    assert.match(says, /quarantine\/index.snapshot/);
    await indexer.kill("SIGKILL");
    assert.ok(existsSync(join(indexer.home, "indexer/quarantine/index.snapshot")));
  }
  rmSync(join(indexer.home, "indexer/quarantine"), { recursive: true });
  await indexer.start();
  assert.equal(await indexer.doctor(), "");
});

void test("a sibling that stops sending, or sends more than announced and more than fits, is given up with the reason", async () => {
  const folder = makeHome();
  mkdirSync(folder, { recursive: true });
  const server = createServer((_request, response) => {
    response.writeHead(200, { "content-type": "application/octet-stream" });
    if (endless) {
      const more = (): void => {
        while (response.write(Buffer.alloc(65_536)));
        response.once("drain", more);
      };
      more();
    } else response.write("some bytes");
  }).listen(0, "127.0.0.1");
  let endless = false;
  await new Promise((resolve) => server.once("listening", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    await assert.rejects(fetchSibling({ url, apiKey: "", folder, maxBytes: 1 << 20, silentMs: 300 }), /nothing came for 0.3 s/);
    endless = true;
    await assert.rejects(fetchSibling({ url, apiKey: "", folder, maxBytes: 1 << 20, silentMs: 30_000 }), /more than 1048576 bytes/);
    assert.deepEqual(
      readdirSync(folder).filter((name) => name.includes("sibling")),
      [],
    );
  } finally {
    server.closeAllConnections();
    server.close();
    removeHome(folder);
  }
});

void test("with an API key set, registrations and snapshots need it, queries and health do not, and a sibling receives it", async () => {
  await using indexer = await startIndexer(["--indexer.api_key=a-long-key"]);
  for (const [path, method] of [
    ["/register", "POST"],
    ["/unregister", "POST"],
    ["/snapshot", "GET"],
  ] as const)
    for (const headers of [{}, { "x-api-key": "another" }, { authorization: "Bearer another" }]) {
      const response = await fetch(indexer.url + path, { method, headers, ...(method === "POST" ? { body: "{}" } : {}) });
      assert.equal(response.status, 401, path);
      assert.equal(((await response.json()) as { reason: string }).reason, "unauthorized");
    }
  const body = JSON.stringify({ ...record, instance_id: "e" });
  assert.equal((await fetch(`${indexer.url}/register`, { method: "POST", headers: { authorization: "Bearer a-long-key" }, body })).status, 200);
  assert.equal((await fetch(`${indexer.url}/register`, { method: "POST", headers: { "x-api-key": "a-long-key" }, body })).status, 200);
  assert.equal((await indexer.post("/query", { model: "m", block_size: 4, token_ids: [] })).status, 200);
  await using sibling = await startIndexer(["--indexer.api_key=a-long-key", `--indexer.bootstrap_from=${indexer.url}`]);
  assert.deepEqual(await instances(sibling), ["e"]);
});
