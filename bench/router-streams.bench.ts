// A thousand streams of ten tokens a second through each router, and an engine that is killed under two hundred.
import { Agent, request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { median, percentile, progress, type Row, report } from "./report.ts";
import { type Router, World } from "./router-routers.ts";

const STREAMS = Number(process.env["SVC_BENCH_STREAMS"] ?? 1_000);
const ROUNDS = Number(process.env["SVC_BENCH_ROUNDS"] ?? 3);
const TOKEN_MS = 100;
const TOKENS = 80;
const KILLED_STREAMS = 200;
/** A client's sockets to one address; a thousand streams need as many. */
const agent = new Agent({ keepAlive: false, maxSockets: 20_000 });
const body = JSON.stringify({ model: "m", stream: true, max_tokens: TOKENS, messages: [{ role: "user", content: "count" }] });

type Stream = { readonly status: number; readonly text: string; readonly delaysMs: number[]; readonly engine: string; readonly broke: boolean };

function stream(url: string, onFirst: () => void = () => {}): Promise<Stream> {
  return new Promise((resolve) => {
    const delaysMs: number[] = [];
    let text = "";
    const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
    const asking = request(`${url}/v1/chat/completions`, { agent, method: "POST", headers }, (answer) => {
      const engine = String(answer.headers["x-svc-instance"] ?? "");
      const done = (broke: boolean) => resolve({ status: answer.statusCode ?? 0, text, delaysMs, engine, broke });
      answer.setEncoding("latin1").on("data", (chunk: string) => {
        if (text === "") onFirst();
        const now = process.hrtime.bigint();
        for (const [, sent = "0"] of chunk.matchAll(/"content":"(\d+)"/g)) delaysMs.push(Number(now - BigInt(sent)) / 1e6);
        text = (text + chunk).slice(-400);
      });
      answer.once("end", () => done(!answer.complete));
      answer.once("error", () => done(true));
    });
    asking.once("error", () => resolve({ status: 0, text, delaysMs, engine: "", broke: true }));
    asking.end(body);
  });
}

async function delays(url: string): Promise<number[]> {
  const running: Promise<Stream>[] = [];
  for (let at = 0; at < STREAMS; at++) {
    running.push(stream(url));
    if (at % 20 === 19) await sleep(20);
  }
  const all = await Promise.all(running);
  const bad = all.filter(({ status, broke }) => status !== 200 || broke).length;
  if (bad > 0) throw new Error(`${bad} of ${STREAMS} streams at ${url} failed`);
  return all.flatMap(({ delaysMs }) => delaysMs.slice(5));
}

await using world = new World();
const rows: Row[] = [];
const raw: Record<string, unknown> = {};
{
  const { urls } = await world.engines(2, 4, TOKEN_MS, TOKENS);
  const all = urls.flat();
  const svc = await world.svc(all);
  const peers = [await world.peer("sglang-router", all), await world.peer("vllm-router", all)].filter((one): one is Router => one !== undefined);
  const targets = [{ name: "direct", url: all[0] as string, isOurs: false }, svc, ...peers];
  const p99s = new Map(targets.map(({ name }) => [name, [] as number[]]));
  for (let round = 0; round < ROUNDS; round++)
    for (const { name, url } of targets) {
      const p99 = percentile(await delays(url), 0.99);
      p99s.get(name)?.push(p99);
      progress(`round ${round + 1}: ${name}: a token's delay p99 ${p99.toFixed(1)} ms`);
    }
  const direct = p99s.get("direct") as number[];
  rows.push({ what: `${STREAMS} streams, a token's delay, p99: direct`, value: median(direct), unit: "ms", samples: ROUNDS });
  for (const { name, isOurs } of targets.slice(1))
    rows.push({
      what: `${STREAMS} streams, added to a token's delay, p99: ${name}`,
      value: median((p99s.get(name) as number[]).map((value, round) => value - (direct[round] as number))),
      unit: "ms",
      samples: ROUNDS,
      ...(isOurs ? { goal: { atMost: 5 } } : {}),
    });
  raw["delays, p99, ms"] = Object.fromEntries(p99s);
}
{
  // Half of the streams are under way when their engine dies, and the other half have just been sent.
  const { urls, children } = await world.engines(2, 1, TOKEN_MS, TOKENS);
  const router = await world.svc(urls.flat(), ["--router.circuit_failures=3", "--router.tie_seconds=0"], "svc router");
  let begun = 0;
  const first = Array.from({ length: KILLED_STREAMS / 2 }, () => stream(router.url, () => begun++));
  while (begun < KILLED_STREAMS / 2) await sleep(10);
  const second = Array.from({ length: KILLED_STREAMS / 2 }, () => stream(router.url));
  children[0]?.kill("SIGKILL");
  const streams = await Promise.all([...first, ...second]);
  const whole = streams.filter(({ text }) => text.endsWith("data: [DONE]\n\n")).length;
  const named = streams.filter(({ text, status }) => /"error":\{/.test(text) || status >= 500).length;
  const silent = streams.length - whole - named;
  const lateFailed = (await Promise.all(second)).filter(({ text }) => !text.endsWith("data: [DONE]\n\n") && !/"content"/.test(text)).length;
  rows.push(
    { what: "an engine killed under 200 streams: without a byte before, and failed", value: lateFailed, unit: "streams", goal: { atMost: 0 } },
    {
      what: "an engine killed under 200 streams: ended without a word",
      value: silent,
      unit: "streams",
      goal: { atMost: 0 },
      note: `${whole} whole, ${named} with an error`,
    },
  );
  const after = await Promise.all(Array.from({ length: 50 }, () => stream(router.url)));
  rows.push({
    what: "an engine killed under 200 streams: requests that failed afterwards",
    value: after.filter(({ text }) => !text.endsWith("[DONE]\n\n")).length,
    unit: "requests",
    goal: { atMost: 0 },
  });
}
report("router-streams", rows, raw, STREAMS < 1_000 || ROUNDS < 3);
agent.destroy();
