// Layers and images on disk: checksums, damage, stacking, collected and kept ones.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { openSpawner } from "@svc/kit/spawn.ts";
import { openDatabase } from "@svc/sandbox/template/database.ts";
import { openImages } from "@svc/sandbox/template/images.ts";
import { openLayers } from "@svc/sandbox/template/layers.ts";

const quarantined: string[] = [];
const quarantine = { add: ({ name, reason }: { name: string; reason: string }) => void quarantined.push(`${name}: ${reason}`), drop: () => {} };

async function open(home = mkdtempSync(join(tmpdir(), "svc-layers-"))) {
  const spawner = openSpawner();
  const db = openDatabase(join(home, "templates.db"));
  const layers = await openLayers(join(home, "layers"), spawner, { quarantine, durability: "process" });
  const images = await openImages(home, layers, db, spawner, Date.now);
  return {
    home,
    layers,
    images,
    async close(remove = true) {
      await images.close(remove);
      db.close();
      await spawner[Symbol.asyncDispose]();
      if (remove) rmSync(home, { recursive: true, force: true });
    },
  };
}

function base(home: string) {
  const rootfs = join(home, "base:root");
  mkdirSync(join(rootfs, "etc"), { recursive: true });
  writeFileSync(join(rootfs, "etc/issue"), "base\n");
  writeFileSync(join(rootfs, "etc/gone"), "base\n");
  return { rootfs, binds: [] };
}

void describe("layers", needs("root", "xxh128sum"), () => {
  void test("stack over a base, the newest on top, and keep their order over a restart", async () => {
    const first = await open();
    const chain = { base: base(first.home), layers: [] as string[] };
    const one = await first.layers.add("one", async (diff) => {
      mkdirSync(join(diff, "etc"));
      writeFileSync(join(diff, "etc/issue"), "one\n");
      execFileSync("mknod", [join(diff, "etc/gone"), "c", "0", "0"]);
    });
    const two = await first.layers.add("two", async (diff) => {
      mkdirSync(join(diff, "etc"));
      writeFileSync(join(diff, "etc/two"), "two\n");
    });
    const image = first.images.of({ ...chain, layers: [one?.layerID ?? "", two?.layerID ?? ""] });
    await Promise.all([first.images.ready(image), first.images.ready(image)]);
    const names = () => readdirSync(join(image.rootfs, "etc")).sort();
    assert.deepEqual([names(), readFileSync(join(image.rootfs, "etc/issue"), "utf8")], [["issue", "two"], "one\n"]);
    assert.throws(() => writeFileSync(join(image.rootfs, "x"), ""), { code: "EROFS" });
    await first.close(false);
    execFileSync("umount", [image.rootfs]);
    const second = await open(first.home);
    assert.deepEqual(second.images.chainOf(image).layers, [one?.layerID, two?.layerID]);
    await second.images.ready(image);
    assert.deepEqual(names(), ["issue", "two"]);
    await second.close();
    assert.equal(existsSync(image.rootfs), false);
  });

  void test("without a change are not stored, and a failed one leaves nothing", async () => {
    const at = await open();
    const below = base(at.home).rootfs;
    chmodSync(join(below, "etc"), 0o755);
    const touch = (mode: number) => async (diff: string) => {
      mkdirSync(join(diff, "etc"));
      chmodSync(join(diff, "etc"), mode);
    };
    const touched = (mode: number) => at.layers.add("touched", touch(mode), below);
    assert.equal(await touched(0o755), undefined);
    assert.equal((await touched(0o700))?.files, 0);
    const replaced = await at.layers.add(
      "replaced",
      async (diff) => {
        mkdirSync(join(diff, "etc"));
        execFileSync("python3", ["-c", "import os,sys; os.setxattr(sys.argv[1], 'trusted.overlay.opaque', b'y')", join(diff, "etc")]);
      },
      below,
    );
    assert.notEqual(replaced, undefined);
    const before = readdirSync(at.layers.folder);
    await assert.rejects(
      at.layers.add("broken", async () => Promise.reject(new Error("no"))),
      /no/,
    );
    assert.deepEqual(readdirSync(at.layers.folder), before);
    await at.close();
  });

  void test("that are damaged are never mounted, and the failure names layer and file", async () => {
    const at = await open();
    const made = await at.layers.add("made", async (diff) => {
      mkdirSync(join(diff, "deep/er"), { recursive: true });
      writeFileSync(join(diff, "deep/er/file with space"), "content");
      writeFileSync(join(diff, "other"), "x");
      symlinkSync("other", join(diff, "link"));
    });
    const layerID = made?.layerID ?? "";
    const diff = join(at.layers.folder, layerID, "diff");
    await at.layers.verify(layerID);
    await at.close(false);
    const damages: [string, () => void, () => void][] = [
      [
        "deep/er/file with space",
        () => writeFileSync(join(diff, "deep/er/file with space"), "cantent"),
        () => writeFileSync(join(diff, "deep/er/file with space"), "content"),
      ],
      ["other", () => truncateSync(join(diff, "other")), () => writeFileSync(join(diff, "other"), "x")],
      ["other", () => chmodSync(join(diff, "other"), 0o4755), () => chmodSync(join(diff, "other"), 0o644)],
      ["added", () => writeFileSync(join(diff, "added"), ""), () => rmSync(join(diff, "added"))],
      ["link", () => rmSync(join(diff, "link")), () => symlinkSync("other", join(diff, "link"))],
    ];
    for (const [file, damage, fix] of damages) {
      damage();
      const again = await open(at.home);
      await assert.rejects(
        again.images.ready(again.images.of({ base: undefined, layers: [layerID] })),
        (error: Error) => error.name === "SNAPSHOT_DAMAGED" && error.message.includes(layerID) && error.message.includes(file),
      );
      fix();
      await again.layers.verify(layerID);
      await again.close(false);
    }
    writeFileSync(join(at.layers.folder, layerID, "sums"), "");
    const last = await open(at.home);
    await assert.rejects(last.layers.verify(layerID), { name: "SNAPSHOT_DAMAGED" });
    await last.close();
  });

  void test("that a kill left half-made are removed at the next start, and one without a description is reported", async () => {
    const at = await open();
    mkdirSync(join(at.layers.folder, "0123456789abcdef.part/diff"), { recursive: true });
    mkdirSync(join(at.layers.folder, "0123456789abcdee/diff"), { recursive: true });
    await at.close(false);
    const again = await open(at.home);
    assert.equal(again.layers.all().length, 0);
    assert.match(quarantined.join(), /^0123456789abcdee: its layer\.json cannot be read/);
    assert.deepEqual(
      readdirSync(again.layers.folder).filter((name) => name.endsWith(".part")),
      [],
    );
    await again.close();
  });
});
