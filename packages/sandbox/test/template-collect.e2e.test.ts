// The remains of templates and the times of their removal, on the test's own clock.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { describe, test } from "node:test";
import { fail } from "@svc/contract/failures.ts";
import { needs } from "@svc/harness/needs.ts";
import { openLog } from "@svc/kit/log.ts";
import { openSpawner } from "@svc/kit/spawn.ts";
import { openCheckpoints } from "@svc/sandbox/records/checkpoints.ts";
import { openQuarantine } from "@svc/sandbox/records/quarantine.ts";
import type { Chain } from "@svc/sandbox/template/build-record.ts";
import { openTemplates, type Templates } from "@svc/sandbox/template/open-templates.ts";
import { openSetupTemplates } from "@svc/sandbox/template/setup-templates.ts";

const HOUR = 3600_000;

async function open() {
  const home = mkdtempSync(join(tmpdir(), "svc-collect-"));
  const log = openLog("collect-test", "silent");
  const spawner = openSpawner();
  const clock = { atMs: Date.now() };
  const inUse = new Set<string>();
  const checkpoints = await openCheckpoints(join(home, "snapshots"), spawner, log);
  const templates = await openTemplates({
    home,
    settings: {
      registry: "",
      insecure_registries: [],
      image_start_command: false,
      build_concurrency: 1,
      build_queue: 1,
      image_mb: 1024,
      max_disk_size_mb: 65536,
      build_timeout_seconds: 60,
      cache_mb: 1,
      build_on_first_use: false,
      pull: [],
      upload_mb: 1,
    },
    spawner,
    log,
    setUp: openSetupTemplates(join(home, "none")),
    snapshots: { find: () => undefined, unreadable: () => undefined, remove: async () => false },
    checkpoints,
    sandboxes: { start: async () => fail("INTERNAL", "no sandbox here"), end: async () => {}, runtimeOf: () => fail("INTERNAL", "no sandbox here") },
    envdVersion: "0",
    secret: "s",
    storage: { quarantine: openQuarantine(join(home, "quarantine.json"), log) },
    imagesInUse: () => inUse,
    keep: async (_build, _tags, publish) => publish(),
    onChanged: () => {},
    onDeleted: async () => {},
    report: () => {},
    nowMs: () => clock.atMs,
  });
  return {
    home,
    clock,
    inUse,
    templates,
    async [Symbol.asyncDispose]() {
      await templates.close(true);
      await checkpoints.close();
      await spawner[Symbol.asyncDispose]();
      rmSync(home, { recursive: true, force: true });
    },
  };
}

async function layer({ builder }: Templates, bytes: number): Promise<string> {
  const made = await builder.layers.add("test", async (diff) => writeFileSync(join(diff, "file"), Buffer.alloc(bytes)));
  return made?.layerID ?? "";
}

function ready({ builder }: Templates, name: string, chain: Chain): string {
  const { build } = builder.builds.request(name, ["default"], { cpuCount: 1, memoryMB: 64, diskSizeMB: 64 });
  const plain = {
    env: {},
    user: "user",
    workdir: "/",
    cpuCount: 1,
    memoryMB: 64,
    diskSizeMB: 64,
    startup: undefined,
    checkpointID: undefined,
    envd: undefined,
    envdVersion: "0",
  };
  builder.builds.publish(build.buildID, { ...plain, chain });
  return build.buildID;
}

void describe("collection of templates", needs("root", "xxh128sum"), () => {
  void test("removes layers and images of untagged builds after a time, unless a sandbox uses them", async () => {
    await using at = await open();
    const { templates, clock, inUse } = at;
    mkdirSync(join(at.home, "base"));
    const base = { rootfs: join(at.home, "base"), binds: [] };
    const [shared, old, fresh] = [await layer(templates, 10), await layer(templates, 20), await layer(templates, 30)];
    const first = ready(templates, "t", { base, layers: [shared, old] });
    const image = templates.index.find("t").image;
    await templates.images.ready(image);
    ready(templates, "t", { base, layers: [shared, fresh] });
    clock.atMs += 2 * HOUR;
    assert.deepEqual(await templates.collect(), { builds: 0, images: 0, layers: 0, files: 0 });
    inUse.add(image.rootfs);
    clock.atMs += 8 * 24 * HOUR;
    assert.deepEqual(await templates.collect(), { builds: 1, images: 0, layers: 0, files: 0 });
    assert.equal(templates.builder.builds.build(first), undefined);
    inUse.clear();
    assert.deepEqual(await templates.collect(), { builds: 0, images: 1, layers: 1, files: 0 });
    assert.deepEqual(readdirSync(join(at.home, "layers")).sort(), [shared, fresh].sort());
    await templates.deleteTemplate("t");
    assert.equal((await templates.collect()).layers, 2);
  });

  void test("evicts layers of the build cache beyond its bound, the least recently used first", async () => {
    await using at = await open();
    const { templates, clock } = at;
    const { cache } = templates.builder;
    const layers: string[] = [];
    for (let each = 0; each < 3; each++) {
      clock.atMs += 1000;
      layers.push(await layer(templates, 400_000));
      cache.keep(`key${each}`, layers[each]);
    }
    clock.atMs++;
    cache.touch("key0");
    clock.atMs += 2 * HOUR;
    assert.equal((await templates.collect()).layers, 1);
    assert.deepEqual(readdirSync(join(at.home, "layers")).sort(), [layers[0], layers[2]].sort());
    assert.deepEqual(
      [...cache.all()].map(({ key }) => key),
      ["key0", "key2"],
    );
  });

  void test("removes uploads that no build has used for a day, unless a waiting build needs them", async () => {
    await using at = await open();
    const { templates, clock } = at;
    const { uploads, builds } = templates.builder;
    const [used, unused] = ["a".repeat(64), "b".repeat(64)];
    for (const hash of [used, unused]) await uploads.receive(hash, "1024", Readable.from([Buffer.alloc(1024)]));
    const { build } = builds.request("t", [], { cpuCount: undefined, memoryMB: undefined, diskSizeMB: undefined });
    const steps = [{ type: "COPY" as const, args: ["a", "/a"], filesHash: used }];
    builds.update(build.buildID, {
      spec: {
        fromImage: undefined,
        fromTemplate: "x",
        needsCredentials: false,
        steps,
        startCmd: undefined,
        readyCmd: undefined,
        force: false,
        dockerfile: false,
      },
    });
    clock.atMs += 25 * HOUR;
    assert.equal((await templates.collect()).files, 1);
    assert.deepEqual(readdirSync(join(at.home, "files")), [used]);
    for (const [length, body] of [
      ["2048", Buffer.alloc(1024)],
      [undefined, Buffer.alloc(1024)],
      ["2097152", Buffer.alloc(10)],
      ["4", Buffer.from("tarx")],
    ] as const) {
      await assert.rejects(uploads.receive(unused, length, Readable.from([body])));
    }
    assert.deepEqual(readdirSync(join(at.home, "files")), [used]);
  });
});
