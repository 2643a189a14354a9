// The verbs for an existing sandbox with a real node: pause, fork, network rules and observation from the command line.
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { stripVTControlCharacters } from "node:util";
import { needs } from "@svc/harness/needs.ts";
import { publicAddresses, startOutside } from "@svc/harness/outside.ts";
import { until } from "@svc/harness/until.ts";
import { type Live, openLive } from "./live.ts";

type Row = Record<string, unknown>;

void describe("a sandbox's life from the command line", needs("root", "runsc", "envd", "base", "python3"), () => {
  let live: Live;
  let id: string;
  before(async () => {
    live = await openLive({ runtime: "gvisor" });
    id = live.sandboxID;
  });
  after(() => live?.[Symbol.asyncDispose]());
  const svc = async (...args: string[]) => {
    const result = await live.svc(args);
    assert.equal(result.code, 0, `${args.join(" ")}: ${result.stderr}`);
    return result.stdout;
  };
  const json = async (...args: string[]) => JSON.parse(await svc(...args, "--output", "json")) as Row[];
  const lines = async (...args: string[]) =>
    (await svc(...args, "--output", "json"))
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line) as Row);

  void test("a paused sandbox continues where it stopped, with its processes and files", async () => {
    await svc("exec", id, "--", "sh", "-c", "echo kept > kept; (while :; do date +%s%N > beat; sleep 0.1; done) > /dev/null 2>&1 &");
    assert.equal(await svc("pause", id), `${id}\n`);
    assert.deepEqual(await json("list", "--state", "running"), []);
    assert.deepEqual(
      (await json("list", "--state", "paused")).map(({ sandboxID }) => sandboxID),
      [id],
    );
    assert.match((await live.svc(["pause", id])).stderr, /was paused already/);
    assert.equal(await svc("resume", id, "--timeout", "3600"), `${id}\n`);
    assert.equal(await svc("exec", id, "cat", "kept"), "kept\n");
    const beat = await svc("exec", id, "cat", "beat");
    await until("the process to go on", async () => ((await svc("exec", id, "cat", "beat")) === beat ? undefined : true));
  });

  void test("a refusal of the node is one line on stderr, and exit code 1", async () => {
    for (const [args, says] of [
      [["timeout", "nobody", "5"], /^svc: sandbox 'nobody' was not found\n$/],
      [["exec", "nobody", "--", "true"], /^svc: sandbox 'nobody' was not found\n$/],
      [["start", "absent", "-d"], /^svc: template 'absent'.* not found.*\n$/],
    ] as const) {
      const { code, stdout, stderr } = await live.svc(args);
      assert.deepEqual([code, stdout], [1, ""], stderr);
      assert.match(stderr, says);
    }
  });

  void test("forks have what their source had, and the tree shows them below it", async () => {
    const forks = (await svc("fork", id, "-n", "3", "-q")).trim().split("\n");
    assert.equal(new Set([...forks, id]).size, 4);
    const hosts = await Promise.all([id, ...forks].map((each) => svc("exec", each, "--", "sh", "-c", "cat kept; hostname")));
    assert.ok(hosts.every((text) => text.startsWith("kept\n")));
    assert.equal(new Set(hosts).size, 4, "each has a hostname of its own");
    const [first = ""] = forks;
    const [grandchild = ""] = (await svc("fork", first, "-q")).trim().split("\n");
    const tree = await svc("list", "--tree");
    assert.match(tree, new RegExp(`^${id} +0 `, "m"));
    for (const fork of forks) assert.match(tree, new RegExp(`^[├└]─ ${fork} +1 `, "m"));
    assert.match(tree, new RegExp(`─ ${first} [^\\n]*\\n[│ ] +└─ ${grandchild} +2 `));
    await svc("delete", first);
    assert.match(await svc("list", "--tree"), new RegExp(`^${first} +\\(gone\\)\\n└─ ${grandchild} `, "m"));
    await svc("delete", grandchild, ...forks.slice(1));
  });

  void test("a snapshot is taken while its source runs, starts others, and is deleted by name", async () => {
    const taken = JSON.parse(await svc("snapshot", "create", id, "kept:v1", "-o", "json")) as Row;
    assert.deepEqual(taken["names"], ["kept:v1"]);
    assert.deepEqual(
      (await json("snapshot", "list", "--sandbox", id)).map(({ snapshotID }) => snapshotID),
      [taken["snapshotID"]],
    );
    const started = (await svc("start", "kept:v1", "-d")).trim();
    assert.equal(await svc("exec", started, "cat", "kept"), "kept\n");
    await svc("delete", started);
    assert.equal(await svc("snapshot", "delete", "kept:v1"), "kept:v1\n");
    assert.deepEqual(await json("snapshot", "list"), []);
    assert.equal((await live.svc(["snapshot", "delete", "base"])).code, 1, "a template is no snapshot");
  });

  void test("a denied connection fails at once and is in the network log with its reason", async () => {
    // The address must have a route, since the kernel refuses one without a route before our rules apply.
    await using _outside = await startOutside();
    const [address] = publicAddresses;
    const shown = JSON.parse(await svc("network", id, "--no-internet", "--allow-out", "192.0.2.1", "-o", "json")) as Row;
    assert.deepEqual([shown["allowInternetAccess"], shown["allowOut"]], [false, ["192.0.2.1"]]);
    assert.notEqual((await live.svc(["exec", id, "--", "bash", "-c", `exec 3<>/dev/tcp/${address}/80`])).code, 0);
    const denied = await until("the denial in the log", async () =>
      (await lines("logs", id, "--network")).find(({ message }) => String(message).includes(address)),
    );
    assert.equal((denied["fields"] as Row)["kind"], "network");
    const asked = JSON.parse(await svc("network", id, "--dns-server", "192.0.2.53", "--dns-server", "192.0.2.54:5353", "-o", "json")) as Row;
    assert.deepEqual(asked["dnsServers"], ["192.0.2.53", "192.0.2.54:5353"]);
    const open = JSON.parse(await svc("network", id, "--clear", "-o", "json")) as Row;
    assert.deepEqual([open["allowInternetAccess"], open["allowOut"]], [true, undefined]);
  });

  void test("metrics come as one sample, as the last hour, and as a live view on a terminal", async () => {
    const [sample] = await until("a sample", async () => {
      const samples = await json("metrics", id, "--history");
      return samples.length > 0 ? samples : undefined;
    });
    assert.ok(Number(sample?.["memTotal"]) > 0 && Number(sample?.["diskTotal"]) > 0);
    assert.deepEqual(
      (await json("metrics", "--all")).map(({ sandboxID }) => sandboxID),
      [id],
    );
    using terminal = live.terminal(["metrics", id, "--watch"]);
    await terminal.sees("CPU");
    await terminal.sees("q or Ctrl-C ends");
    terminal.type("q");
    const { code, screen } = await terminal.end();
    assert.equal(code, 0);
    assert.match(stripVTControlCharacters(screen), new RegExp(`${id} +base +running`));
  });

  void test("events report what was done, in order, and can be requested by sandbox and from an id on", async () => {
    const own = await lines("events", "--sandbox", id);
    const types = own.map(({ type }) => type);
    const wanted = ["sandbox.created", "sandbox.paused", "sandbox.resumed", "sandbox.snapshotted", "sandbox.network_changed"];
    assert.deepEqual(
      wanted.filter((type) => types.includes(type)),
      wanted,
    );
    assert.ok(types.indexOf("sandbox.paused") < types.indexOf("sandbox.resumed"));
    const last = Number(own.at(-1)?.["id"]);
    assert.deepEqual(await lines("events", "--sandbox", id, "--since", String(last)), []);
  });

  void test("followed logs and events continue across a restart of the node, and print nothing twice", async () => {
    using children = new DisposableStack();
    const follow = (...args: string[]) => {
      const child = live.spawn(args);
      children.defer(() => void child.kill());
      const ended = new Promise((resolve) => child.once("exit", resolve));
      const said = { stdout: "" };
      child.stdout.on("data", (text) => (said.stdout += text));
      return {
        child,
        ended,
        rows: () =>
          said.stdout
            .split("\n")
            .slice(0, -1)
            .map((line) => JSON.parse(line) as Row),
      };
    };
    const extra = (await svc("start", "base", "-d")).trim();
    const logs = follow("logs", extra, "-f", "-o", "json");
    const events = follow("events", "-f", "--since", "0", "-o", "json");
    await until("both to begin", () => (logs.rows().length > 0 && events.rows().length > 0 ? true : undefined));
    await live.node.restart("SIGKILL");
    await svc("timeout", extra, "600");
    await svc("delete", extra);
    await until("the end in the events", () => events.rows().find(({ type, sandboxID }) => type === "sandbox.ended" && sandboxID === extra));
    assert.equal(await logs.ended, 0, "a log ends with its sandbox");
    events.child.kill("SIGINT");
    for (const rows of [logs.rows(), events.rows()]) assert.equal(new Set(rows.map((row) => JSON.stringify(row))).size, rows.length);
  });

  void test("a template is built from a Dockerfile with files of its directory, from the cache the second time, tagged and deleted", async () => {
    const context = join(live.place.directory, "web");
    mkdirSync(join(context, "files"), { recursive: true });
    writeFileSync(join(context, "files/hello.txt"), "hello\n");
    writeFileSync(join(context, "Dockerfile"), "FROM debian\nWORKDIR /work\nCOPY files /work/files\nRUN cat files/hello.txt > /work/copied\n");
    const build = await live.svc(["template", "build", "--from", "base", "-n", "web:v1", context]);
    assert.equal(build.code, 0, build.stderr);
    assert.match(build.stderr, /COPY files: \d+ B in /);
    const started = (await svc("start", "web:v1", "-d")).trim();
    assert.equal(await svc("exec", started, "cat", "/work/copied"), "hello\n");
    await svc("delete", started);
    const again = await live.svc(["template", "build", "--from", "base", "-n", "web:v2", context]);
    assert.match(again.stderr, /known to the server[\s\S]*RUN cat files\/hello\.txt > \/work\/copied \(cached\)/);
    assert.ok((await json("template", "tag", "web:v2", "stable")).some(({ tag }) => tag === "stable"));
    assert.match(await svc("template", "logs", "web"), /RUN cat files/);
    writeFileSync(join(context, "Dockerfile"), "FROM debian\nRUN echo out; exit 3\n");
    const failed = await live.svc(["template", "build", "--from", "base", "-n", "broken", context]);
    assert.equal(failed.code, 1);
    assert.match(failed.stderr, /out[\s\S]*svc: template broken was not built: .*3/);
    await svc("template", "delete", "web");
    assert.ok(!(await json("template", "list")).some(({ names }) => (names as string[]).includes("web")));
  });
});
