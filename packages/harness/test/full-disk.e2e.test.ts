// A node on a full disk: what it answered 2xx is there, what it answered 507 is not, it deletes and starts, and is whole again with room.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { describe, test } from "node:test";
import { Failure } from "@svc/contract/failures.ts";
import { createSnapshot, forkSandbox, listSnapshots, pauseSandbox, resumeSandbox } from "@svc/contract/lifecycle.ts";
import { setSandboxNetwork } from "@svc/contract/network.ts";
import { createSandbox, deleteSandbox, getSandbox, listSandboxes, setSandboxTimeout } from "@svc/contract/sandbox.ts";
import { assignTags, deleteTemplate, getTemplateByAlias, listTags, listTemplates } from "@svc/contract/template.ts";
import { getTemplateFiles, requestTemplate } from "@svc/contract/template-build.ts";
import { Sandbox } from "e2b";
import { type BoundedDisk, boundedDiskNeeds, openBoundedDisk } from "../src/bounded-disk.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { connectionTo, ended, startBuild } from "../src/template.ts";
import { until } from "../src/until.ts";

/** Holds runsc, the reserve, and some captures. */
const DISK_MB = 448;
const KIB = 1024;
/** Each lets a request come a little further before a write of it finds no room. */
const LEFT_BYTES = [0, 16 * KIB, 256 * KIB, 2048 * KIB, 6144 * KIB];

/** One kind of change: `act` on what `prepare` made; `isThere` says whether it can be seen, `undo` takes it away. */
type Change<C, V> = {
  readonly name: string;
  prepare(node: TestNode): Promise<C>;
  act(node: TestNode, context: C): Promise<V>;
  isThere(node: TestNode, context: C, value: V | undefined): Promise<boolean>;
  undo(node: TestNode, context: C): Promise<unknown>;
};
const change = <C, V>(each: Change<C, V>): Change<unknown, unknown> => each as unknown as Change<unknown, unknown>;

const running = (node: TestNode) => node.call(createSandbox, { templateID: "base", timeout: 3600 });
const remove = (node: TestNode, sandboxID: string) => node.call(deleteSandbox, { sandboxID });
const ids = async (node: TestNode) => (await node.call(listSandboxes, {})).map(({ sandboxID }) => sandboxID);
const stateOf = async (node: TestNode, sandboxID: string) => (await node.call(getSandbox, { sandboxID })).state;

async function works(node: TestNode, sandboxID: string): Promise<boolean> {
  const sandbox = await Sandbox.connect(sandboxID, connectionTo(node));
  assert.equal((await sandbox.commands.run("cat /home/user/kept 2>/dev/null || echo none")).exitCode, 0);
  return true;
}

async function childrenOf(node: TestNode, parent: string): Promise<string[]> {
  return (await node.call(listSandboxes, { limit: 100 })).flatMap(({ sandboxID, parentSandboxID }) => (parentSandboxID === parent ? [sandboxID] : []));
}

async function withFile(node: TestNode): Promise<string> {
  const { sandboxID } = await running(node);
  const sandbox = await Sandbox.connect(sandboxID, connectionTo(node));
  await sandbox.commands.run("echo kept > /home/user/kept; head -c 4000000 /dev/urandom > /home/user/bulk; sha1sum /home/user/bulk > /home/user/sum");
  return sandboxID;
}

async function keptFiles(node: TestNode, sandboxID: string): Promise<void> {
  const sandbox = await Sandbox.connect(sandboxID, connectionTo(node));
  assert.equal((await sandbox.commands.run("cat /home/user/kept; sha1sum -c --status /home/user/sum")).stdout, "kept\n");
}

