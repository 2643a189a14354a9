// A copy of a running sandbox shares user-space state with its source; its template's hooks replace that state.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { forkSandbox } from "@svc/contract/lifecycle.ts";
import { listSandboxes } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

/** Waits for changes of the generation and records each. */
const watcher = `
import ctypes, os
libc = ctypes.CDLL(None)
watch = libc.inotify_init()
assert libc.inotify_add_watch(watch, b"/run/svc/generation", 0x2) >= 0
print(open("/run/svc/generation").read().strip(), file=open("/tmp/seen", "a"))
while os.read(watch, 4096):
    print(open("/run/svc/generation").read().strip(), file=open("/tmp/seen", "a"))
`;

/** Every generator is used before the copy is made, and draws again once /tmp/go exists. */
const python = `
import json, os, random, secrets, ssl, time, uuid
random.random(), ssl.RAND_bytes(8), secrets.token_hex(8)
open("/tmp/python.ready", "w").close()
while not os.path.exists("/tmp/go"): time.sleep(0.05)
drawn = {"random": random.random(), "ssl.RAND_bytes": ssl.RAND_bytes(8).hex(), "os.urandom": os.urandom(8).hex(),
  "secrets": secrets.token_hex(8), "uuid.uuid4": str(uuid.uuid4())}
random.seed(); ssl.RAND_add(os.urandom(32), 32.0)
drawn.update({"random after seed": random.random(), "ssl.RAND_bytes after RAND_add": ssl.RAND_bytes(8).hex()})
json.dump(drawn, open("/tmp/python.part", "w")); os.rename("/tmp/python.part", "/tmp/python.json")
`;
const node_ = `
const crypto = require("node:crypto"), fs = require("node:fs");
Math.random(); crypto.randomUUID(); crypto.randomBytes(8);
fs.writeFileSync("/tmp/node.ready", "");
const timer = setInterval(() => {
  if (!fs.existsSync("/tmp/go")) return;
  clearInterval(timer);
  const kernel = Buffer.alloc(8);
  fs.readSync(fs.openSync("/dev/urandom"), kernel);
  const drawn = { "Math.random": Math.random(), "crypto.randomUUID": crypto.randomUUID(), "crypto.randomBytes": crypto.randomBytes(8).toString("hex"),
    "crypto.getRandomValues": Buffer.from(crypto.getRandomValues(new Uint8Array(8))).toString("hex"), "/dev/urandom": kernel.toString("hex") };
  fs.writeFileSync("/tmp/node.part", JSON.stringify(drawn)); fs.renameSync("/tmp/node.part", "/tmp/node.json");
}, 50);
`;

