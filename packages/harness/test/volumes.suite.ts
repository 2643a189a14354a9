// Volumes with the unmodified E2B SDK over one driver: shared by sandboxes, kept over their end, in snapshots by reference.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createVolume, deleteVolume, getVolume, type Volume as Shown } from "@svc/contract/volumes.ts";
import { Sandbox, Volume, VolumeFileType } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";

export const volumeConnection = (node: Pick<TestNode, "url" | "apiKey">) => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });

const MEBIBYTE = 1024 * 1024;

export function volumeSuite(runtime: "gvisor" | "runc" | "bubblewrap", hasMemory: boolean): void {
  const all = needs("root", runtime === "gvisor" ? "runsc" : runtime === "runc" ? "runc" : "bwrap", "envd", "base");

  void test(`${runtime}: two sandboxes write to one volume at once, which keeps their files when both have ended`, all, async () => {
    await using node = await startNode({ runtime });
    const at = volumeConnection(node);
    process.env["E2B_VOLUME_API_URL"] = node.url;
    const volume = await Volume.create("shared-data", at);
    const [one, two] = await Promise.all([1, 2].map(() => Sandbox.create("base", { ...at, volumeMounts: { "/data": volume } })));
    assert.ok(one !== undefined && two !== undefined);
    const run = async (sandbox: Sandbox, command: string) => (await sandbox.commands.run(command)).stdout;
    assert.equal(await run(one, "echo first > /data/one; cat /data/one"), "first\n");
    assert.equal(await run(two, "cat /data/one; echo more >> /data/one; mkdir /data/deep; echo 2 > /data/deep/two"), "first\n");
    assert.equal(await run(one, "cat /data/one /data/deep/two"), "first\nmore\n2\n", "what was closed is seen by the next open");
    // Both append at the same time. On gVisor each has its own file, since a gVisor kernel does not see that another one extended a file.
    const append = (name: string) => `for i in $(seq 200); do echo line-of-twenty-bytes >> /data/log-${name}; done`;
    const names = runtime === "gvisor" ? (["one", "two"] as const) : (["both", "both"] as const);
    await Promise.all([run(one, append(names[0])), run(two, append(names[1]))]);
    assert.equal(await run(two, "cat /data/log-* | sort | uniq -c | tr -s ' '"), " 400 line-of-twenty-bytes\n");
    await assert.rejects(node.call(deleteVolume, { volumeID: volume.volumeId }), (error: Error) => {
      assert.equal(error.name, "VOLUME_IN_USE");
      assert.match(error.message, new RegExp(`mounted by sandbox .*${one.sandboxId}`));
      return true;
    });
    const info = await Sandbox.getInfo(one.sandboxId, at);
    assert.deepEqual((info as { volumeMounts?: unknown }).volumeMounts, [{ name: "shared-data", path: "/data" }]);
    await Promise.all([one.kill(), two.kill()]);
    assert.equal(await volume.readFile("/one"), "first\nmore\n");
    const later = await Sandbox.create("base", { ...at, volumeMounts: { "/elsewhere/deep": "shared-data" } });
    assert.equal(await run(later, "cat /elsewhere/deep/one; id -un"), "first\nmore\nuser\n");
    await later.kill();
    assert.equal(await Volume.destroy(volume.volumeId, at), true);
    assert.equal(await Volume.destroy(volume.volumeId, at), false);
  });

  void test(`${runtime}: after a pause, a snapshot and kill -9 of the node a sandbox's volume is still mounted, with its present files`, all, async () => {
    await using node = await startNode({ runtime });
    const at = volumeConnection(node);
    process.env["E2B_VOLUME_API_URL"] = node.url;
    const volume = await Volume.create("kept", at);
    const sandbox = await Sandbox.create("base", { ...at, volumeMounts: { "/data": "kept" }, timeoutMs: 600_000 });
    await sandbox.commands.run("echo before > /data/file; echo own > /home/user/own");
    const headers = { "x-api-key": node.apiKey, "content-type": "application/json" };
    const post = (path: string, body: object) => fetch(`${node.url}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
    assert.equal((await post(`/sandboxes/${sandbox.sandboxId}/snapshots`, { name: "with-volume", memory: hasMemory })).status, 201);
    assert.equal((await post(`/sandboxes/${sandbox.sandboxId}/pause`, { memory: hasMemory })).status, 204);
    await volume.writeFile("/file", "meanwhile\n");
    assert.equal(
      await Volume.destroy(volume.volumeId, at).then(
        () => "gone",
        () => "kept",
      ),
      "kept",
      "a paused sandbox keeps its volume",
    );
    await node.restart("SIGKILL");
    const resumed = await Sandbox.connect(sandbox.sandboxId, at);
    assert.equal((await resumed.commands.run("cat /data/file /home/user/own; echo after > /data/after")).stdout, "meanwhile\nown\n");
    const copy = await Sandbox.create("with-volume", at);
    assert.equal(
      (await copy.commands.run("cat /data/file /data/after /home/user/own")).stdout,
      "meanwhile\nafter\nown\n",
      "by reference: not the files of then",
    );
    if (hasMemory) {
      const [fork] = (await (await post(`/sandboxes/${sandbox.sandboxId}/fork`, {})).json()) as { sandbox: { sandboxID: string } }[];
      const forked = await Sandbox.connect(fork?.sandbox.sandboxID ?? "", at);
      assert.equal((await forked.commands.run("echo fork > /data/after; cat /data/file")).stdout, "meanwhile\n");
      assert.equal((await resumed.commands.run("cat /data/after")).stdout, "fork\n");
      await forked.kill();
      const refused = await post("/v2/sandboxes", { templateID: "with-volume", volumeMounts: [] });
      assert.equal(refused.status, 400);
      assert.match(await refused.text(), /has memory, which is bound to the volumes of its sandbox \(kept at \/data\)/);
    }
    await Promise.all([resumed.kill(), copy.kill()]);
    assert.equal(await Volume.destroy(volume.volumeId, at), true);
    const without = await post("/v2/sandboxes", { templateID: "with-volume" });
    assert.equal(without.status, 404);
    assert.match(await without.text(), /volume 'kept' \(vol[0-9a-f]+\), which the sandbox mounts at \/data, is not on this node/);
  });

  void test(`${runtime}: a mount point that the template lacks is not made in the template, whose paused sandboxes resume`, all, async () => {
    await using node = await startNode({ runtime });
    const at = volumeConnection(node);
    await node.call(createVolume, { name: "anywhere", sizeMB: 24 });
    const before = await Sandbox.create("base", at);
    const pause = ({ sandboxId }: Sandbox) =>
      fetch(`${node.url}/sandboxes/${sandboxId}/pause`, {
        method: "POST",
        headers: { "x-api-key": node.apiKey, "content-type": "application/json" },
        body: JSON.stringify({ memory: hasMemory }),
      });
    assert.equal((await pause(before)).status, 204);
    const path = `/new-${process.pid}/deep`;
    const home = `/home/user/new-${process.pid}`;
    const volumeMounts = { [path]: "anywhere", [home]: "anywhere", "/var/run/new": "anywhere" };
    const sandbox = await Sandbox.create("base", { ...at, volumeMounts });
    const { stdout } = await sandbox.commands.run(`echo x > ${path}/file; cat ${home}/file /run/new/file; stat -c '%U %a' /home/user; touch /home/user/mine`);
    assert.equal(stdout, "x\nx\nuser 755\n");
    const rootfs = join(process.env["SVC_TEMPLATES_DIR"] ?? "", "base/rootfs");
    for (const made of [`/new-${process.pid}`, home, "/run/new"]) assert.equal(existsSync(join(rootfs, made)), false, made);
    assert.equal((await (await Sandbox.connect(before.sandboxId, at)).commands.run("echo resumed")).stdout, "resumed\n");
    assert.equal((await pause(sandbox)).status, 204);
    const resumed = await Sandbox.connect(sandbox.sandboxId, at);
    assert.equal((await resumed.commands.run(`cat ${path}/file; ls /home/user/mine`)).stdout, "x\n/home/user/mine\n");
    await assert.rejects(Sandbox.create("base", { ...at, volumeMounts: { "/etc/passwd/x": "anywhere" } }), /\/etc\/passwd/);
  });

  void test(`${runtime}: a full volume refuses writes in every sandbox, loses nothing, and takes no space from another volume`, all, async () => {
    await using node = await startNode({ runtime });
    const at = volumeConnection(node);
    process.env["E2B_VOLUME_API_URL"] = node.url;
    const small = await node.call(createVolume, { name: "small", sizeMB: 24 });
    await node.call(createVolume, { name: "other", sizeMB: 24 });
    const sandbox = await Sandbox.create("base", { ...at, volumeMounts: { "/small": "small", "/other": "other" } });
    const { stdout } = await sandbox.commands.run(
      "echo kept > /small/kept; sync; head -c 60M /dev/zero > /small/big; echo status $?; cat /small/kept; echo fits > /other/x && cat /other/x",
    );
    assert.match(stdout, /^status 1\nkept\nfits\n$/);
    const shown: Shown = await node.call(getVolume, { volumeID: "small" });
    assert.ok(shown.usedBytes > 20 * MEBIBYTE && shown.usedBytes < 60 * MEBIBYTE, String(shown.usedBytes));
    const volume = await Volume.connect(small.volumeID, at);
    await assert.rejects(volume.writeFile("/more", "x".repeat(4 * MEBIBYTE)), /the volume is full: remove files from it/);
    assert.equal(await volume.exists("/more"), false);
    await sandbox.commands.run("rm /small/big");
    await volume.writeFile("/more", "x".repeat(4 * MEBIBYTE));
    assert.equal((await sandbox.commands.run("wc -c < /small/more")).stdout.trim(), String(4 * MEBIBYTE));
    // A volume's mount gives no access to other volumes or to the node's own files.
    assert.equal(
      (await sandbox.commands.run("ls /small/.. | grep -c -e names -e incoming -e images; ls -a /small | tr '\\n' ' '")).stdout,
      "0\n. .. kept more ",
    );
    await sandbox.kill();
  });

  void test(`${runtime}: the SDK reads and writes a volume's content without a sandbox, and links lead nowhere else`, all, async () => {
    await using node = await startNode({ runtime });
    const at = volumeConnection(node);
    process.env["E2B_VOLUME_API_URL"] = node.url;
    const volume = await Volume.create("content", at);
    const written = await volume.writeFile("/a/b/text", "hello", { force: true, mode: 0o600, uid: 1234, gid: 55 });
    assert.deepEqual(
      [written.name, written.path, written.type, written.size, written.mode, written.uid, written.gid],
      ["text", "/a/b/text", VolumeFileType.FILE, 5, 0o600, 1234, 55],
    );
    await assert.rejects(volume.writeFile("/not/there", "x"), /not found/);
    assert.equal(await volume.readFile("/a/b/text"), "hello");
    const bytes = new Uint8Array(3 * MEBIBYTE).map((_, index) => index % 251);
    await volume.writeFile("/big", bytes.buffer);
    assert.deepEqual(await volume.readFile("/big", { format: "bytes" }), bytes);
    await volume.writeFile("/empty", "");
    assert.equal(await volume.readFile("/empty"), "");
    assert.equal((await volume.makeDir("/made", { mode: 0o700 })).type, VolumeFileType.DIRECTORY);
    assert.deepEqual(
      (await volume.list("/")).map(({ name }) => name),
      ["a", "big", "empty", "made"],
    );
    assert.deepEqual(
      (await volume.list("/a", { depth: 3 })).map(({ path }) => path),
      ["/a/b", "/a/b/text"],
    );
    assert.equal((await volume.updateMetadata("/big", { mode: 0o640, uid: 1 })).mode, 0o640);

    const sandbox = await Sandbox.create("base", { ...at, volumeMounts: { "/v": "content" } });
    await sandbox.commands.run(
      "cd /v && ln -s /etc/passwd host && ln -s / up && ln -s ../../../../../../etc climb && ln -s /a/b inside && ln -s loop loop && mkdir -p tree/x && ln -s / tree/x/root && touch tree/x/f",
    );
    for (const path of ["/host", "/up/etc/passwd", "/climb/passwd", "/inside/../../../etc/passwd"])
      await assert.rejects(volume.readFile(path), /not found/, path);
    assert.equal(await volume.readFile("/inside/text"), "hello", "an absolute link begins at the volume's root");
    await assert.rejects(volume.readFile("/loop"), /links lead to/);
    // gVisor keeps a named pipe in the sandbox that made it.
    await sandbox.commands.run("mkfifo /v/pipe");
    await assert.rejects(volume.readFile("/pipe"), runtime === "gvisor" ? /not found/ : /is not a file/);
    assert.equal((await volume.getInfo("/host")).target, "/etc/passwd");
    await volume.remove("/tree");
    assert.equal(await volume.exists("/tree"), false);
    assert.equal((await sandbox.commands.run("ls -d /etc/passwd /home/user; cat /v/a/b/text", { user: "root" })).stdout, "/etc/passwd\n/home/user\nhello");
    await sandbox.kill();

    const other = await Volume.create("other-content", at);
    const stranger = new Volume(volume.volumeId, "content", other.token);
    await assert.rejects(stranger.readFile("/a/b/text"), /401|token/i, "the token of one volume opens no other");
    await assert.rejects(Volume.create("content", at), /exists already/);
    await assert.rejects(Volume.create("no/slash", at), /letters, digits/);
    await assert.rejects(Sandbox.create("base", { ...at, volumeMounts: { "/x": "nowhere" } }), /volume 'nowhere' was not found/);
    await assert.rejects(Sandbox.create("base", { ...at, volumeMounts: { "/proc/x": "content" } }), /cannot be mounted below/);
  });
}