const changes: readonly Change<unknown, unknown>[] = [
  change({
    name: "pause",
    prepare: withFile,
    act: (node, sandboxID) => node.call(pauseSandbox, { sandboxID }),
    async isThere(node, sandboxID) {
      const isPaused = (await stateOf(node, sandboxID)) === "paused";
      if (!isPaused) await keptFiles(node, sandboxID);
      return isPaused;
    },
    async undo(node, sandboxID) {
      if ((await stateOf(node, sandboxID)) === "paused") await node.call(resumeSandbox, { sandboxID, timeout: 3600 });
      await keptFiles(node, sandboxID);
      await remove(node, sandboxID);
    },
  }),
  change({
    name: "resume",
    async prepare(node) {
      const sandboxID = await withFile(node);
      await node.call(pauseSandbox, { sandboxID });
      return sandboxID;
    },
    act: (node, sandboxID) => node.call(resumeSandbox, { sandboxID, timeout: 3600 }),
    isThere: async (node, sandboxID) => (await stateOf(node, sandboxID)) === "running",
    async undo(node, sandboxID) {
      if ((await stateOf(node, sandboxID)) === "paused") await node.call(resumeSandbox, { sandboxID, timeout: 3600 });
      await keptFiles(node, sandboxID);
      await remove(node, sandboxID);
    },
  }),
  change({
    name: "timeout",
    prepare: async (node) => (await running(node)).sandboxID,
    act: (node, sandboxID) => node.call(setSandboxTimeout, { sandboxID, timeout: 40_000 }),
    isThere: async (node, sandboxID) => Date.parse((await node.call(getSandbox, { sandboxID })).endAt) - Date.now() > 20_000_000,
    undo: remove,
  }),
  change({
    name: "network",
    prepare: async (node) => (await running(node)).sandboxID,
    act: (node, sandboxID) => node.call(setSandboxNetwork, { sandboxID, denyOut: Array.from({ length: 200 }, (_, at) => `203.0.113.${at}/32`) }),
    isThere: async (node, sandboxID) => (await node.call(getSandbox, { sandboxID })).network?.denyOut?.length === 200,
    undo: remove,
  }),
  change({
    name: "snapshot",
    prepare: async (node) => ({ sandboxID: await withFile(node), name: `s${randomUUID().slice(0, 8)}` }),
    act: (node, { sandboxID, name }) => node.call(createSnapshot, { sandboxID, name }),
    async isThere(node, { sandboxID }) {
      await keptFiles(node, sandboxID);
      return (await node.call(listSnapshots, { sandboxID })).length === 1;
    },
    async undo(node, { sandboxID, name }) {
      const [snapshot] = await node.call(listSnapshots, { sandboxID });
      await remove(node, sandboxID);
      if (snapshot === undefined) return;
      const copy = await node.call(createSandbox, { templateID: name, timeout: 600 });
      await keptFiles(node, copy.sandboxID);
      await remove(node, copy.sandboxID);
      await node.call(deleteTemplate, { templateID: snapshot.snapshotID });
      assert.deepEqual(await node.call(listSnapshots, { sandboxID }), []);
    },
  }),
  change({
    name: "template",
    prepare: async () => `t${randomUUID().slice(0, 8)}`,
    act: (node, name) => node.call(requestTemplate, { name }),
    isThere: (node, name) =>
      node.call(getTemplateByAlias, { alias: name }).then(
        () => true,
        (error: Failure) => assert.equal(error.name, "TEMPLATE_NOT_FOUND") ?? false,
      ),
    async undo(node, name) {
      if ((await node.call(listTemplates, {})).some(({ names }) => names.includes(name))) await node.call(deleteTemplate, { templateID: name });
    },
  }),
  change({
    name: "upload",
    async prepare(node) {
      const { templateID } = await node.call(requestTemplate, { name: `u${randomUUID().slice(0, 8)}` });
      const hash = randomUUID().replaceAll("-", "").repeat(2);
      const { url = "" } = await node.call(getTemplateFiles, { templateID, hash });
      return { templateID, hash, url };
    },
    async act(_node, { url }) {
      const answer = await fetch(url, { method: "PUT", body: Buffer.alloc(3_000 * KIB) });
      const body = await answer.text();
      if (!answer.ok) throw new Failure(answer.status === 507 ? "DISK_FULL" : "INTERNAL", body);
    },
    isThere: async (node, { templateID, hash }) => (await node.call(getTemplateFiles, { templateID, hash })).present,
    undo: (node, { templateID }) => node.call(deleteTemplate, { templateID }),
  }),
  change({
    name: "fork",
    prepare: withFile,
    act: (node, sandboxID) => node.call(forkSandbox, { sandboxID, count: 2 }),
    async isThere(node, sandboxID, children) {
      const given = (children ?? []).flatMap((each) => ("sandbox" in each && each.sandbox !== undefined ? [each.sandbox.sandboxID] : []));
      assert.deepEqual((await childrenOf(node, sandboxID)).sort(), given.sort());
      return children !== undefined;
    },
    undo: async (node, sandboxID) => Promise.all([sandboxID, ...(await childrenOf(node, sandboxID))].map((each) => remove(node, each))),
  }),
  // The last to be prepared: what is new is told from all that was there.
  change({
    name: "create",
    prepare: async (node) => ({ key: randomUUID(), before: await ids(node) }),
    act: (node, { key }) => node.call(createSandbox, { templateID: "base", timeout: 3600, idempotencyKey: key }),
    async isThere(node, { before }, made) {
      const added = (await ids(node)).filter((each) => !before.includes(each));
      if (made !== undefined) assert.deepEqual(added, [made.sandboxID]);
      return added.length > 0 && works(node, added[0] as string);
    },
    undo: async (node, { before }) => Promise.all((await ids(node)).filter((each) => !before.includes(each)).map((each) => remove(node, each))),
  }),
];

