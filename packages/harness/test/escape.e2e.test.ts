// Possible ways out of a sandbox, tried from inside as user and as root on every driver: kernel interfaces, descriptors, files, secrets.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Sandbox } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";

type Runtime = "gvisor" | "runc" | "bubblewrap";
type User = "user" | "root";

const probe = readFileSync(new URL("../src/escape-probe.py", import.meta.url), "utf8");
const PROBES_AT_LEAST = 94;
const FLOOD_MB = 32;
const LOG_BYTES = 1024 * 1024;

/** Root may lower its own chance of survival, which does not affect the host. */
const ownMind = ["write /proc/1/oom_score_adj"];
/** gVisor answers these from its own kernel, where the sandbox's root is root: its clock, log, routing and scheduler are not the host's. */
const gvisorOwn = ["unshare user", "keyctl session", "kernel log", "nice"];
const may: Readonly<Record<Runtime, Readonly<Record<User, readonly string[]>>>> = {
  gvisor: { user: gvisorOwn, root: [...gvisorOwn, ...ownMind, "write /proc/sys/net/ipv4/ip_forward", "ptrace pid 1", "process_vm_readv pid 1"] },
  runc: { user: [], root: ownMind },
  bubblewrap: { user: [], root: ownMind },
};
/** Any of these would suffice to escape from a container on the host's kernel. */
const neverHeld = ["SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO", "SYS_BOOT", "SYS_TIME", "NET_ADMIN", "DAC_READ_SEARCH", "SYSLOG", "BPF", "PERFMON"];
const capabilityBits = {
  DAC_READ_SEARCH: 2,
  NET_ADMIN: 12,
  SYS_MODULE: 16,
  SYS_RAWIO: 17,
  SYS_ADMIN: 21,
  SYS_BOOT: 22,
  SYS_TIME: 25,
  SYSLOG: 34,
  PERFMON: 38,
  BPF: 39,
};

const hostFiles = [
  "/proc/sys/kernel/core_pattern",
  "/proc/sys/kernel/hostname",
  "/proc/sys/vm/overcommit_memory",
  "/proc/sys/net/ipv4/ip_forward",
  "/proc/sys/kernel/panic",
];
const hostState = () => hostFiles.map((path) => `${path} ${readFileSync(path, "utf8").trim()}`);

