// `svc template` against a control plane: what build sends and prints, on a terminal and without one, and the verbs for names.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { describe, test } from "node:test";
import { stripVTControlCharacters } from "node:util";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { KEY, type MoreRoutes, openControlPlane } from "./control-plane.ts";
import { openTerminal } from "./live.ts";
import { mainFile, openPlace } from "./svc.ts";

const answer = (response: ServerResponse, status: number, body?: unknown) => {
  response.writeHead(status).end(body === undefined ? undefined : JSON.stringify(body));
  return true;
};
const BUILD = "7b2d9c1e-52f0-4c7a-9a53-0d7a1f6e4c21";
const at = (ms: number, step: string, message: string) => ({ timestamp: new Date(ms).toISOString(), message, level: "info", step });
const LOG = [
  at(0, "base", "debian:trixie is here"),
  at(1000, "1", "[1/2] RUN apt-get update (cached)"),
  at(1500, "2", "[2/2] COPY app /app"),
  at(1600, "2", "\u001b[2Jcopying"),
];

/** A server whose builds are finished at the second status request. */
function builder(ends: "ready" | "error" | "never" = "ready") {
  const seen = { requests: [] as unknown[], files: new Map<string, number>(), polls: 0 };
  const routes: MoreRoutes = async (request, response, url, body) => {
    const [, first, , third, fourth, fifth] = url.pathname.split("/");
    if (url.pathname === "/v3/templates") {
      const asked = body();
      seen.requests.push(asked);
      return answer(response, 202, { templateID: "t1", buildID: BUILD, public: false, names: [asked["name"]], tags: ["default"], aliases: [] });
    }
    if (request.method === "PUT") {
      let bytes = 0;
      for await (const chunk of request) bytes += (chunk as Buffer).length;
      seen.files.set(url.searchParams.get("hash") ?? "", bytes);
      return answer(response, 200, {});
    }
    if (first === "templates" && third === "files") {
      const present = seen.files.has(fourth ?? "");
      return answer(response, 201, present ? { present } : { present, url: `/upload?hash=${fourth}` });
    }
    if (request.method === "DELETE" && third === "builds") {
      seen.requests.push(`${request.method} ${url.pathname}`);
      return answer(response, 204);
    }
    if (request.method === "POST" && first === "v2") {
      seen.requests.push(body());
      return answer(response, 202);
    }
    if (first === "templates" && fifth === "status") {
      const isOver = seen.polls++ > 0 && ends !== "never";
      const from = Number(url.searchParams.get("logsOffset"));
      const shown = isOver ? LOG : LOG.slice(0, 2);
      const reason = isOver && ends === "error" ? { reason: { message: "step 2: COPY app /app: no room", step: "2", logEntries: [] } } : {};
      return answer(response, 200, {
        templateID: "t1",
        buildID: BUILD,
        status: isOver ? ends : "building",
        logs: [],
        logEntries: shown.slice(from),
        ...reason,
      });
    }
    return false;
  };
  return { seen, routes };
}