/** A row alone may find room in blocks that the databases have already. */
const fitsInTheLog = ["timeout", "network", "template"];

type Answer = { readonly ok: true; readonly value: unknown } | { readonly ok: false };

/** What it answered; nothing but success and DISK_FULL is an answer to a full disk. */
async function answered<T>(name: string, act: () => Promise<T>): Promise<{ ok: true; value: T } | { ok: false }> {
  try {
    return { ok: true, value: await act() };
  } catch (error) {
    assert.ok(error instanceof Failure && error.name === "DISK_FULL", `${name}: ${(error as Error).name}: ${(error as Error).message}`);
    assert.match(error.message, /disk|no space left/i, name);
    return { ok: false };
  }
}

async function startOn(disk: BoundedDisk): Promise<TestNode> {
  const node = await startNode({ home: disk.path, runtime: "gvisor" });
  // The runsc that this home keeps is there from the first sandbox on.
  await remove(node, (await running(node)).sandboxID);
  return node;
}

void describe("a node on a full disk", needs("runsc", "envd", "base", ...boundedDiskNeeds), () => {
  for (const leftBytes of LEFT_BYTES) {
    void test(`with ${leftBytes / KIB} KiB left each change is acknowledged, or refused with 507 and not there, also after kill -9`, async (t) => {
      using disk = openBoundedDisk(DISK_MB);
      await using node = await startOn(disk);
      const contexts: unknown[] = [];
      for (const { prepare } of changes) contexts.push(await prepare(node));
      const outcomes: { readonly where: string; readonly answer: Answer; isThere(): Promise<boolean> }[] = [];
      for (const [at, { name, act, isThere }] of changes.entries()) {
        disk.fill(leftBytes);
        const answer = await answered(name, () => act(node, contexts[at]));
        outcomes.push({ where: name, answer, isThere: () => isThere(node, contexts[at], answer.ok ? answer.value : undefined) });
      }
      t.diagnostic(`refused: ${outcomes.flatMap(({ where, answer }) => (answer.ok ? [] : [where])).join(", ") || "none"}`);
      if (leftBytes === 0) for (const { where, answer } of outcomes) assert.ok(!answer.ok || fitsInTheLog.includes(where), `${where} was not refused`);
      for (const { where, answer, isThere } of outcomes) assert.equal(await isThere(), answer.ok, where);
      disk.fill();
      await node.restart("SIGKILL");
      for (const { where, answer, isThere } of outcomes) assert.equal(await isThere(), answer.ok, `${where}, after a start on the full disk`);
      disk.free();
      await roomIsSeen(node);
      for (const [at, { undo }] of changes.entries()) await undo(node, contexts[at]);
      assert.deepEqual(await ids(node), []);
    });
  }

  void test("it lists, runs, starts anew and deletes; what was deleted stays so, and there is room again", async () => {
    using disk = openBoundedDisk(DISK_MB);
    await using node = await startOn(disk);
    const kept = await withFile(node);
    const gone = await Promise.all([running(node), running(node), running(node)]);
    const paused = await withFile(node);
    await node.call(pauseSandbox, { sandboxID: paused });
    const { snapshotID } = await node.call(createSnapshot, { sandboxID: kept });
    const freeBefore = disk.freeBytes();
    disk.fill();
    await remove(node, gone[0].sandboxID);
    disk.fill();
    await node.restart("SIGKILL");
    await remove(node, gone[1].sandboxID);
    disk.fill();
    // A clean stop gives back blocks that others take at once.
    await node.kill("SIGTERM");
    disk.fill();
    await node.start();
    await remove(node, gone[2].sandboxID);
    disk.fill();
    await keptFiles(node, kept);
    const inside = await Sandbox.connect(kept, connectionTo(node));
    const { stdout } = await inside.commands.run("head -c 3000000 /dev/urandom > /home/user/more || echo refused");
    assert.equal(stdout, "refused\n");
    await node.call(deleteTemplate, { templateID: snapshotID });
    await remove(node, paused);
    assert.deepEqual(await ids(node), [kept]);
    await node.restart("SIGKILL");
    assert.deepEqual(await ids(node), [kept]);
    assert.deepEqual(await node.call(listSnapshots, {}), []);
    disk.free();
    await roomIsSeen(node);
    assert.ok(disk.freeBytes() > freeBefore);
    await keptFiles(node, kept);
    await remove(node, kept);
  });

  void test("builds end with the reason, and the node goes on; a template's tags are as they were acknowledged", async () => {
    using disk = openBoundedDisk(DISK_MB);
    await using node = await startOn(disk);
    const steps = [{ type: "RUN", args: ["head -c 6000000 /dev/urandom > bulk; for i in $(seq 400); do echo line $i of the log; done"] }];
    const first = await ended(node, await startBuild(node, "built", { fromTemplate: "base", steps }));
    assert.equal(first.status, "ready", first.reason?.message);
    for (const leftBytes of LEFT_BYTES) {
      disk.fill(leftBytes);
      const started = await answered("build", () => startBuild(node, "built", { fromTemplate: "base", steps, force: true }));
      if (started.ok) {
        const { status, reason } = await ended(node, started.value);
        assert.ok(status === "ready" || /disk|no space left/i.test(reason?.message ?? ""), `${leftBytes}: ${status}, ${reason?.message}`);
      }
      const tag = `t${leftBytes}`;
      const tagged = await answered("tag", () => node.call(assignTags, { target: "built", tags: [tag] }));
      disk.fill();
      await node.restart("SIGKILL");
      const tags = (await node.call(listTags, { templateID: "built" })).map((each) => each.tag);
      assert.equal(tags.includes(tag), tagged.ok);
      disk.free();
      await roomIsSeen(node);
    }
    const { sandboxID } = await node.call(createSandbox, { templateID: "built" });
    await remove(node, sandboxID);
    const last = await ended(node, await startBuild(node, "built", { fromTemplate: "base", steps, force: true }));
    assert.equal(last.status, "ready", last.reason?.message);
  });
});

/** The node looks once a second whether there is room. */
async function roomIsSeen(node: TestNode): Promise<void> {
  await until("the node to take something new", async () => {
    const made = await running(node).catch((error: Failure) => {
      if (error.name !== "DISK_FULL") throw error;
      return undefined;
    });
    if (made === undefined) return undefined;
    await remove(node, made.sandboxID);
    return true;
  });
}
