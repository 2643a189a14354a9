// Create: place the sandbox, ask the best node, try the next one if it is full, and wait in a bounded queue if all are.
import type { Send } from "@svc/contract/call.ts";
import type { NameRecord } from "@svc/contract/cluster.ts";
import { Failure, fail } from "@svc/contract/failures.ts";
import type { SandboxAnswer } from "@svc/contract/fields.ts";
import type { Parsed } from "@svc/contract/operation.ts";
import type { createSandbox, createSandboxV1 } from "@svc/contract/sandbox.ts";
import type { Context } from "@svc/kit/serve.ts";
import type { EtcdDirectory } from "../members/etcd-directory.ts";
import { awayDecider, candidateOf, heldBy, snapshotNamed } from "../members/holdings.ts";
import type { Lookups } from "../members/lookups.ts";
import type { Member } from "../members/member.ts";
import type { Members } from "../members/members.ts";
import { withTag } from "../members/names.ts";
import { type Candidate, hasLabels, type Placed, place, type Refusal, type Request, type Rules, weightOf } from "../place/place.ts";
import type { AdmissionQueue } from "../place/queue.ts";
import { keyNodes } from "./key-nodes.ts";
import { KeyedCreate } from "./keyed-create.ts";
import type { Relay } from "./relay.ts";
import type { GatewaySecrets } from "./secrets.ts";
import { type Build, beganNothing, fetchersOf, isDeclined, isWithoutStorage, openNamed, openResolution, type Resolve } from "./template-nodes.ts";
import type { GatewayVolumes } from "./volumes.ts";

export type CreateOperation = typeof createSandbox | typeof createSandboxV1;

export type CreateParts = {
  readonly members: Members;
  readonly lookups: Lookups;
  readonly relay: Relay;
  readonly queue: AdmissionQueue;
  readonly rules: Rules;
  /** Returns undefined if the nodes are a fixed list. */
  readonly directory: () => Pick<EtcdDirectory, "isDead" | "gone" | "agrees"> | undefined;
  readonly apiKey: string;
  readonly send: Send;
  readonly volumes: Pick<GatewayVolumes, "nodesFor">;
  readonly secrets: Pick<GatewaySecrets, "settle">;
  readonly nowMs: () => number;
  readonly onPlaced: (outcome: PlaceOutcome) => void;
};

export const placeOutcomes = ["first", "next", "queued", "refused"] as const;
export type PlaceOutcome = (typeof placeOutcomes)[number];

/** Bounds the nodes that one create is sent to; each is tried only after the one before answered that it began nothing. */
const MAX_TRIES = 3;
const MAX_RETRY_AFTER_SECONDS = 60;

