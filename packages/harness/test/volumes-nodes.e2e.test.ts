// Volumes of several nodes behind a gateway, in a shared directory, and over kill -9 at each moment of their making.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { moveSandbox } from "@svc/contract/lifecycle.ts";
import { createVolume, deleteVolume, getVolume, listVolumes, volumeOperations } from "@svc/contract/volumes.ts";
import { Sandbox, Volume } from "e2b";
import { startFrontedNodes } from "../src/fronted-nodes.ts";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { runPython } from "../src/python.ts";
import { until } from "../src/until.ts";

const runc = needs("root", "runc", "envd", "base");
const connectionTo = ({ url, apiKey }: { url: string; apiKey: string }) => ({ apiUrl: url, sandboxUrl: url, apiKey });

void test("through a gateway a volume has one node, its sandboxes start there, and its content is read from anywhere", runc, async () => {
  await using deployment = await startFrontedNodes({ nodes: 2 });
  const { gateway, nodes } = deployment;
  const at = connectionTo(gateway);
  process.env["E2B_VOLUME_API_URL"] = gateway.url;
  const volumes = await Promise.all(["a", "b", "c", "d", "e", "f"].map((name) => Volume.create(name, at)));
  assert.deepEqual(
    (await Volume.list(at)).map(({ name }) => name),
    ["a", "b", "c", "d", "e", "f"],
  );
  await assert.rejects(Volume.create("a", at), /exists already/);
  for (const volume of volumes) {
    const sandbox = await Sandbox.create("base", { ...at, volumeMounts: { "/data": volume } });
    await sandbox.commands.run(`echo ${volume.name} > /data/name`);
    assert.equal(await volume.readFile("/name"), `${volume.name}\n`);
    assert.equal(
      await Volume.destroy(volume.volumeId, at).then(
        () => "gone",
        () => "kept",
      ),
      "kept",
    );
    await sandbox.kill();
  }
  const homes = await Promise.all(nodes.map(async (node) => (await node.call(listVolumes, {})).map(({ name }) => name)));
  assert.ok(
    homes.every((names) => names.length > 0),
    `both nodes have some: ${JSON.stringify(homes)}`,
  );
  const mounts = Object.fromEntries(homes.map(([name = ""], index) => [`/v${index}`, name]));
  await assert.rejects(Sandbox.create("base", { ...at, volumeMounts: mounts }), /no node has all of .*: volumes of several nodes need a shared directory/);

  const [away, up] = nodes as [(typeof nodes)[0], (typeof nodes)[0]];
  const [lost = ""] = homes[0] ?? [];
  await away.kill("SIGKILL");
  await until("a lost node", async () => ((await gateway.call(listVolumes, {})).length === (homes[1] ?? []).length ? true : undefined));
  await assert.rejects(gateway.call(getVolume, { volumeID: lost }), { name: "NODE_LOST" }, "it is not said to be absent");
  await assert.rejects(gateway.call(createVolume, { name: lost }), { name: "NODE_LOST" }, "no second volume gets its name");
  await away.start();
  await until("the node again", async () => ((await gateway.call(listVolumes, {})).length === volumes.length ? true : undefined));
  for (const volume of volumes) assert.equal(await Volume.destroy(volume.volumeId, at), true);
  assert.deepEqual(await up.call(listVolumes, {}), []);
});