async function open(routes: MoreRoutes) {
  const server = await openControlPlane(routes);
  const place = openPlace();
  const env = { SDK_API_KEY: KEY, SVC_URL: server.url };
  mkdirSync(join(place.directory, "My App/app"), { recursive: true });
  writeFileSync(join(place.directory, "My App/app/main.py"), "print(6*7)\n");
  writeFileSync(
    join(place.directory, "My App/Dockerfile"),
    'FROM debian:trixie\nRUN apt-get update\nCOPY app /app\nEXPOSE 80\nCMD ["python3", "/app/main.py"]\n',
  );
  return {
    svc: (args: string[], options: { input?: string; env?: Record<string, string> } = {}) => place.svc(args, { ...options, env: { ...env, ...options.env } }),
    spawn: (...args: string[]) =>
      spawn(process.execPath, [mainFile, ...args], { env: place.env(env), cwd: place.directory, stdio: ["ignore", "pipe", "pipe"] }),
    terminal: (...args: string[]) => openTerminal(args, place.env({ ...env, TERM: "xterm-256color" }), place.directory),
    async [Symbol.asyncDispose]() {
      await place[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

void test("template build sends the Dockerfile's plan and the files it names, and the second time only the plan", async () => {
  const { seen, routes } = builder();
  await using it = await open(routes);
  const first = await it.svc(["template", "build", "My App", "--ready-cmd", "true", "--cpu", "4", "--memory", "2048", "--disk", "8192", "--output", "json"]);
  assert.equal(first.code, 0, first.stderr);
  assert.deepEqual(JSON.parse(first.stdout), { templateID: "t1", buildID: BUILD, names: ["my-app"], tags: ["default"], status: "ready" });
  assert.match(
    first.stderr,
    /line 4: EXPOSE is left out[\s\S]*COPY app: \d+ B in [\s\S]*\[1\/2\] RUN apt-get update \(cached\)\n\[2\/2\] COPY app \/app\n {2}\?\[2Jcopying\n/,
  );
  const [request, build] = seen.requests as Record<string, unknown>[];
  assert.deepEqual(request, { name: "my-app", cpuCount: 4, memoryMB: 2048, minFreeDiskMb: 8192 });
  const [[hash = "", bytes = 0] = []] = [...seen.files];
  assert.ok(bytes > 0);
  assert.deepEqual(build, {
    fromImage: "debian:trixie",
    steps: [
      { type: "RUN", args: ["apt-get update"] },
      { type: "COPY", args: ["app", "/app", "root", ""], filesHash: hash },
    ],
    dockerfile: true,
    startCmd: "python3 /app/main.py",
    readyCmd: "true",
  });
  const again = await it.svc(["template", "build", "-n", "web:v2", "-q", "--no-cache", "My App"]);
  assert.deepEqual([again.stdout, again.stderr], ["t1\n", ""]);
  assert.equal(seen.files.size, 1);
  assert.equal((seen.requests.at(-1) as Record<string, unknown>)["force"], true);
});

void test("--image and --from replace the FROM of a given Dockerfile, and need no Dockerfile", async () => {
  const { seen, routes } = builder();
  await using it = await open(routes);
  await it.svc(["template", "build", "-n", "py", "--image", "python:3.13"]);
  assert.deepEqual(seen.requests.at(-1), { fromImage: "python:3.13", steps: [] });
  await it.svc(["template", "build", "-n", "py", "--from", "web", "--start-cmd", "./serve", "-d", "My App"]);
  const build = seen.requests.at(-1) as { fromTemplate: string; steps: unknown[]; startCmd: string };
  assert.deepEqual([build.fromTemplate, build.steps.length, build.startCmd], ["web", 2, "./serve"]);
});

void test("a registry's password comes from the environment or stdin, never from the command line", async () => {
  const { seen, routes } = builder();
  await using it = await open(routes);
  const words = ["template", "build", "-n", "p", "--image", "r.example.org/p", "--registry-user", "me"];
  const registry = () => (seen.requests.at(-1) as Record<string, unknown>)["fromImageRegistry"];
  await it.svc(words, { input: "from-stdin\n" });
  assert.deepEqual(registry(), { type: "registry", username: "me", password: "from-stdin" });
  await it.svc(words, { env: { SVC_REGISTRY_PASSWORD: "from-env" } });
  assert.deepEqual(registry(), { type: "registry", username: "me", password: "from-env" });
  const none = await it.svc(words);
  assert.equal(none.code, 2);
  assert.match(none.stderr, /SVC_REGISTRY_PASSWORD/);
});

void test("errors in a build's arguments are reported before any request is sent", async () => {
  const { seen, routes } = builder();
  await using it = await open(routes);
  for (const [words, code, says] of [
    [["nowhere"], 2, /context nowhere is not a directory/],
    [["."], 1, /Dockerfile .* cannot be read.*--image or --from/],
    [["-f", "absent", "."], 1, /absent cannot be read/],
    [["--image", "a", "--from", "b"], 2, /cannot be used with/],
    [["--cpu", "0", "My App"], 2, /from 1 to/],
  ] as const) {
    const { code: ended, stderr } = await it.svc(["template", "build", ...words]);
    assert.equal(ended, code, stderr);
    assert.match(stderr, says);
  }
  assert.deepEqual(seen.requests, []);
});

void test("a build that fails ends with its reason and exit code 1", async () => {
  await using it = await open(builder("error").routes);
  const { code, stdout, stderr } = await it.svc(["template", "build", "My App"]);
  assert.deepEqual([code, stdout], [1, ""]);
  assert.match(stderr, /\nsvc: template my-app was not built: step 2: COPY app \/app: no room\n$/);
});

void test("Ctrl-C cancels the build", async () => {
  const { seen, routes } = builder("never");
  await using it = await open(routes);
  const child = it.spawn("template", "build", "My App");
  let stderr = "";
  child.stderr.on("data", (text) => (stderr += text));
  await until("the build's log", () => (stderr.includes("RUN apt-get update") ? true : undefined));
  child.kill("SIGINT");
  const [code] = await new Promise<unknown[]>((resolve) => child.once("close", (...end) => resolve(end)));
  assert.equal(code, 130);
  assert.match(stderr, /the build was canceled/);
  assert.equal(seen.requests.at(-1), `DELETE /templates/t1/builds/${BUILD}`);
});

void test("template cancel ends the newest build, or the given one", async () => {
  const OVER = "11111111-52f0-4c7a-9a53-0d7a1f6e4c21";
  const asked: string[] = [];
  const shared = { cpuCount: 1, memoryMB: 512, diskSizeMB: 4096, envdVersion: "0.6.13" };
  const build = (buildID: string, status: string, day: string) => ({ ...shared, buildID, status, createdAt: day, updatedAt: day, finishedAt: null });
  const builds = [build(OVER, "error", "2026-01-01T00:00:00Z"), build(BUILD, "waiting", "2026-01-02T00:00:00Z")];
  const template = {
    ...shared,
    ...{ templateID: "t1", buildID: BUILD, public: false, aliases: ["web"], names: ["web"], createdBy: null, lastSpawnedAt: null },
    ...{ createdAt: "2026-01-01T00:00:00Z", updatedAt: "2026-01-02T00:00:00Z", spawnCount: 0, buildCount: 2, buildStatus: "waiting" },
  };
  await using it = await open((request, response, url) => {
    if (!url.pathname.startsWith("/templates/")) return false;
    asked.push(`${request.method} ${url.pathname}`);
    if (request.method === "GET") return answer(response, 200, { ...template, builds });
    if (url.pathname.endsWith(OVER))
      return answer(response, 409, { code: 409, message: `build '${OVER}' has ended: its status is error`, error_code: "BUILD_CONFLICT" });
    return answer(response, 204);
  });
  const canceled = await it.svc(["template", "cancel", "web"]);
  assert.deepEqual([canceled.code, canceled.stdout], [0, `${BUILD}\n`], canceled.stderr);
  const over = await it.svc(["template", "cancel", "web", OVER]);
  assert.equal(over.code, 1);
  assert.match(over.stderr, /has ended: its status is error/);
  assert.deepEqual(
    asked.filter((each) => each.startsWith("DELETE")),
    [`DELETE /templates/t1/builds/${BUILD}`, `DELETE /templates/t1/builds/${OVER}`],
  );
});

void describe("a build on a terminal", needs("python3"), () => {
  void test("shows its steps with times and what came from the cache, and then the template", async () => {
    await using it = await open(builder().routes);
    using terminal = it.terminal("template", "build", "My App");
    const { code, screen } = await terminal.end();
    assert.equal(code, 0);
    const text = stripVTControlCharacters(screen).replaceAll("\r", "");
    assert.match(text, /\+ base image {2}1\.0 s\n/);
    assert.match(text, /\+ \[1\/2\] RUN apt-get update {2}cached\n/);
    assert.match(text, /\+ \[2\/2\] COPY app \/app {2}/);
    assert.match(text, /TEMPLATE ID +NAMES +TAGS +BUILD ID +STATUS\nt1 +my-app +default +[-0-9a-f]{36} +ready\n$/);
    assert.ok(!screen.includes("\u001b[2J"), "nothing that a step says steers the terminal");
  });

  void test("keeps the output of a failed step", async () => {
    await using it = await open(builder("error").routes);
    using terminal = it.terminal("template", "build", "My App");
    const { code, screen } = await terminal.end();
    assert.equal(code, 1);
    assert.match(
      stripVTControlCharacters(screen).replaceAll("\r", ""),
      /x \[2\/2\] COPY app \/app {2}[^\n]*\n {4}\?\[2Jcopying\nsvc: template my-app was not built/,
    );
  });
});

void test("templates are tagged, published and deleted by name", async () => {
  const asked: string[] = [];
  await using it = await open(async (request, response, url, body) => {
    if (!url.pathname.includes("templates")) return false;
    asked.push(`${request.method} ${url.pathname} ${request.method === "GET" ? "" : JSON.stringify(body())}`.trim());
    if (request.method === "PATCH") return answer(response, 200, { names: ["web"] });
    if (request.method === "POST") return answer(response, 201, { buildID: BUILD, tags: ["stable"] });
    if (request.method === "DELETE") return answer(response, 204);
    return answer(response, 200, [{ tag: "stable", buildID: BUILD, createdAt: "2026-01-31T09:05:00Z" }]);
  });
  const tagged = await it.svc(["template", "tag", "web:v2", "stable", "--remove", "old,older"]);
  assert.match(tagged.stdout, /^TAG +BUILD ID +CREATED\nstable +[-0-9a-f]{36} +2026-01-3/);
  assert.equal((await it.svc(["template", "publish", "web"])).stdout, "web\n");
  assert.equal((await it.svc(["template", "publish", "web", "--private"])).code, 0);
  assert.equal((await it.svc(["template", "delete", "web", "py"])).code, 0);
  assert.equal((await it.svc(["template", "tag", "web", "a", "--remove", "a"])).code, 2);
  assert.deepEqual(asked.slice(0, 5), [
    'POST /templates/tags {"target":"web:v2","tags":["stable"]}',
    'DELETE /templates/tags {"name":"web","tags":["old","older"]}',
    "GET /templates/web/tags",
    'PATCH /v2/templates/web {"public":true}',
    'PATCH /v2/templates/web {"public":false}',
  ]);
});
