// `svc store drain` and `undrain`: a master job that moves all objects off segments, watched to its end; and its reversal.
import { setTimeout as sleep } from "node:timers/promises";
import { fail } from "@svc/contract/failures.ts";
import { byteSize, printJSON } from "@svc/contract/table.ts";
import { type Arguments, ask, progress, wholeNumber } from "./arguments.ts";

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
export async function drain(args: Arguments): Promise<number> {
  const { positionals: segments } = args;
  const cancelled = args.text("cancel");
  if (cancelled !== undefined)
    return shown(args, await jobAt(args, `job "${cancelled}"`, `/api/v1/drain_jobs/cancel?job_id=${encodeURIComponent(cancelled)}`, { method: "POST" }));
  if (segments.length === 0) fail("INVALID_REQUEST", "expected SEGMENT..., or --cancel JOB; svc store segments lists them");
  const targets = (args.text("to") ?? "").split(",").filter((name) => name !== "");
  const body = { segments, target_segments: targets, max_concurrency: wholeNumber(args, "concurrency", 4, MAX_CONCURRENCY) };
  let job = await jobAt(args, `segments "${[...segments, ...targets].join('", "')}"`, "/api/v1/drain_jobs", { method: "POST", body: JSON.stringify(body) });
  // The id is printed before anything can fail, so that the job can be inspected and canceled even if this command dies.
  if (!args.has("detach")) process.stderr.write(`job ${job.job_id}: draining ${segments.join(", ")}; svc store drain --cancel ${job.job_id} ends it\n`);
  while (!ENDED.includes(job.status_name) && !args.has("detach")) {
    progress(
      `${job.status_name.toLowerCase()}: ${job.succeeded_units} moved (${byteSize(job.migrated_bytes)}), ${job.active_units} under way, ` +
        `${job.blocked_units} held up, ${job.failed_units} failed; job ${job.job_id}`,
    );
    await sleep(POLL_MS);
    job = await jobAt(args, `job "${job.job_id}"`, `/api/v1/drain_jobs/query?job_id=${job.job_id}`);
  }
  progress("");
  return shown(args, job);
}

/** Lets segments that are drained, or whose drain failed, accept objects again. */
export async function undrain(args: Arguments): Promise<number> {
  const { positionals: segments } = args;
  if (segments.length === 0 || segments.includes("")) fail("INVALID_REQUEST", "expected SEGMENT...; svc store segments lists them");
  const answer = await ask(args, "/api/v1/segments/undrain", { method: "POST", body: JSON.stringify({ segments }) });
  const said = (await answer.json()) as { segments: string[]; error_message?: string };
  if (!answer.ok) fail("STORE_KEY_NOT_FOUND", `segments "${segments.join('", "')}": the master answered: ${said.error_message}; svc store segments lists them`);
  if (args.isJSON) printJSON(said.segments);
  else for (const name of said.segments) process.stdout.write(`${name} takes objects again\n`);
  return 0;
}

function shown(args: Arguments, job: Job): number {
  if (args.isJSON) printJSON(job);
  else {
    const more = [job.message === "" ? "" : `; ${job.message}`, ENDED.includes(job.status_name) && job.status_name !== "CANCELED" ? UNDRAIN : ""].join("");
    process.stdout.write(
      `${job.status_name.toLowerCase()}: ${job.succeeded_units} moved (${byteSize(job.migrated_bytes)}), ${job.failed_units} failed; job ${job.job_id}${more}\n`,
    );
  }
  return job.status_name === "FAILED" ? 1 : 0;
}

async function jobAt(args: Arguments, what: string, path: string, init?: RequestInit): Promise<Job> {
  const answer = await ask(args, path, init);
  const said = (await answer.json()) as Job & { error_message?: string };
  return answer.ok ? said : fail("STORE_KEY_NOT_FOUND", `${what}: the master answered ${said.error_message}; svc store segments lists the segments`);
}
