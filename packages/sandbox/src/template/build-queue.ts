// Queued builds: a few run at once, and a bounded number waits. A build ends by itself, by a cancel, a newer build, its time bound or the node's stop.
import { setTimeout as sleep } from "node:timers/promises";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import { type Build, type BuildResult, type BuildSpec, defaultSizes } from "./build-record.ts";
import type { Builder, Confidential, Job } from "./builder.ts";
import { runBuild } from "./run-build.ts";

export type BuildEvent = "template.build_started" | "template.built" | "template.build_failed";
export type ReportBuild = (event: BuildEvent, templateID: string, details: Readonly<Record<string, string | number>>) => void;

export interface BuildQueue {
  /**
   * Cancels older builds of the template whose tags all move to this one. @throws BUILD_CONFLICT if the build was already started,
   * TOO_MANY_REQUESTS if the queue is full.
   */
  start(build: Build, spec: BuildSpec, confidential: Confidential | undefined): void;
  /** Records that its start was refused: the build has failed, unless it is started again with a valid request. */
  refuse(build: Build, failure: Failure): void;
  /** Cancels a build that has not ended and aborts its work. A build that was never started is removed. @throws BUILD_CONFLICT if it has ended. */
  cancel(build: Build): void;
  /** Cancels all builds of a template; returns when none of them runs any more. */
  drop(templateID: string): Promise<void>;
  /** Returns true if `drop` cancelled the build recently. */
  wasDropped(buildID: string): boolean;
  /** Called after a start of the node: fails builds that a kill interrupted, and queues those again that were waiting. */
  recover(): void;
  readonly running: number;
  readonly waiting: number;
  /** Ends running builds; they continue from their cached steps at the next start. */
  close(): Promise<void>;
}

type Running = { readonly build: Build; readonly abort: AbortController; done: Promise<void> };
type Waiting = { readonly build: Build; readonly spec: BuildSpec; ahead: number };

/** Builds further back in the queue log their position only once, since each message is a row in the database. */
const MAX_LOGGED_POSITIONS = 100;
/** Bounds the remembered builds of deleted templates, so that a client following one learns why it is gone. */
const REMEMBERED_DROPS = 256;
/** The share of the ten seconds that a node's stop may take. */
const CLOSE_BOUND_MS = 4_000;

