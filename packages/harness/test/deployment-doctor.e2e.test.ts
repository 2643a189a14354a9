// `svc doctor --deployment` on real servers: nodes, a gateway, etcd, a store master, an indexer and a router, whole and then broken one by one.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { nodesOperations } from "@svc/contract/nodes.ts";
import { startEtcd, type TestEtcd } from "../src/etcd.ts";
import { type FrontedNodes, KEY, startFrontedNodes } from "../src/fronted-nodes.ts";
import { makeHome, removeHome } from "../src/home.ts";
import { needs } from "../src/needs.ts";
import { freePorts } from "../src/ports.ts";
import { type OpenServer, openServer } from "../src/server-process.ts";
import { until } from "../src/until.ts";

const PACKAGES = join(import.meta.dirname, "../..");
type Finding = { severity: string; where: string; says: string; fix: string };
type Report = { ok: boolean; asked: { kind: string; url: string; answered: boolean }[]; findings: Finding[] };

void describe("svc doctor --deployment", needs("root", "envd", "base", "runc", "etcd"), () => {
  const stack = new AsyncDisposableStack();
  let fronted: FrontedNodes;
  let etcd: TestEtcd;
  let indexer: OpenServer;
  let router: OpenServer;
  let master: OpenServer;
  let flags: string[];
  const home = () => {
    const made = makeHome();
    stack.defer(() => removeHome(made));
    return made;
  };
  before(async () => {
    fronted = stack.use(await startFrontedNodes({ nodes: 2 }));
    etcd = stack.use(await startEtcd());
    const [rpc, engine] = await freePorts(2);
    master = stack.use(await openServer([join(PACKAGES, "store/src/master/main.ts")], [`--home=${home()}`, `--rpc_port=${rpc}`]));
    indexer = stack.use(await openServer([join(PACKAGES, "indexer/src/main.ts")], [`--home=${home()}`, "--indexer.silence_seconds=1"]));
    router = stack.use(await openServer([join(PACKAGES, "router/src/main.ts")], [`--engine=absent=http://127.0.0.1:${engine}`, "--router.poll_ms=100"]));
    flags = [`--gateway=${fronted.gateway.url}`, `--etcd=${etcd.endpoints[0]}`, `--store=${master.url}`, `--indexer=${indexer.url}`];
  });
  after(() => stack.disposeAsync());

  function run(args: readonly string[], more: Readonly<Record<string, string>> = {}): Promise<{ code: number; stdout: string; stderr: string }> {
    const env = { ...process.env, SVC_HOME: join(fronted.nodes[0]?.home ?? "", "none"), SDK_API_KEY: KEY, XDG_CONFIG_HOME: "/nonexistent", ...more };
    return new Promise((resolve) => {
      execFile(process.execPath, [join(PACKAGES, "cli/src/main.ts"), "doctor", ...args], { env }, (error, stdout, stderr) => {
        resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr });
      });
    });
  }

  async function report(more: readonly string[] = []): Promise<Report & { code: number }> {
    const { code, stdout, stderr } = await run(["--deployment", "--json", ...flags, ...more]);
    assert.ok(stdout.startsWith("{"), stderr);
    return { code, ...(JSON.parse(stdout) as Report) };
  }

  void test("asks every server, finds nothing wrong with one that works, and exits with 0", async () => {
    // The disk and the memory of the machine that runs the test are not part of the deployment's state.
    const { asked, findings } = await report();
    const kinds = asked.map(({ kind, answered }) => `${kind} ${answered}`).sort();
    assert.deepEqual(kinds, ["etcd true", "gateway true", "indexer true", "node true", "node true", "store master true"]);
    assert.deepEqual(
      findings.filter(({ says }) => !/disk is|of its memory/.test(says)),
      [],
    );
    const { code, stdout } = await run(["--deployment", `--etcd=${etcd.endpoints[0]}`, `--gateway=${fronted.gateway.url}`]);
    assert.match(stdout, /^4 of 4 servers answered \(gateway 1, node 2, etcd 1\)/m);
    assert.equal(code, /0 critical, 0 warning/.test(stdout) ? 0 : 1);
  });

  void test("a draining node is a note with the command that ends it, wherever --deployment stands", async () => {
    const [{ id } = { id: "" }] = await fronted.gateway.call(nodesOperations.listNodes, {});
    await fetch(`${fronted.gateway.url}/nodes/${id}`, {
      method: "POST",
      headers: { "x-api-key": KEY, "content-type": "application/json" },
      body: JSON.stringify({ status: "draining" }),
    });
    await until("the node drains", async () =>
      (await fronted.gateway.call(nodesOperations.listNodes, {})).some(({ status }) => status === "draining") ? true : undefined,
    );
    const { findings } = await report();
    assert.deepEqual(
      findings.filter(({ severity }) => severity === "note"),
      [{ severity: "note", where: id, says: "drains: it takes no new sandboxes", fix: `svc nodes undrain ${id}` }],
    );
    const { stdout } = await run(["--json", "--deployment", ...flags]);
    assert.match(stdout, /drains: it takes no new sandboxes/);
  });

  void test("a dead engine, a wrong key and a machine that hangs are lines, and the command ends", async () => {
    const { findings, code } = await report([`--router=${router.url}`]);
    assert.equal(code, 1);
    assert.ok(findings.some(({ severity, where, says }) => severity === "critical" && where === `router ${router.url}` && says.includes("no engine")));
    assert.ok(findings.some(({ severity, where }) => severity === "warning" && where === "engine absent"));

    const silent = await hanging();
    stack.defer(() => void silent.close());
    const { port } = silent.address() as { port: number };
    const hung = await report([`--store-service=http://127.0.0.1:${port}`, "--timeout=2"]);
    assert.ok(hung.findings.some(({ where, says }) => where === `store service http://127.0.0.1:${port}` && says === "does not answer (no answer in time)"));
    assert.ok(hung.asked.some(({ kind, answered }) => kind === "node" && answered));

    const wrong = await run(["--deployment", `--gateway=${fronted.gateway.url}`], { SDK_API_KEY: `wrong-${"x".repeat(40)}` });
    assert.equal(wrong.code, 1);
    assert.match(wrong.stdout, /^critical .*refuses the API key.*\n +fix: svc auth$/m);
  });

  void test("what was killed is listed as critical, each with the command that starts it, and the rest is still examined", async () => {
    const lost = fronted.nodes[1];
    await Promise.all([lost?.kill(), etcd.members[0]?.kill(), master.kill("SIGKILL"), indexer.kill("SIGKILL")]);
    await until("the gateway knows", async () =>
      (await fronted.gateway.call(nodesOperations.listNodes, {})).some(({ status }) => status === "unhealthy" || status === "connecting") ? true : undefined,
    );
    const { code, ok, findings, asked } = await report();
    assert.equal(code, 1);
    assert.equal(ok, false);
    const critical = findings.filter(({ severity }) => severity === "critical");
    for (const where of [`etcd ${etcd.endpoints[0]}`, `store master ${master.url}`, `indexer ${indexer.url}`]) {
      const found = critical.find((finding) => finding.where === where);
      assert.match(found?.says ?? "", /does not answer \(ECONNREFUSED\)/, where);
      assert.match(found?.fix ?? "", /systemctl restart/, where);
    }
    assert.ok(critical.some(({ says, fix }) => /is (unhealthy|connecting): /.test(says) && / --dead$/.test(fix)));
    assert.equal(asked.filter(({ kind, answered }) => kind === "node" && answered).length, 1);
    const order = findings.map(({ severity }) => ["critical", "warning", "note"].indexOf(severity));
    assert.deepEqual(order, order.toSorted());
  });

  void test("a flag with a value that is not an address is a usage error that shows an example", async () => {
    const { code, stderr } = await run(["--deployment", "--etcd=nowhere"]);
    assert.equal(code, 2);
    assert.match(stderr, /--etcd: "nowhere" is not a URL/);
  });
});

/** Accepts connections and never answers. */
function hanging(): Promise<Server> {
  const server = createServer(() => {}).listen(0, "127.0.0.1");
  return new Promise((resolve) => server.once("listening", () => resolve(server)));
}
