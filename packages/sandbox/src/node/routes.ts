// The node's handlers: one short function per operation of contract/sandbox.ts.
import { fail } from "@svc/contract/failures.ts";
import type { SandboxAnswer } from "@svc/contract/fields.ts";
import type { nodeOperations } from "@svc/contract/sandbox.ts";
import type { templateOperations } from "@svc/contract/template.ts";
import type { Handlers } from "@svc/kit/serve.ts";
import type { CaptureKind } from "../runtime/runtime.ts";
import { answer, checkTimeout, createSandbox } from "./create.ts";
import { deleteSandbox } from "./end.ts";
import { forkSandbox } from "./fork.ts";
import { detail, listed, matches, page } from "./list.ts";
import { setNetwork } from "./network.ts";
import type { Node } from "./node.ts";
import { pauseSandbox } from "./pause.ts";
import type { OwnedRecord, RunningRecord } from "./registry.ts";
import { resumeSandbox } from "./resume.ts";
import { findSnapshot, shown, snapshotPage, snapshotSandbox } from "./snapshot.ts";

/** A refresh never asks for less, as the clients of that call expect. */
const MIN_REFRESH_SECONDS = 15;

/** Handlers that live beside what they serve. */
type Elsewhere = keyof typeof templateOperations | "getSandboxMetrics" | "getSandboxesMetrics" | "getSandboxLogs" | "getSandboxLogsV2";

export function nodeHandlers(node: Node): Omit<Handlers<typeof nodeOperations>, Elsewhere> {
  return {
    createSandbox: (input) => createSandbox(node, { ...input, secure: true }),
    createSandboxV1: (input) => createSandbox(node, input),
    listSandboxes(input, context) {
      const { items, next } = page(node, input);
      if (next !== undefined) context.header("x-next-token", next);
      return items;
    },
    listSandboxesV1: (input) => matches(node, input).map((record) => listed(node, record)),
    getSandbox: ({ sandboxID }) => detail(node, node.registry.owned(sandboxID)),
    async deleteSandbox({ sandboxID }) {
      node.registry.owned(sandboxID);
      await deleteSandbox(node, sandboxID, "killed");
    },
    async connectSandbox(input, context) {
      const { answered, resumed } = await connect(node, input);
      if (resumed) context.status(201);
      return answered;
    },
    async connectSandboxV1(input, context) {
      const { answered, resumed } = await connect(node, input);
      if (resumed) context.status(201);
      return answered;
    },
    async pauseSandbox({ sandboxID, memory, requireHealthyGuest }) {
      await pauseSandbox(node, sandboxID, { kind: kindOf(memory), cause: "request", requireHealthyGuest: requireHealthyGuest === true });
    },
    async resumeSandbox({ sandboxID, timeout }) {
      checkTimeout(node, timeout);
      const { record, resumed } = await resumeSandbox(node, sandboxID, { timeoutSeconds: timeout, cause: "request" });
      if (!resumed) fail("SANDBOX_RUNNING", `sandbox '${sandboxID}' runs already`);
      return answerFor(node, record);
    },
    forkSandbox: ({ sandboxID, count, timeout }) => forkSandbox(node, sandboxID, count, timeout ?? undefined),
    createSnapshot: ({ sandboxID, name, memory }) => snapshotSandbox(node, sandboxID, kindOf(memory), name ?? undefined),
    listSnapshots(input, context) {
      const { items, next } = snapshotPage(node, input);
      if (next !== undefined) context.header("x-next-token", next);
      return items;
    },
    getSnapshot: ({ snapshotID }) => shown(findSnapshot(node, snapshotID)),
    async setSandboxNetwork({ sandboxID, ...input }) {
      await setNetwork(node, sandboxID, input);
    },
    setSandboxTimeout({ sandboxID, timeout }) {
      checkTimeout(node, timeout);
      setDeadline(node, node.registry.running(sandboxID), timeout, "exactly");
    },
    refreshSandbox({ sandboxID, duration }) {
      setDeadline(node, node.registry.running(sandboxID), Math.max(duration, MIN_REFRESH_SECONDS), "at least");
    },
    getHealth() {
      if (node.stopping) fail("SHUTTING_DOWN", "the node is stopping");
    },
  };
}

type ConnectInput = { readonly sandboxID: string; readonly timeout: number; readonly memory: boolean };

async function connect(node: Node, { sandboxID, timeout, memory }: ConnectInput): Promise<{ answered: SandboxAnswer; resumed: boolean }> {
  checkTimeout(node, timeout);
  node.registry.owned(sandboxID);
  const kind = memory ? undefined : "filesystem";
  const { record, resumed } = await resumeSandbox(node, sandboxID, { timeoutSeconds: timeout, kind, cause: "connect" });
  if (!resumed) setDeadline(node, record, timeout, "at least");
  return { answered: answerFor(node, record), resumed };
}

function answerFor(node: Node, { sandboxID, templateID, envdVersion, status }: OwnedRecord): SandboxAnswer {
  const { secure, trafficPrivate, alias } = status.claim;
  return answer(node, { sandboxID, templateID, alias, secure, trafficPrivate, envdVersion });
}

function kindOf(memory: boolean): CaptureKind {
  return memory ? "memory" : "filesystem";
}

/** What extends a sandbox's life: these calls and nothing else; see docs/sandboxes.md. */
function setDeadline(node: Node, record: RunningRecord, seconds: number, how: "exactly" | "at least"): void {
  const { claim } = record.status;
  const asked = node.clock.monotonicMs() + seconds * 1000;
  const deadlineMs = how === "exactly" ? asked : Math.max(asked, claim.deadlineMs);
  if (deadlineMs === claim.deadlineMs) return;
  node.registry.move(record.sandboxID, { event: "deadline", deadlineMs, timeoutSeconds: how === "exactly" ? seconds : claim.timeoutSeconds });
  node.tell("sandbox.timeout_set", record, { timeoutSeconds: seconds });
}
