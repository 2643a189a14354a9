// Where engines are found: each kind of source reports what is there, what comes and what goes, and keeps what it knows while it cannot be read.
import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { startEtcd } from "@svc/harness/etcd.ts";
import { needs } from "@svc/harness/needs.ts";
import { startPodServer } from "@svc/harness/pod-server.ts";
import { until } from "@svc/harness/until.ts";
import { Discovery } from "../src/discovery/discovery.ts";
import type { NamedEntry } from "../src/discovery/engine-entry.ts";
import { openEtcd } from "../src/etcd/client.ts";
import { openLog } from "../src/log.ts";

const log = openLog("test", "silent");

function discover(...sources: string[]) {
  let last: readonly NamedEntry[] = [];
  const discovery = new Discovery({ sources, log, onEntries: (entries) => (last = entries) });
  discovery.begin();
  return {
    discovery,
    seen: () => last,
    async finds(...names: string[]) {
      await until(
        `it finds ${names.join(", ")}`,
        () => (discovery.isComplete && last.map(({ name }) => name).join() === names.join() ? true : undefined),
        10,
      ).catch((error: Error) => Promise.reject(new Error(`${error.message}; found ${JSON.stringify(last)}, ${JSON.stringify([...discovery.troubles])}`)));
      return last;
    },
    [Symbol.asyncDispose]: () => discovery.close(),
  };
}

void test("engines in a file are found, and engines that a new version of the file adds or drops come and go", async () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-engines-"));
  try {
    const file = join(folder, "engines.json");
    const write = (entries: unknown) => {
      writeFileSync(`${file}.new`, typeof entries === "string" ? entries : JSON.stringify(entries));
      renameSync(`${file}.new`, file);
    };
    write([{ name: "a", url: "http://10.0.0.1:8000", block_size: 16 }, { url: "http://10.0.0.2:8000/" }]);
    await using found = discover(`file:${file}`, "c=http://10.0.0.3:8000");
    const first = await found.finds("a", "10.0.0.2:8000", "c");
    assert.deepEqual(first[0], { name: "a", url: "http://10.0.0.1:8000", block_size: 16 });
    write("[{");
    await until("the broken file is named", () => [...found.discovery.troubles.values()].find((why) => why.includes(file)));
    assert.equal(found.seen().length, 3, "what it said last stays");
    write([{ name: "b", url: "http://10.0.0.1:8000", role: "prefill" }]);
    await found.finds("b", "c");
    assert.equal(found.discovery.troubles.size, 0);
    write([{ name: "b", url: "http://10.0.0.1:8000", rol: "prefill" }]);
    const why = await until("the wrong member is named", () => [...found.discovery.troubles.values()][0]);
    assert.match(why, /entry 1: expected no member "rol"/);
    write([
      { name: "b", url: "http://10.0.0.1:8000" },
      { name: "b", url: "http://10.0.0.2:8000" },
    ]);
    await until("a name that is there twice is named", () => [...found.discovery.troubles.values()].find((said) => /engine b is there twice/.test(said)));
  } finally {
    rmSync(folder, { recursive: true });
  }
});

void test("pods with a label are found while they run, through the watch, and again after the history was compacted or the server was away", async () => {
  await using api = await startPodServer("ml");
  api.put("other", { ip: "10.1.0.9", labels: { app: "web" } });
  for (let at = 0; at < 3; at++) api.put(`engine-${at}`, { ip: `10.1.0.${at}` });
  api.put("engine-5", { phase: "Pending" });
  await using found = discover(`kubernetes:ml?selector=app=engine&port=9000&events_port=5557&replay_port=5558&api=${api.url}`);
  const first = await found.finds("engine-0", "engine-1", "engine-2");
  assert.deepEqual(first[1], { name: "engine-1", url: "http://10.1.0.1:9000", events_port: 5557, replay_port: 5558 });
  api.put("engine-5", { ip: "10.1.0.5", annotations: { "svc-engine": '{"url": "http://10.1.0.5:9001", "role": "decode"}' } });
  const more = await found.finds("engine-0", "engine-1", "engine-2", "engine-5");
  assert.deepEqual(more[3], { name: "engine-5", url: "http://10.1.0.5:9001", events_port: 5557, replay_port: 5558, role: "decode" });
  api.put("engine-1", { ip: "10.1.0.1", isEnding: true });
  await found.finds("engine-0", "engine-2", "engine-5");
  api.delete("engine-0");
  await found.finds("engine-2", "engine-5");
  const lists = () => api.asked.filter((one) => !one.includes("watch=1")).length;
  const before = lists();
  api.cut();
  api.put("engine-7", { ip: "10.1.0.7" });
  await found.finds("engine-2", "engine-5", "engine-7");
  api.refuse = 500;
  api.cut();
  await until("the trouble is named", () => [...found.discovery.troubles.values()][0]);
  assert.equal(found.seen().length, 3, "what it said last stays");
  api.delete("engine-7");
  api.put("engine-8", { ip: "10.1.0.8" });
  api.compact();
  api.refuse = undefined;
  await found.finds("engine-2", "engine-5", "engine-8");
  assert.ok(lists() > before);
});

