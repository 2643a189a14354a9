// The node's handlers: one short function per operation of contract/sandbox.ts.
import { fail } from "@svc/contract/failures.ts";
import type { nodeOperations } from "@svc/contract/sandbox.ts";
import type { Handlers } from "@svc/kit/serve.ts";
import { answer, checkTimeout, createSandbox } from "./create.ts";
import { endSandbox } from "./end.ts";
import { detail, listed, matches, page } from "./list.ts";
import type { Node } from "./node.ts";
import type { RunningRecord } from "./registry.ts";

/** A refresh never asks for less, as the clients of that call expect. */
const MIN_REFRESH_SECONDS = 15;

export function nodeHandlers(node: Node): Handlers<typeof nodeOperations> {
  return {
    createSandbox: (input) => createSandbox(node, { ...input, secure: true }),
    createSandboxV1: (input) => createSandbox(node, input),
    listSandboxes(input, context) {
      const { items, next } = page(node, input);
      if (next !== undefined) context.header("x-next-token", next);
      return items;
    },
    listSandboxesV1: (input) => matches(node, input).map((record) => listed(node, record)),
    getSandbox: ({ sandboxID }) => detail(node, node.registry.running(sandboxID)),
    async deleteSandbox({ sandboxID }) {
      node.registry.running(sandboxID);
      await endSandbox(node, sandboxID, "killed");
    },
    connectSandbox: ({ sandboxID, timeout }) => connect(node, sandboxID, timeout),
    connectSandboxV1: ({ sandboxID, timeout }) => connect(node, sandboxID, timeout),
    setSandboxTimeout({ sandboxID, timeout }) {
      checkTimeout(node, timeout);
      setDeadline(node, node.registry.running(sandboxID), timeout, "exactly");
    },
    refreshSandbox({ sandboxID, duration }) {
      setDeadline(node, node.registry.running(sandboxID), Math.max(duration, MIN_REFRESH_SECONDS), "at least");
    },
    listTemplates: () =>
      node.catalogue.list().map((template) => ({
        templateID: template.templateID,
        buildID: template.recipe,
        cpuCount: template.cpuCount,
        memoryMB: template.memoryMB,
        diskSizeMB: template.diskSizeMB,
        public: true,
        aliases: [template.name],
        names: [template.name],
        createdAt: template.createdAt,
        updatedAt: template.createdAt,
        createdBy: null,
        lastSpawnedAt: null,
        spawnCount: 0,
        buildCount: 1,
        envdVersion: node.envdVersion,
        buildStatus: "ready" as const,
      })),
    getHealth() {
      if (node.stopping) fail("SHUTTING_DOWN", "the node is stopping");
    },
  };
}

function connect(node: Node, sandboxID: string, timeoutSeconds: number) {
  checkTimeout(node, timeoutSeconds);
  const record = node.registry.running(sandboxID);
  setDeadline(node, record, timeoutSeconds, "at least");
  const { secure, trafficPrivate, alias } = record.status.claim;
  return answer(node, { sandboxID, templateID: record.templateID, alias, secure, trafficPrivate, envdVersion: record.envdVersion });
}

/** What extends a sandbox's life: these calls and nothing else; see docs/sandboxes.md. */
function setDeadline(node: Node, record: RunningRecord, seconds: number, how: "exactly" | "at least"): void {
  const asked = node.clock.monotonicMs() + seconds * 1000;
  const deadlineMs = how === "exactly" ? asked : Math.max(asked, record.status.claim.deadlineMs);
  if (deadlineMs !== record.status.claim.deadlineMs) node.registry.move(record.sandboxID, { event: "deadline", deadlineMs });
}
