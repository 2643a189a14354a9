// Create: claim a warm sandbox where the pool has one, start one where not, give it its identity, then answer.
import { createHash } from "node:crypto";
import { Failure, fail } from "@svc/contract/failures.ts";
import type { SandboxAnswer } from "@svc/contract/sandbox.ts";
import { deriveToken } from "@svc/kit/secret.ts";
import type { Template } from "../template/catalogue.ts";
import { endSandbox } from "./end.ts";
import { sendIdentity } from "./envd.ts";
import type { Node } from "./node.ts";
import type { IdempotentCreate } from "./records.ts";
import { startWarm } from "./start.ts";
import type { Claim, SandboxRecord } from "./state.ts";

export type CreateInput = {
  readonly templateID: string;
  readonly timeout: number;
  readonly secure: boolean;
  readonly allow_internet_access: boolean;
  readonly network?: { readonly allowPublicTraffic: boolean; readonly maskRequestHost?: string | undefined } | null | undefined;
  readonly metadata?: Readonly<Record<string, string>> | null | undefined;
  readonly envVars?: Readonly<Record<string, string>> | null | undefined;
  readonly idempotencyKey?: string | undefined;
};

/** What an answer is made of; kept under an idempotency key, so it holds no token. */
type Answerable = { sandboxID: string; templateID: string; alias: string | undefined; secure: boolean; trafficPrivate: boolean; envdVersion: string };

/** Creates under an idempotency key that are under way. */
const inFlight = new Map<string, string>();

export async function createSandbox(node: Node, input: CreateInput): Promise<SandboxAnswer> {
  const template = node.catalogue.find(input.templateID);
  checkTimeout(node, input.timeout);
  const { idempotencyKey: key, ...body } = input;
  if (key === undefined) return answer(node, await create(node, input, template, undefined));
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
    return answer(node, await create(node, input, template, { key, bodyHash }));
  } finally {
    inFlight.delete(key);
  }
}

/** @throws INVALID_REQUEST when the node's longest timeout is exceeded. */
export function checkTimeout(node: Node, seconds: number): void {
  const most = node.settings.sandbox.max_timeout_seconds;
  if (seconds > most) fail("INVALID_REQUEST", `timeout: found ${seconds}, asked for ${most} seconds at most`);
}

async function create(node: Node, input: CreateInput, template: Template, idempotent: { key: string; bodyHash: string } | undefined): Promise<Answerable> {
  if (node.stopping) fail("SHUTTING_DOWN", "the node is stopping");
  const begin = performance.now();
  const most = node.settings.sandbox.max_sandboxes;
  if (node.owned() + node.creating >= most) {
    throw new Failure("TOO_MANY_REQUESTS", `this node holds its ${most} sandboxes (sandbox.max_sandboxes); delete some, or try again later`, {
      retryAfterSeconds: 5,
    });
  }
  node.creating++;
  try {
    const { record, source } = await obtain(node, input, template);
    const answerable = await own(node, record, input, template, idempotent);
    node.metrics.createSeconds.observe({ source }, (performance.now() - begin) / 1000);
    return answerable;
  } finally {
    node.creating--;
  }
}

/** A warm sandbox: the pool's, else a new one when its turn comes. */
async function obtain(node: Node, input: CreateInput, template: Template): Promise<{ record: SandboxRecord; source: "pool" | "start" }> {
  const policy = { allowInternet: input.allow_internet_access };
  const pooled = node.pool.take(template);
  if (pooled !== undefined) {
    const slot = pooled.status.state === "warm" ? pooled.status.handle.network : undefined;
    if (policy.allowInternet || slot === undefined) return { record: pooled, source: "pool" };
    try {
      await node.networks?.setPolicy(slot, policy);
      return { record: pooled, source: "pool" };
    } catch (error) {
      await endSandbox(node, pooled.sandboxID, "crashed");
      throw error;
    }
  }
  return { record: await node.gate.run(() => startWarm(node, template, policy)), source: "start" };
}

/** Hands the sandbox over to its client; from the record on it is theirs, also after a crash. */
async function own(
  node: Node,
  warm: SandboxRecord,
  input: CreateInput,
  template: Template,
  idempotent: { key: string; bodyHash: string } | undefined,
): Promise<Answerable> {
  const { sandboxID } = warm;
  const claim: Claim = {
    startedAtWallMs: node.clock.wallMs(),
    deadlineMs: node.clock.monotonicMs() + input.timeout * 1000,
    secure: input.secure,
    trafficPrivate: input.network?.allowPublicTraffic === false,
    allowInternet: input.allow_internet_access,
    maskRequestHost: input.network?.maskRequestHost,
    metadata: input.metadata ?? {},
    alias: template.name,
  };
  const answerable: Answerable = {
    sandboxID,
    templateID: template.templateID,
    alias: claim.alias,
    secure: claim.secure,
    trafficPrivate: claim.trafficPrivate,
    envdVersion: warm.envdVersion,
  };
  try {
    const { status } = warm;
    if (status.state !== "warm") fail("SANDBOX_START_FAILED", "the sandbox ended before it was handed over");
    const stage = node.stages(status.handle.runtime);
    const identify = () =>
      sendIdentity(
        status.handle,
        {
          sandboxId: sandboxID,
          accessToken: claim.secure ? deriveToken(node.seed, "envd", sandboxID) : "",
          envVars: {
            ...template.env,
            E2B_SANDBOX: "true",
            E2B_SANDBOX_ID: sandboxID,
            E2B_TEMPLATE_ID: template.templateID,
            SVC_SANDBOX_ID: sandboxID,
            ...input.envVars,
          },
          defaultUser: status.handle.onlyUser ?? template.user,
          defaultWorkdir: template.workdir,
          timestamp: new Date(claim.startedAtWallMs).toISOString(),
        },
        node.initKey.privateKey,
      );
    await stage("identity", identify);
    const kept: IdempotentCreate | undefined = idempotent && { ...idempotent, answer: JSON.stringify(answerable) };
    await stage("claim", async () => node.registry.claim(sandboxID, claim, kept));
  } catch (error) {
    await endSandbox(node, sandboxID, "crashed");
    throw error;
  }
  node.log.info({ sandboxID, template: template.name, secure: claim.secure, timeoutSeconds: input.timeout }, "sandbox created");
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