void test("a watch whose version was compacted begins with a list again", async () => {
  await using api = await startPodServer();
  api.put("a", { ip: "10.1.0.1" });
  await using found = discover(`kubernetes:default?selector=app=engine&api=${api.url}`);
  await found.finds("a");
  await until("it watches", () => api.asked.find((one) => one.includes("watch=1")));
  // The watch breaks while the history from its version on is compacted, so it cannot continue and must list again.
  api.put("b", { ip: "10.1.0.2", labels: { app: "web" } });
  api.put("c", { ip: "10.1.0.3" });
  api.compact();
  api.cut();
  await found.finds("a", "c");
  assert.equal(found.discovery.troubles.size <= 1, true);
});

void test("engines that put themselves into etcd are found, and leave with their lease", needs("etcd"), async () => {
  await using server = await startEtcd();
  const etcd = openEtcd({ endpoints: server.endpoints });
  try {
    await etcd.put("/ml/one", JSON.stringify({ url: "http://10.2.0.1:8000" }));
    await using found = discover(`etcd:${server.endpoints.join(",")}?prefix=/ml/`);
    await found.finds("one");
    const lease = await etcd.lease(60, () => {});
    await etcd.put("/ml/two", JSON.stringify({ url: "http://10.2.0.2:8000", name: "second" }), lease.id);
    await etcd.put("/ml/nonsense", "{");
    await found.finds("one", "second");
    await lease.release();
    await found.finds("one");
  } finally {
    await etcd.close();
  }
});

void test("each address of a name is an engine, and addresses that the name loses are gone", async () => {
  let addresses = ["10.3.0.2", "10.3.0.1"];
  let code = 0;
  const dns = createSocket("udp4");
  dns.on("message", (query, from) => {
    const end = query.indexOf(0, 12) + 5;
    const isA = query.readUInt16BE(end - 4) === 1;
    const answers = isA && code === 0 ? addresses : [];
    const head = Buffer.from(query.subarray(0, end));
    head.writeUInt16BE(0x8180 | code, 2);
    head.writeUInt16BE(answers.length, 6);
    head.fill(0, 8, 12);
    const records = answers.map((address) => Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, ...address.split(".").map(Number)]));
    dns.send(Buffer.concat([head, ...records]), from.port, from.address);
  });
  dns.bind(0, "127.0.0.1");
  await once(dns, "listening");
  try {
    await using found = discover(`dns:engines.test:8000?server=127.0.0.1:${dns.address().port}&every_ms=50&events_port=5557`);
    const first = await found.finds("10.3.0.1:8000", "10.3.0.2:8000");
    assert.deepEqual(first[0], { name: "10.3.0.1:8000", url: "http://10.3.0.1:8000", events_port: 5557 });
    addresses = ["10.3.0.3"];
    await found.finds("10.3.0.3:8000");
    code = 2;
    await until("the trouble is named", () => [...found.discovery.troubles.values()][0]);
    assert.equal(found.seen().length, 1, "what it said last stays");
  } finally {
    dns.close();
  }
});

void test("each target of a name's SRV records is an engine at the port that its record says", async () => {
  let targets = ["b.test:9002", "a.test:9001", "a.test:9001"];
  const labels = (name: string) => Buffer.concat([...name.split(".").map((label) => Buffer.from([label.length, ...Buffer.from(label)])), Buffer.of(0)]);
  const dns = createSocket("udp4");
  dns.on("message", (query, from) => {
    const head = Buffer.from(query.subarray(0, query.indexOf(0, 12) + 5));
    head.writeUInt16BE(0x8180, 2);
    head.writeUInt16BE(targets.length, 6);
    head.fill(0, 8, 12);
    const records = targets.map((target) => {
      const [name = "", port = 0] = target.split(":");
      const data = Buffer.concat([Buffer.from([0, 1, 0, 1, Number(port) >> 8, Number(port) & 255]), labels(name)]);
      return Buffer.concat([Buffer.from([0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 1, 0, data.length]), data]);
    });
    dns.send(Buffer.concat([head, ...records]), from.port, from.address);
  });
  dns.bind(0, "127.0.0.1");
  await once(dns, "listening");
  try {
    await using found = discover(`srv:_http._tcp.engines.test?server=127.0.0.1:${dns.address().port}&every_ms=50&events_port=5557`);
    const first = await found.finds("a.test:9001", "b.test:9002");
    assert.deepEqual(first[0], { name: "a.test:9001", url: "http://a.test:9001", events_port: 5557 });
    targets = ["c.test:65535"];
    await found.finds("c.test:65535");
  } finally {
    dns.close();
  }
});

void test("a wrong source is refused with a sentence that says what was expected", () => {
  const wrong: [string, RegExp][] = [
    ["10.0.0.1:8000", /expected http:\/\/HOST:PORT, NAME=http/],
    ["a b=http://x:1", /NAME: expected letters/],
    ["file:", /expected file:PATH/],
    ["dns:host", /expected dns:HOST:PORT/],
    ["dns:host:80?port=1", /there is no option port/],
    ["srv:host", /expected srv:_SERVICE._tcp.NAME/],
    ["kubernetes:ml", /selector is missing/],
    ["kubernetes:ml?selector=a=b", /api=https:\/\/HOST:PORT is missing/],
    ["etcd:x", /expected etcd:http/],
  ];
  for (const [source, says] of wrong)
    assert.throws(
      () => discover(source),
      (error: Error) => error.message.includes(source) && says.test(error.message),
      source,
    );
});
