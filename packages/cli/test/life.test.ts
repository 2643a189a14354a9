// The verbs for an existing sandbox against a control plane: pause, resume, fork, snapshot, network, the tree.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { treeOf } from "../src/sandbox/tree.ts";
import { KEY, type MoreRoutes, openControlPlane, type Stored } from "./control-plane.ts";
import { mainFile, openPlace } from "./svc.ts";

const answer = (response: ServerResponse, status: number, body?: unknown) => {
  response.writeHead(status).end(body === undefined ? undefined : JSON.stringify(body));
  return true;
};
const refuse = (response: ServerResponse, status: number, error_code: string, message: string) =>
  answer(response, status, { code: status, message, error_code });
const access = (sandboxID: string) => ({ sandboxID, templateID: "t", clientID: "c", envdVersion: "0.6.13", envdAccessToken: "token" });

async function open(more?: MoreRoutes) {
  const server = await openControlPlane(more);
  const place = openPlace();
  const env = { SDK_API_KEY: KEY, SVC_URL: server.url };
  const put = (sandbox: Partial<Stored> & { sandboxID: string }) =>
    server.sandboxes.set(sandbox.sandboxID, { templateID: "base", metadata: {}, timeout: 250, body: {}, ...sandbox });
  return {
    server,
    put,
    env: place.env(env),
    svc: (...args: string[]) => place.svc(args, { env }),
    async [Symbol.asyncDispose]() {
      await place[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

void test("start refuses --rm where no shell is opened, before anything is created", async () => {
  await using it = await open();
  const refused = await it.svc("start", "base", "--rm");
  assert.equal(refused.code, 2);
  assert.match(refused.stderr, /--rm deletes the sandbox when its shell ends/);
  assert.equal(it.server.sandboxes.size, 0);
});

void test("start sends the action at the timeout and the network rules", async () => {
  await using it = await open();
  const done = await it.svc(
    "start",
    "--auto-pause",
    "py",
    "-d",
    "--auto-resume",
    "--no-internet",
    "--allow-out",
    "a.example.org,10.1.0.0/16",
    "--allow-out",
    "*.x.org",
  );
  assert.equal(done.code, 0, done.stderr);
  assert.deepEqual(it.server.sandboxes.get("i1")?.body, {
    templateID: "py",
    timeout: 300,
    allow_internet_access: false,
    network: { allowOut: ["a.example.org", "10.1.0.0/16", "*.x.org"] },
    autoPause: true,
    autoPauseMemory: true,
    autoResume: { enabled: true },
  });
  await it.svc("start", "-d", "--auto-pause=files", "--deny-out", "203.0.113.0/24");
  assert.deepEqual(it.server.sandboxes.get("i2")?.body["network"], { denyOut: ["203.0.113.0/24"] });
  assert.equal(it.server.sandboxes.get("i2")?.body["autoPauseMemory"], false);
  for (const wrong of [["--auto-resume"], ["--auto-pause=files", "--auto-resume"], ["--auto-pause=all"]]) {
    const { code, stderr } = await it.svc("start", "-d", ...wrong);
    assert.equal(code, 2, stderr);
  }
});

void test("pause prints what is paused, counts a paused one as success, and fails when one was not there", async () => {
  const asked: unknown[] = [];
  await using it = await open(async (_request, response, url, body) => {
    if (!url.pathname.endsWith("/pause")) return false;
    const id = url.pathname.split("/")[2];
    asked.push([id, body()["memory"]]);
    if (id === "again") return refuse(response, 409, "SANDBOX_PAUSED", "sandbox again is paused");
    if (id === "nobody") return refuse(response, 404, "SANDBOX_NOT_FOUND", "sandbox 'nobody' was not found");
    return answer(response, 204);
  });
  const { code, stdout, stderr } = await it.svc("pause", "i1", "again", "nobody", "--files-only");
  assert.equal(code, 1);
  assert.deepEqual(stdout.trim().split("\n").sort(), ["again", "i1"]);
  assert.match(stderr, /sandbox 'nobody' was not found/);
  assert.match(stderr, /again was paused already/);
  assert.deepEqual(asked.map(String).sort(), ["again,false", "i1,false", "nobody,false"]);
  assert.equal((await it.svc("pause", "i1")).code, 0);
  assert.deepEqual(asked.at(-1), ["i1", true]);
});

void test("resume prints the id, and reports when the sandbox was already running", async () => {
  const asked: unknown[] = [];
  await using it = await open(async (_request, response, url, body) => {
    if (!url.pathname.endsWith("/connect")) return false;
    asked.push(body());
    const id = url.pathname.split("/")[3] ?? "";
    return answer(response, id === "running" ? 200 : 201, access(id));
  });
  assert.deepEqual(await it.svc("resume", "i1", "--timeout", "60"), { code: 0, signal: null, stdout: "i1\n", stderr: "" });
  const ran = await it.svc("resume", "running", "--files-only", "-o", "json");
  assert.equal(JSON.parse(ran.stdout).envdAccessToken, "token");
  assert.match(ran.stderr, /ran already/);
  assert.deepEqual(asked, [{ memory: true, timeout: 60 }, { memory: false }]);
});

void test("fork gives each copy a row or its error, and fails when one failed", async () => {
  await using it = await open(async (_request, response, url, body) => {
    if (!url.pathname.endsWith("/fork")) return false;
    const { count } = body();
    const child = (index: number) => (index === 2 ? { error: { code: 503, message: "the node is full" } } : { sandbox: access(`c${index}`) });
    return answer(
      response,
      201,
      Array.from({ length: Number(count) }, (_, index) => child(index)),
    );
  });
  assert.deepEqual(await it.svc("fork", "i1", "-n", "2", "-q"), { code: 0, signal: null, stdout: "c0\nc1\n", stderr: "" });
  const { code, stdout, stderr } = await it.svc("fork", "i1", "-n", "3");
  assert.equal(code, 1);
  assert.match(stdout, /^CHILD +SANDBOX ID +RESULT\n1 +c0 +running\n2 +c1 +running\n3 +failed: the node is full\n$/);
  assert.equal(stderr, "svc: 1 of 3 forks of i1 failed: the node is full\n");
  assert.equal(JSON.parse((await it.svc("fork", "i1", "-o", "json")).stdout).length, 1);
  for (const wrong of ["0", "101", "x"]) assert.equal((await it.svc("fork", "i1", "-n", wrong)).code, 2);
});

const snapshot = (snapshotID: string) => ({
  snapshotID,
  names: ["ready:v1"],
  sandboxID: "i1",
  templateID: "base",
  memory: true,
  cpuCount: 2,
  memoryMB: 512,
  diskSizeMB: 1024,
  sizeBytes: 1_572_864,
  createdAt: "2026-01-31T09:05:00Z",
});

void test("snapshots are taken, listed over all pages, and deleted by name, but no template by mistake", async () => {
  const asked: string[] = [];
  await using it = await open(async (request, response, url, body) => {
    asked.push(`${request.method} ${url.pathname}${url.search}`);
    if (url.pathname === "/sandboxes/i1/snapshots") return answer(response, 201, { ...snapshot("s1"), names: [body()["name"]] });
    if (url.pathname === "/snapshots") {
      const next = url.searchParams.get("nextToken") === null;
      if (next) response.setHeader("x-next-token", "2");
      return answer(response, 200, [snapshot(next ? "s1" : "s2")]);
    }
    if (url.pathname === "/snapshots/ready%3Av1") return answer(response, 200, snapshot("s1"));
    if (url.pathname === "/snapshots/base") return refuse(response, 404, "SNAPSHOT_NOT_FOUND", "there is no snapshot base");
    if (request.method === "DELETE") return answer(response, 204);
    return false;
  });
  assert.deepEqual(JSON.parse((await it.svc("snapshot", "create", "i1", "ready:v1", "-o", "json")).stdout).names, ["ready:v1"]);
  assert.equal((await it.svc("snapshot", "create", "i1", "Not A Name")).code, 2);
  assert.equal((await it.svc("snapshot", "list", "-q", "--sandbox", "i1")).stdout, "s1\ns2\n");
  assert.match((await it.svc("snapshot", "list")).stdout, /s2 +ready:v1 +i1 +memory, files +2 +512 MiB +1\.5 MiB +2026-01-3/);
  const { code, stdout, stderr } = await it.svc("snapshot", "delete", "ready:v1", "base");
  assert.deepEqual([code, stdout], [1, "ready:v1\n"]);
  assert.match(stderr, /there is no snapshot base/);
  assert.deepEqual(
    asked.filter((line) => line.startsWith("DELETE")),
    ["DELETE /templates/s1"],
  );
});

void test("network shows the rules, replaces them as a whole, and clears them", async () => {
  let rules: Record<string, unknown> = {};
  await using it = await open(async (request, response, url, body) => {
    if (request.method === "PUT") {
      rules = body();
      return answer(response, 204);
    }
    if (url.pathname !== "/sandboxes/i1" || request.method !== "GET") return false;
    const { allow_internet_access: isAllowed, ...shown } = rules;
    const listed = {
      ...access("i1"),
      startedAt: "2026-01-31T09:05:00Z",
      endAt: "2026-01-31T09:05:00Z",
      cpuCount: 1,
      memoryMB: 1,
      diskSizeMB: 1,
      state: "running",
    };
    const lifecycle = { autoResume: false, onTimeout: "kill" };
    return answer(response, 200, {
      ...listed,
      forkDepth: 0,
      allowInternetAccess: isAllowed ?? true,
      network: { allowPublicTraffic: true, ...shown },
      lifecycle,
    });
  });
  assert.match((await it.svc("network", "i1")).stdout, /allow out +all\ndeny out +nothing beyond private ranges/);
  const set = await it.svc("network", "i1", "--no-internet", "--allow-out", "a.example.org", "--allow-out", "10.0.0.1", "-o", "json");
  assert.deepEqual(JSON.parse(set.stdout), { sandboxID: "i1", allowInternetAccess: false, allowPublicTraffic: true, allowOut: ["a.example.org", "10.0.0.1"] });
  assert.equal((await it.svc("network", "i1", "--clear", "--no-internet")).code, 2);
  await it.svc("network", "i1", "--clear");
  assert.deepEqual(rules, {});
});

void test("list --tree draws each sandbox below its parent, even if the parent is gone", async () => {
  await using it = await open();
  it.put({ sandboxID: "root" });
  it.put({ sandboxID: "kid1", parentSandboxID: "root", forkDepth: 1, state: "paused" });
  it.put({ sandboxID: "grandkid", parentSandboxID: "kid1", forkDepth: 2 });
  it.put({ sandboxID: "kid2", parentSandboxID: "root", forkDepth: 1 });
  it.put({ sandboxID: "orphan", parentSandboxID: "dead", forkDepth: 3 });
  const lines = (await it.svc("list", "--tree", "-o", "table")).stdout.split("\n").map((line) => line.split(/ {2,}/).slice(0, 3).join("|"));
  assert.deepEqual(lines, [
    "SANDBOX ID|DEPTH|TEMPLATE",
    "root|0|base",
    "├─ kid1|1|base",
    "│|└─ grandkid|2",
    "└─ kid2|1|base",
    "dead|(gone)",
    "└─ orphan|3|base",
    "",
  ]);
  // The parents exist, but the filter excludes them.
  const paused = (await it.svc("list", "--tree", "--state", "paused", "-o", "table")).stdout;
  assert.match(paused, /root +\(not listed\)\n└─ kid1/);
});

void test("a chain of ten thousand forks is drawn, and a cycle ends", () => {
  const chain = Array.from({ length: 10_000 }, (_, depth) => ({ sandboxID: `s${depth}`, ...(depth === 0 ? {} : { parentSandboxID: `s${depth - 1}` }) }));
  assert.equal(treeOf(chain).length, 10_000);
  const circle = [
    { sandboxID: "a", parentSandboxID: "b" },
    { sandboxID: "b", parentSandboxID: "a" },
  ];
  assert.deepEqual(treeOf(circle), []);
});

void test("Ctrl-C in svc move says that the move continues at its node, and where to look", async () => {
  await using it = await open((_request, _response, url) => url.pathname.endsWith("/move"));
  it.put({ sandboxID: "one" });
  const child = spawn(process.execPath, [mainFile, "move", "one", "--to", "node-b"], { env: it.env, stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => void (said += text));
  const ended = once(child, "exit");
  await until("the request", () => (it.server.requests.some((each) => each.startsWith("POST") && each.includes("/move")) ? true : undefined));
  child.kill("SIGINT");
  assert.deepEqual(await ended, [130, null]);
  assert.match(said, /the move of one goes on at its node: svc events --sandbox one shows its pause and resume, svc nodes show node-b what is there/);
});

void test("a drain prints what became of each sandbox", async () => {
  const drain = { nodeID: "node-a", isDraining: true, running: 0, paused: 1, handsOver: true, failed: [{ sandboxID: "two", message: "no room" }] };
  const more: MoreRoutes = (_request, response, url) =>
    url.pathname === "/nodes/node-a"
      ? answer(response, 204)
      : url.pathname === "/nodes/node-a/drain" &&
        answer(response, 200, { ...drain, pausedByDrain: ["two"], movedByDrain: [{ sandboxID: "one", nodeID: "node-b" }] });
  await using it = await open(more);
  const { code, stdout, stderr } = await it.svc("nodes", "drain", "node-a");
  assert.deepEqual([code, stdout], [1, "one moved to node-b\ntwo paused\n"], stderr);
  assert.match(stderr, /two stays there: no room/);
});
