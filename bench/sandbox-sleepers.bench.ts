// Sandboxes that hold state and sleep, more of them than memory could hold awake, woken by traffic in random order at a steady rate.
//
// SVC_BENCH_SLEEPERS (60; 0: only the small one), SVC_BENCH_SLEEPER_MB (200), SVC_BENCH_WAKES (all). Asked were 300 of 200 MB, 60 GB of disk.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { startNode, type TestNode } from "@svc/harness/node.ts";
import { Sandbox } from "e2b";
import { availableBytes } from "./density.ts";
import { median, percentile, type Row, report } from "./report.ts";

const number = (name: string, otherwise: number) => Number(process.env[name] ?? otherwise);
const SLEEPERS = number("SVC_BENCH_SLEEPERS", 60);
const HEAP_MB = number("SVC_BENCH_SLEEPER_MB", 200);
const WAKES = Math.min(SLEEPERS, number("SVC_BENCH_WAKES", SLEEPERS));
const SMALL_ROUNDS = 25;
const PER_SECOND = 2;
/** Then whoever was woken sleeps again. */
const IDLE_SECONDS = 10;
const PORT = 8000;
const ASLEEP_MS = 60_000;
const FILLED_AT_ONCE = 2;

/** Holds random memory, says the checksum of each MiB of it when it begins, and of one that it is asked for. */
const holder = `import hashlib, http.server, mmap, os, sys
MB = 1 << 20
many = int(sys.argv[1])
heap = mmap.mmap(-1, many * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(many): heap[at * MB:(at + 1) * MB] = os.urandom(MB)
sum = lambda at: hashlib.sha256(heap[at * MB:(at + 1) * MB]).hexdigest()
open("/tmp/sums", "w").write("\\n".join(sum(at) for at in range(many)))
class Say(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = sum(int(self.path[1:])).encode()
        self.send_response(200); self.send_header("content-length", str(len(text))); self.end_headers(); self.wfile.write(text)
    def log_message(self, *_): pass
server = http.server.HTTPServer(("", ${PORT}), Say)
open("/tmp/ready", "w").close()
server.serve_forever()`;

type Sleeper = { readonly sandbox: Sandbox; readonly sums: readonly string[] };

async function filled(node: TestNode, heapMB: number): Promise<Sleeper> {
  const sandbox = await Sandbox.create("base", {
    apiUrl: node.url,
    sandboxUrl: node.url,
    apiKey: node.apiKey,
    timeoutMs: 3_000_000,
    lifecycle: { onTimeout: "pause", autoResume: true },
  });
  await sandbox.files.write("/home/user/holder.py", holder);
  await sandbox.commands.run(`python3 holder.py ${heapMB} > /dev/null 2>&1 & disown; until [ -e /tmp/ready ]; do sleep 0.1; done`);
  return { sandbox, sums: (await sandbox.files.read("/tmp/sums")).split("\n") };
}

/** By traffic to its port, as anybody's request. @throws when what it remembers is not what it had. */
async function askedMs(node: TestNode, { sandbox, sums }: Sleeper): Promise<number> {
  const at = Math.floor(Math.random() * sums.length);
  const begin = performance.now();
  const answer = await fetch(`${node.url}/${at}`, { headers: { "e2b-sandbox-id": sandbox.sandboxId, "e2b-sandbox-port": String(PORT) } });
  const text = await answer.text();
  const ms = performance.now() - begin;
  if (answer.status !== 200) throw new Error(`${answer.status}: ${text.slice(0, 200)}`);
  if (text !== sums[at]) throw new Lost(`MiB ${at} of ${sandbox.sandboxId} has another checksum`);
  return ms;
}

class Lost extends Error {}

async function smallHeaps(): Promise<{ rows: Row[]; raw: Record<string, unknown> }> {
  await using node = await startNode({ runtime: "gvisor", flags: ["--network.pool_size=4", "--pool.precreated=2"] });
  const sleeper = await filled(node, 4);
  const times: number[] = [];
  for (let round = 0; round < SMALL_ROUNDS; round++) {
    await sleeper.sandbox.pause();
    await sleep(600);
    times.push(await askedMs(node, sleeper));
  }
  const row = (name: string, share: number, atMost: number): Row => ({
    what: `wake by traffic to its answer, small heap: ${name}`,
    value: percentile(times, share),
    unit: "ms",
    goal: { atMost },
    samples: SMALL_ROUNDS,
  });
  return { rows: [row("p50", 0.5, 110), row("p95", 0.95, 180)], raw: { smallWakeMs: times } };
}

