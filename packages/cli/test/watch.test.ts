// The verbs for observation, against a control plane: logs, events, metrics, without a terminal and on a real one.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import type { ServerResponse } from "node:http";
import { describe, test } from "node:test";
import { stripVTControlCharacters } from "node:util";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { KEY, type MoreRoutes, openControlPlane } from "./control-plane.ts";
import { openTerminal } from "./live.ts";
import { mainFile, openPlace } from "./svc.ts";

const answer = (response: ServerResponse, body: unknown) => {
  response.writeHead(200).end(JSON.stringify(body));
  return true;
};

async function open(more: MoreRoutes) {
  const server = await openControlPlane(more);
  const place = openPlace();
  const env = { SDK_API_KEY: KEY, SVC_URL: server.url, TZ: "UTC" };
  return {
    server,
    svc: (...args: string[]) => place.svc(args, { env }),
    spawn: (...args: string[]) => spawn(process.execPath, [mainFile, ...args], { env: place.env(env), stdio: ["ignore", "pipe", "pipe"] }),
    terminal: (...args: string[]) => openTerminal(args, place.env({ ...env, TERM: "xterm-256color", LANG: "C.UTF-8" }), place.directory),
    async [Symbol.asyncDispose]() {
      await place[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

const line = (ms: number, level: string, message: string, kind: string) => ({ timestamp: new Date(ms).toISOString(), level, message, fields: { kind } });
const LOG = [line(0, "info", "started", "lifecycle"), line(1500, "warn", "blocked by policy: \u001b[2J10.0.0.1", "network")];

function logsOf(asked: URLSearchParams[]): MoreRoutes {
  return (_request, response, url) => {
    if (!url.pathname.startsWith("/v2/sandboxes/")) return false;
    asked.push(url.searchParams);
    const cursor = Number(url.searchParams.get("cursor") ?? 0);
    return answer(response, { logs: LOG.filter(({ timestamp }) => Date.parse(timestamp) >= cursor) });
  };
}

void test("logs prints text, one JSON object a line with --output json, and nothing in it controls the terminal", async () => {
  const asked: URLSearchParams[] = [];
  await using it = await open(logsOf(asked));
  const json = (await it.svc("logs", "i1", "-o", "json")).stdout.trim().split("\n");
  assert.deepEqual(
    json.map((text) => JSON.parse(text)),
    LOG,
  );
  const text = await it.svc("logs", "i1", "--network", "--level", "warn", "--search", "policy", "--since", "1970-01-01T00:00:01Z");
  assert.equal(text.stdout, "1970-01-01 00:00:01.500  WARN   network    blocked by policy: ?[2J10.0.0.1\n");
  assert.equal(asked.at(-1)?.toString(), "limit=1000&direction=forward&level=warn&kind=network&search=policy&cursor=1000");
});

void test("logs --since takes a duration, and refuses anything else", async () => {
  const asked: URLSearchParams[] = [];
  await using it = await open(logsOf(asked));
  await it.svc("logs", "i1", "--since", "2h");
  const agoMs = Date.now() - Number(asked.at(-1)?.get("cursor"));
  assert.ok(agoMs >= 7_200_000 && agoMs < 7_400_000, String(agoMs));
  for (const wrong of ["yesterday", "5", "-1h", ""]) assert.equal((await it.svc("logs", "i1", "--since", wrong)).code, 2, wrong);
  assert.equal((await it.svc("logs", "i1", "--network", "--kind", "process")).code, 2);
});

const EVENTS = [
  { id: 3, type: "sandbox.created", at: "2026-01-31T09:05:00Z", sandboxID: "i1", templateID: "base", details: {} },
  { id: 4, type: "sandbox.ended", at: "2026-01-31T09:06:00Z", sandboxID: "i1", details: { reason: "oom" } },
];
const frame = (event: (typeof EVENTS)[number]) => `id: ${event.id}\nevent: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;

const eventsRoute: MoreRoutes = (request, response, url) => {
  if (url.pathname !== "/events") return false;
  const from = Number(request.headers["last-event-id"] ?? 4);
  const types = url.searchParams.get("types")?.split(",");
  response.writeHead(200, { "content-type": "text/event-stream" }).write(`id: ${from}\n\n`);
  for (const event of EVENTS) if (event.id > from && types?.includes(event.type) !== false) response.write(frame(event));
  return true;
};

void test("events prints the stored events of the requested types and ends, as text or as JSON", async () => {
  await using it = await open(eventsRoute);
  const all = await it.svc("events", "--output", "json");
  assert.deepEqual(
    [
      all.code,
      all.stdout
        .trim()
        .split("\n")
        .map((text) => JSON.parse(text).id),
    ],
    [0, [3, 4]],
  );
  const ended = (await it.svc("events", "--type", "ended")).stdout;
  assert.match(ended, /^2026-01-31 09:06:00\.000 {7}4 {2}sandbox\.ended +i1 {2}reason=oom\n$/);
  assert.equal((await it.svc("events", "--since", "4")).stdout, "");
  const wrong = await it.svc("events", "--type", "sandbox.exploded");
  assert.equal(wrong.code, 2);
  assert.match(wrong.stderr, /there is no event "sandbox\.exploded"; there are sandbox\.created,/);
});

void test("events -f continues until it is ended, and reports that the server is away", async () => {
  await using it = await open(eventsRoute);
  const child = it.spawn("events", "-f", "--since", "0", "-o", "json");
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (text) => (stdout += text));
  child.stderr.on("data", (text) => (stderr += text));
  await until("both events", () => (stdout.trim().split("\n").length === 2 ? true : undefined));
  await it.server[Symbol.asyncDispose]();
  await until("a word about the server", () => (stderr.includes("trying again until it answers") ? true : undefined));
  child.kill("SIGINT");
  await new Promise((resolve) => child.once("exit", resolve));
  assert.equal(stdout.trim().split("\n").length, 2);
  assert.equal(stderr.trim().split("\n").length, 1);
});

const sample = (second: number, cpuUsedPct: number) => ({
  timestamp: new Date(second * 1000).toISOString(),
  timestampUnix: second,
  cpuCount: 2,
  cpuUsedPct,
  memUsed: 512 * 1024 ** 2,
  memTotal: 1024 ** 3,
  memCache: 4096,
  diskUsed: 1024 ** 2,
  diskTotal: 1024 ** 3,
});

/** Each request for the newest sample gets one that is a second later. */
function metricsRoute(): MoreRoutes {
  let second = 100;
  return (_request, response, url) => {
    if (url.pathname === "/sandboxes/metrics") {
      const ids = (url.searchParams.get("sandbox_ids") ?? "").split(",");
      second++;
      return answer(response, { sandboxes: Object.fromEntries(ids.map((id, index) => [id, sample(second, 50 * (index + 1))])) });
    }
    if (url.pathname.endsWith("/metrics"))
      return answer(
        response,
        [10, 190].map((cpu, index) => sample(98 + index, cpu)),
      );
    return false;
  };
}

void test("svc metrics ID prints the newest sample and ends, the last hour with --history, and a line for each new sample with --watch", async () => {
  await using it = await open(metricsRoute());
  for (const _ of [1, 2]) await it.svc("start", "-d");
  assert.deepEqual(
    JSON.parse((await it.svc("metrics", "i1", "--history", "-o", "json")).stdout).map(({ cpuUsedPct }: { cpuUsedPct: number }) => cpuUsedPct),
    [10, 190],
  );
  assert.match((await it.svc("metrics", "i1", "--history")).stdout, /1970-01-01 00:01:39 +190\.0 % +200 % +512\.0 MiB +1\.0 GiB/);
  assert.match((await it.svc("metrics", "i1")).stdout, /^SANDBOX ID .*\ni1 +1970-01-01 00:01:4\d +50\.0 %[^\n]*\n$/);
  const several = await it.svc("metrics", "--all", "-o", "json");
  assert.deepEqual(
    JSON.parse(several.stdout).map(({ sandboxID }: { sandboxID: string }) => sandboxID),
    ["i1", "i2"],
  );
  const missing = await it.svc("metrics", "i1", "nobody");
  assert.equal(missing.code, 1);
  assert.match(missing.stderr, /there is no sandbox nobody/);
  const none = await it.svc("metrics", "nobody");
  assert.deepEqual([none.code, none.stdout], [1, ""], "no head of a table without rows");
  const child = it.spawn("metrics", "i1", "--watch", "-o", "json");
  let stdout = "";
  child.stdout.on("data", (text) => (stdout += text));
  await until("three samples", () => (stdout.trim().split("\n").length >= 3 ? true : undefined));
  it.server.sandboxes.clear();
  assert.equal(await new Promise((resolve) => child.once("exit", resolve)), 0, "it ends with its sandbox");
  const times = stdout
    .trim()
    .split("\n")
    .map((text) => JSON.parse(text).timestampUnix as number);
  assert.deepEqual(times, [...new Set(times)]);
  for (const wrong of [[], ["--all", "i1"], ["--history", "--all"], ["--history", "i1", "-w"]]) assert.equal((await it.svc("metrics", ...wrong)).code, 2);
});

void describe("the live view of metrics", needs("python3"), () => {
  void test("shows bars and history of one sandbox, follows the terminal's size, and q restores the terminal", async () => {
    await using it = await open(metricsRoute());
    await it.svc("start", "-d");
    using terminal = it.terminal("metrics", "i1", "-w");
    await terminal.sees("\u001b[?1049h");
    await terminal.sees("50.0 % of 200 %");
    await terminal.sees("▁█");
    await terminal.sees("512.0 MiB of 1.0 GiB");
    terminal.grow();
    await terminal.sees("\u001b[2J");
    await terminal.sees("50.0 % of 200 %");
    terminal.type("q");
    const { code, screen } = await terminal.end();
    assert.equal(code, 0);
    const [, after = ""] = screen.split("\u001b[?1049l");
    assert.match(stripVTControlCharacters(after), /CPU +█+░+ +50\.0 % of 200 %/, "what was shown last stays");
  });

  void test("shows many sandboxes with the busiest first, and Ctrl-C ends it", async () => {
    await using it = await open(metricsRoute());
    for (const _ of [1, 2]) await it.svc("start", "-d");
    using terminal = it.terminal("metrics", "--all", "-w");
    await terminal.sees("2 sandboxes");
    await terminal.sees("i2");
    await terminal.sees("100 %");
    await terminal.sees("i1");
    terminal.type("\u0003");
    assert.equal((await terminal.end()).code, 0);
  });

  void test("reports that the server is away, and shows its metrics again when it is back", async () => {
    let isAway = false;
    const figures = metricsRoute();
    await using it = await open((request, response, url, body) => {
      if (!isAway) return figures(request, response, url, body);
      response.destroy();
      return true;
    });
    await it.svc("start", "-d");
    using terminal = it.terminal("metrics", "i1", "-w");
    await terminal.sees("50.0 %");
    isAway = true;
    await terminal.sees("trying again");
    isAway = false;
    await terminal.sees("q or Ctrl-C ends");
    terminal.type("q");
    assert.equal((await terminal.end()).code, 0);
  });

  void test("a sandbox that is not there is reported in a line, and the terminal is not changed", async () => {
    await using it = await open(metricsRoute());
    using terminal = it.terminal("metrics", "nobody", "-w");
    const { code, screen } = await terminal.end();
    assert.equal(code, 1);
    assert.match(screen, /there is no sandbox nobody/);
    assert.ok(!screen.includes("\u001b[?1049h"));
  });
});
