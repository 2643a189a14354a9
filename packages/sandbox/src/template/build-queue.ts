// Builds in line: a few at once, a bounded line behind them, each ended by its template's deletion, its time, or the node's stop.
import { setTimeout as sleep } from "node:timers/promises";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import type { Build, BuildSpec } from "./build-record.ts";
import { runBuild } from "./run-build.ts";
import type { Job, RegistryCredentials, Workshop } from "./workshop.ts";

export type BuildEvent = "template.build_started" | "template.built" | "template.build_failed";
export type Tell = (event: BuildEvent, templateID: string, details: Readonly<Record<string, string | number>>) => void;

export interface BuildQueue {
  /** @throws BUILD_CONFLICT when it was started before, TOO_MANY_REQUESTS when the line is full. */
  start(build: Build, spec: BuildSpec, credentials: RegistryCredentials | undefined): void;
  /** Ends what a template has under way and in line; returns when nothing of it runs. */
  cancel(templateID: string): Promise<void>;
  /** After a start of the node: what a kill cut off is told, what was in line is put there again. */
  recover(): void;
  readonly running: number;
  readonly waiting: number;
  /** Ends builds under way; they go on from their cached steps at the next start. */
  close(): Promise<void>;
}

type Running = { readonly build: Build; readonly abort: AbortController; done: Promise<void> };
type Cause = "deleted" | "stopping" | "time";

/** Of the ten seconds that a node's stop may take. */
const CLOSE_BOUND_MS = 4_000;

