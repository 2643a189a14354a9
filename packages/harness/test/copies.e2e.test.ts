// Snapshots and forks on gVisor: independent copies of a sandbox's memory and files.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { forkSandbox, listSnapshots } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox, getSandbox, listSandboxes } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

void describe("copies of a sandbox on gvisor", needs("root", "envd", "base", "runsc"), () => {
  let node: TestNode;
  const connection = () => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });
  const create = (template = "base", options: object = {}) => Sandbox.create(template, { ...connection(), timeoutMs: 600_000, ...options });
  const text = async (sandbox: Sandbox, command: string) => (await sandbox.commands.run(command)).stdout.trim();
  const checkpoints = () => readdirSync(join(node.home, "snapshots"));

  before(async () => {
    node = await startNode({ runtime: "gvisor" });
  });
  after(() => node[Symbol.asyncDispose]());

  void test("a snapshot lets its source continue, starts new sandboxes by name, and outlives its source and the node", async () => {
    const source = await create("base", { envs: { COLOUR: "green" }, metadata: { task: "7" } });
    await source.commands.run("echo first > file; touch ticks; (while sleep 0.05; do echo tick >> ticks; done) > /dev/null 2>&1 & disown");
    const snapshot = await source.createSnapshot({ name: "mine" });
    assert.deepEqual(snapshot.names, ["mine:default"]);
    await source.commands.run("echo second > file");
    const before = Number(await text(source, "wc -l < ticks"));
    await until("the source to go on", async () => (Number(await text(source, "wc -l < ticks")) > before ? true : undefined));
    await source.kill();
    await node.kill("SIGKILL");
    await node.start();
    const [listed] = await node.call(listSnapshots, { sandboxID: source.sandboxId });
    assert.equal(listed?.snapshotID, snapshot.snapshotId);
    for (const name of ["mine", "mine:default", snapshot.snapshotId]) {
      const copy = await create(name);
      assert.equal(await text(copy, "cat file; echo $COLOUR; hostname; sudo echo sudo"), `first\ngreen\n${copy.sandboxId}\nsudo`);
      const ticks = Number(await text(copy, "wc -l < ticks"));
      await until("the copied process to go on", async () => (Number(await text(copy, "wc -l < ticks")) > ticks ? true : undefined));
      await copy.kill();
    }
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId, connection()), true);
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId, connection()), false);
    assert.deepEqual(checkpoints(), []);
    await assert.rejects(create("mine"), /mine/);
  });

  void test("a damaged snapshot is refused by that name, and nothing of it remains", async () => {
    const source = await create();
    const snapshot = await source.createSnapshot({});
    const [checkpointID] = checkpoints();
    const files = join(node.home, "snapshots", checkpointID ?? "", "files");
    const pages = await open(join(files, "pages.img"), "r+");
    const byte = Buffer.alloc(1);
    await pages.read(byte, 0, 1, 4096);
    await pages.write(Buffer.from([byte.readUInt8() ^ 1]), 0, 1, 4096);
    await pages.close();
    await assert.rejects(node.call(createSandbox, { templateID: snapshot.snapshotId }), { name: "SNAPSHOT_DAMAGED" });
    assert.deepEqual(
      (await node.call(listSandboxes, {})).map(({ sandboxID }) => sandboxID).filter((id) => id !== source.sandboxId),
      [],
    );
    await Sandbox.deleteSnapshot(snapshot.snapshotId, connection());
    await source.kill();
  });

  void test("forks share only their source's past: ids, tokens, names, machine, boot, randomness and clock are their own", async () => {
    const source = await create("base", { envs: { COLOUR: "green" }, metadata: { task: "7" }, timeoutMs: 500_000 });
    await source.commands.run("python3 -c \"import time; s='the past'; open('/tmp/ready','w'); time.sleep(1e6)\" & disown");
    await source.files.write("file", "the past");
    const forks = await node.call(forkSandbox, { sandboxID: source.sandboxId, count: 4 });
    assert.equal(forks.length, 4);
    const all = await Promise.all(
      [source.sandboxId, ...forks.map((fork) => ("sandbox" in fork ? fork.sandbox.sandboxID : assert.fail(fork.error.message)))].map(async (sandboxID) => {
        const detail = await node.call(getSandbox, { sandboxID });
        const sandbox = await Sandbox.connect(sandboxID, connection());
        const own = await text(
          sandbox,
          "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id; head -c 16 /dev/urandom | base64; ip -4 -o addr show eth0 | awk '{print $4}'",
        );
        return {
          detail,
          sandbox,
          own: own.split("\n"),
          shared: await text(sandbox, "cat file; echo; echo $COLOUR; pgrep -fc 'the past'"),
          clock: Number(await text(sandbox, "date +%s")),
        };
      }),
    );
    for (const { detail, own, shared, clock } of all) {
      assert.equal(shared.split("\n").slice(0, 2).join(), "the past,green");
      assert.ok(Number(shared.split("\n")[2]) >= 1);
      assert.equal(own[0], detail.sandboxID);
      assert.deepEqual(detail.metadata, { task: "7" });
      assert.ok(Math.abs(clock - Date.now() / 1000) < 60, "the clock is right");
    }
    for (const member of [0, 1, 2, 3, 4]) assert.equal(new Set(all.map(({ own }) => own[member])).size, 5, `member ${member} differs in all`);
    assert.equal(new Set(all.map(({ detail }) => detail.envdAccessToken)).size, 5);
    const [parent, ...children] = all.map(({ detail }) => detail);
    assert.equal(parent?.forkDepth, 0);
    for (const child of children) assert.deepEqual([child.parentSandboxID, child.forkDepth], [source.sandboxId, 1]);
    const stranger = all[1]?.sandbox;
    assert.ok(stranger !== undefined);
    // A write in one fork is not visible in any other.
    await stranger.files.write("file", "my own");
    assert.equal(await source.files.read("file"), "the past");
    assert.deepEqual(checkpoints(), []);
    for (const { detail } of all) await node.call(deleteSandbox, { sandboxID: detail.sandboxID });
  });

  void test("if there is no capacity for all forks, some run and the others give the reason", async () => {
    await using small = await startNode({ runtime: "gvisor", flags: ["--sandbox.max_sandboxes", "3"] });
    const { sandboxID } = await small.call(createSandbox, { templateID: "base" });
    const forks = await small.call(forkSandbox, { sandboxID, count: 4 });
    assert.equal(forks.filter((fork) => "sandbox" in fork).length, 2);
    for (const fork of forks) if ("error" in fork) assert.match(fork.error.message, /the maximum number of concurrent sandboxes, 3/);
  });
});