void test("nodes that share a directory mount the same volumes, and one over its size takes no more", runc, async () => {
  const directory = mkdtempSync(join(tmpdir(), "svc-volumes-test-"));
  try {
    await using deployment = await startFrontedNodes({ nodes: 2, node: { flags: [`--volumes.directory=${directory}`] } });
    const { gateway, nodes } = deployment;
    const at = connectionTo(gateway);
    process.env["E2B_VOLUME_API_URL"] = gateway.url;
    const volume = await Volume.create("everywhere", at);
    const [one, two] = await Promise.all(nodes.map((node) => Sandbox.create("base", { ...connectionTo(node), volumeMounts: { "/data": "everywhere" } })));
    assert.ok(one !== undefined && two !== undefined);
    await one.commands.run("echo from-one > /data/file");
    assert.equal((await two.commands.run("cat /data/file; echo from-two > /data/file")).stdout, "from-one\n");
    assert.equal((await one.commands.run("cat /data/file")).stdout, "from-two\n");
    const shown = await gateway.call(getVolume, { volumeID: "everywhere" });
    assert.equal(shown.nodeID, undefined);
    assert.deepEqual(shown.sandboxIDs.toSorted(), [one.sandboxId, two.sandboxId].toSorted());
    assert.equal((await gateway.call(listVolumes, {})).length, 1, "it is listed once");
    await assert.rejects(gateway.call(deleteVolume, { volumeID: "everywhere" }), { name: "VOLUME_IN_USE" });

    await gateway.call(createVolume, { name: "tight", sizeMB: 1 });
    const tight = await Volume.connect("tight", at);
    await tight.writeFile("/fits", "x".repeat(500_000));
    await assert.rejects(tight.writeFile("/more", "x".repeat(2_000_000)), /the volume is full/);
    const third = await Sandbox.create("base", { ...at, volumeMounts: { "/data": "tight" } });
    await third.commands.run("head -c 3000000 /dev/zero > /data/over");
    await third.kill();
    await until("the new count", async () => ((await gateway.call(getVolume, { volumeID: "tight" })).usedBytes > 3_000_000 ? true : undefined), 500);
    await assert.rejects(Sandbox.create("base", { ...at, volumeMounts: { "/data": "tight" } }), /'tight' holds more than its 1 MiB: remove files from it/);
    await Promise.all([one.kill(), two.kill()]);
    for (const name of ["everywhere", "tight"]) await gateway.call(deleteVolume, { volumeID: name });
    assert.deepEqual([readdirSync(join(directory, "names")), readdirSync(join(directory, "data"))], [[], []]);
    await assert.rejects(volume.readFile("/file"), /not found/i);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});

void test("kill -9 while volumes are made, written and deleted loses no volume that was answered and leaves nothing behind", runc, async () => {
  await using node = await startNode({ runtime: "runc" });
  const kept = new Map<string, string>();
  const gone = new Set<string>();
  process.env["E2B_VOLUME_API_URL"] = node.url;
  for (let round = 0; round < 4; round++) {
    const at = connectionTo(node);
    const work = async () => {
      for (let number = 0; ; number++) {
        const name = `r${round}-${number}`;
        const volume = await Volume.create(name, at);
        kept.set(name, "");
        const text = `${name} ${"x".repeat(200_000)}`;
        await volume.writeFile("/file", text);
        kept.set(name, text);
        if (number % 2 === 0) continue;
        kept.delete(name);
        gone.add(name);
        await Volume.destroy(volume.volumeId, at);
      }
    };
    const working = work().catch(() => undefined);
    // Each round kills the node after more answers than the round before, and at another moment of the next request.
    await until("answers", () => (kept.size + gone.size > round ? true : undefined), 5);
    await sleep(round * 37);
    await node.kill("SIGKILL");
    await working;
    await node.start();
    const listed = await node.call(listVolumes, {});
    for (const [name, text] of kept) {
      assert.ok(
        listed.some((each) => each.name === name),
        `${name} was answered`,
      );
      const read = await (await Volume.connect(name, at)).readFile("/file").catch(() => "");
      assert.ok(read === text || text === "", `${name}: the old or the whole new file, got ${read.length} bytes`);
    }
    const known = new Set(listed.map(({ volumeID }) => `${volumeID}.img`));
    const images = join(node.home, "volumes/images");
    const orphans = (existsSync(images) ? readdirSync(images) : []).filter((file) => !known.has(file));
    assert.deepEqual(orphans, [], "no image without a record");
    for (const { name } of listed) await node.call(deleteVolume, { volumeID: name });
    kept.clear();
  }
  assert.ok(gone.size > 0);
  writeFileSync(join(node.home, "volumes/names/broken"), "not a record");
  assert.deepEqual(await node.call(listVolumes, {}), [], "a damaged record hides no other volume");
  assert.match(node.log(), /the record of a volume cannot be read/);
});

void test("a volume that does not fit on the disk is refused with advice, and a sandbox with a volume does not move to another node", runc, async () => {
  await using node = await startNode({ runtime: "runc", flags: ["--volumes.max_size_mb=16777216"] });
  await assert.rejects(node.call(createVolume, { name: "huge", sizeMB: 16_000_000 }), (error: Error) => {
    assert.equal(error.name, "DISK_FULL");
    assert.match(error.message, /has no \d+ MiB for a volume: make room there, or ask for a smaller one/);
    return true;
  });
  assert.deepEqual(await node.call(volumeOperations.listVolumes, {}), []);
  await node.call(createVolume, { name: "own", sizeMB: 16 });
  const sandbox = await Sandbox.create("base", { ...connectionTo(node), volumeMounts: { "/data": "own" } });
  await assert.rejects(node.call(moveSandbox, { sandboxID: sandbox.sandboxId }), /mounts volume 'own', which only this node has/);
});

void test("E2B's Python SDK, sync and async, uses volumes unmodified", needs("root", "runc", "envd", "base", "python3", "python-clients"), async () => {
  await using node = await startNode({ runtime: "runc" });
  process.env["E2B_VOLUME_API_URL"] = node.url;
  const { code, said } = await runPython(node, new URL("./volumes_python.py", import.meta.url));
  assert.equal(code, 0, said);
  assert.match(said, /Ran 2 tests/);
});
