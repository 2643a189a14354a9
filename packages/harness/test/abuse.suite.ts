// One sandbox takes all it can get; its neighbour's commands succeed, the node is healthy, and nothing is left behind.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Sandbox } from "e2b";
import { type Abuse, type AbuseName, abuses } from "../src/abuse.ts";
import { leftovers } from "../src/leftovers.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

/** The duration of the abuse while its neighbour works; each round runs a command, and writes and reads a file. */
const ABUSE_MS = 2_500;
const ROUNDS = 5;
const limits = ["--sandbox.memory_mb=384", "--sandbox.disk_size_mb=128", "--sandbox.pids=128", "--sandbox.cpu_count=1"];

export type AbuseBench = {
  readonly node: TestNode;
  create(): Promise<Sandbox>;
  /** Starts the abuse and ignores its output. */
  start(sandbox: Sandbox, abuse: Abuse): Promise<void>;
  /** Runs commands, files, a terminal and a watch for about this time. @throws at the first failure. */
  neighbourWorks(forMs?: number): Promise<void>;
  /** Returns `running`, or the reason why the sandbox ended. */
  fate(sandboxID: string): Promise<string>;
};

export function abuseSuite(runtime: "gvisor" | "runc", names: readonly AbuseName[], further: (bench: AbuseBench) => void = () => {}): void {
  void describe(`under abuse on ${runtime}`, needs("root", "envd", "base", runtime === "gvisor" ? "runsc" : "runc"), () => {
    let node: TestNode;
    let neighbour: Sandbox;
    const connection = () => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });
    const bench: AbuseBench = {
      get node() {
        return node;
      },
      create: () => Sandbox.create("base", { ...connection(), timeoutMs: 600_000 }),
      async start(sandbox, abuse) {
        const handle = await sandbox.commands.run(abuse.command, { background: true, timeoutMs: 0, user: abuse.user ?? "user" });
        await handle.disconnect();
      },
      async neighbourWorks(forMs = 0) {
        const end = performance.now() + forMs;
        for (let round = 0; round < ROUNDS || performance.now() < end; round++) {
          assert.equal((await neighbour.commands.run(`echo ${round} | tee round`)).stdout, `${round}\n`);
          assert.equal(await neighbour.files.read("round"), `${round}\n`);
        }
        await terminalAndWatch(neighbour);
        assert.equal((await fetch(`${node.url}/health`)).status, 204);
      },
      async fate(sandboxID) {
        const response = await fetch(`${node.url}/sandboxes/${sandboxID}`, { headers: { "x-api-key": node.apiKey } });
        const body = (await response.json()) as { state?: string; reason?: string };
        return response.status === 404 ? (body.reason ?? "?") : (body.state ?? "?");
      },
    };

    before(async () => {
      node = await startNode({ runtime, flags: limits });
      neighbour = await bench.create();
    });
    after(() => node[Symbol.asyncDispose]());

    for (const name of names) {
      const abuse: Abuse = abuses[name];
      // gVisor's own kernel ends or refuses the program that asks.
      const mayEnd = runtime !== "gvisor" && abuse.outcome === "may end";
      void test(`a sandbox that ${abuse.what} ${mayEnd ? "ends as oom, if it ends" : "lives on"}; its neighbour works on and nothing of it is left`, async (context) => {
        const sandbox = await bench.create();
        try {
          await bench.start(sandbox, abuse);
          await bench.neighbourWorks(ABUSE_MS);
          const fate = await bench.fate(sandbox.sandboxId);
          context.diagnostic(`${name}: ${fate}`);
          assert.ok(fate === "running" || (fate === "oom" && mayEnd), `it ended as ${fate}`);
        } finally {
          // The sandbox may die between the check and the call.
          await Sandbox.kill(sandbox.sandboxId, connection());
        }
        await until(`${name} to leave nothing`, () => {
          const left = leftovers(node.home);
          const parts = [...left.directories, ...left.cgroups, ...left.mounts, ...left.processes];
          return parts.every((part) => part.includes(neighbour.sandboxId)) && left.netns.length === 1 && left.links.length === 1 ? true : undefined;
        });
        await bench.neighbourWorks();
      });
    }

    further(bench);
  });
}

/** Both need kernel objects that a neighbour could have exhausted. */
async function terminalAndWatch(sandbox: Sandbox): Promise<void> {
  let seen = "";
  const decoder = new TextDecoder();
  const terminal = await sandbox.pty.create({
    cols: 80,
    rows: 24,
    onData: (data) => {
      seen += decoder.decode(data);
    },
  });
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode("echo $((6*7)); exit\n"));
  assert.equal((await terminal.wait()).exitCode, 0);
  assert.match(seen, /^42/m);
  let heard = false;
  const watch = await sandbox.files.watchDir(".", () => {
    heard = true;
  });
  await sandbox.files.write("watched", "x");
  await until("the watch", () => heard || undefined);
  await watch.stop();
}