for (const [runtime, program] of [
  ["gvisor", "runsc"],
  ["runc", "runc"],
  ["bubblewrap", "bwrap"],
] as const) {
  void describe(`from inside a sandbox on ${runtime}`, needs("root", "envd", "base", program), () => {
    let node: TestNode;
    let sandbox: Sandbox;
    const secrets = { SVC_API_KEY: randomBytes(24).toString("hex"), SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: randomBytes(32).toString("hex") };
    const run = async (command: string, user: User) => {
      const result = await sandbox.commands.run(command, { user, timeoutMs: 0 }).catch((error: { exitCode?: number; stdout: string; stderr: string }) => {
        if (error.exitCode === undefined) throw error;
        return error;
      });
      return { out: result.stdout.trim(), error: result.stderr.trim(), code: result.exitCode };
    };

    before(async () => {
      node = await startNode({ runtime, env: secrets });
      sandbox = await Sandbox.create("base", { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey, timeoutMs: 600_000 });
      await sandbox.files.write("/tmp/escape-probe.py", probe);
    });
    after(() => node[Symbol.asyncDispose]());

    for (const user of ["user", "root"] as const) {
      void test(`${user} is denied every way out: mounts, devices, kernel settings, namespaces, modules, foreign processes`, async () => {
        const before = hostState();
        const { out, error, code } = await run("python3 /tmp/escape-probe.py", user);
        assert.equal(code, 0, error);
        const outcomes = Object.entries(JSON.parse(out) as Record<string, string>);
        assert.ok(outcomes.length >= PROBES_AT_LEAST, `${outcomes.length} probes`);
        for (const [name, outcome] of outcomes) assert.match(outcome, /^(denied|done|E[A-Z]+)/, `${name} has an outcome`);
        const done = outcomes.filter(([, outcome]) => outcome.startsWith("done")).map(([name]) => name);
        assert.deepEqual(
          done.filter((name) => !may[runtime][user].includes(name)),
          [],
          JSON.stringify(outcomes.filter(([name]) => done.includes(name))),
        );
        assert.deepEqual(hostState(), before);
        assert.equal(await sandbox.isRunning(), true);
      });

      void test(`${user} has no capability over the host`, async () => {
        const { out } = await run("grep -E 'Cap(Eff|Prm|Amb)' /proc/self/status", user);
        const held = out.split("\n").map((line) => BigInt(`0x${line.split(/\s+/)[1]}`));
        assert.equal(held.length, 3);
        for (const name of neverHeld) {
          const bit = 1n << BigInt(capabilityBits[name as keyof typeof capabilityBits]);
          for (const set of held) assert.equal(set & bit, 0n, name);
        }
        if (user === "user")
          assert.ok(
            held.every((set) => set === 0n),
            out,
          );
      });
    }

    void test("neither envd nor a command has a descriptor of the host", async () => {
      const list =
        "import os\nfor p in ('1', 'self'):\n  try:\n    for f in os.listdir(f'/proc/{p}/fd'):\n      try: print(p, f, os.readlink(f'/proc/{p}/fd/{f}'))\n      except FileNotFoundError: pass\n  except PermissionError: pass";
      const { out } = await run(`python3 -c "${list}"`, "root");
      const lines = out.split("\n").map((line) => line.split(" "));
      for (const [who, number, target = ""] of lines) {
        assert.match(target, /^(\/dev\/null|pipe:|socket:|anon_inode:|\/sys\/fs\/cgroup\/cpu|\/proc\/\d+\/fd)/, `descriptor ${number} of ${who}`);
      }
      const ofCommand = lines.filter(([who]) => who === "self").map(([, number]) => Number(number));
      assert.deepEqual(ofCommand.sort(), [0, 1, 2]);
    });

    void test("root cannot fill a disk of the host by writing to envd's own output", async () => {
      await run(`for fd in 0 1 2; do head -c ${FLOOD_MB}M /dev/zero > /proc/1/fd/$fd; truncate -s ${FLOOD_MB}M /proc/1/fd/$fd; done`, "root");
      const directory = join(node.home, "sandboxes", sandbox.sandboxId);
      const logs = readdirSync(directory).filter((name) => name.endsWith(".log"));
      assert.ok(logs.length > 0);
      for (const name of logs) assert.ok(statSync(join(directory, name)).size < LOG_BYTES, `${name}: ${statSync(join(directory, name)).size} bytes`);
    });

    void test("the host's files cannot be reached through other processes' roots and directories", async () => {
      const secret = join(node.home, "secrets");
      assert.ok(readdirSync(secret).length > 0);
      for (const door of [
        "",
        "/proc/1/root",
        "/proc/1/cwd/../../../..",
        "/proc/self/root/../..",
        "/proc/1/root/.svc/../../..",
        "/proc/1/fd/3",
        "/proc/thread-self/cwd/../../../../..",
      ]) {
        const { out } = await run(`ls -d ${door}${secret} ${door}${node.home} ${door}/proc/1/root${node.home} 2>/dev/null`, "root");
        assert.equal(out, "", `by way of ${door}`);
      }
      // Some kernels do not even let root list this directory, and then there is nothing to compare.
      const { out: first } = await run("ls /proc/1/root/", "root");
      if (first !== "") assert.equal(first, (await run("ls /", "root")).out);
      assert.match((await run("tr '\\0' ' ' < /proc/1/cmdline", "root")).out, /envd/, "pid 1 is the sandbox's own");
      const { out: hosts } = await run("cat /proc/[0-9]*/comm | sort -u", "root");
      assert.doesNotMatch(hosts, /^(systemd|node|MainThread|dockerd|containerd|runsc|runc|bwrap)$/m);
    });

    void test("no process that the node started has a secret of the node's environment", () => {
      const holding = readdirSync("/proc").filter((pid) => {
        if (!/^\d+$/.test(pid) || Number(pid) === node.pid) return false;
        try {
          const environment = readFileSync(`/proc/${pid}/environ`, "latin1");
          return Object.values(secrets).some((secret) => environment.includes(secret));
        } catch {
          return false; // ended meanwhile, or a kernel thread
        }
      });
      const names = holding.map((pid) => readFileSync(`/proc/${pid}/cmdline`, "latin1").replaceAll("\0", " "));
      assert.deepEqual(names, []);
    });

    void test("no secret of the node appears in an environment or a command line", async () => {
      const { out } = await run("cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; env; ls -R /.svc /run", "root");
      const token = (sandbox as unknown as { envdAccessToken?: string }).envdAccessToken;
      for (const secret of [...Object.values(secrets), ...(token === undefined ? [] : [token])]) assert.ok(!out.includes(secret));
      const names = (await run("tr '\\0' '\\n' < /proc/1/environ | cut -d= -f1", "root")).out.split("\n");
      assert.deepEqual(
        names.filter((name) => !["PATH", "HOME", "LANG", "HOSTNAME", "PWD", ""].includes(name)),
        [],
      );
    });
  });
}
