// Drives whichever release of the E2B JavaScript SDK lies in SVC_TEST_SDK: what its users do, a word for each; prints one line of JSON.
import assert from "node:assert/strict";
import dns from "node:dns";
import { createRequire } from "node:module";
import { join } from "node:path";

type Command = { readonly stdout: string };
type Listed = { readonly sandboxId: string };
type Pages = { readonly hasNext: boolean; nextItems(): Promise<readonly Listed[]> };
/** The members of a sandbox in releases 1 to 2; no single release has all of them. */
type Sandbox = {
  readonly sandboxId: string;
  readonly commands: {
    run(command: string, options?: object): Promise<Command & { readonly pid: number; kill(): Promise<boolean> }>;
    list(): Promise<readonly { pid: number }[]>;
  };
  readonly files: {
    write(path: string, text: string): Promise<unknown>;
    read(path: string): Promise<string>;
    list(path: string): Promise<readonly { name: string }[]>;
    exists(path: string): Promise<boolean>;
  };
  isRunning(): Promise<boolean>;
  pause?(): Promise<unknown>;
  betaPause?(): Promise<unknown>;
  connect?(): Promise<Sandbox>;
  fork?(options: object): Promise<readonly (Sandbox | { sandbox?: Sandbox })[]>;
  kill(): Promise<unknown>;
};
type SandboxClass = {
  create(template: string, options?: object): Promise<Sandbox>;
  connect(sandboxId: string, options?: object): Promise<Sandbox>;
  resume?(sandboxId: string, options?: object): Promise<Sandbox>;
  list(): Promise<readonly Listed[]> | Pages;
};
type TemplateClass = { (): { fromTemplate(name: string): { runCmd(command: string): object } }; build(template: object, ...rest: unknown[]): Promise<unknown> };

const ABSENT = Symbol("this release has no such call");
const { E2B_DOMAIN: domain = "", SVC_TEST_SDK: folder = "", SVC_TEST_NAME: templateName = "" } = process.env;

if (domain !== "") {
  // Every name below the domain resolves to this machine, as DNS would do in a real deployment.
  const [name = ""] = domain.split(":");
  const lookup = dns.lookup as (host: string, ...rest: unknown[]) => void;
  Object.assign(dns, { lookup: (host: string, ...rest: unknown[]) => lookup(host.endsWith(name) ? "127.0.0.1" : host, ...rest) });
}

const { Sandbox, Template } = createRequire(join(folder, "package.json"))("e2b") as { Sandbox: SandboxClass; Template?: TemplateClass };
let sandbox: Sandbox;
let isPaused = false;

async function listed(): Promise<readonly string[]> {
  const found = await Sandbox.list();
  if (Array.isArray(found)) return (found as readonly Listed[]).map(({ sandboxId }) => sandboxId);
  const pages = found as Pages;
  const ids: string[] = [];
  while (pages.hasNext) ids.push(...(await pages.nextItems()).map(({ sandboxId }) => sandboxId));
  return ids;
}

/** Releases before 1.5 append the client's id to a sandbox's id. */
const bare = (sandboxId: string) => sandboxId.split("-")[0];
const kept = async (other: Sandbox) => assert.equal((await other.commands.run("cat note")).stdout, "kept");

const steps: Record<string, () => Promise<unknown>> = {
  async create() {
    sandbox = await Sandbox.create("base", { timeoutMs: 300_000, metadata: { by: "drive" } });
  },
  async commands() {
    assert.equal((await sandbox.commands.run("echo $((6*7)); whoami")).stdout, "42\nuser\n");
    const handle = await sandbox.commands.run("sleep 1000", { background: true });
    assert.ok((await sandbox.commands.list()).some(({ pid }) => pid === handle.pid));
    assert.ok(await handle.kill());
  },
  async files() {
    await sandbox.files.write("note", "kept");
    assert.equal(await sandbox.files.read("note"), "kept");
    assert.ok((await sandbox.files.list("/home/user")).some(({ name }) => name === "note"));
    assert.ok(await sandbox.files.exists("note"));
  },
  async list() {
    assert.ok((await listed()).some((each) => bare(each) === bare(sandbox.sandboxId)));
  },
  async is_running() {
    assert.ok(await sandbox.isRunning());
  },
  async connect() {
    const again = await Sandbox.connect(sandbox.sandboxId);
    assert.equal(await again.files.read("note"), "kept");
    await kept(again);
  },
  async pause() {
    const pause = sandbox.pause ?? sandbox.betaPause;
    if (pause === undefined) return ABSENT;
    await pause.call(sandbox);
    isPaused = true;
  },
  async resume() {
    if (!isPaused) return ABSENT;
    const resumed = await (Sandbox.resume === undefined ? Sandbox.connect : Sandbox.resume).call(Sandbox, sandbox.sandboxId, { timeoutMs: 300_000 });
    await kept(resumed);
  },
  async fork() {
    if (sandbox.fork === undefined) return ABSENT;
    const [first] = await sandbox.fork({ count: 1 });
    const fork = ((first as { sandbox?: Sandbox }).sandbox ?? first) as Sandbox;
    await kept(fork);
    await fork.kill();
  },
  async template() {
    if (Template === undefined) return ABSENT;
    const template = Template().fromTemplate("base").runCmd("echo built > /home/user/built");
    // Older releases take the name as an option, and request a build without one otherwise.
    await Template.build(template, templateName).catch(() => Template.build(template, { alias: templateName }));
    const made = await Sandbox.create(templateName, { timeoutMs: 120_000 });
    assert.equal((await made.commands.run("cat built")).stdout, "built\n");
    await made.kill();
  },
  async kill() {
    // Releases before 1.3 return nothing.
    assert.notEqual(await sandbox.kill(), false);
    assert.equal(await sandbox.isRunning(), false);
  },
};

const said: Record<string, string> = {};
for (const step of process.argv.slice(2)) {
  try {
    said[step] = (await steps[step]?.()) === ABSENT ? "absent" : "yes";
  } catch (error) {
    said[step] = String(error).slice(0, 400);
    if (step === "create") break;
  }
}
console.log(JSON.stringify(said));
process.exit();
