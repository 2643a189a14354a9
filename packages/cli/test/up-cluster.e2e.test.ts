// `svc up --nodes N`: a gateway, nodes and etcd on this machine, which the client finds as it finds a single node.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { OWNER } from "@svc/harness/home.ts";
import { leftovers } from "@svc/harness/leftovers.ts";
import { needs } from "@svc/harness/needs.ts";
import { destroyAll } from "@svc/harness/node.ts";
import { until } from "@svc/harness/until.ts";
import { FLAGS, openHome } from "./up-home.ts";

const ALONE = ["--only", "node"];
type Node = { id: string; status: string; sandboxCount: number };

void test(
  "up --nodes runs a small deployment, where a sandbox moves, and all of it is there after down and up",
  needs("root", "runsc", "envd", "base", "etcd"),
  async () => {
    await using it = openHome();
    const nodesHere = async () => JSON.parse((await it.svc("nodes", "list", "--output", "json")).stdout || "[]") as Node[];
    const up = async () => {
      const { code, stdout, stderr } = await it.svc("up", "-d", "--nodes", "2", ...ALONE, ...FLAGS, "--metrics-listen", "127.0.0.1:0", "--runtime", "gvisor");
      assert.equal(code, 0, stderr);
      assert.match(stdout, /^etcd +http.*\nnode 1 +http.*\nnode 2 +http.*\ngateway +http.*\nconsole +http.*\/console .*\nAPI key +in /);
      await until("both nodes", async () => ((await nodesHere()).filter(({ status }) => status === "ready").length === 2 ? true : undefined));
    };
    try {
      await up();
      const id = (await it.svc("start", "base", "-d")).stdout.trim();
      assert.equal((await it.svc("exec", "-n", id, "--", "sh", "-c", "echo mine > kept")).code, 0);
      const { code, stdout, stderr } = await it.svc("move", id, "--output", "table");
      assert.equal(code, 0, stderr);
      assert.match(
        stdout,
        new RegExp(
          `^${id} moved from node-\\w+ to node-\\w+; it stood still for \\d+ ms \\(pause \\d+, export \\d+, import \\d+, resume \\d+, other \\d+\\)\\n$`,
        ),
      );
      assert.equal((await it.svc("exec", "-n", id, "--", "cat", "kept")).stdout, "mine\n");
      assert.equal((await it.svc("down")).code, 0);
      await up();
      assert.equal((await it.svc("exec", "-n", id, "--", "cat", "kept")).stdout, "mine\n");
      assert.equal((await it.svc("delete", id)).code, 0);
    } finally {
      await it.svc("down");
      for (const number of ["1", "2"])
        await destroyAll(join(it.home, "nodes", number), { ...it.env, SVC_HOME: join(it.home, "nodes", number) } as Record<string, string>);
    }
  },
);

void test("uninstall --home of a cluster that is down ends the sandboxes of its nodes, too", needs("root", "runsc", "envd", "base", "etcd"), async () => {
  await using it = openHome();
  const homes = ["1", "2"].map((number) => join(it.home, "nodes", number));
  try {
    const up = await it.svc("up", "-d", "--nodes", "2", ...ALONE, ...FLAGS, "--metrics-listen", "127.0.0.1:0", "--runtime", "gvisor");
    assert.equal(up.code, 0, up.stderr);
    const started = await until("a sandbox", async () => {
      const { code, stdout } = await it.svc("start", "base", "-d");
      return code === 0 ? stdout.trim() : undefined;
    });
    assert.equal((await it.svc("down")).code, 0);
    const remaining = homes.map(leftovers).find(({ directories }) => directories.includes(started));
    assert.ok(
      remaining !== undefined && remaining.processes.length > 0 && remaining.netns.length > 0 && remaining.cgroups.length > 0,
      "it outlives the servers",
    );
    // The test harness made this file, and uninstall keeps a home with files that are not from a server.
    rmSync(join(it.home, OWNER));
    await promisify(execFile)(join(import.meta.dirname, "../../../svc"), ["uninstall", "--yes", "--home", it.home], { env: it.env });
    assert.equal(existsSync(it.home), false);
  } finally {
    // The resource names of a home are derived from its path, which must exist for the check.
    for (const home of homes) mkdirSync(home, { recursive: true });
    const left = homes.map(leftovers);
    for (const home of homes) await destroyAll(home, { ...it.env, SVC_HOME: home } as Record<string, string>);
    assert.deepEqual(
      left,
      homes.map(() => ({ directories: [], netns: [], links: [], cgroups: [], mounts: [], processes: [] })),
    );
  }
});

void test("up --nodes reports what it cannot do", async () => {
  await using it = openHome();
  assert.match((await it.svc("up", "--nodes", "10")).stderr, /Expected a whole number from 1 to 9/);
  const misspelt = await it.svc("up", "-d", "--nodes", "2", ...ALONE, "--bogus");
  assert.match(misspelt.stderr, /^svc: --bogus: there is no such flag; svc node --help lists the flags\n\nUsage: svc up /);
  const refused = await it.svc("up", "-d", "--nodes", "2", ...ALONE, "--node.deployment_secret_file", "/nowhere/key");
  assert.match(refused.stderr, /node [12] cannot start \(exit code 1\)/);
  assert.match(refused.stderr, /\/nowhere\/key is not there/);
  assert.doesNotMatch(refused.stderr, /--without/);
  assert.match((await it.svc("up", "--nodes", "2", "--without", "node")).stderr, /--nodes needs the node, which --without or --only leaves out/);
});
