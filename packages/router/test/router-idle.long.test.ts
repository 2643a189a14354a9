// Ten thousand streams that wait for their next token, or as many as the limit of open files lets in: what one costs, and that others are served.
import assert from "node:assert/strict";
import { test } from "node:test";
import { openFiles } from "@svc/kit/open-files.ts";
import { idleEngine, nothingHeld, openStreams, residentBytes } from "./idle-streams.ts";
import { chat, metric, openRouter, post, until } from "./stack.ts";

const WANTED = 10_000;
/** The router leaves 256 files for other things, and needs two for each stream; further clients look at it meanwhile. */
const STREAMS = Math.min(WANTED, Math.floor((openFiles() - 256) / 2) - 16);
const MOST_BYTES_EACH = 64 * 1024;
const HELD_MS = 30_000;
const REQUESTS = 200;

void test(`${STREAMS} idle streams cost less than ${MOST_BYTES_EACH / 1024} KiB each, others are answered meanwhile, and nothing is left of them`, async (t) => {
  await using engine = await idleEngine();
  await using router = await openRouter([engine], [`--router.max_in_flight=${STREAMS + 16}`]);
  // The first requests compile the code and fill the pools.
  for (let at = 0; at < REQUESTS; at++) await post(router.url, "/v1/chat/completions", chat("warm"));
  const before = await residentBytes(router.url);
  const leave = await openStreams(router.url, STREAMS);
  assert.equal(await metric(router.url, 'svc_router_engine_in_flight{engine="idle"}'), STREAMS);
  assert.equal(await metric(router.url, "svc_router_held_bytes"), 0);
  const each = ((await residentBytes(router.url)) - before) / STREAMS;
  t.diagnostic(`${STREAMS} streams of ${WANTED}, under a limit of ${openFiles()} open files: ${(each / 1024).toFixed(1)} KiB of resident memory each`);
  assert.ok(each < MOST_BYTES_EACH, `a stream costs ${Math.round(each / 1024)} KiB`);
  const cpuBefore = await metric(router.url, "process_cpu_seconds_total");
  await new Promise((resolve) => setTimeout(resolve, HELD_MS));
  const cpu = (await metric(router.url, "process_cpu_seconds_total")) - cpuBefore;
  t.diagnostic(`while nothing moves, the router takes ${((100 * cpu * 1000) / HELD_MS).toFixed(1)} % of a processor`);
  for (let at = 0; at < REQUESTS; at++) assert.equal((await post(router.url, "/v1/chat/completions", chat(`short ${at}`))).status, 200);
  assert.equal(await engine.open(), STREAMS, "no stream has ended");
  leave();
  await until(
    "every stream has ended on the engine",
    () => engine.open(),
    (open) => open === 0,
  );
  await nothingHeld(router.url);
});
