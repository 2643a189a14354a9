// The spawn helper: results, limits, and its own death.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempDisposableSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { openSpawner } from "../src/spawn.ts";

void test("a program's code, output and input pass through the helper", async () => {
  await using spawner = openSpawner();
  assert.equal(await spawner.check(["echo", "hello"]), "hello\n");
  assert.deepEqual(await spawner.run(["sh", "-c", "cat; echo oops >&2; exit 3"], { input: "abc" }), { code: 3, signal: null, stdout: "abc", stderr: "oops\n" });
});

void test("a program that fails, is missing, or does not end is a failure that names it", async () => {
  await using spawner = openSpawner();
  await assert.rejects(spawner.check(["sh", "-c", "echo because >&2; exit 1"]), /exit 1.*ended with 1: because/);
  await assert.rejects(spawner.check(["no-such-program-here"]), /no-such-program-here/);
  await assert.rejects(spawner.run(["sleep", "60"], { timeoutMs: 50 }), { name: "TIMED_OUT" });
});

void test("when the helper is killed, running calls that are not repeatable fail, and the next call gets a new helper", async () => {
  await using spawner = openSpawner();
  await spawner.check(["true"]);
  const waiting = spawner.run(["sleep", "60"]);
  await until("it runs", () => (childrenOf(childNamed("spawn-helper")).length > 0 ? true : undefined));
  process.kill(childNamed("spawn-helper"), "SIGKILL");
  await assert.rejects(waiting, /spawn helper ended/);
  assert.equal(await spawner.check(["echo", "again"]), "again\n");
});

void test("a repeatable call survives the helper's death, and a second one", async () => {
  await using spawner = openSpawner();
  using folder = mkdtempDisposableSync(join(tmpdir(), "svc-spawn-"));
  const gate = join(folder.path, "gate");
  const waiting = spawner.run(["sh", "-c", `echo begun >> ${gate}.log; until [ -e ${gate} ]; do sleep 0.05; done; echo done`], { repeatable: true });
  for (let begun = 1; begun <= 2; begun++) {
    await until("it runs", () => (existsSync(`${gate}.log`) && readFileSync(`${gate}.log`, "utf8").length === begun * "begun\n".length ? true : undefined));
    process.kill(childNamed("spawn-helper"), "SIGKILL");
  }
  await until("it runs again", () => (readFileSync(`${gate}.log`, "utf8").length === 3 * "begun\n".length ? true : undefined));
  writeFileSync(gate, "");
  assert.equal((await waiting).stdout, "done\n");
});

void test("each call ends with the helper it was given to, even if another replaces it before its exit is known", async () => {
  await using spawner = openSpawner();
  const parent = ["sh", "-c", "echo $PPID"];
  const gone: number[] = [];
  for (let round = 0; round < 6; round++) {
    const killed = Number(await spawner.check(parent));
    assert.ok(!gone.includes(killed), "the next helper takes calls at once");
    gone.push(killed);
    const under: Promise<unknown>[] = Array.from({ length: 3 }, () => spawner.run(["sleep", "1000"]));
    let ended = false;
    const ends = Promise.allSettled(under).finally(() => (ended = true));
    await until("they run", () => (childrenOf(killed).length === under.length ? true : undefined));
    process.kill(killed, "SIGKILL");
    // Some of these calls meet an open channel, some a closed one, some the next helper.
    const later: Promise<string>[] = [];
    for (const deadlineMs = performance.now() + 60_000; !ended && performance.now() < deadlineMs; await new Promise((resolve) => setImmediate(resolve))) {
      if (later.length < 900) later.push(spawner.check(parent).then(String, (error: Error) => error.message));
    }
    assert.ok(ended, "calls of the helper that was killed have ended");
    for (const end of await ends) assert.ok(end.status === "rejected" && /spawn helper ended/.test(String(end.reason)), JSON.stringify(end));
    for (const said of await Promise.all(later)) assert.ok(/spawn helper ended/.test(said) || (Number(said) > 0 && Number(said) !== killed), said);
  }
});

void test("programs of a helper end with it, and so do those of a server that is gone; a program with its own session continues", async () => {
  using folder = mkdtempDisposableSync(join(tmpdir(), "svc-spawn-"));
  const started = (name: string) => {
    const file = join(folder.path, name);
    return until(`${name} to run`, () => (existsSync(file) && readFileSync(file, "utf8").endsWith("\n") ? Number(readFileSync(file, "utf8")) : undefined));
  };
  const isGone = (pid: number) => until(`the end of ${pid}`, () => (existsSync(`/proc/${pid}`) && !/^\d+ .*\) Z/.test(statOf(pid)) ? undefined : true));
  await using spawner = openSpawner();
  await spawner.check(["setsid", "--fork", "sh", "-c", `echo $$ > ${folder.path}/own; exec sleep 1000`], { outputFile: join(folder.path, "log") });
  const own = await started("own");
  const waiting = spawner.run(["sh", "-c", `echo $$ > ${folder.path}/killed; exec sleep 1000`]).catch(() => undefined);
  const killed = await started("killed");
  process.kill(childNamed("spawn-helper"), "SIGKILL");
  await waiting;
  await isGone(killed);

  const script = `import { openSpawner } from ${JSON.stringify(import.meta.resolve("../src/spawn.ts"))};
    await openSpawner().run(["sh", "-c", "echo $$ > ${folder.path}/left; exec sleep 1000"]);`;
  const server = spawn(process.execPath, ["--input-type=module", "-e", script], { stdio: "ignore" });
  const left = await started("left");
  server.kill("SIGKILL");
  await isGone(left);
  assert.ok(existsSync(`/proc/${own}`));
  process.kill(own, "SIGKILL");
});

void test("no secret of a server's environment reaches the programs it runs", async () => {
  process.env["SVC_API_KEY"] = "sdk_secret";
  process.env["AWS_SECRET_ACCESS_KEY"] = "secret";
  try {
    await using spawner = openSpawner();
    const names = (await spawner.check(["env"])).split("\n").map((line) => line.split("=")[0]);
    assert.ok(names.includes("PATH"));
    assert.deepEqual(
      names.filter((name) => /SVC|AWS/.test(name ?? "")),
      [],
    );
    assert.doesNotMatch(readFileSync(`/proc/${childNamed("spawn-helper")}/environ`, "latin1"), /secret/);
  } finally {
    delete process.env["SVC_API_KEY"];
    delete process.env["AWS_SECRET_ACCESS_KEY"];
  }
});

function statOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/stat`, "latin1");
  } catch {
    return `${pid} () Z`;
  }
}

function childrenOf(pid: number): string[] {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean);
}

/** The child of this process whose command line contains `word`. */
function childNamed(word: string): number {
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const parent = / (\d+) /.exec(readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) \S/, ""))?.[1];
      if (parent === String(process.pid) && readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(word)) return Number(pid);
    } catch {
      // The process has ended meanwhile.
    }
  }
  throw new Error(`no child with ${word}`);
}
