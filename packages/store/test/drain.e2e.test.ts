// Drain jobs with Mooncake's clients: every object of a segment is moved, even if the master is killed on the way.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { startHolder } from "./holder.ts";
import { startMaster, type TestMaster } from "./master.ts";

type Job = {
  job_id: string;
  status_name: string;
  succeeded_units: number;
  failed_units: number;
  active_units: number;
  migrated_bytes: number;
  message: string;
};

const post = async (master: TestMaster, path: string, body?: unknown) => {
  const answer = await fetch(`${master.url}${path}`, { method: "POST", ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
  return { status: answer.status, body: (await answer.json()) as Job & { error_code?: number } };
};
const get = async (master: TestMaster, path: string) => (await fetch(`${master.url}${path}`)).json();

void test("a drain job empties a segment without losing an object, through a kill of the master", needs("python-clients", "python3"), async () => {
  await using master = await startMaster();
  await using first = await startHolder({ master: master.rpcPort });
  await using second = await startHolder({ master: master.rpcPort });
  const [source, target] = [await first.name(), await second.name()];
  const count = 40;
  for (let at = 0; at < count; at++) assert.equal(await first.put(`key-${at}`, `value ${at}`, { preferred_segment: source }), 0);
  assert.equal((await post(master, "/api/v1/drain_jobs", { segments: [] })).status, 400);
  assert.equal((await post(master, "/api/v1/drain_jobs", { segments: ["nothing"] })).body.error_code, -101);
  assert.equal((await post(master, "/api/v1/drain_jobs", { segments: [source], target_segments: [source] })).body.error_code, -600);
  const created = await post(master, "/api/v1/drain_jobs", { segments: [source], target_segments: [target], max_concurrency: 8 });
  assert.equal(created.status, 200);
  assert.equal(created.body.status_name, "RUNNING");
  assert.equal((await post(master, "/api/v1/drain_jobs", { segments: [source] })).body.error_code, -1010);
  const job = async () => (await get(master, `/api/v1/drain_jobs/query?job_id=${created.body.job_id}`)) as Job;
  await until("some were moved", async () => ((await job()).succeeded_units >= 8 ? true : undefined));
  await master.kill();
  await master.start();
  const ended = await until("the job has ended", async () => {
    const now = await job();
    return now.status_name === "RUNNING" ? undefined : now;
  });
  assert.deepEqual([ended.status_name, ended.failed_units, ended.message], ["SUCCEEDED", 0, ""]);
  assert.equal(((await get(master, `/api/v1/segments/status?segment=${source}`)) as { status_name: string }).status_name, "DRAINED");
  assert.match(await (await fetch(`${master.url}/query_segment?segment=${target}`)).text(), /Used\(bytes\): [1-9]/);
  for (let at = 0; at < count; at++) assert.equal(await second.get(`key-${at}`), `value ${at}`);
});

void test("a drain job that is canceled leaves the rest where it is, and the segment in use", needs("python-clients", "python3"), async () => {
  await using master = await startMaster();
  await using first = await startHolder({ master: master.rpcPort });
  const source = await first.name();
  for (let at = 0; at < 5; at++) assert.equal(await first.put(`key-${at}`, "value"), 0);
  // There is no other segment to move to.
  const created = await post(master, "/api/v1/drain_jobs", { segments: [source] });
  await until("all are blocked", async () => {
    const { jobs } = (await get(master, "/api/v1/drain_jobs")) as { jobs: { blocked_units: number }[] };
    return jobs[0]?.blocked_units === 5 ? true : undefined;
  });
  const undrain = () => post(master, "/api/v1/segments/undrain", { segments: [source] });
  assert.equal((await undrain()).status, 409, "the job's own");
  assert.equal((await post(master, `/api/v1/drain_jobs/cancel?job_id=${created.body.job_id}`)).body.status_name, "CANCELED");
  assert.equal((await undrain()).status, 200);
  assert.equal((await post(master, `/api/v1/drain_jobs/cancel?job_id=${created.body.job_id}`)).status, 409);
  assert.equal((await post(master, "/api/v1/drain_jobs/cancel?job_id=none")).status, 404);
  assert.equal(((await get(master, `/api/v1/segments/status?segment=${source}`)) as { status: number }).status, 1);
  assert.equal(await first.put("key-5", "value"), 0);
});
