// Fork: takes one checkpoint of a running sandbox and starts the requested number of new sandboxes from it.
import { asFailure } from "@svc/contract/failures.ts";
import type { SandboxAnswer } from "@svc/contract/fields.ts";
import type { KeyedLock } from "@svc/kit/keyed-lock.ts";
import type { TenantQuotas } from "@svc/kit/keys/tenant-quotas.ts";
import type { Report } from "../../observe/open-observe.ts";
import type { Checkpoints } from "../../records/checkpoints.ts";
import type { Registry, RunningRecord } from "../../records/registry.ts";
import type { Claim } from "../../records/state.ts";
import { chargeOf } from "../../records/tenant-usage.ts";
import type { Template } from "../../template/template.ts";
import type { Volumes } from "../../volumes/open-volumes.ts";
import type { Admission } from "../supply/admission.ts";
import type { Capacity } from "../supply/capacity.ts";
import type { Checkpointer } from "../supply/checkpoint.ts";
import type { NodeMetrics } from "../supply/node-metrics.ts";
import type { PrecreatedPool } from "../supply/precreated-pool.ts";
import { type RetryStartParts, retryStart } from "../supply/retry-start.ts";
import type { StartWarm } from "../supply/start.ts";
import type { AnswerSandbox } from "./answer.ts";
import type { HandOver } from "./hand-over.ts";
import type { Timeouts } from "./timeout.ts";

export type Forked = { readonly sandbox: SandboxAnswer } | { readonly error: { readonly code: number; readonly message: string; readonly error_code: string } };

export type ForkParts = RetryStartParts & {
  readonly precreatedPool: Pick<PrecreatedPool, "take">;
  readonly lock: KeyedLock;
  readonly registry: Pick<Registry, "running">;
  readonly checkpoints: Pick<Checkpoints, "newID" | "remove">;
  readonly checkpointer: Checkpointer;
  readonly capacity: Capacity;
  readonly quotas: Pick<TenantQuotas, "takeCreate">;
  readonly admission: Pick<Admission, "run">;
  readonly start: StartWarm;
  readonly handOver: HandOver;
  readonly answer: AnswerSandbox;
  readonly timeouts: Pick<Timeouts, "check">;
  readonly volumes: Pick<Volumes, "holding">;
  readonly metrics: Pick<NodeMetrics, "forkSeconds">;
  readonly report: Report;
};

/** Returns a result or an error per child, in no particular order. @throws when the checkpoint fails; there are no children then. */
export type ForkSandbox = (sandboxID: string, count: number, timeoutSeconds: number | undefined) => Promise<Forked[]>;

export function openFork(parts: ForkParts): ForkSandbox {
  const { lock, registry, checkpoints, checkpointer, capacity, timeouts, volumes, metrics, report } = parts;
  return async (sandboxID, count, timeoutSeconds) => {
    if (timeoutSeconds !== undefined) timeouts.check(timeoutSeconds);
    const checkpointID = checkpoints.newID();
    const begin = performance.now();
    const record = await lock.run(sandboxID, async () => {
      const source = registry.running(sandboxID);
      checkpointer.check(source, "memory");
      capacity.check();
      await checkpointer.take(source, { checkpointID, kind: "memory", isKept: false });
      return source;
    });
    try {
      const template = templateOf(record, checkpointID);
      const startAll = () => Promise.all(Array.from({ length: count }, () => child(parts, record, template, timeoutSeconds)));
      const forked = await volumes.holding(template.volumes ?? [], startAll);
      const children = forked.filter((each) => "sandbox" in each).length;
      report("sandbox.forked", record, { children, failed: count - children });
      metrics.forkSeconds.observe((performance.now() - begin) / 1000);
      return forked;
    } finally {
      await checkpoints.remove(checkpointID);
    }
  };
}

async function child(parts: ForkParts, source: RunningRecord, template: Template, timeoutSeconds: number | undefined): Promise<Forked> {
  const { capacity, quotas, admission, precreatedPool, start, handOver, answer } = parts;
  const { claim } = source.status;
  const asked: Claim = {
    ...claim,
    timeoutSeconds: timeoutSeconds ?? claim.timeoutSeconds,
    parentSandboxID: source.sandboxID,
    forkDepth: claim.forkDepth + 1,
  };
  try {
    quotas.takeCreate(claim.tenant);
    const owned = await capacity.reserve(chargeOf(claim.tenant, source.limits), () =>
      retryStart(parts, async () => handOver(await admission.run(() => start(template, claim.egress, precreatedPool.take)), asked, "copied")),
    );
    return { sandbox: answer(owned) };
  } catch (error) {
    const failure = asFailure(error);
    return { error: { code: failure.row.http, message: failure.message, error_code: failure.name } };
  }
}

/** Returns the source as a template, for its own children only. */
function templateOf({ templateID, image, limits, envd, envdVersion, status }: RunningRecord, checkpointID: string): Template {
  const { claim, handle } = status;
  return {
    name: claim.alias ?? "",
    templateID,
    cpuCount: limits.cpuCount,
    memoryMB: limits.memoryMB,
    diskSizeMB: limits.diskSizeMB,
    user: claim.user,
    workdir: claim.workdir,
    env: { ...claim.envVars },
    createdAt: "",
    recipe: checkpointID,
    source: "fork",
    binds: [...image.binds],
    folder: "",
    image,
    checkpointID,
    envd,
    envdVersion,
    runtime: handle.runtime,
    limits,
    volumes: claim.volumes,
    verified: true,
  };
}
