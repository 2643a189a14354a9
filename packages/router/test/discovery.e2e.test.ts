// Engines that come and go: the router uses those that discovery finds, and ends what it has with those that are gone.
import assert from "node:assert/strict";
import { renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeHome } from "@svc/harness/home.ts";
import { startPodServer } from "@svc/harness/pod-server.ts";
import { chat, fit, openRouter, post, startEngine, until } from "./stack.ts";

void test("an engine is used once the file names it, and one that the file drops ends what it has and gets nothing new", async () => {
  const home = makeHome();
  try {
    const file = join(home, "engines.json");
    const write = (entries: object[]) => {
      writeFileSync(`${file}.new`, JSON.stringify(entries));
      renameSync(`${file}.new`, file);
    };
    await using a = await startEngine("a");
    await using b = await startEngine("b");
    write([{ name: "a", url: a.url }]);
    await using router = await openRouter([], [`--discover=file:${file}`]);
    await fit(router.url, ["a"]);
    await a.fault("hold");
    const held = post(router.url, "/v1/chat/completions", chat("this one began before"));
    await until("it is on its engine", a.seen, ({ waiting }) => waiting === 1);
    write([{ name: "b", url: b.url }]);
    await fit(router.url, ["b"]);
    for (let turn = 0; turn < 3; turn++)
      assert.equal((await post(router.url, "/v1/chat/completions", chat(`turn ${turn}`))).headers.get("x-svc-instance"), "b");
    await a.fault("none");
    const ended = await held;
    assert.deepEqual([ended.status, ended.headers.get("x-svc-instance")], [200, "a"]);
    const gone = await post(router.url, "/v1/chat/completions", chat("x"), { "x-svc-engine": "a" });
    assert.deepEqual([gone.status, gone.json.error.code], [404, "engine_not_found"]);
    const health = async () => (await (await fetch(`${router.url}/health`)).json()) as { status: string; sources?: { source: string; because: string }[] };
    const metric = async () => (await (await fetch(`${router.url}/metrics`)).text()).match(/^svc_router_source_failed\{.*\} (\d)$/m)?.[1];
    assert.deepEqual([(await health()).sources, await metric()], [undefined, "0"]);
    write([{ name: "b", url: b.url, max_in_fligth: 3 }]);
    await until("the file's mistake is in /health", health, ({ sources }) => /no member "max_in_fligth"/.test(sources?.[0]?.because ?? ""));
    write([
      { name: "b", url: b.url },
      { name: "b", url: a.url },
    ]);
    await until("another mistake replaces it", health, ({ sources }) => /the engine b is there twice/.test(sources?.[0]?.because ?? ""));
    assert.deepEqual([(await health()).status, await metric()], ["ok", "1"]);
  } finally {
    rmSync(home, { recursive: true });
  }
});

void test("the router starts without an engine, and uses each pod with the label while it runs, beside the engines that it was given", async () => {
  await using api = await startPodServer("ml");
  await using fixed = await startEngine("fixed");
  await using router = await openRouter([fixed], [`--discover=kubernetes:ml?selector=app=engine&api=${api.url}`]);
  await using pod = await startEngine("pod-1");
  const port = Number(new URL(pod.url).port);
  api.put("pod-1", { ip: "127.0.0.1", annotations: { "svc-engine": JSON.stringify({ url: `http://127.0.0.1:${port}` }) } });
  await fit(router.url, ["fixed", "pod-1"]);
  await fixed.kill();
  await fit(router.url, ["pod-1"]);
  assert.equal((await post(router.url, "/v1/chat/completions", chat("hello"))).headers.get("x-svc-instance"), "pod-1");
  api.put("pod-1", { ip: "127.0.0.1", isEnding: true, annotations: { "svc-engine": JSON.stringify({ url: `http://127.0.0.1:${port}` }) } });
  await fit(router.url, []);
});