export function openBuildQueue(builder: Builder, report: ReportBuild): BuildQueue {
  const { builds, buildLog, settings } = builder;
  const line: Waiting[] = [];
  const running = new Map<string, Running>();
  const credentials = new Map<string, Confidential>();
  let closed = false;
  /** Builds whose rows are final while some of their work still runs; nothing is written for them any more. */
  const abandoned = new Set<string>();
  const drops = new Set<string>();

  function next(): void {
    while (!closed && running.size < settings.build_concurrency) {
      const first = line.shift();
      if (first === undefined) return;
      const abort = new AbortController();
      const entry: Running = { build: first.build, abort, done: Promise.resolve() };
      running.set(first.build.buildID, entry);
      entry.done = carryOut(first.build, first.spec, abort)
        // A build whose end could not be recorded is found and failed by the next start of the node.
        .catch((error: unknown) => builder.log.error({ err: error, buildID: first.build.buildID }, "a build's end could not be recorded"))
        .finally(() => {
          running.delete(first.build.buildID);
          abandoned.delete(first.build.buildID);
          next();
        });
    }
    logPositions();
  }

  /** Logs each waiting build's position, so that its client learns why it waits. */
  function logPositions(): void {
    line.forEach((each, ahead) => {
      if (each.ahead === ahead || (each.ahead !== -1 && ahead >= MAX_LOGGED_POSITIONS)) return;
      each.ahead = ahead;
      const others = ahead === 0 ? "it is next" : `${ahead} more ${ahead === 1 ? "is" : "are"} ahead of it`;
      const message = `waiting: ${running.size} builds run, as many as template.build_concurrency allows; ${others}`;
      buildLog.write(each.build.buildID, undefined, [{ level: "info", message }]);
    });
  }

  /** Makes the build's row final at once, even if some of its work still runs. */
  function end(buildID: string, reason: Failure): void {
    const at = line.findIndex(({ build }) => build.buildID === buildID);
    if (at !== -1) line.splice(at, 1);
    credentials.delete(buildID);
    const { status, templateID, step } = builds.build(buildID) ?? {};
    if (status !== "waiting" && status !== "building") return;
    refuse(buildID, step, reason.message);
    report("template.build_failed", templateID ?? "", { buildID, step: step ?? "" });
    const entry = running.get(buildID);
    if (entry === undefined) logPositions();
    else {
      abandoned.add(buildID);
      entry.abort.abort(reason);
    }
  }

  /** Returns builds of the same template whose tags would all move to this one. */
  function superseded({ buildID, templateID, tags }: Build): string[] {
    return [...line, ...running.values()]
      .map(({ build }) => build)
      .filter((each) => each.templateID === templateID && each.buildID !== buildID && each.tags.every((tag) => tags.includes(tag)))
      .map((each) => each.buildID);
  }

  async function carryOut(build: Build, spec: BuildSpec, abort: AbortController): Promise<void> {
    const { buildID, templateID } = build;
    const begin = performance.now();
    const boundMs = settings.build_timeout_seconds * 1000;
    const timer = setTimeout(
      () => abort.abort(new Failure("TIMED_OUT", `the build took longer than the ${settings.build_timeout_seconds} s of template.build_timeout_seconds`)),
      boundMs,
    );
    const job: Job = {
      builder,
      build,
      signal: abort.signal,
      deadlineMs: begin + boundMs,
      credentials: credentials.get(buildID)?.registry,
      secrets: credentials.get(buildID)?.secrets ?? {},
      sizes: {
        cpuCount: build.cpuCount ?? defaultSizes.cpuCount,
        memoryMB: build.memoryMB ?? defaultSizes.memoryMB,
        diskSizeMB: build.diskSizeMB ?? defaultSizes.diskSizeMB,
      },
      step: "base",
    };
    try {
      builds.update(buildID, { status: "building", step: "base" });
      report("template.build_started", templateID, { buildID });
      const result = await runBuild(job, spec);
      try {
        abort.signal.throwIfAborted();
        buildLog.write(buildID, job.step, [
          { level: "info", message: `built in ${((performance.now() - begin) / 1000).toFixed(1)} s, ${result.chain.layers.length} layers` },
        ]);
        await publish(build, result, abort.signal);
      } catch (error) {
        if (result.checkpointID !== undefined) await builder.checkpoints.remove(result.checkpointID);
        throw error;
      }
      report("template.built", templateID, { buildID, seconds: Math.round((performance.now() - begin) / 1000) });
      builder.layers.sync().catch((error: unknown) => builder.log.warn({ err: error }, "layers could not be synced to disk"));
    } catch (error) {
      settle(job, abort.signal.aborted ? abort.signal.reason : error);
    } finally {
      clearTimeout(timer);
      credentials.delete(buildID);
    }
  }

  /** The build is ready only after it is stored as settings require; an abort also ends that wait. */
  async function publish({ buildID, templateID, createdAtMs }: Build, result: BuildResult, signal: AbortSignal): Promise<void> {
    const { name } = builds.template(templateID) ?? fail("TEMPLATE_NOT_FOUND", "the template was deleted while it was built");
    const aborted = new Promise<never>((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));
    const keeping = builder.keep({ buildID, templateID, name, createdAtMs, result }, builds.tagsToMove(buildID), () => {
      signal.throwIfAborted();
      builds.publish(buildID, result);
    });
    await Promise.race([keeping, aborted]);
  }

  /** Records why a build failed; a build that the node's stop interrupted waits for the next start. */
  function settle(job: Job, error: unknown): void {
    const { buildID, templateID } = job.build;
    const failure = asFailure(error);
    if (abandoned.has(buildID) || builds.build(buildID) === undefined) return;
    if (failure.name === "SHUTTING_DOWN" && job.credentials === undefined && Object.keys(job.secrets).length === 0) {
      buildLog.write(buildID, job.step, [{ level: "warn", message: "the node stops; the build continues from its cached steps when it is up again" }]);
      builds.update(buildID, { status: "waiting", step: undefined });
      return;
    }
    if (failure.name === "INTERNAL") builder.log.error({ err: error, buildID, step: job.step }, "a build failed");
    refuse(buildID, job.step, failure.message);
    report("template.build_failed", templateID, { buildID, step: job.step });
  }

  function refuse(buildID: string, step: string | undefined, message: string): void {
    try {
      buildLog.write(buildID, step, [{ level: "error", message }]);
    } catch (error) {
      // On a full disk the reason is still kept in the build's record, which may use the reserve.
      builder.log.warn({ err: error, buildID, message }, "a build's log could not be written");
    }
    builds.update(buildID, { status: "error", step: undefined, reason: { message, step }, finishedAtMs: builder.nowMs() });
  }

  return {
    start(build, spec, given) {
      if (build.spec !== undefined) fail("BUILD_CONFLICT", `build '${build.buildID}' was already started; request a new build`);
      if (closed) fail("SHUTTING_DOWN", "the node is stopping");
      if (line.length >= settings.build_queue && running.size >= settings.build_concurrency) {
        throw new Failure("TOO_MANY_REQUESTS", `${line.length} builds are waiting, the maximum (template.build_queue); try again later`, {
          retryAfterSeconds: 5,
        });
      }
      const started = builds.update(build.buildID, { spec, status: "waiting", reason: undefined, finishedAtMs: undefined, startedAtMs: builder.nowMs() });
      for (const older of superseded(started)) {
        end(older, new Failure("BUILD_CONFLICT", `superseded: build ${build.buildID} of the same template and tags was started`));
      }
      if (given !== undefined) credentials.set(build.buildID, given);
      line.push({ build: started, spec, ahead: -1 });
      next();
    },
    refuse({ buildID, spec }, failure) {
      if (spec === undefined) refuse(buildID, undefined, failure.message);
    },
    cancel({ buildID, status, spec }) {
      if (spec === undefined && status === "waiting") return builds.abandon(buildID);
      if (status === "ready" || status === "error") fail("BUILD_CONFLICT", `build '${buildID}' has ended: its status is ${status}`);
      end(buildID, new Failure("BUILD_CONFLICT", "canceled"));
    },
    async drop(templateID) {
      const hit = [...running.values()].filter(({ build }) => build.templateID === templateID);
      const deleted = new Failure("INVALID_REQUEST", "the template was deleted while it was built");
      for (const { buildID } of [...line, ...hit].map(({ build }) => build).filter((build) => build.templateID === templateID)) {
        drops.add(buildID);
        if (drops.size > REMEMBERED_DROPS) drops.delete(drops.values().next().value ?? "");
        end(buildID, deleted);
      }
      await Promise.all(hit.map(({ done }) => done));
    },
    wasDropped: (buildID) => drops.has(buildID),
    recover() {
      for (const { buildID, step } of builds.withStatus("building")) {
        refuse(buildID, step, `the node ended while this build was at ${describeStage(step)}; start it again, its finished steps come from the cache`);
      }
      for (const build of builds.withStatus("waiting")) {
        if (build.spec === undefined) continue;
        if (build.spec.needsCredentials)
          refuse(build.buildID, "base", "the node ended while this build waited, and credentials and build secrets are never kept; start it again");
        else line.push({ build, spec: build.spec, ahead: -1 });
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
      for (const { abort } of all) abort.abort(new Failure("SHUTTING_DOWN", "the node is stopping"));
      // An export or a fetch of an image cannot be cancelled; the next start removes what it leaves.
      await Promise.race([Promise.all(all.map(({ done }) => done)), sleep(CLOSE_BOUND_MS, undefined, { ref: false })]);
      for (const { build } of running.values()) {
        if (abandoned.has(build.buildID)) continue;
        abandoned.add(build.buildID);
        if (build.spec?.needsCredentials === true)
          refuse(build.buildID, undefined, "the node stopped, and credentials and build secrets are never kept; start the build again");
        else builds.update(build.buildID, { status: "waiting", step: undefined });
      }
    },
  };
}

function describeStage(step: string | undefined): string {
  if (step === undefined || step === "base") return "its base";
  return step === "finalize" ? "its end (start command and checkpoint)" : `step ${step}`;
}