export function openCreate(parts: CreateParts) {
  const { members, queue, rules, nowMs, onPlaced } = parts;

  return async (operation: CreateOperation, input: Parsed<CreateOperation>, context: Context): Promise<SandboxAnswer> => {
    const sinceMs = nowMs();
    if (input.network?.rules !== undefined && input.network.rules !== null) await parts.secrets.settle();
    // The name is resolved once, when the request arrives, so that every node that is tried starts the same snapshot, also after a wait.
    const named = snapshotNamed(members, input.templateID);
    const snapshotID = named?.snapshotID || undefined;
    const sourceName = snapshotID === undefined ? members.names.nameOf(input.templateID) : withTag(input.templateID);
    const snapshot = sourceName === undefined ? undefined : openNamed(sourceName, snapshotID ?? input.templateID);
    const request: Request = { templateID: snapshotID ?? input.templateID, labels: labelsOf(input.nodeLabels), idempotencyKey: input.idempotencyKey };
    const { idempotencyKey: key } = request;
    const keyed = key === undefined ? undefined : new KeyedCreate(keyNodes({ ...parts, context, templateID: request.templateID }), key);
    async function sendTo(preferred: Member, build: Build, resolve: Resolve): Promise<SandboxAnswer> {
      if (keyed === undefined) return send(parts, operation, { ...input, ...build }, context, preferred);
      return keyed.send(preferred, async (member, keyTurn) => {
        const its = member === preferred ? build : await resolve(member);
        return send(parts, operation, { ...input, ...(its === "unknown" ? {} : its), keyTurn }, context, member);
      });
    }
    const holder = await keyed?.find();
    if (holder !== undefined) {
      const answer = await sendTo(holder, snapshot?.(holder) ?? {}, openResolution(members, parts.lookups, request.templateID, snapshot)).catch(
        (error: unknown) => {
          if (!beganNothing(error, holder, request.templateID)) throw error;
        },
      );
      if (answer !== undefined) return answer;
    }
    if (named?.snapshotID === "") fail("TEMPLATE_NOT_FOUND", `template '${input.templateID}' not found: the snapshot that bore this name was deleted`);
    if (named !== undefined && isWithoutStorage(members)) mustDecide(members, input.templateID, named);
    const mounts = input.volumeMounts ?? [];
    if (mounts.length > 0)
      return onVolumeNode(await parts.volumes.nodesFor(mounts, context), openResolution(members, parts.lookups, request.templateID, snapshot));

    /** Tries the nodes that have the volumes, one after the other; which nodes these are leaves placement no choice. */
    async function onVolumeNode(nodes: readonly Member[], resolve: Resolve): Promise<SandboxAnswer> {
      let last: unknown;
      for (const member of nodes.slice(0, MAX_TRIES)) {
        const build = await resolve(member);
        try {
          const answer = await sendTo(member, build === "unknown" ? {} : build, resolve);
          onPlaced("first");
          return answer;
        } catch (error) {
          if (!beganNothing(error, member, request.templateID)) throw error;
          last = error;
        }
      }
      throw last;
    }

    for (let wasQueued = false; ; wasQueued = true) {
      const resolve = openResolution(members, parts.lookups, request.templateID, snapshot);
      const placed = place(
        members.all.map((member) => candidateOf(members, member)),
        request,
        rules,
      );
      // It looks at every node again, so it is computed only once the nodes that have the template do not suffice.
      let fetching: readonly Candidate[] | undefined;
      const elsewhere = () => (fetching ??= elsewhereOf(members, request, rules, placed));
      if (placed.candidates.length === 0 && elsewhere().length === 0) {
        const answer = await holderOrRefuse(parts, request, placed, (member) => sendTo(member, snapshot?.(member) ?? {}, resolve));
        if (answer !== undefined) return answer;
      }
      let tries = 0;
      let declined: Failure | undefined;
      const best = placed.candidates.slice(0, MAX_TRIES);
      for (const { nodeID } of best.length === MAX_TRIES ? best : [...best, ...elsewhere()].slice(0, MAX_TRIES)) {
        const member = members.named(nodeID);
        if (member?.isUp !== true) continue;
        const build = await resolve(member);
        if (build === "unknown") continue;
        tries++;
        try {
          const answer = await sendTo(member, build, resolve);
          onPlaced(wasQueued ? "queued" : tries === 1 ? "first" : "next");
          if (wasQueued) queue.admitted();
          return answer;
        } catch (error) {
          if (isDeclined(error, member, request.templateID)) {
            declined = error;
            continue;
          }
          if (!(error instanceof Failure) || !beganNothing(error, member, request.templateID)) throw error;
          if (error.name !== "SERVER_UNREACHABLE") member.isFull = true;
        }
      }
      if (declined !== undefined && declined.name !== "TEMPLATE_NOT_FOUND" && !members.up.some((member) => heldBy(members, member, request.templateID)))
        throw declined;
      if (elsewhere().length > 0) await holderOrRefuse(parts, request, placed, () => fail("TEMPLATE_NOT_FOUND", "it was requested there"));
      if (!wasQueued && queue.isFull) throw full(queue, placed, onPlaced, `${queue.length} creates wait already (gateway.queue)`);
      if (!(await queue.wait(sinceMs))) throw full(queue, placed, onPlaced, "none had room in time (gateway.queue_timeout_seconds)");
      if (context.signal.aborted) fail("TIMED_OUT", "the client left");
    }
  };
}

async function send({ members, relay }: CreateParts, operation: CreateOperation, input: Parsed<CreateOperation>, context: Context, member: Member) {
  member.creating++;
  try {
    const answer = await relay(operation, input, context, member);
    member.createSuccesses++;
    members.learn(answer.sandboxID, member);
    return answer;
  } catch (error) {
    member.createFails++;
    throw error;
  } finally {
    member.creating--;
  }
}

/** Only the node that named a snapshot knows whether the snapshot was deleted or the name moved. @throws NODE_LOST. */
function mustDecide(members: Members, asked: string, named: NameRecord): void {
  const away = awayDecider(members, named);
  if (away === undefined) return;
  const { snapshotID } = named;
  const copies = members.up.filter((member) => member.held(snapshotID) !== undefined).map(({ name }) => name);
  const has = copies.length === 1 ? "has a copy" : "have copies";
  const what =
    copies.length === 0
      ? "no node that answers has a copy of it, and there is no object storage that could have it, too (objects.url)"
      : `${copies.join(", ")} ${has} of it, which its id starts: svc start ${snapshotID}`;
  const said = `snapshot '${asked}' (${snapshotID}) was taken on node ${away.name}, which decides about its name and does not answer: ${away.reason}; ${what}`;
  fail("NODE_LOST", said, { details: { node: away.name, snapshotID } });
}

