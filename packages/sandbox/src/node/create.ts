// Create: claim a warm sandbox where the pool has one, start one where not, give it its identity, then answer.
import { createHash } from "node:crypto";
import { Failure, fail } from "@svc/contract/failures.ts";
import type { SandboxAnswer } from "@svc/contract/fields.ts";
import type { NetworkInput } from "@svc/contract/network.ts";
import { deriveToken } from "@svc/kit/secret.ts";
import { type EgressPolicy, openEgress, sameEgress } from "../network/networks.ts";
import type { Template } from "../template/catalogue.ts";
import { beginAgain } from "./begin-again.ts";
import { egressOf } from "./egress.ts";
import { endSandbox } from "./end.ts";
import { type Origin, tellAll } from "./identity.ts";
import type { Node } from "./node.ts";
import type { IdempotentCreate } from "./records.ts";
import { startWarm } from "./start.ts";
import type { Claim, SandboxRecord } from "./state.ts";

export type CreateInput = {
  readonly templateID: string;
  readonly timeout: number;
  readonly secure: boolean;
  readonly allow_internet_access: boolean;
  readonly network?: NetworkInput | null | undefined;
  readonly autoPause: boolean;
  readonly autoPauseMemory: boolean;
  readonly autoResume?: { readonly enabled: boolean } | null | undefined;
  readonly metadata?: Readonly<Record<string, string>> | null | undefined;
  readonly envVars?: Readonly<Record<string, string>> | null | undefined;
  readonly strictFiles?: boolean | null | undefined;
  readonly idempotencyKey?: string | undefined;
};

/** What an answer is made of; kept under an idempotency key, so it holds no token. */
export type Answerable = { sandboxID: string; templateID: string; alias: string | undefined; secure: boolean; trafficPrivate: boolean; envdVersion: string };

/** Creates under an idempotency key that are under way. */
const inFlight = new Map<string, string>();

export async function createSandbox(node: Node, input: CreateInput): Promise<SandboxAnswer> {
  const template = node.catalogue.find(input.templateID);
  checkTimeout(node, input.timeout);
  checkPause(node, template, input);
  const claim = claimOf(node, input, template);
  const { idempotencyKey: key, ...body } = input;
  if (key === undefined) return answer(node, await create(node, claim, template, undefined));
  const bodyHash = createHash("sha256").update(JSON.stringify(body)).digest("hex");
  const earlier = node.records.idempotent(key);
  if ((inFlight.get(key) ?? earlier?.bodyHash ?? bodyHash) !== bodyHash) {
    fail("IDEMPOTENCY_KEY_REUSED", `Idempotency-Key '${key}' was used with another body; take a new key for another request`);
  }
  if (inFlight.has(key))
    throw new Failure("REQUEST_IN_FLIGHT", `a create with Idempotency-Key '${key}' is under way; ask again when it is done`, { retryAfterSeconds: 1 });
  if (earlier !== undefined) return answer(node, JSON.parse(earlier.answer) as Answerable);
  inFlight.set(key, bodyHash);
  try {
    return answer(node, await create(node, claim, template, { key, bodyHash }));
  } finally {
    inFlight.delete(key);
  }
}

/** @throws INVALID_REQUEST when the node's longest timeout is exceeded. */
export function checkTimeout(node: Node, seconds: number): void {
  const most = node.settings.sandbox.max_timeout_seconds;
  if (seconds > most) fail("INVALID_REQUEST", `timeout: found ${seconds}, asked for ${most} seconds at most`);
}

/** @throws CAPTURE_UNAVAILABLE at once, not at the timeout, when the driver cannot keep what is asked for. */
function checkPause(node: Node, template: Template, { autoPause, autoPauseMemory }: CreateInput): void {
  const runtime = template.runtime === undefined ? node.runtime : node.runtimeNamed(template.runtime);
  const kind = autoPauseMemory ? "memory" : "filesystem";
  if (autoPause && !runtime.captures.has(kind)) {
    fail(
      "CAPTURE_UNAVAILABLE",
      `autoPause: the ${runtime.name} driver cannot keep a sandbox's ${kind}${kind === "memory" ? "; ask for autoPauseMemory: false" : ""}`,
    );
  }
}

