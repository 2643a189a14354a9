// The node's handlers: one short function per operation of contract/sandbox.ts.
import { fail } from "@svc/contract/failures.ts";
import type { SandboxAnswer } from "@svc/contract/fields.ts";
import type { keyOperations } from "@svc/contract/keys.ts";
import type { previewOperations } from "@svc/contract/previews.ts";
import type { pullOperations } from "@svc/contract/pull.ts";
import type { nodeOperations } from "@svc/contract/sandbox.ts";
import type { secretOperations } from "@svc/contract/secrets.ts";
import type { templateOperations } from "@svc/contract/template.ts";
import type { tenantOperations } from "@svc/contract/tenants.ts";
import type { volumeOperations } from "@svc/contract/volumes.ts";
import type { webhookDeliveryOperations } from "@svc/contract/webhook-deliveries.ts";
import type { webhookOperations } from "@svc/contract/webhooks.ts";
import { tenantOf } from "@svc/kit/keys/principal.ts";
import type { Handlers } from "@svc/kit/serve.ts";
import type { Quarantine } from "../../records/quarantine.ts";
import type { Registry } from "../../records/registry.ts";
import type { CheckpointKind } from "../../runtime/runtime.ts";
import type { Capacity } from "../supply/capacity.ts";
import type { Ends } from "../supply/end.ts";
import { type AnswerSandbox, answerableOf } from "../verbs/answer.ts";
import type { CreateSandbox } from "../verbs/create.ts";
import type { QuarantineDeletion } from "../verbs/delete-quarantined.ts";
import type { ForkSandbox } from "../verbs/fork.ts";
import type { Moves } from "../verbs/move.ts";
import type { NamedSnapshots } from "../verbs/named-snapshots.ts";
import type { Pauses } from "../verbs/pause.ts";
import type { ResumeSandbox } from "../verbs/resume.ts";
import type { SetNetwork } from "../verbs/set-network.ts";
import type { TakeSnapshot } from "../verbs/take-snapshot.ts";
import type { Timeouts } from "../verbs/timeout.ts";
import type { Deaths } from "../watch/deaths.ts";
import type { Listing } from "./list.ts";
import { ownCreate } from "./tenants.ts";

/** The minimum of a refresh, which E2B clients rely on. */
const MIN_REFRESH_SECONDS = 15;

/** Operations whose handlers are next to the code that they use. */
type Elsewhere =
  | keyof typeof templateOperations
  | keyof typeof webhookOperations
  | keyof typeof webhookDeliveryOperations
  | keyof typeof volumeOperations
  | keyof typeof secretOperations
  | keyof typeof previewOperations
  | keyof typeof keyOperations
  | keyof typeof tenantOperations
  | "collectGarbage"
  | "getUsage"
  | keyof typeof pullOperations
  | "getSandboxMetrics"
  | "getSandboxesMetrics"
  | "getSandboxLogs"
  | "getSandboxLogsV2";

/** Everything that a client can do with a node's sandboxes. */
export type Verbs = {
  readonly create: CreateSandbox;
  readonly ends: Pick<Ends, "delete">;
  readonly quarantined: Pick<QuarantineDeletion, "delete">;
  readonly quarantine: Pick<Quarantine, "find">;
  readonly deaths: Pick<Deaths, "orEnded">;
  readonly pauses: Pick<Pauses, "pause">;
  readonly resume: ResumeSandbox;
  readonly moves: Pick<Moves, "move">;
  readonly fork: ForkSandbox;
  readonly takeSnapshot: TakeSnapshot;
  readonly snapshots: Pick<NamedSnapshots, "get" | "page">;
  readonly setNetwork: SetNetwork;
  readonly timeouts: Timeouts;
  readonly listing: Listing;
  readonly answer: AnswerSandbox;
  readonly registry: Pick<Registry, "owned" | "running" | "ownerOf">;
  readonly capacity: Pick<Capacity, "isStopping">;
  /** Waits until a paused sandbox or a snapshot is in object storage, if the settings require that before the answer. */
  readonly untilDurable: (id: string) => Promise<void>;
};

