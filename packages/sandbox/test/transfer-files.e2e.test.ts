// Snapshots as files, exported from one home and imported into another; invalid files are refused with a reason and leave nothing.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { tarEnd, tarHeader, tarPadding } from "@svc/contract/tar.ts";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import type { Manifest } from "../src/snapshot-transfer/manifest.ts";
import { fileOf, inParts, MIB, openTransferHome, type TransferHome } from "./transfer-fixture.ts";

const CHUNK = 4 * MIB;
const sha256 = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");

/** Returns everything that an import could have left. */
function leftIn({ home, records }: TransferHome) {
  const below = (folder: string) => (existsSync(join(home, folder)) ? readdirSync(join(home, folder)) : []);
  const known = new Set(records.snapshots.list({}).map(({ checkpointID }) => checkpointID));
  return [
    ...below("snapshots").filter((name) => !known.has(name)),
    ...below("layers"),
    ...below("snapshot-transfer").filter((name) => /^(in|pack)-/.test(name)),
    ...below("bin"),
  ];
}

const entry = (path: string, bytes: Buffer, kind: "file" | "link" = "file") =>
  Buffer.concat([
    tarHeader({ path, kind, mode: 0o600, sizeBytes: bytes.length, modifiedAtSeconds: 0, target: kind === "link" ? "/etc/passwd" : "" }),
    bytes,
    tarPadding(bytes.length),
  ]);

/** Writes a file like someone who knows the format, but not the deployment's key. */
function forged(manifest: unknown, chunks: readonly Buffer[] = []): Buffer {
  const body = typeof manifest === "string" ? manifest : JSON.stringify(manifest);
  const written = Buffer.from(`svc-transfer-1 ${sha256(Buffer.from(body))} ${"0".repeat(64)}\n${body}\n`);
  return Buffer.concat([entry("svc-snapshot", written), ...chunks.map((chunk) => entry(`chunks/${sha256(chunk)}`, chunk)), tarEnd()]);
}

function manifestIn(file: Buffer): Manifest {
  const size = Number.parseInt(file.toString("latin1", 124, 135), 8);
  return JSON.parse(file.toString("utf8", file.indexOf("\n") + 1, 512 + size)) as Manifest;
}

