// `svc store drain` and `undrain`: a master job that moves all objects off segments, watched to its end; and its reversal.
import { setTimeout as sleep } from "node:timers/promises";
import { fail } from "@svc/contract/failures.ts";
import { byteSize, printJSON } from "@svc/contract/table.ts";
import { ask, progress, type Words, wholeNumber } from "./words.ts";

const POLL_MS = 200;
const MAX_CONCURRENCY = 1000;
const UNDRAIN = "; svc store undrain SEGMENT puts a segment back into use";
const ENDED = ["SUCCEEDED", "FAILED", "CANCELED"];

type Job = {
  job_id: string;
  status_name: string;
  succeeded_units: number;
  failed_units: number;
  blocked_units: number;
  active_units: number;
  migrated_bytes: number;
  message: string;
};

/** Interrupting the command leaves the job running; --cancel ends one. */
export async function drain(words: Words): Promise<number> {
  const { positionals: segments } = words;
  const cancelled = words.text("cancel");
  if (cancelled !== undefined)
    return shown(words, await jobAt(words, `job "${cancelled}"`, `/api/v1/drain_jobs/cancel?job_id=${encodeURIComponent(cancelled)}`, { method: "POST" }));
  if (segments.length === 0) fail("INVALID_REQUEST", "expected SEGMENT..., or --cancel JOB; svc store segments lists them");
  const targets = (words.text("to") ?? "").split(",").filter((name) => name !== "");
  const body = { segments, target_segments: targets, max_concurrency: wholeNumber(words, "concurrency", 4, MAX_CONCURRENCY) };
  let job = await jobAt(words, `segments "${[...segments, ...targets].join('", "')}"`, "/api/v1/drain_jobs", { method: "POST", body: JSON.stringify(body) });
  // The id is printed before anything can fail, so that the job can be inspected and canceled even if this command dies.
  if (!words.has("detach")) process.stderr.write(`job ${job.job_id}: draining ${segments.join(", ")}; svc store drain --cancel ${job.job_id} ends it\n`);
  while (!ENDED.includes(job.status_name) && !words.has("detach")) {
    progress(
      `${job.status_name.toLowerCase()}: ${job.succeeded_units} moved (${byteSize(job.migrated_bytes)}), ${job.active_units} under way, ` +
        `${job.blocked_units} held up, ${job.failed_units} failed; job ${job.job_id}`,
    );
    await sleep(POLL_MS);
    job = await jobAt(words, `job "${job.job_id}"`, `/api/v1/drain_jobs/query?job_id=${job.job_id}`);
  }
  progress("");
  return shown(words, job);
}

/** Lets segments that are drained, or whose drain failed, accept objects again. */
export async function undrain(words: Words): Promise<number> {
  const { positionals: segments } = words;
  if (segments.length === 0 || segments.includes("")) fail("INVALID_REQUEST", "expected SEGMENT...; svc store segments lists them");
  const answer = await ask(words, "/api/v1/segments/undrain", { method: "POST", body: JSON.stringify({ segments }) });
  const said = (await answer.json()) as { segments: string[]; error_message?: string };
  if (!answer.ok) fail("STORE_KEY_NOT_FOUND", `segments "${segments.join('", "')}": the master answered: ${said.error_message}; svc store segments lists them`);
  if (words.isJSON) printJSON(said.segments);
  else for (const name of said.segments) process.stdout.write(`${name} takes objects again\n`);
  return 0;
}

function shown(words: Words, job: Job): number {
  if (words.isJSON) printJSON(job);
  else {
    const more = [job.message === "" ? "" : `; ${job.message}`, ENDED.includes(job.status_name) && job.status_name !== "CANCELED" ? UNDRAIN : ""].join("");
    process.stdout.write(
      `${job.status_name.toLowerCase()}: ${job.succeeded_units} moved (${byteSize(job.migrated_bytes)}), ${job.failed_units} failed; job ${job.job_id}${more}\n`,
    );
  }
  return job.status_name === "FAILED" ? 1 : 0;
}

async function jobAt(words: Words, what: string, path: string, init?: RequestInit): Promise<Job> {
  const answer = await ask(words, path, init);
  const said = (await answer.json()) as Job & { error_message?: string };
  return answer.ok ? said : fail("STORE_KEY_NOT_FOUND", `${what}: the master answered ${said.error_message}; svc store segments lists the segments`);
}