async function crowd(): Promise<{ rows: Row[]; raw: Record<string, unknown> }> {
  const flags = ["--network.pool_size=4", "--pool.precreated=2", `--sandbox.memory_mb=${2 * HEAP_MB + 128}`, `--sandbox.idle_pause_seconds=${IDLE_SECONDS}`];
  await using node = await startNode({ runtime: "gvisor", flags: [...flags, `--sandbox.max_sandboxes=${SLEEPERS + 20}`] });
  const sleepers: Sleeper[] = [];
  const before = availableBytes();
  const begin = performance.now();
  const fill = async () => {
    while (sleepers.length < SLEEPERS) {
      const place = sleepers.push(undefined as never) - 1;
      const sleeper = await filled(node, HEAP_MB);
      sleepers[place] = sleeper;
      await sleeper.sandbox.pause();
    }
  };
  await Promise.all(Array.from({ length: FILLED_AT_ONCE }, fill));
  const filledS = (performance.now() - begin) / 1000;
  const asleep = await asleepOf(node);
  const order = [...sleepers].sort((a, b) => hashOf(a).localeCompare(hashOf(b))).slice(0, WAKES);
  const times: number[] = [];
  const failures: string[] = [];
  let lost = 0;
  let least = availableBytes();
  const loads: number[] = [];
  const asked = order.map(async (sleeper, index) => {
    await sleep((index * 1000) / PER_SECOND);
    loads.push(Number(readFileSync("/proc/loadavg", "utf8").split(" ")[0]));
    least = Math.min(least, availableBytes());
    await askedMs(node, sleeper).then(
      (ms) => times.push(ms),
      (error: unknown) => {
        if (error instanceof Lost) lost++;
        failures.push(String(error));
      },
    );
  });
  await Promise.all(asked);
  // Those that sleep again, with what they changed since: nothing is lost the second time either.
  await untilAsleep(node, SLEEPERS - 2);
  const again: number[] = [];
  for (const sleeper of order.slice(0, Math.min(20, order.length))) again.push(await askedMs(node, sleeper));
  const what = `${SLEEPERS} sandboxes of ${HEAP_MB} MB, ${asleep} asleep, ${WAKES} woken at ${PER_SECOND} a second`;
  const note = `filled in ${filledS.toFixed(0)} s; ${(before / 1e9).toFixed(1)} GB of memory available before, ${(least / 1e9).toFixed(1)} at least meanwhile; load ${Math.min(...loads)} to ${Math.max(...loads)}`;
  return {
    rows: [
      { what: `${what}: failures`, value: failures.length, unit: "", goal: { atMost: 0 }, samples: WAKES, note: failures[0] ?? note },
      { what: `${what}: lost state`, value: lost, unit: "", goal: { atMost: 0 }, samples: WAKES },
      { what: "the same: from traffic to its answer, p50", value: median(times), unit: "ms", samples: times.length },
      { what: "the same: p95", value: percentile(times, 0.95), unit: "ms", samples: times.length, note: `slowest ${Math.max(...times).toFixed(0)} ms` },
      { what: "woken once more, one after the other: p50", value: median(again), unit: "ms", samples: again.length },
    ],
    raw: { wakeMs: times, againMs: again, failures, loads },
  };
}

const hashOf = ({ sandbox }: Sleeper) => createHash("sha256").update(sandbox.sandboxId).digest("hex");

async function asleepOf(node: TestNode): Promise<number> {
  const answer = await fetch(`${node.url}/v2/sandboxes?state=paused&limit=100`, { headers: { "x-api-key": node.apiKey } });
  let count = ((await answer.json()) as unknown[]).length;
  for (let next = answer.headers.get("x-next-token"); next !== null && next !== ""; ) {
    const more = await fetch(`${node.url}/v2/sandboxes?state=paused&limit=100&nextToken=${encodeURIComponent(next)}`, {
      headers: { "x-api-key": node.apiKey },
    });
    count += ((await more.json()) as unknown[]).length;
    next = more.headers.get("x-next-token");
  }
  return count;
}

async function untilAsleep(node: TestNode, count: number): Promise<void> {
  const end = performance.now() + ASLEEP_MS;
  while ((await asleepOf(node)) < count && performance.now() < end) await sleep(500);
}

const small = await smallHeaps();
const large = SLEEPERS === 0 ? { rows: [], raw: {} } : await crowd();
report("sandbox-sleepers", [...small.rows, ...large.rows], { ...small.raw, ...large.raw });
