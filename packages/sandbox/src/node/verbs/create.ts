// Create: claims a warm sandbox of the pool or starts one, sends it its identity, then answers.
import { createHash } from "node:crypto";
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { SandboxAnswer } from "@svc/contract/fields.ts";
import type { NetworkInput } from "@svc/contract/network.ts";
import type { IdentityToken } from "@svc/contract/secrets.ts";
import type { VolumeMount } from "@svc/contract/volumes.ts";
import type { TenantQuotas } from "@svc/kit/keys/tenant-quotas.ts";
import { type EgressPolicy, openEgress, sameEgress } from "../../egress/policy.ts";
import { egressOf } from "../../egress/rules.ts";
import type { Networks } from "../../network/networks.ts";
import type { Clock } from "../../records/clock.ts";
import type { Claim, SandboxRecord } from "../../records/state.ts";
import { chargeOf } from "../../records/tenant-usage.ts";
import type { VolumeReference } from "../../runtime/runtime.ts";
import type { Secrets } from "../../secrets/open-secrets.ts";
import type { Template, TemplateSource } from "../../template/template.ts";
import type { Volumes } from "../../volumes/open-volumes.ts";
import type { Admission } from "../supply/admission.ts";
import type { Capacity } from "../supply/capacity.ts";
import type { Drivers } from "../supply/drivers.ts";
import type { Ends } from "../supply/end.ts";
import type { NodeMetrics } from "../supply/node-metrics.ts";
import type { Pool } from "../supply/pool.ts";
import type { PrecreatedPool } from "../supply/precreated-pool.ts";
import { type RetryStartParts, retryStart } from "../supply/retry-start.ts";
import { limitsFor, type StartParts, type StartWarm } from "../supply/start.ts";
import type { Answerable, AnswerSandbox } from "./answer.ts";
import type { KeyedCreates } from "./create-keys.ts";
import type { HandOver } from "./hand-over.ts";
import type { Timeouts } from "./timeout.ts";

export type CreateInput = {
  readonly templateID: string;
  readonly timeout: number;
  readonly secure: boolean;
  readonly allow_internet_access: boolean;
  readonly network?: NetworkInput | null | undefined;
  readonly autoPause: boolean;
  readonly autoPauseMemory: boolean;
  readonly autoResume?: { readonly enabled: boolean } | null | undefined;
  readonly idlePauseSeconds?: number | null | undefined;
  readonly metadata?: Readonly<Record<string, string>> | null | undefined;
  readonly envVars?: Readonly<Record<string, string>> | null | undefined;
  readonly strictFiles?: boolean | null | undefined;
  readonly volumeMounts?: readonly VolumeMount[] | null | undefined;
  readonly iam?: { readonly tokens?: Readonly<Record<string, IdentityToken>> | null | undefined } | null | undefined;
  readonly idempotencyKey?: string | undefined;
  /** Sent by a gateway: the number of the key's grant to this node (I52). */
  readonly keyTurn?: number | undefined;
  /** Gateways choose the node by it; the node ignores it. */
  readonly nodeLabels?: string | undefined;
  /** The build that the template's name means now, according to the node that built it. */
  readonly buildID?: string | undefined;
  /** The snapshot's name on the node where it was taken. */
  readonly sourceName?: string | undefined;
  /** The tenant whose key asks; absent: the deployment's own key. */
  readonly tenant?: string | undefined;
  /** The id of that key. */
  readonly keyID?: string | undefined;
};

export type CreateParts = RetryStartParts & {
  readonly templateIndex: Pick<TemplateSource, "find" | "spawned">;
  readonly drivers: Pick<Drivers, "runtime" | "named">;
  readonly keyed: Pick<KeyedCreates, "once">;
  readonly capacity: Capacity;
  readonly quotas: Pick<TenantQuotas, "takeCreate">;
  readonly limits: StartParts["limits"];
  readonly admission: Pick<Admission, "run">;
  readonly pool: Pick<Pool, "take">;
  readonly precreatedPool: Pick<PrecreatedPool, "take">;
  readonly networks: Pick<Networks, "setPolicy" | "admitProxy"> | undefined;
  readonly secrets: Pick<Secrets, "sealPassword">;
  readonly start: StartWarm;
  readonly handOver: HandOver;
  readonly ends: Pick<Ends, "end">;
  readonly answer: AnswerSandbox;
  readonly timeouts: Pick<Timeouts, "check">;
  /** Fetches a snapshot or template of this id or name from the deployment; returns its id, or undefined. */
  readonly fetch: (asked: string) => Promise<string | undefined>;
  readonly clock: Clock;
  /** @throws CAPACITY_EXHAUSTED where the node's clock is far from the deployment's. */
  readonly checkClock: () => void;
  readonly volumes: Pick<Volumes, "referencesOf" | "holding">;
  readonly metrics: Pick<NodeMetrics, "createSeconds">;
  /** Returns true if a tenant may start sandboxes from this template. */
  readonly isOpenTo: (tenant: string, template: Template) => boolean;
};