/** A template that only lost nodes hold may also be in object storage, from which any node can start it; a node that cannot begins nothing. */
function elsewhereOf(members: Members, request: Request, rules: Rules, placed: Placed): readonly Candidate[] {
  const fetchers = fetchersOf(members, request, rules);
  return placed.candidates.length === 0 && fetchers.length === 0 ? withoutHolder(members, request) : fetchers;
}

/** Returns the nodes that are up if every holder of the template is down. */
function withoutHolder(members: Members, request: Request): Candidate[] {
  const holders = members.all.filter((member) => member.held(request.templateID) !== undefined);
  if (holders.length === 0 || holders.some((member) => member.isUp)) return [];
  return members.up.map((member) => member.candidate()).filter((node) => mayFetch(node, request));
}

/** Returns true if a node may start a template that object storage has for it. */
function mayFetch(node: Candidate, request: Request): boolean {
  return !node.isDraining && hasLabels(node, request);
}

/**
 * Refuses if waiting would not help: no node has the template, or no node that has it may take the sandbox. Asks a node that has the template
 * although its stream does not say so yet, or one node for a snapshot that only object storage has; the answer of that node is final.
 */
async function holderOrRefuse(
  parts: CreateParts,
  request: Request,
  { refused }: Placed,
  ask: (member: Member) => Promise<SandboxAnswer>,
): Promise<SandboxAnswer | undefined> {
  const { templateID } = request;
  const reasons = new Set(refused.values());
  if (reasons.has("full") || reasons.has("memory") || reasons.has("draining")) return undefined;
  const holders = parts.members.all.filter((member) => heldBy(parts.members, member, templateID) !== undefined);
  const [lostHolder] = holders.filter((member) => !member.isUp);
  const known = [...refused].map(([name, why]) => `${name}: ${why}`).join(", ");
  if (reasons.has("labels") || reasons.has("CPU class")) fail("CAPACITY_EXHAUSTED", `no node can take this sandbox (${known})`);
  if (parts.members.up.length === 0) fail("SERVER_UNREACHABLE", "no node of this deployment answers; GET /nodes says why", { retryAfterSeconds: 1 });
  if (lostHolder !== undefined && holders.every((member) => !member.isUp)) {
    const details = { node: lostHolder.name };
    const where = isWithoutStorage(parts.members) ? ", and there is no object storage that could have it, too (objects.url)" : "";
    fail("NODE_LOST", `no node that answers has template '${templateID}'; node ${lostHolder.name} has it: ${lostHolder.reason}${where}`, { details });
  }
  const found = await parts.lookups.find({ templateID });
  if (found !== undefined) return ask(found.member);
  // Every create of this template picks the same node, so that it is fetched once.
  const [chosen] = parts.members.up
    .filter((member) => mayFetch(member.candidate(), request) && (member.held(templateID) === undefined || heldBy(parts.members, member, templateID)))
    .sort((a, b) => weightOf(templateID, b.name) - weightOf(templateID, a.name));
  const answer = await chosenAnswer(chosen, ask);
  if (answer !== undefined) return answer;
  const missing = parts.members.all.filter((each) => !each.isUp);
  const where = missing.length === 0 ? "" : `; ${missing.map(({ name }) => name).join(", ")} could not be asked`;
  return fail("TEMPLATE_NOT_FOUND", `template '${templateID}' not found on any node${where}; \`svc template list\` lists them`);
}

/** Returns undefined if object storage does not have it either. */
async function chosenAnswer(chosen: Member | undefined, ask: (member: Member) => Promise<SandboxAnswer>): Promise<SandboxAnswer | undefined> {
  if (chosen === undefined) return undefined;
  return ask(chosen).catch((error: unknown) => {
    if (error instanceof Failure && error.name === "TEMPLATE_NOT_FOUND") return undefined;
    throw error;
  });
}

function full(queue: AdmissionQueue, { refused }: Placed, onPlaced: CreateParts["onPlaced"], why: string): Failure {
  onPlaced("refused");
  const waitSeconds = Math.max(1, Math.ceil(queue.estimatedWaitMs / 1000));
  const counts = new Map<Refusal, number>();
  for (const reason of refused.values()) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  const nodes = [...counts].map(([reason, number]) => `${number} ${reason}`).join(", ");
  return new Failure(
    "TOO_MANY_REQUESTS",
    `the maximum number of concurrent sandboxes is reached: no node has room${nodes === "" ? "" : ` (${nodes})`}, and ${why}; the wait is about ${waitSeconds} s`,
    {
      retryAfterSeconds: Math.min(waitSeconds, MAX_RETRY_AFTER_SECONDS),
      details: { queueLength: queue.length, estimatedWaitSeconds: waitSeconds },
    },
  );
}

function labelsOf(text: string | undefined): Record<string, string> | undefined {
  if (text === undefined) return undefined;
  return Object.fromEntries(text.split(",").map((label) => [label.slice(0, label.indexOf("=")), label.slice(label.indexOf("=") + 1)]));
}