void describe("a snapshot's file", needs("root", "xxh128sum"), () => {
  void test("transfers a snapshot to another home unchanged, with its holes and its name", async () => {
    await using source = await openTransferHome();
    await using target = await openTransferHome();
    const pages = Buffer.concat([randomBytes(CHUNK + 5_000), Buffer.alloc(3 * CHUNK), randomBytes(100)]);
    const id = await source.keep({ "pages.img": pages, "state.img": Buffer.from("state"), "empty.img": Buffer.alloc(0) }, { name: "ready:v1", kind: "memory" });
    const file = await fileOf(source, "ready:v1");
    assert.ok(file.length < 3 * CHUNK, "zeros do not transfer");
    const { snapshot, isNew } = await target.transfer.files.import(inParts(file), undefined);
    assert.deepEqual([snapshot.snapshotID, isNew, snapshot.names], [id, true, ["ready:v1"]]);
    const { directory } = await target.checkpoints.find(snapshot.checkpointID);
    assert.deepEqual(readdirSync(directory).sort(), ["empty.img", "pages.img", "state.img"]);
    assert.ok(readFileSync(join(directory, "pages.img")).equals(pages));
    assert.ok(statSync(join(directory, "pages.img")).blocks * 512 < 2 * CHUNK, "zeros take no disk space");
    await target.checkpoints.verify(snapshot.checkpointID);
    assert.equal(snapshot.image.rootfs, target.base.rootfs);
    assert.ok(existsSync(join(target.home, "bin", source.envd)));
    assert.equal((await target.transfer.files.import(inParts(file), undefined)).isNew, false);
    assert.equal(target.records.snapshots.size, 1);
  });

  void test("includes the layers of a built template, each of which is made once", async () => {
    await using source = await openTransferHome();
    await using target = await openTransferHome();
    const layer = await source.layers.add("RUN make", async (diff) => {
      mkdirSync(join(diff, "opt/tool"), { recursive: true });
      writeFileSync(join(diff, "opt/tool/run"), "#!/bin/sh\n", { mode: 0o4755 });
      execFileSync("mknod", [join(diff, "gone"), "c", "0", "0"]);
      execFileSync("python3", ["-c", 'import os, sys; os.setxattr(sys.argv[1], "trusted.overlay.opaque", b"y")', join(diff, "opt")]);
    });
    const image = source.images.of({ base: source.base, layers: [layer?.layerID ?? ""] });
    const first = await source.keep({ "a.img": Buffer.from("a") }, { image });
    const second = await source.keep({ "b.img": Buffer.from("b") }, { image });
    const imported = (await target.transfer.files.import(inParts(await fileOf(source, first)), undefined)).snapshot;
    const again = (await target.transfer.files.import(inParts(await fileOf(source, second)), undefined)).snapshot;
    assert.equal(again.image.rootfs, imported.image.rootfs);
    assert.equal(target.layers.all().length, 1);
    await target.images.ready(imported.image);
    const rootfs = imported.image.rootfs;
    assert.deepEqual([readFileSync(join(rootfs, "etc/issue"), "utf8"), statSync(join(rootfs, "opt/tool/run")).mode & 0o7777], ["base", 0o4755]);
    assert.equal(existsSync(join(rootfs, "gone")), false);
  });

  void test("is refused where the base template differs, unless the file includes it", async () => {
    await using source = await openTransferHome();
    await using target = await openTransferHome({ base: "another" });
    const id = await source.keep({ "a.img": Buffer.from("a") });
    await assert.rejects(target.transfer.files.import(inParts(await fileOf(source, id)), undefined), {
      name: "SNAPSHOT_UNSUITABLE",
      message: /template 'base' \(base-1.*--with-base/,
    });
    assert.deepEqual(leftIn(target), []);
    const { snapshot } = await target.transfer.files.import(inParts(await fileOf(source, id, true)), undefined);
    await target.images.ready(snapshot.image);
    assert.equal(readFileSync(join(snapshot.image.rootfs, "etc/issue"), "utf8"), "base");
  });

  void test("transfers files to another deployment, but never memory", async () => {
    await using source = await openTransferHome();
    await using target = await openTransferHome({ secret: "another deployment" });
    const memory = await source.keep({ "a.img": Buffer.from("a") }, { kind: "memory" });
    const files = await source.keep({ "b.img": Buffer.from("b") });
    await assert.rejects(target.transfer.files.import(inParts(await fileOf(source, memory)), undefined), {
      name: "SNAPSHOT_UNSUITABLE",
      message: /memory of another deployment.*--files-only/,
    });
    assert.equal((await target.transfer.files.import(inParts(await fileOf(source, files)), "theirs")).snapshot.names[0], "theirs:default");
    assert.equal(target.records.snapshots.size, 1);
  });

  void test("that is cut short, at any offset, leaves nothing", async () => {
    await using source = await openTransferHome();
    await using target = await openTransferHome();
    const file = await fileOf(source, await source.keep({ "a.img": randomBytes(CHUNK * 2 + 100) }));
    for (const length of [0, 100, 512, 1000, 5000, CHUNK, file.length - CHUNK, file.length - 1024, file.length - 600, file.length - 512, file.length - 1]) {
      await assert.rejects(
        target.transfer.files.import(inParts(file.subarray(0, length)), undefined),
        { name: "SNAPSHOT_DAMAGED", message: /ends after \d+ bytes/ },
        String(length),
      );
      assert.deepEqual(leftIn(target), [], String(length));
    }
  });

  void test("that is cut short or continues after its end is refused even by a node that has the snapshot already", async () => {
    await using source = await openTransferHome();
    await using target = await openTransferHome();
    const file = await fileOf(source, await source.keep({ "a.img": randomBytes(CHUNK + 100) }));
    const changed = Buffer.from(file);
    changed[file.length - 5_000] = (changed[file.length - 5_000] as number) ^ 1;
    const refuseAll = async () => {
      for (const [broken, says] of [
        [file.subarray(0, file.length - 700), /ends after \d+ bytes, in the middle/],
        [Buffer.concat([file, Buffer.alloc(512)]), /continues after its end, at byte \d+/],
        [Buffer.concat([file, Buffer.from("x")]), /continues after its end/],
        [Buffer.concat([file, file]), /continues after its end/],
        [changed, /checksum differs|is not envd-|are not zero/],
      ] as const)
        await assert.rejects(target.transfer.files.import(inParts(broken), undefined), { name: "SNAPSHOT_DAMAGED", message: says }, String(says));
    };
    await refuseAll();
    assert.deepEqual(leftIn(target), []);
    assert.equal((await target.transfer.files.import(inParts(file), undefined)).isNew, true);
    await refuseAll();
    assert.equal((await target.transfer.files.import(inParts(file), undefined)).isNew, false);
    assert.equal(target.records.snapshots.size, 1);
  });

  void test("with any byte changed is refused and leaves nothing", async () => {
    await using source = await openTransferHome();
    await using target = await openTransferHome();
    const file = await fileOf(source, await source.keep({ "a.img": randomBytes(100_000) }));
    const chunk = file.lastIndexOf("chunks/");
    for (const at of [0, 130, 300, 520, 600, 700, 1500, chunk + 10, chunk + 512 + 7]) {
      const changed = Buffer.from(file);
      changed[at] = (changed[at] as number) ^ 1;
      await assert.rejects(target.transfer.files.import(inParts(changed), undefined), { name: /^(SNAPSHOT_DAMAGED|INVALID_REQUEST)$/ }, String(at));
      assert.deepEqual(leftIn(target), [], String(at));
    }
  });

  void test("that was forged is refused with the fault", async () => {
    await using source = await openTransferHome({ secret: "the forger's" });
    await using target = await openTransferHome({ importMB: 64 });
    const written = manifestIn(await fileOf(source, await source.keep({ "a.img": Buffer.from("hello") })));
    const good = { ...written, snapshot: { ...written.snapshot, snapshotID: `snap${"f".repeat(20)}` } };
    const chunk = Buffer.from("hello");
    const envd = readFileSync(join(source.home, "bin", source.envd));
    const with_ = (changes: object) => forged({ ...good, ...changes }, [chunk, envd]);
    const named = (name: string) => with_({ files: [{ ...good.files[0], name }] });
    const sized = (sizeBytes: number, chunks: unknown[]) => with_({ files: [{ name: "a.img", sizeBytes, chunks }] });
    const cases: [string, Buffer, RegExp][] = [
      ["a path upwards", named("../../../etc/passwd"), /a file's name is letters/],
      ["an absolute path", named("/etc/passwd"), /a file's name is letters/],
      ["a hidden name", named(".."), /a file's name is letters/],
      ["two files of one name", with_({ files: [good.files[0], good.files[0]] }), /two of its files have one name/],
      ["a size without end", sized(Number.MAX_SAFE_INTEGER, ["0".repeat(64)]), /files.0.sizeBytes/],
      ["a size that its chunks do not give", sized(5 * CHUNK, [sha256(chunk)]), /do not add up/],
      ["many zeros", sized(2 ** 42, [2 ** 20]), /snapshots.import_mb allows/],
      ["a chunk of another size", sized(4, [sha256(chunk)]), /has 5 bytes; its manifest says 4/],
      ["a chunk that is missing", sized(5, ["ab".repeat(32)]), /the file holds chunk|is missing/],
      ["a chunk too many", forged(good, [chunk, envd, Buffer.from("more")]), /does not name/],
      ["a chunk twice", forged(good, [chunk, chunk, envd]), /does not name, or names once/],
      ["a checkpoint id upwards", with_({ captureID: "c/../../x" }), /captureID/],
      ["an envd by another name", with_({ envd: { ...good.envd, name: "envd-0000000000000000" } }), /its envd is not envd-0{16}/],
      ["an envd upwards", with_({ envd: { ...good.envd, name: "../bin/sh" } }), /envd.name/],
      ["a driver whose files root unpacks", with_({ runtime: "runc" }), /needs the runc driver|another deployment/],
      ["memory", with_({ kind: "memory" }), /memory of another deployment/],
      ["no snapshot", with_({ snapshot: undefined }), /not an exported snapshot/],
      [
        "our deployment's name",
        with_({ deployment: manifestIn(await fileOf(target, await target.keep({ "x.img": chunk }))).deployment }),
        /its authentication code is wrong/,
      ],
      ["no JSON", forged("{"), /not valid JSON/],
      ["another text", Buffer.concat([entry("svc-snapshot", Buffer.from("hello")), tarEnd()]), /does not begin like an exported snapshot/],
      ["another archive", Buffer.concat([entry("etc/passwd", chunk), tarEnd()]), /does not begin with svc-snapshot/],
      ["a link", Buffer.concat([entry("svc-snapshot", Buffer.alloc(0), "link"), tarEnd()]), /not an entry of an exported snapshot/],
      [
        "a manifest without end",
        Buffer.concat([tarHeader({ path: "svc-snapshot", kind: "file", mode: 0, sizeBytes: 2 ** 32, modifiedAtSeconds: 0, target: "" }), chunk]),
        /its manifest has \d+ bytes; the maximum is/,
      ],
      ["a strange entry", Buffer.concat([forged(good).subarray(0, -1024), entry("chunks/../../x", chunk), tarEnd()]), /is not an entry/],
      ["no archive", randomBytes(5000), /not an entry of an exported snapshot/],
    ];
    const before = leftIn(target);
    for (const [what, file, message] of cases) {
      await assert.rejects(
        target.transfer.files.import(inParts(file, 64), undefined),
        (error: Error) => message.test(error.message) || assert.fail(`${what}: ${error.name} ${error.message}`),
        what,
      );
      assert.deepEqual(leftIn(target), before, what);
    }
    assert.equal(target.records.snapshots.size, 1);
  });

  void test("with a device, pipe or socket in a layer is refused", async () => {
    await using source = await openTransferHome({ secret: "the forger's" });
    await using target = await openTransferHome();
    const layer = await source.layers.add("RUN mknod", async (diff) => void execFileSync("mknod", [join(diff, "disk"), "b", "8", "0"]));
    const id = await source.keep({ "a.img": Buffer.from("a") }, { image: source.images.of({ base: source.base, layers: [layer?.layerID ?? ""] }) });
    await assert.rejects(target.transfer.files.import(inParts(await fileOf(source, id)), undefined), {
      name: "SNAPSHOT_DAMAGED",
      message: /"\.\/disk".*a device/,
    });
    assert.deepEqual(
      leftIn(target).filter((name) => !name.startsWith("envd-")),
      [],
    );
  });

  void test("with a layer that names a path above it, or reaches it by its own link, is refused and writes nothing there", async () => {
    await using source = await openTransferHome({ secret: "the forger's" });
    await using target = await openTransferHome();
    const written = manifestIn(await fileOf(source, await source.keep({ "a.img": Buffer.from("hello") })));
    const envd = readFileSync(join(source.home, "bin", source.envd));
    const link = tarHeader({ path: "up", kind: "link", mode: 0o777, sizeBytes: 0, modifiedAtSeconds: 0, target: "../../.." });
    const escaped = Buffer.from("escaped");
    const layers = [
      Buffer.concat([entry("../../../escaped", escaped), tarEnd()]),
      Buffer.concat([link, entry("up/escaped", escaped), tarEnd()]),
      Buffer.concat([entry("/tmp/../escaped", escaped), tarEnd()]),
    ];
    for (const layer of layers) {
      const packed = { name: "layer.tar", sizeBytes: layer.length, chunks: [sha256(layer)] };
      const file = forged({ ...written, image: { ...written.image, layers: [{ note: "", packed }] } }, [Buffer.from("hello"), envd, layer]);
      await assert.rejects(target.transfer.files.import(inParts(file), undefined), { name: "SNAPSHOT_DAMAGED", message: /cannot be unpacked/ });
      assert.deepEqual(
        leftIn(target).filter((name) => !name.startsWith("envd-")),
        [],
      );
      for (const folder of [target.home, join(target.home, "layers"), "/", "/tmp"]) assert.equal(existsSync(join(folder, "escaped")), false, folder);
    }
  });

  void test("keeps a snapshot's files until it is written, even if the snapshot is deleted", async () => {
    await using source = await openTransferHome();
    const id = await source.keep({ "a.img": randomBytes(1_000_000) });
    const { checkpointID } = source.records.snapshots.find(id) ?? assert.fail();
    const file = await source.transfer.files.export(id, false);
    await source.checkpoints.remove(checkpointID);
    const parts: Buffer[] = [];
    for await (const part of file.body) parts.push(part);
    assert.equal(Buffer.concat(parts).length, file.bytes);
    file.close();
  });

  void test("is written four at a time, and an unread one frees its slot when it is closed", async () => {
    await using source = await openTransferHome();
    const id = await source.keep({ "a.img": randomBytes(1000) });
    const files = await Promise.all(Array.from({ length: 4 }, () => source.transfer.files.export(id, false)));
    await assert.rejects(source.transfer.files.export(id, false), { name: "TOO_MANY_REQUESTS" });
    for (const file of files) file.close();
    await until("a slot to be free", () => fileOf(source, id).catch(() => undefined));
  });
});