function claimOf(node: Node, input: CreateInput, template: Template): Claim {
  return {
    startedAtWallMs: node.clock.wallMs(),
    deadlineMs: 0, // set when it is handed over
    timeoutSeconds: input.timeout,
    onTimeout: input.autoPause ? "pause" : "kill",
    pauseKind: input.autoPauseMemory ? "memory" : "filesystem",
    autoResume: input.autoResume?.enabled === true,
    secure: input.secure,
    trafficPrivate: input.network?.allowPublicTraffic === false,
    egress: egressOf({ ...input.network, allow_internet_access: input.allow_internet_access }),
    maskRequestHost: input.network?.maskRequestHost,
    metadata: input.metadata ?? {},
    envVars: { ...template.env, ...input.envVars },
    user: template.user,
    workdir: template.workdir,
    strictFiles: input.strictFiles ?? template.strictFiles,
    alias: template.name === "" ? undefined : template.name,
    parentSandboxID: undefined,
    forkDepth: 0,
  };
}

/** @throws SHUTTING_DOWN, TOO_MANY_REQUESTS when this node holds all the sandboxes it may. */
export function checkRoom(node: Node): void {
  if (node.stopping) fail("SHUTTING_DOWN", "the node is stopping");
  const most = node.settings.sandbox.max_sandboxes;
  if (node.owned() + node.creating >= most) {
    throw new Failure("TOO_MANY_REQUESTS", `this node holds its ${most} sandboxes (sandbox.max_sandboxes); delete some, or try again later`, {
      retryAfterSeconds: 5,
    });
  }
}

async function create(node: Node, claim: Claim, template: Template, idempotent: { key: string; bodyHash: string } | undefined): Promise<Answerable> {
  checkRoom(node);
  const begin = performance.now();
  node.creating++;
  try {
    const { answerable, source } = await beginAgain(node, async () => {
      const { record, source } = await obtain(node, claim.egress, template);
      return { answerable: await own(node, record, claim, idempotent, template.captureID === undefined ? "fresh" : "copied"), source };
    });
    node.metrics.createSeconds.observe({ source }, (performance.now() - begin) / 1000);
    node.catalogue.spawned(template.templateID);
    return answerable;
  } finally {
    node.creating--;
  }
}

/** A warm sandbox: the pool's, else a new one when its turn comes. */
async function obtain(node: Node, egress: EgressPolicy, template: Template): Promise<{ record: SandboxRecord; source: "pool" | "start" }> {
  const pooled = node.pool.take(template);
  if (pooled !== undefined) {
    const slot = pooled.status.state === "warm" ? pooled.status.handle.network : undefined;
    if (slot === undefined || sameEgress(egress, openEgress)) return { record: pooled, source: "pool" };
    try {
      await node.networks?.setPolicy(slot, egress);
      return { record: pooled, source: "pool" };
    } catch (error) {
      await endSandbox(node, pooled.sandboxID, "crashed");
      throw error;
    }
  }
  return { record: await node.gate.run(() => startWarm(node, template, egress)), source: "start" };
}

/** Hands the sandbox over to its client; from the record on it is theirs, also after a crash. */
export async function own(
  node: Node,
  warm: SandboxRecord,
  asked: Claim,
  idempotent: { key: string; bodyHash: string } | undefined,
  origin: Origin,
): Promise<Answerable> {
  const { sandboxID, templateID } = warm;
  const claim: Claim = {
    ...asked,
    startedAtWallMs: node.clock.wallMs(),
    deadlineMs: node.clock.monotonicMs() + asked.timeoutSeconds * 1000,
  };
  const { alias, secure, trafficPrivate } = claim;
  const answerable: Answerable = { sandboxID, templateID, alias, secure, trafficPrivate, envdVersion: warm.envdVersion };
  try {
    const { status } = warm;
    if (status.state !== "warm") fail("SANDBOX_START_FAILED", "the sandbox ended before it was handed over");
    const stage = node.stages(status.handle.runtime);
    await stage("identity", () => tellAll(node, warm, status.handle, claim, origin));
    const kept: IdempotentCreate | undefined = idempotent && { ...idempotent, answer: JSON.stringify(answerable) };
    await stage("claim", async () => node.registry.claim(sandboxID, claim, kept));
  } catch (error) {
    await endSandbox(node, sandboxID, "crashed");
    throw error;
  }
  const { parentSandboxID, timeoutSeconds } = claim;
  node.tell("sandbox.created", warm, { timeoutSeconds, template: alias ?? templateID, ...(parentSandboxID === undefined ? {} : { parentSandboxID }) });
  return answerable;
}

export function answer(node: Node, { sandboxID, templateID, alias, secure, trafficPrivate, envdVersion }: Answerable): SandboxAnswer {
  return {
    sandboxID,
    templateID,
    clientID: "svc",
    envdVersion,
    ...(alias === undefined ? {} : { alias }),
    ...(secure ? { envdAccessToken: deriveToken(node.seed, "envd", sandboxID) } : {}),
    ...(trafficPrivate ? { trafficAccessToken: deriveToken(node.seed, "traffic", sandboxID) } : {}),
    domain: node.domain,
  };
}
