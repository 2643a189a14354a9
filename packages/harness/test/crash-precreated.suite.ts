// Precreated sandboxes that stand ready: used once, under their own limits, and none outlives a node that was killed.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { connectSandbox, createSnapshot, forkSandbox, pauseSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox, listSandboxes } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { assertNothingBut, busySandbox, killDuring, type MomentsOf } from "../src/crash.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

const PRECREATED = 2;
const precreatedFlags = [`--pool.precreated=${PRECREATED}`];
/** So that what is there after a start is what the start left. */
const none = { flags: ["--pool.precreated=0"] };

export type PrecreatedOptions = { readonly momentsOf: MomentsOf; readonly rounds: number };

export function crashPrecreatedSuite({ momentsOf, rounds }: PrecreatedOptions): void {
  void describe("precreated", needs("root", "envd", "base", "runsc"), () => {
    const debug = { runtime: "gvisor", flags: ["--log-level=debug", ...precreatedFlags] } as const;
    const connectionOf = (node: TestNode) => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });
    const partsOf = (node: TestNode) => readdirSync(join(node.home, "sandboxes"));

    async function ready(node: TestNode, count: number): Promise<void> {
      await until(`${count} precreated sandboxes`, async () => {
        const text = await (await fetch(`${node.url}/metrics`)).text();
        return Number(/^svc_node_precreated (\d+)/m.exec(text)?.[1]) === count ? true : undefined;
      });
    }

    /** What is on the host is of sandboxes that run: one directory each, and nothing beside what names one of these. */
    async function assertOnlyRunning(node: TestNode, when: string): Promise<void> {
      const running = (await node.call(listSandboxes, {})).filter(({ state }) => state === "running").length;
      await until("the host to hold what runs", () => (partsOf(node).length === running ? true : undefined));
      await assertNothingBut(node, partsOf(node), when);
    }

    void test("that stand ready, or are being made, are gone after the node was killed and started", async () => {
      await using node = await startNode(debug);
      const { sandboxID, check } = await busySandbox(node);
      await ready(node, PRECREATED);
      assert.equal(partsOf(node).length, 1 + PRECREATED);
      await node.restart("SIGKILL", none);
      await assertNothingBut(node, [sandboxID], "precreated sandboxes stood ready");
      for (const delayMs of momentsOf(1, [0, 40])) {
        await node.restart("SIGTERM", { flags: precreatedFlags });
        await killDuring(node, "precreate", delayMs, () =>
          node.call(createSnapshot, { sandboxID }).then(() => node.call(forkSandbox, { sandboxID, count: 1 })),
        );
        await node.start(none);
        for (const child of await node.call(listSandboxes, {})) {
          if (child.sandboxID !== sandboxID) await node.call(deleteSandbox, { sandboxID: child.sandboxID });
        }
        await assertNothingBut(node, [sandboxID], `precreated sandbox + ${delayMs} ms`);
      }
      await check("after all");
    });

    void test("are destroyed when the node stops", async () => {
      await using node = await startNode(debug);
      const { sandboxID } = await busySandbox(node);
      await ready(node, PRECREATED);
      await node.kill("SIGTERM");
      await assertNothingBut(node, [sandboxID], "a clean stop");
      await node.start();
    });

    void test("keep a resume whole that the node was killed in, and what went on in one survives the node and pauses again", async () => {
      await using node = await startNode(debug);
      const { sandboxID, check } = await busySandbox(node);
      for (const [at, stage] of ["restore", "envd", "identity"].entries()) {
        for (const delayMs of momentsOf(at, [0, 20])) {
          const when = `${stage} + ${delayMs} ms`;
          await ready(node, PRECREATED);
          await node.call(pauseSandbox, { sandboxID });
          await killDuring(node, stage, delayMs, () => node.call(connectSandbox, { sandboxID }));
          await node.start(none);
          await assertOnlyRunning(node, when);
          await node.restart("SIGTERM");
          await check(when);
          await node.call(forkSandbox, { sandboxID, count: 1 }).then(async () => {
            for (const child of await node.call(listSandboxes, {})) {
              if (child.sandboxID !== sandboxID) await node.call(deleteSandbox, { sandboxID: child.sandboxID });
            }
          });
        }
      }
      // What runs in a precreated sandbox is destroyed by a delete, and by a pause.
      await node.restart("SIGTERM", none);
      await assertOnlyRunning(node, "resumed many times");
      await node.call(pauseSandbox, { sandboxID });
      await assertNothingBut(node, [], "paused");
      await node.call(connectSandbox, { sandboxID });
      await node.call(deleteSandbox, { sandboxID });
      await assertNothingBut(node, [], "deleted");
    });

    void test("are handed out once each: sandboxes that come back and copies that are made at the same time are all their own", async () => {
      await using node = await startNode(debug);
      const [one, two] = await Promise.all([busySandbox(node), busySandbox(node)]);
      for (let round = 0; round < rounds; round++) {
        await ready(node, PRECREATED);
        await node.call(pauseSandbox, { sandboxID: one.sandboxID });
        const [forked] = await Promise.all([
          node.call(forkSandbox, { sandboxID: two.sandboxID, count: 3 }),
          node.call(connectSandbox, { sandboxID: one.sandboxID }),
          node.call(createSandbox, { templateID: "base" }),
        ]);
        assert.equal(forked.filter((each) => "sandbox" in each).length, 3);
        await Promise.all([one.check("resumed"), two.check("forked")]);
        const alive = await node.call(listSandboxes, {});
        assert.equal(alive.length, 6);
        for (const { sandboxID } of alive) {
          const sandbox = await Sandbox.connect(sandboxID, connectionOf(node));
          assert.equal((await sandbox.commands.run("hostname")).stdout, `${sandboxID}\n`);
          if (sandboxID !== one.sandboxID && sandboxID !== two.sandboxID) await sandbox.kill();
        }
      }
    });

    void test("serve only sandboxes of their own size: what was paused small comes back small among larger ones", async () => {
      await using node = await startNode({ runtime: "gvisor", flags: [...precreatedFlags, "--sandbox.memory_mb=256"] });
      const sizeOf = async (sandboxID: string) => {
        const { stdout } = await (await Sandbox.connect(sandboxID, connectionOf(node))).commands.run("grep MemTotal /proc/meminfo | tr -dc 0-9");
        return Math.round(Number(stdout) / 1024);
      };
      const small = await node.call(createSandbox, { templateID: "base" });
      await node.call(pauseSandbox, { sandboxID: small.sandboxID });
      await node.restart("SIGTERM", { flags: ["--sandbox.memory_mb=384"] });
      const large = await node.call(createSandbox, { templateID: "base" });
      await ready(node, PRECREATED);
      assert.deepEqual([await sizeOf(small.sandboxID), await sizeOf(large.sandboxID)], [256, 384]);
      await ready(node, 2 * PRECREATED);
      const another = await node.call(createSandbox, { templateID: "base" });
      await node.call(pauseSandbox, { sandboxID: small.sandboxID });
      assert.deepEqual([await sizeOf(small.sandboxID), await sizeOf(another.sandboxID)], [256, 384]);
    });
  });
}