export function openBuildQueue(shop: Workshop, tell: Tell): BuildQueue {
  const { builds, buildLog, settings } = shop;
  const line: { build: Build; spec: BuildSpec }[] = [];
  const running = new Map<string, Running>();
  const credentials = new Map<string, RegistryCredentials>();
  let closed = false;
  /** Builds that the node's stop could not wait for: their rows are settled, and nothing of theirs is written any more. */
  const abandoned = new Set<string>();

  function next(): void {
    while (!closed && running.size < settings.build_concurrency) {
      const first = line.shift();
      if (first === undefined) return;
      const abort = new AbortController();
      const entry: Running = { build: first.build, abort, done: Promise.resolve() };
      running.set(first.build.buildID, entry);
      entry.done = carryOut(first.build, first.spec, abort)
        // Its end could not be recorded: the next start of the node finds it cut off.
        .catch((error: unknown) => shop.log.error({ err: error, buildID: first.build.buildID }, "a build's end could not be recorded"))
        .finally(() => {
          running.delete(first.build.buildID);
          next();
        });
    }
  }

  async function carryOut(build: Build, spec: BuildSpec, abort: AbortController): Promise<void> {
    const { buildID, templateID } = build;
    const begin = performance.now();
    const boundMs = settings.build_timeout_seconds * 1000;
    const timer = setTimeout(() => abort.abort(stopFailure("time")), boundMs);
    const job: Job = {
      shop,
      build,
      signal: abort.signal,
      deadlineMs: begin + boundMs,
      credentials: credentials.get(buildID),
      sizes: { cpuCount: build.cpuCount ?? 2, memoryMB: build.memoryMB ?? 1024, diskSizeMB: build.diskSizeMB ?? 4096 },
      step: "base",
    };
    try {
      builds.update(buildID, { status: "building", step: "base" });
      tell("template.build_started", templateID, { buildID });
      const result = await runBuild(job, spec);
      if (abort.signal.aborted) {
        if (result.captureID !== undefined) await shop.captures.remove(result.captureID);
        throw abort.signal.reason;
      }
      buildLog.write(buildID, job.step, [
        { level: "info", message: `built in ${((performance.now() - begin) / 1000).toFixed(1)} s, ${result.chain.layers.length} layers` },
      ]);
      builds.publish(buildID, result);
      tell("template.built", templateID, { buildID, seconds: Math.round((performance.now() - begin) / 1000) });
      shop.layers.sync().catch((error: unknown) => shop.log.warn({ err: error }, "layers could not be synced to disk"));
    } catch (error) {
      settle(job, abort.signal.aborted ? abort.signal.reason : error);
    } finally {
      clearTimeout(timer);
      credentials.delete(buildID);
    }
  }

  /** A failed build says why; one that the node's stop cut off waits for the next start. */
  function settle(job: Job, error: unknown): void {
    const { buildID, templateID } = job.build;
    const failure = asFailure(error);
    if (abandoned.has(buildID) || builds.build(buildID) === undefined) return;
    if (failure.name === "SHUTTING_DOWN" && job.credentials === undefined) {
      buildLog.write(buildID, job.step, [{ level: "warn", message: "the node stops; the build goes on from its cached steps when it is up again" }]);
      builds.update(buildID, { status: "waiting", step: undefined });
      return;
    }
    if (failure.name === "INTERNAL") shop.log.error({ err: error, buildID, step: job.step }, "a build failed");
    refuse(buildID, job.step, failure.message);
    tell("template.build_failed", templateID, { buildID, step: job.step });
  }

  function refuse(buildID: string, step: string | undefined, message: string): void {
    try {
      buildLog.write(buildID, step, [{ level: "error", message }]);
    } catch (error) {
      // A full disk: the reason stands in the build's own record, which has room.
      shop.log.warn({ err: error, buildID, message }, "a build's log could not be written");
    }
    builds.update(buildID, { status: "error", step: undefined, reason: { message, step }, finishedAtMs: shop.nowMs() });
  }

  return {
    start(build, spec, given) {
      if (build.spec !== undefined || build.status !== "waiting") fail("BUILD_CONFLICT", `build '${build.buildID}' was started already; request a new build`);
      if (closed) fail("SHUTTING_DOWN", "the node is stopping");
      if (line.length >= settings.build_queue && running.size >= settings.build_concurrency) {
        throw new Failure("TOO_MANY_REQUESTS", `${line.length} builds wait already (template.build_queue); try again later`, { retryAfterSeconds: 5 });
      }
      const started = builds.update(build.buildID, { spec });
      if (given !== undefined) credentials.set(build.buildID, given);
      line.push({ build: started, spec });
      next();
    },
    async cancel(templateID) {
      for (let at = line.length - 1; at >= 0; at--) {
        const waiting = line[at];
        if (waiting?.build.templateID !== templateID) continue;
        line.splice(at, 1);
        credentials.delete(waiting.build.buildID);
        refuse(waiting.build.buildID, undefined, stopFailure("deleted").message);
      }
      const hit = [...running.values()].filter(({ build }) => build.templateID === templateID);
      for (const { abort } of hit) abort.abort(stopFailure("deleted"));
      await Promise.all(hit.map(({ done }) => done));
    },
    recover() {
      for (const { buildID, step } of builds.withStatus("building")) {
        refuse(buildID, step, `the node ended while this build was at ${placeOf(step)}; start it again, its finished steps come from the cache`);
      }
      for (const build of builds.withStatus("waiting")) {
        if (build.spec === undefined) continue;
        if (build.spec.needsCredentials)
          refuse(build.buildID, "base", "the node ended while this build waited, and a registry's credentials are never kept; start it again");
        else line.push({ build, spec: build.spec });
      }
      next();
    },
    get running() {
      return running.size;
    },
    get waiting() {
      return line.length;
    },
    async close() {
      closed = true;
      const all = [...running.values()];
      for (const { abort } of all) abort.abort(stopFailure("stopping"));
      // An export, or an image on its way, cannot be called off; what it leaves is swept at the next start.
      await Promise.race([Promise.all(all.map(({ done }) => done)), sleep(CLOSE_BOUND_MS, undefined, { ref: false })]);
      for (const { build } of running.values()) {
        if (abandoned.has(build.buildID)) continue;
        abandoned.add(build.buildID);
        if (build.spec?.needsCredentials === true)
          refuse(build.buildID, undefined, "the node stopped, and a registry's credentials are never kept; start the build again");
        else builds.update(build.buildID, { status: "waiting", step: undefined });
      }
    },
  };
}

function placeOf(step: string | undefined): string {
  if (step === undefined || step === "base") return "its base";
  return step === "finalize" ? "its end (start command and capture)" : `step ${step}`;
}

function stopFailure(cause: Cause): Failure {
  if (cause === "deleted") return new Failure("INVALID_REQUEST", "the template was deleted while it was built");
  if (cause === "stopping") return new Failure("SHUTTING_DOWN", "the node is stopping");
  return new Failure("TIMED_OUT", "the build took longer than template.build_timeout_seconds allows");
}
