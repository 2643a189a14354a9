// The router's cost per request: a chat of 4 KiB to a hundred addresses on four processes, beside other routers in the same run, interleaved.
import { Agent, request } from "node:http";
import { cpuSeconds, peakBytes } from "./process-usage.ts";
import { median, percentile, progress, type Row, report } from "./report.ts";
import { type Router, World } from "./router-routers.ts";

const ROUNDS = Number(process.env["SVC_BENCH_ROUNDS"] ?? 9);
const ONE_BY_ONE = 200;
const AT_ONCE = 16;
const BURST = 1_500;
const PROMPTS = 64;

type Target = { readonly name: string; readonly url: string; readonly pid: number | undefined; readonly isOurs: boolean; readonly kind: "chat" | "ids" };

const agent = new Agent({ keepAlive: true, maxSockets: AT_ONCE, noDelay: true } as never);
const chats = Array.from({ length: PROMPTS }, (_, at) =>
  JSON.stringify({ model: "m", messages: [{ role: "user", content: `${at} ${"lorem ipsum ".repeat(400)}`.slice(0, 4_000) }] }),
);
const ids = Array.from({ length: PROMPTS }, (_, at) => JSON.stringify({ model: "m", prompt: Array.from({ length: 1_024 }, (_unused, token) => token + at) }));

function send(target: Target, at: number): Promise<void> {
  const [path, bodies] = target.kind === "chat" ? ["/v1/chat/completions", chats] : ["/v1/completions", ids];
  const body = bodies[at % PROMPTS] as string;
  return new Promise((resolve, reject) => {
    const asking = request(
      target.url + path,
      { agent, method: "POST", headers: { "content-type": "application/json", "content-length": Buffer.byteLength(body) } },
      (answer) => {
        if (answer.statusCode !== 200) reject(new Error(`${target.name} answered ${answer.statusCode}`));
        answer.resume().once("end", resolve);
      },
    );
    asking.on("error", reject);
    asking.end(body);
  });
}

async function latencies(target: Target): Promise<number[]> {
  const taken: number[] = [];
  for (let at = 0; at < ONE_BY_ONE; at++) {
    const begin = performance.now();
    await send(target, at);
    taken.push(performance.now() - begin);
  }
  return taken;
}

/** Processor time of a request in microseconds, and how many were answered in a second. */
async function burst(target: Target): Promise<{ cpu: number; rate: number }> {
  const before = target.pid === undefined ? 0 : cpuSeconds(target.pid);
  const begin = performance.now();
  let next = 0;
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      while (next < BURST) await send(target, next++);
    }),
  );
  const after = target.pid === undefined ? 0 : cpuSeconds(target.pid);
  return { cpu: ((after - before) * 1e6) / BURST, rate: BURST / ((performance.now() - begin) / 1000) };
}

await using world = new World();
const { urls } = await world.engines(4, 25);
const all = urls.flat();
const svc = await world.svc(all);
const withIndexer = await world.svc(all, [`--indexer=${await world.indexer()}`], "svc router with its indexer");
const peers = [await world.peer("sglang-router", all), await world.peer("vllm-router", all)].filter((one): one is Router => one !== undefined);
const direct: Target = { name: "direct", url: all[0] as string, pid: undefined, isOurs: false, kind: "chat" };
const targets: Target[] = [
  ...[svc, withIndexer, ...peers].map((router): Target => ({ ...router, kind: "chat" })),
  { ...withIndexer, name: `${withIndexer.name}, token ids`, kind: "ids" },
];
const measured = new Map(
  [direct, ...targets].map((target) => [target.name, { p50: [] as number[], p99: [] as number[], cpu: [] as number[], rate: [] as number[] }]),
);
for (const target of [direct, ...targets]) await burst(target);
for (let round = 0; round < ROUNDS; round++) {
  for (const target of [direct, ...targets]) {
    const into = measured.get(target.name) as NonNullable<ReturnType<typeof measured.get>>;
    const taken = await latencies(target);
    into.p50.push(median(taken));
    into.p99.push(percentile(taken, 0.99));
    const { cpu, rate } = await burst(target);
    into.cpu.push(cpu);
    into.rate.push(rate);
  }
  progress(`round ${round + 1} of ${ROUNDS}`);
}
const of = (name: string) => measured.get(name) as NonNullable<ReturnType<typeof measured.get>>;
// Each run is compared with the direct one of its round.
const added = (name: string) => median(of(name).p50.map((value, round) => value - (of(direct.name).p50[round] as number)));
const cheapest = peers.length === 0 ? undefined : peers.reduce((best, one) => (median(of(one.name).cpu) < median(of(best.name).cpu) ? one : best));
const rows: Row[] = targets.flatMap((target) => {
  const goal = !target.isOurs ? {} : { goal: { atMost: target.kind === "ids" ? 0.5 : 1 } };
  const { cpu, rate, p99 } = of(target.name);
  return [
    {
      what: `added to a request, p50: ${target.name}`,
      value: added(target.name),
      unit: "ms",
      samples: ROUNDS,
      note: `p99 ${median(p99).toFixed(2)} ms in all`,
      ...goal,
    },
    {
      what: `CPU of a request: ${target.name}`,
      value: median(cpu),
      unit: "us",
      samples: ROUNDS,
      note: `${Math.round(median(rate))} requests/s with ${AT_ONCE} at once`,
    },
  ];
});
if (cheapest !== undefined)
  for (const { name } of [svc, withIndexer])
    rows.push({
      what: `CPU of a request: ${name} to ${cheapest.name}`,
      value: median(of(name).cpu.map((value, round) => value / (of(cheapest.name).cpu[round] as number))),
      unit: "times",
      goal: { atMost: 1.25 },
      samples: ROUNDS,
    });
for (const { name, pid } of [svc, withIndexer, ...peers])
  rows.push({ what: `peak resident size: ${name}`, value: Math.round(peakBytes(pid) / 2 ** 20), unit: "MiB" });
report("router-requests", rows, Object.fromEntries(measured), ROUNDS < 5);
agent.destroy();