export type CreateSandbox = (input: CreateInput) => Promise<SandboxAnswer>;

type Idempotent = { readonly key: string; readonly bodyHash: string };

export function openCreate(parts: CreateParts): CreateSandbox {
  const { keyed, timeouts, answer } = parts;

  return async (input) => {
    timeouts.check(input.timeout);
    parts.checkClock();
    const begin = async (idempotent: Idempotent | undefined) => {
      const found = await findTemplate(parts, input.buildID ?? input.templateID);
      if (input.tenant !== undefined && !parts.isOpenTo(input.tenant, found)) fail("TEMPLATE_NOT_FOUND", `template '${input.templateID}' not found`);
      const template = await withVolumes(parts, found, input);
      checkPause(parts.drivers, template, input);
      const claim = claimOf(parts, input, template);
      if (claim.egress.proxy !== undefined) await parts.networks?.admitProxy(claim.egress.proxy);
      return answer(await create(parts, claim, template, idempotent));
    };
    const { idempotencyKey: key, keyTurn: turn, nodeLabels: _, buildID: _build, sourceName: _name, ...body } = input;
    if (key === undefined) return begin(undefined);
    const bodyHash = createHash("sha256").update(JSON.stringify(body)).digest("hex");
    const again = async (earlier: { readonly answer: string }) => answer(JSON.parse(earlier.answer) as Answerable);
    return keyed.once({ key, bodyHash, turn }, again, () => begin({ key, bodyHash }));
  };
}

/** Finds a template; a snapshot or template of another node is fetched first. @throws TEMPLATE_NOT_FOUND. */
async function findTemplate({ templateIndex, fetch }: CreateParts, asked: string): Promise<Template> {
  try {
    return templateIndex.find(asked);
  } catch (error) {
    const fetched = asFailure(error).name === "TEMPLATE_NOT_FOUND" ? await fetch(asked) : undefined;
    if (fetched === undefined) throw error;
    return templateIndex.find(fetched);
  }
}

/**
 * Returns the template with the volumes of the create, or else with those of the snapshot that it is. Memory can only be restored with the mounts that it
 * was kept with: a template's start command runs again instead, and a snapshot with memory is refused.
 */
async function withVolumes({ volumes, drivers }: CreateParts, template: Template, { volumeMounts, tenant }: CreateInput): Promise<Template> {
  const asked = volumeMounts ?? undefined;
  if (asked === undefined || (asked.length === 0 && (template.volumes ?? []).length === 0)) return template;
  const references = await volumes.referencesOf(asked, tenant);
  const keyOf = (all: readonly VolumeReference[]) => JSON.stringify(all.map(({ volumeID, path }) => [volumeID, path]));
  if (template.checkpointID === undefined || keyOf(references) === keyOf(template.volumes ?? [])) return { ...template, volumes: references };
  if (template.source !== "snapshot")
    return { ...template, volumes: references, checkpointID: undefined, envd: undefined, envdVersion: undefined, runtime: drivers.runtime.name };
  if (template.isFilesOnly === true) return { ...template, volumes: references };
  const own = (template.volumes ?? []).map(({ name, path }) => `${name} at ${path}`).join(", ");
  return fail(
    "INVALID_REQUEST",
    `volumeMounts: snapshot '${template.templateID}' has memory, which is bound to the volumes of its sandbox (${own || "none"}): leave volumeMounts out, or take a snapshot of the files alone (memory: false)`,
  );
}