export function nodeHandlers(verbs: Verbs): Omit<Handlers<typeof nodeOperations>, Elsewhere> {
  const {
    create,
    ends,
    quarantined,
    quarantine,
    deaths,
    pauses,
    resume,
    moves,
    fork,
    takeSnapshot,
    snapshots,
    setNetwork,
    timeouts,
    listing,
    answer,
    registry,
    capacity,
    untilDurable,
  } = verbs;
  return {
    createSandbox: (input, { principal }) => create({ ...ownCreate(principal, input), secure: true }),
    createSandboxV1: (input, { principal }) => create(ownCreate(principal, input)),
    listSandboxes(input, context) {
      const { items, next } = listing.page({ ...input, tenant: tenantOf(context.principal) });
      if (next !== undefined) context.header("x-next-token", next);
      return items;
    },
    listSandboxesV1: (input, { principal }) => listing.all({ ...input, tenant: tenantOf(principal) }),
    getSandbox: ({ sandboxID }) => listing.detail(registry.owned(sandboxID)),
    async deleteSandbox({ sandboxID }) {
      if (quarantine.find("sandbox", sandboxID) === undefined) {
        registry.owned(sandboxID);
        await ends.delete(sandboxID, "killed");
      } else await quarantined.delete(sandboxID);
    },
    async connectSandbox(input, context) {
      const { answered, resumed } = await connect(verbs, input);
      if (resumed) context.status(201);
      return answered;
    },
    async connectSandboxV1(input, context) {
      const { answered, resumed } = await connect(verbs, input);
      if (resumed) context.status(201);
      return answered;
    },
    async pauseSandbox({ sandboxID, memory, requireHealthyGuest }) {
      const request = { kind: kindOf(memory), cause: "request", requireHealthyGuest: requireHealthyGuest === true } as const;
      await deaths.orEnded(sandboxID, () => pauses.pause(sandboxID, request));
      await untilDurable(sandboxID);
    },
    async resumeSandbox({ sandboxID, timeout }) {
      timeouts.check(timeout);
      const { record, resumed } = await resume(sandboxID, { timeoutSeconds: timeout, cause: "request" });
      if (!resumed) fail("SANDBOX_RUNNING", `sandbox '${sandboxID}' is already running`);
      return answer(answerableOf(record));
    },
    forkSandbox: ({ sandboxID, count, timeout }) => deaths.orEnded(sandboxID, () => fork(sandboxID, count, timeout ?? undefined)),
    moveSandbox: ({ sandboxID, nodeID }) => deaths.orEnded(sandboxID, () => moves.move(sandboxID, nodeID ?? undefined)),
    async createSnapshot({ sandboxID, name, memory }) {
      const snapshot = await deaths.orEnded(sandboxID, () => takeSnapshot(sandboxID, kindOf(memory), name ?? undefined));
      await untilDurable(snapshot.snapshotID);
      return snapshot;
    },
    listSnapshots(input, context) {
      const { items, next } = snapshots.page({ ...input, tenant: tenantOf(context.principal) });
      if (next !== undefined) context.header("x-next-token", next);
      return items;
    },
    getSnapshot: ({ snapshotID }) => snapshots.get(snapshotID),
    async setSandboxNetwork({ sandboxID, ...input }) {
      await setNetwork(sandboxID, input);
    },
    async setSandboxTimeout({ sandboxID, timeout }) {
      timeouts.check(timeout);
      await timeouts.setOf(sandboxID, timeout, "exactly");
    },
    async refreshSandbox({ sandboxID, duration }) {
      await timeouts.setOf(sandboxID, Math.max(duration, MIN_REFRESH_SECONDS), "at least");
    },
    getHealth() {
      if (capacity.isStopping) fail("SHUTTING_DOWN", "the node is stopping");
    },
  };
}

type ConnectInput = { readonly sandboxID: string; readonly timeout: number; readonly memory: boolean };

async function connect(
  { timeouts, registry, resume, answer }: Verbs,
  { sandboxID, timeout, memory }: ConnectInput,
): Promise<{ answered: SandboxAnswer; resumed: boolean }> {
  timeouts.check(timeout);
  registry.owned(sandboxID);
  const kind = memory ? undefined : "filesystem";
  const { record, resumed } = await resume(sandboxID, { timeoutSeconds: timeout, kind, cause: "connect" });
  if (!resumed) timeouts.set(record, timeout, "at least");
  return { answered: answer(answerableOf(record)), resumed };
}

function kindOf(memory: boolean): CheckpointKind {
  return memory ? "memory" : "filesystem";
}