void describe("a copy of a sandbox on gvisor", needs("root", "envd", "base", "runsc"), () => {
  let node: TestNode;
  const connection = () => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });
  const create = (template = "base") => Sandbox.create(template, { ...connection(), timeoutMs: 600_000 });
  const text = async (sandbox: Sandbox, command: string) => (await sandbox.commands.run(command)).stdout.trim();
  const root = (sandbox: Sandbox, command: string) => sandbox.commands.run(command, { user: "root" });
  const hook = (sandbox: Sandbox, name: string, script: string) =>
    root(sandbox, `mkdir -p /etc/svc/on-copy.d; printf '#!/bin/sh\\n%s\\n' '${script}' > /etc/svc/on-copy.d/${name}; chmod 755 /etc/svc/on-copy.d/${name}`);
  const forks = async (source: Sandbox, count: number) => {
    const children = await node.call(forkSandbox, { sandboxID: source.sandboxId, count });
    return Promise.all(
      children.map((child) => ("sandbox" in child ? Sandbox.connect(child.sandbox.sandboxID, connection()) : assert.fail(child.error.message))),
    );
  };

  before(async () => {
    node = await startNode({ runtime: "gvisor", flags: ["--sandbox.on_copy_timeout_seconds=20"] });
  });
  after(() => node[Symbol.asyncDispose]());

  void test("runs its template's hooks before it is returned; a failing hook fails the copy with its output", async () => {
    const source = await create();
    await root(source, "echo seed > /root/.rnd");
    await hook(source, "20-mark", "echo $SVC_SANDBOX_ID $(cat /run/svc/generation) $(id -un) >> /tmp/mark");
    const generation = await text(source, "cat /run/svc/generation");
    const children = await forks(source, 2);
    const snapshot = await source.createSnapshot({ name: "hooked" });
    for (const copy of [...children, await create("hooked")]) {
      const [id, own, user] = (await text(copy, "cat /tmp/mark")).split(" ");
      assert.deepEqual([id, user], [copy.sandboxId, "root"]);
      assert.equal(await text(copy, "cat /run/svc/generation"), own);
      assert.notEqual(own, generation);
      // The base template reseeds itself: its own hook deleted the seed file.
      await root(copy, "test ! -e /root/.rnd");
      await copy.kill();
    }
    await source.pause();
    const again = await Sandbox.connect(source.sandboxId, connection());
    assert.equal(await text(again, "ls /tmp/mark 2>/dev/null || echo none"), "none", "a resume makes no copy");
    await hook(again, "30-fails", "echo no seed for you; exit 4");
    const [refused] = await node.call(forkSandbox, { sandboxID: source.sandboxId, count: 1 });
    assert.match(
      refused !== undefined && "error" in refused ? refused.error.message : "",
      /on copy: \/etc\/svc\/on-copy.d\/30-fails ended with exit code 4: no seed for you/,
    );
    await again.createSnapshot({ name: "failing" });
    await assert.rejects(create("failing"), /30-fails ended with exit code 4: no seed for you/);
    assert.deepEqual(
      (await node.call(listSandboxes, {})).map(({ sandboxID }) => sandboxID),
      [source.sandboxId],
      "nothing is left of refused copies",
    );
    await Sandbox.deleteSnapshot(snapshot.snapshotId, connection());
    await again.kill();
  });

  void test("has a generation of its own, and programs that watch it are notified", async () => {
    const source = await create();
    await source.files.write("/tmp/watch.py", watcher);
    await source.commands.run("python3 /tmp/watch.py", { background: true, timeoutMs: 0 });
    await until("the watch", async () => ((await source.files.exists("/tmp/seen")) ? true : undefined));
    const children = await forks(source, 3);
    const generations = await Promise.all([source, ...children].map((each) => text(each, "cat /run/svc/generation")));
    assert.equal(new Set(generations).size, 4);
    for (const [at, child] of children.entries()) {
      const seen = await until("the watcher of the copy", async () => {
        const lines = (await text(child, "cat /tmp/seen")).split("\n");
        return lines.length > 1 ? lines : undefined;
      });
      assert.deepEqual([seen[0], seen.at(-1)], [generations[0], generations[at + 1]]);
      await child.kill();
    }
    assert.equal(await text(source, "cat /tmp/seen"), generations[0]);
    await source.kill();
  });

  void test("draws the same random numbers as its source from generators in memory, and different ones from the kernel", async () => {
    const source = await create();
    await source.files.write("/tmp/draw.py", python);
    await source.files.write("/tmp/draw.cjs", node_);
    await source.files.write("/tmp/node", new Blob([readFileSync(process.execPath)]));
    await source.commands.run("chmod +x /tmp/node");
    for (const command of ["python3 /tmp/draw.py", "/tmp/node /tmp/draw.cjs"]) await source.commands.run(command, { background: true, timeoutMs: 0 });
    for (const name of ["python", "node"])
      await until(`${name} to be ready`, async () => ((await source.files.exists(`/tmp/${name}.ready`)) ? true : undefined));
    const all = [source, ...(await forks(source, 3))];
    const drawn = await Promise.all(
      all.map(async (each) => {
        await each.commands.run("touch /tmp/go");
        const of = (name: string) =>
          until(`what ${name} draws`, async () =>
            (await each.files.exists(`/tmp/${name}.json`)) ? (JSON.parse(await each.files.read(`/tmp/${name}.json`)) as object) : undefined,
          );
        return { ...(await of("python")), ...(await of("node")), "openssl rand": await text(each, "openssl rand -hex 8") } as Record<string, unknown>;
      }),
    );
    const distinct = Object.fromEntries(Object.keys(drawn[0] ?? {}).map((name) => [name, new Set(drawn.map((each) => each[name])).size]));
    // docs/sandboxes.md states these results.
    assert.deepEqual(distinct, {
      random: 1,
      "ssl.RAND_bytes": 1,
      "os.urandom": 4,
      secrets: 4,
      "uuid.uuid4": 4,
      "random after seed": 4,
      "ssl.RAND_bytes after RAND_add": 4,
      "Math.random": 1,
      "crypto.randomUUID": 1,
      "crypto.randomBytes": 1,
      "crypto.getRandomValues": 1,
      "/dev/urandom": 4,
      "openssl rand": 4,
    });
    for (const each of all) await each.kill();
  });
});