/** @throws CHECKPOINT_UNAVAILABLE already at create, not at the timeout, when the driver cannot keep the requested kind of checkpoint. */
function checkPause(drivers: CreateParts["drivers"], template: Template, { autoPause, autoPauseMemory }: CreateInput): void {
  const runtime = template.runtime === undefined ? drivers.runtime : drivers.named(template.runtime);
  const kind = autoPauseMemory ? "memory" : "filesystem";
  if (autoPause && !runtime.checkpoints.has(kind)) {
    fail(
      "CHECKPOINT_UNAVAILABLE",
      `autoPause: the ${runtime.name} driver cannot keep a sandbox's ${kind}${kind === "memory" ? "; use autoPauseMemory: false" : ""}`,
    );
  }
}

function claimOf({ clock, secrets }: Pick<CreateParts, "clock" | "secrets">, input: CreateInput, template: Template): Claim {
  const means = { tokens: Object.keys(input.iam?.tokens ?? {}), seal: secrets.sealPassword };
  return {
    startedAtWallMs: clock.wallMs(),
    deadlineMs: 0, // set at the hand-over
    timeoutSeconds: input.timeout,
    onTimeout: input.autoPause ? "pause" : "kill",
    pauseKind: input.autoPauseMemory ? "memory" : "filesystem",
    autoResume: input.autoResume?.enabled === true,
    ...(typeof input.idlePauseSeconds === "number" ? { idlePauseSeconds: input.idlePauseSeconds } : {}),
    secure: input.secure,
    trafficPrivate: input.network?.allowPublicTraffic === false,
    egress: egressOf({ ...input.network, allow_internet_access: input.allow_internet_access }, means),
    ...(Object.keys(input.iam?.tokens ?? {}).length === 0 ? {} : { tokens: input.iam?.tokens ?? {} }),
    maskRequestHost: input.network?.maskRequestHost,
    ...(input.network?.httpsPorts?.length ? { httpsPorts: input.network.httpsPorts } : {}),
    metadata: input.metadata ?? {},
    envVars: { ...template.env, ...input.envVars },
    user: template.user,
    workdir: template.workdir,
    strictFiles: input.strictFiles ?? template.strictFiles,
    ...(template.volumes === undefined || template.volumes.length === 0 ? {} : { volumes: template.volumes }),
    alias: template.name === "" ? input.sourceName : template.name,
    parentSandboxID: undefined,
    forkDepth: 0,
    ...(input.tenant === undefined ? {} : { tenant: input.tenant }),
    ...(input.keyID === undefined ? {} : { keyID: input.keyID }),
  };
}

async function create(parts: CreateParts, claim: Claim, template: Template, idempotent: Idempotent | undefined): Promise<Answerable> {
  const { capacity, quotas, templateIndex, handOver, volumes, metrics } = parts;
  quotas.takeCreate(claim.tenant);
  return capacity.reserve(chargeOf(claim.tenant, limitsFor(parts.limits, template)), async () => {
    const begin = performance.now();
    const { answerable, source } = await volumes.holding(template.volumes ?? [], () =>
      retryStart(parts, async () => {
        const { record, source } = await obtain(parts, claim.egress, template);
        return { answerable: await handOver(record, claim, template.checkpointID === undefined ? "fresh" : "copied", idempotent), source };
      }),
    );
    metrics.createSeconds.observe({ source }, (performance.now() - begin) / 1000);
    templateIndex.spawned(template.templateID);
    return answerable;
  });
}

/** Returns a warm sandbox: one of the pool, else a new one once its start is admitted. */
async function obtain(parts: CreateParts, egress: EgressPolicy, template: Template): Promise<{ record: SandboxRecord; source: "pool" | "start" }> {
  const { pool, precreatedPool, networks, ends, admission, start } = parts;
  const pooled = template.volumes === undefined || template.volumes.length === 0 ? pool.take(template) : undefined;
  if (pooled !== undefined) {
    const slot = pooled.status.state === "warm" ? pooled.status.handle.network : undefined;
    if (slot === undefined || sameEgress(egress, openEgress)) return { record: pooled, source: "pool" };
    await using undo = new AsyncDisposableStack();
    undo.defer(() => ends.end(pooled.sandboxID, "crashed"));
    await networks?.setPolicy(slot, egress);
    undo.move();
    return { record: pooled, source: "pool" };
  }
  return { record: await admission.run(() => start(template, egress, precreatedPool.take)), source: "start" };
}
