// A node whose disk is full from its n-th write on: each change is acknowledged and kept, or refused with 507 and absent.
import { test } from "node:test";
import { inspect } from "node:util";
import { Failure } from "@svc/contract/failures.ts";
import { countedDiskNeeds, openCountedDisk } from "../src/counted-disk.ts";
import { tryEach } from "../src/each-write.ts";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { until } from "../src/until.ts";
import { changes, remove, running } from "./full-disk-changes.ts";

export type EachWriteNodeOptions = { readonly next: (n: number) => number; readonly restartsAt: (n: number) => boolean };

export function eachWriteNodeSuite(options: EachWriteNodeOptions): void {
  void test(
    "a node whose disk is full from its n-th write on keeps what it acknowledged, shows nothing of what it refused, and starts",
    needs("root", "envd", "base", "runsc", ...countedDiskNeeds),
    async (t) => {
      using disk = openCountedDisk();
      await using node = await startNode({ home: disk.folder, env: disk.env, runtime: "gvisor" });
      // The first sandbox makes this home copy runsc, which must not count.
      await remove(node, (await running(node)).sandboxID);
      const attempts = changes.map(({ name, prepare, act, isThere, undo }) => [
        name,
        async () => {
          const context = await withRoom(() => prepare(node));
          let value: unknown;
          return {
            async act() {
              try {
                value = await act(node, context);
                return true;
              } catch (error) {
                if (!(error instanceof Failure && error.name === "DISK_FULL")) throw error;
                return false;
              }
            },
            isThere: () => isThere(node, context, value),
            undo: () => withRoom(() => undo(node, context)),
          };
        },
      ]);
      const server = { kill: (signal: "SIGKILL") => node.kill(signal), start: () => node.start() };
      try {
        await tryEach((line) => t.diagnostic(line), { disk, server, ...options }, Object.fromEntries(attempts));
      } catch (error) {
        // Stopping the node may fail for the same reason and would hide this error.
        t.diagnostic(inspect(error));
        throw error;
      }
    },
  );
}

/** The node checks for space once a second. */
function withRoom<T>(work: () => Promise<T>): Promise<T> {
  return until("the node to see that there is room", async () => {
    try {
      return { value: await work() };
    } catch (error) {
      if (error instanceof Failure && error.name === "DISK_FULL") return undefined;
      throw error;
    }
  }).then(({ value }) => value);
}
