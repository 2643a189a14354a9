// A sandbox's log: paged without loss, bounded in bytes and rate, merged with envd's entries, kept for an hour after the end.
import assert from "node:assert/strict";
import { appendFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { openLog } from "@svc/kit/log.ts";
import { openSandboxLogs, type SandboxLogsOptions } from "@svc/sandbox/observe/sandbox-logs.ts";
import fc from "fast-check";

const log = openLog("test", "silent");
const sandboxID = "iabcdefghijklmnopqrs";

function open(options: Partial<SandboxLogsOptions> = {}, directory = mkdtempSync(join(tmpdir(), "svc-logs-"))) {
  const logs = openSandboxLogs({ directory, log, isKept: () => true, ...options });
  return {
    logs,
    directory,
    read: (query: Partial<Parameters<typeof logs.read>[1]> = {}) => logs.read(sandboxID, { limit: 1000, direction: "forward", ...query }),
    say: (message: string, kind: "lifecycle" | "process" | "network" = "network") => logs.write(sandboxID, { kind, level: "info", message }),
    [Symbol.dispose]() {
      logs.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

const entry = (seq: number, at: number, more: object = {}) => ({
  seq,
  at,
  ended: false,
  pid: 100 + seq,
  user: "user",
  command: `command ${seq}`,
  cut: false,
  exitCode: 0,
  status: "",
  millis: 0,
  ...more,
});

/** One step of the property test on a log. */
type Step =
  | { readonly do: "write"; readonly count: number }
  | { readonly do: "process"; readonly count: number; readonly lateMs: number }
  | { readonly do: "wait"; readonly ms: number }
  | { readonly do: "read" }
  | { readonly do: "restart" };
const steps = fc.array(
  fc.oneof(
    { weight: 4, arbitrary: fc.record({ do: fc.constant("write" as const), count: fc.integer({ min: 1, max: 10 }) }) },
    {
      weight: 3,
      arbitrary: fc.record({ do: fc.constant("process" as const), count: fc.integer({ min: 1, max: 20 }), lateMs: fc.integer({ min: -50, max: 400 }) }),
    },
    { weight: 3, arbitrary: fc.record({ do: fc.constant("wait" as const), ms: fc.integer({ min: 0, max: 300 }) }) },
    { weight: 3, arbitrary: fc.record({ do: fc.constant("read" as const) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("restart" as const) }) },
  ),
  { minLength: 1, maxLength: 40 },
);

void test("paging through a log by timestamps returns each entry once, in either direction, for any page size", async () => {
  await fc.assert(
    fc.asyncProperty(steps, fc.integer({ min: 1, max: 7 }), async (plan: readonly Step[], limit) => {
      let now = 1_764_000_000_000;
      let seq = 0;
      const written: string[] = [];
      const options = { wallMs: () => now };
      let node = open(options);
      const { directory } = node;
      const followed: string[] = [];
      let cursor = 0;
      // A follower works like the clients: its next page begins one millisecond after the last entry of this one.
      const follow = async (pages: number) => {
        for (let page = 0; page < pages; page++) {
          const entries = await node.read({ limit, cursor });
          if (entries.length === 0) return;
          followed.push(...entries.map(({ message }) => message));
          cursor = Date.parse(entries.at(-1)?.timestamp ?? "") + 1;
        }
      };
      for (const step of plan) {
        if (step.do === "wait") now += step.ms;
        if (step.do === "write") {
          for (let count = 0; count < step.count; count++) {
            written.push(`w${written.length}`);
            node.say(written.at(-1) ?? "", "lifecycle");
          }
        }
        if (step.do === "process") {
          const entries = Array.from({ length: step.count }, () => {
            seq++;
            written.push(`process ${100 + seq} started by user: command ${seq}`);
            return entry(seq, now - step.lateMs);
          });
          await node.logs.writeProcesses(sandboxID, { run: "ab", entries }, 0);
        }
        if (step.do === "read") await follow(2);
        if (step.do === "restart") {
          node.logs.close();
          node = open(options, directory);
        }
      }
      await follow(10_000);
      const backward: string[] = [];
      let before: number | undefined;
      for (;;) {
        const page = await node.read({ limit, direction: "backward", cursor: before });
        if (page.length === 0) break;
        backward.push(...page.map(({ message }) => message));
        before = Date.parse(page.at(-1)?.timestamp ?? "");
      }
      const whole = await node.read({ limit: 1_000_000 });
      const times = whole.map(({ timestamp }) => timestamp);
      assert.equal(new Set(times).size, times.length, "two entries with one time");
      assert.deepEqual([...times].sort(), times);
      assert.deepEqual([...followed].sort(), [...written].sort());
      assert.deepEqual(
        backward.reverse(),
        whole.map(({ message }) => message),
      );
      node[Symbol.dispose]();
    }),
    { numRuns: 60 },
  );
});

void test("a log can be filtered by level, kind and text", async () => {
  using node = open();
  node.logs.write(sandboxID, { kind: "lifecycle", level: "info", message: "sandbox created" });
  node.logs.write(sandboxID, { kind: "lifecycle", level: "error", message: "pause failed: DISK full" });
  node.logs.writeDenial(sandboxID, { text: "10.0.0.1:443 denied: private range", fields: { address: "10.0.0.1", port: "443" } });
  assert.deepEqual(
    (await node.read({ level: "warn" })).map(({ level }) => level),
    ["error", "warn"],
  );
  assert.deepEqual(
    (await node.read({ search: "disk FULL" })).map(({ message }) => message),
    ["pause failed: DISK full"],
  );
  const [denied] = await node.read({ kind: "network" });
  assert.deepEqual(denied?.fields, { kind: "network", address: "10.0.0.1", port: "443" });
});

void test("a flood is cut, counted and reported, and the other kinds continue", async () => {
  let now = 1_764_000_000_000;
  using node = open({ wallMs: () => now });
  for (let count = 0; count < 50_000; count++) node.logs.writeDenial(sandboxID, { text: `denied ${count}` });
  node.say("sandbox paused", "lifecycle");
  const entries = await node.read();
  assert.equal(entries.filter(({ message }) => message.startsWith("denied ")).length, 200);
  assert.deepEqual(
    entries.filter(({ fields }) => fields["suppressed"] !== undefined).map(({ fields }) => fields["suppressed"]),
    ["49800"],
  );
  assert.ok(entries.some(({ message }) => message === "sandbox paused"));
  assert.equal(node.logs.suppressed.get("network"), 49_800);
  now += 10_000;
  node.logs.writeDenial(sandboxID, { text: "denied again" });
  assert.ok((await node.read()).some(({ message }) => message === "denied again"));
});

void test("a sandbox's log has two files of bounded size, readable by the node's user alone", async () => {
  let now = 1_764_000_000_000;
  using node = open({ wallMs: () => now, fileBytes: 100_000 });
  for (let count = 0; count < 2_000; count++) {
    now += 100;
    node.logs.write(sandboxID, {
      kind: "network",
      level: "warn",
      message: `${count} `.padEnd(3_000, "x"),
      fields: Object.fromEntries(Array.from({ length: 40 }, (_, index) => [`f${index}`, "y".repeat(9_000)])),
    });
  }
  await node.read();
  const files = readdirSync(node.directory);
  assert.deepEqual(files.sort(), [`${sandboxID}.jsonl`, `${sandboxID}.jsonl.1`]);
  for (const file of files) {
    const { size, mode } = statSync(join(node.directory, file));
    assert.ok(size < 170_000, `${file} has ${size} bytes`);
    assert.equal(mode & 0o777, 0o600);
  }
  assert.match((await node.read()).at(-1)?.message ?? "", /^1999 /);
});

void test("an entry of the sandbox's life is on disk immediately", async () => {
  using node = open();
  node.say("sandbox paused", "lifecycle");
  assert.match(readFileSync(join(node.directory, `${sandboxID}.jsonl`), "utf8"), /sandbox paused/);
});

void test("a line that a kill cut short loses no other line", async () => {
  using first = open();
  first.say("before", "lifecycle");
  appendFileSync(join(first.directory, `${sandboxID}.jsonl`), '{"t":1764000000000,"k":"network","l":"wa');
  const second = open({}, first.directory);
  second.say("after", "lifecycle");
  assert.deepEqual(
    (await second.read()).map(({ message }) => message),
    ["before", "after"],
  );
  second.logs.close();
});

void test("processes are listed once, even after a restart of the node, and a new envd starts its own count", async () => {
  const now = Date.now();
  using node = open();
  const page = { run: "aa", entries: [entry(1, now - 500), entry(2, now - 400, { ended: true, exitCode: 3, status: "exit status 3", millis: 12 })] };
  await node.logs.writeProcesses(sandboxID, page, 0);
  await node.logs.writeProcesses(sandboxID, page, 0);
  node.logs.close();
  using again = open({}, node.directory);
  assert.equal(again.logs.processesKnown(sandboxID).seq, 2);
  await again.logs.writeProcesses(sandboxID, page, 0);
  await again.logs.writeProcesses(sandboxID, { run: "bb", entries: [entry(1, now - 100)] }, 0);
  assert.deepEqual(
    (await again.read()).map(({ message, level }) => [message, level]),
    [
      ["process 101 started by user: command 1", "info"],
      ["process 102 ended with exit status 3 after 12 ms: command 2", "warn"],
      ["process 101 started by user: command 1", "info"],
    ],
  );
});

void test("a fork's log has nothing of its source, and entries overwritten before they were read are reported", async () => {
  const now = Date.now();
  using node = open();
  await node.logs.writeProcesses(sandboxID, { run: "aa", entries: [entry(7, now - 5_000), entry(8, now - 100)] }, now - 1_000);
  assert.deepEqual(
    (await node.read()).map(({ fields }) => fields["pid"]),
    ["108"],
  );
  await node.logs.writeProcesses(sandboxID, { run: "aa", entries: [entry(50, now)] }, now - 1_000);
  assert.match((await node.read()).at(-1)?.message ?? "", /^41 entries of processes are missing here/);
});

void test("a process's name cannot control the terminal that shows the log", async () => {
  using node = open();
  await node.logs.writeProcesses(sandboxID, { run: "aa", entries: [entry(1, Date.now(), { command: "\u001b[2Jx\u202ey\n", user: "a\u0007b" })] }, 0);
  const text = JSON.stringify(await node.read());
  assert.ok(!/[\p{Cc}\p{Cf}]|\\u001b/u.test(text), text);
});

void test("the sweep removes the logs of sandboxes that are not kept, and nothing else", async () => {
  const kept = new Set([sandboxID]);
  using node = open({ isKept: (id) => kept.has(id) });
  node.say("here", "lifecycle");
  node.logs.write("igoneabcdefghijklmno", { kind: "lifecycle", level: "info", message: "gone" });
  writeFileSync(join(node.directory, "node.log"), "another server's");
  node.logs.sweep();
  assert.deepEqual(readdirSync(node.directory).sort(), [`${sandboxID}.jsonl`, "node.log"]);
  kept.clear();
  node.logs.sweep();
  assert.deepEqual(readdirSync(node.directory), ["node.log"]);
});

void test("an unwritable disk loses entries, but the node continues", async () => {
  const directory = mkdtempSync(join(tmpdir(), "svc-logs-"));
  using node = open({}, directory);
  node.say("before", "lifecycle");
  rmSync(directory, { recursive: true });
  node.say("lost", "lifecycle");
  assert.deepEqual(await node.read(), []);
});

void test("a log that cannot be opened loses entries, but does not fail the work that they describe", async () => {
  using node = open();
  // A folder takes the file's place.
  mkdirSync(join(node.directory, `${sandboxID}.jsonl`));
  mkdirSync(join(node.directory, `${sandboxID}.jsonl.1`));
  node.say("created", "lifecycle");
  rmSync(join(node.directory, `${sandboxID}.jsonl`), { recursive: true });
  rmSync(join(node.directory, `${sandboxID}.jsonl.1`), { recursive: true });
  node.say("another", "lifecycle");
  assert.deepEqual(
    (await node.read()).map(({ message }) => message),
    ["another"],
  );
});

void test("entries written while a long log is read come after the entries read, and other work continues meanwhile", async () => {
  using node = open();
  const lines = Array.from({ length: 5000 }, (_, index) => `{"t":${1_700_000_000_000 + index},"k":"network","l":"info","m":"line ${index}"}\n`);
  writeFileSync(join(node.directory, `${sandboxID}.jsonl`), lines.join(""));
  let ticks = 0;
  const ticking = setInterval(() => ticks++, 0);
  const reading = node.read({ search: "nothing like it" });
  await node.logs.writeProcesses(sandboxID, { run: "ab", entries: [entry(1, 1_700_000_000_001)] }, 0);
  assert.deepEqual(await reading, []);
  clearInterval(ticking);
  assert.ok(ticks > 0);
  const last = (await node.read({ limit: 6000 })).at(-1);
  assert.match(last?.message ?? "", /^process 101 started/);
});
