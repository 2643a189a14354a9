// The kinds of changes of a node for the full-disk test: how each is made, detected and undone.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { Failure } from "@svc/contract/failures.ts";
import { createSnapshot, forkSandbox, listSnapshots, pauseSandbox, resumeSandbox } from "@svc/contract/lifecycle.ts";
import { setSandboxNetwork } from "@svc/contract/network.ts";
import { createSandbox, deleteSandbox, getSandbox, listSandboxes, setSandboxTimeout } from "@svc/contract/sandbox.ts";
import { deleteTemplate, getTemplateByAlias, listTemplates } from "@svc/contract/template.ts";
import { getTemplateFiles, requestTemplate } from "@svc/contract/template-build.ts";
import { Sandbox } from "e2b";
import type { TestNode } from "../src/node.ts";
import { connectionTo } from "../src/template.ts";

const UPLOAD_BYTES = 3 * 1024 * 1024;

/** One kind of change: `act` uses the result of `prepare`; `isThere` says whether its effect is visible, `undo` removes it. */
type Change<C, V> = {
  readonly name: string;
  prepare(node: TestNode): Promise<C>;
  act(node: TestNode, context: C): Promise<V>;
  isThere(node: TestNode, context: C, value: V | undefined): Promise<boolean>;
  undo(node: TestNode, context: C): Promise<unknown>;
};
const change = <C, V>(each: Change<C, V>): Change<unknown, unknown> => each as unknown as Change<unknown, unknown>;

export const running = (node: TestNode) => node.call(createSandbox, { templateID: "base", timeout: 3600 });
export const remove = (node: TestNode, sandboxID: string) => node.call(deleteSandbox, { sandboxID });
export const ids = async (node: TestNode) => (await node.call(listSandboxes, {})).map(({ sandboxID }) => sandboxID);
const stateOf = async (node: TestNode, sandboxID: string) => (await node.call(getSandbox, { sandboxID })).state;

async function works(node: TestNode, sandboxID: string): Promise<boolean> {
  const sandbox = await Sandbox.connect(sandboxID, connectionTo(node));
  assert.equal((await sandbox.commands.run("cat /home/user/kept 2>/dev/null || echo none")).exitCode, 0);
  return true;
}

async function childrenOf(node: TestNode, parent: string): Promise<string[]> {
  return (await node.call(listSandboxes, { limit: 100 })).flatMap(({ sandboxID, parentSandboxID }) => (parentSandboxID === parent ? [sandboxID] : []));
}

export async function withFile(node: TestNode): Promise<string> {
  const { sandboxID } = await running(node);
  const sandbox = await Sandbox.connect(sandboxID, connectionTo(node));
  await sandbox.commands.run("echo kept > /home/user/kept; head -c 4000000 /dev/urandom > /home/user/bulk; sha1sum /home/user/bulk > /home/user/sum");
  return sandboxID;
}

export async function keptFiles(node: TestNode, sandboxID: string): Promise<void> {
  const sandbox = await Sandbox.connect(sandboxID, connectionTo(node));
  assert.equal((await sandbox.commands.run("cat /home/user/kept; sha1sum -c --status /home/user/sum")).stdout, "kept\n");
}

export const changes: readonly Change<unknown, unknown>[] = [
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
      const answer = await fetch(url, { method: "PUT", body: Buffer.alloc(UPLOAD_BYTES) });
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
  // It must be prepared last, because new sandboxes are detected by comparison with the existing ones.
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
