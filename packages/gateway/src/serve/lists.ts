// Lists: what all nodes that answer hold, and what rests in object storage without one; each thing once.

import type { SnapshotInfo } from "@svc/contract/lifecycle.ts";
import { parsePositionToken } from "@svc/contract/list-position.ts";
import { type ListedSandbox, listSandboxes, nodeOperations as ops } from "@svc/contract/sandbox.ts";
import type { ListedTemplate } from "@svc/contract/template.ts";
import type { Handlers } from "@svc/kit/serve.ts";
import type { Members } from "../members/members.ts";
import type { Rests } from "../members/rests.ts";
import type { Merge, Order } from "./merge.ts";

type ListHandlers = Pick<Handlers<typeof ops>, "listSandboxes" | "listSandboxesV1" | "listSnapshots" | "listTemplates" | "listTemplatesV2">;

const byID: Order<ListedTemplate> = { positionOf: ({ templateID }) => [0, templateID], direction: 1, token: "id" };

export function listHandlers(merge: Merge, rests: Pick<Rests, "sandboxes" | "snapshots" | "templates">, members: Members): ListHandlers {
  const newestSnapshot: Order<SnapshotInfo> = {
    positionOf: (each) => [-Date.parse(each.createdAt), each.snapshotID],
    direction: 1,
    token: "position",
    isCopy: ({ originNodeID }) => originNodeID !== undefined,
    isOver: ({ snapshotID, originNodeID }) => members.up.some((member) => member.nodeID === originNodeID && member.held(snapshotID) === undefined),
  };
  const cursorOf = (nextToken: string | undefined) => (nextToken === undefined ? undefined : parsePositionToken(nextToken));
  return {
    async listSandboxes(input, context) {
      const order: Order<ListedSandbox> = {
        positionOf: (each) => [Date.parse(each.startedAt), each.sandboxID],
        direction: input.order === "asc" ? 1 : -1,
        token: "position",
      };
      return merge.page(listSandboxes, input, context, order, { ...(await rests.sandboxes(input)), after: cursorOf(input.nextToken) });
    },
    async listSandboxesV1(input, context) {
      const { items, missing } = await rests.sandboxes(input);
      const listed = (await merge.ask(ops.listSandboxesV1, () => input, context, missing)).flat();
      return [...new Map([...items, ...listed].map((each) => [each.sandboxID, each])).values()];
    },
    listSnapshots: (input, context) =>
      merge.page(ops.listSnapshots, input, context, newestSnapshot, { items: rests.snapshots(input), missing: [], after: cursorOf(input.nextToken) }),
    async listTemplates(input, context) {
      const listed = merged((await merge.ask(ops.listTemplates, () => input, context)).flat());
      const there = new Set(listed.map(({ templateID }) => templateID));
      return [...listed, ...rests.templates().filter(({ templateID }) => !there.has(templateID))];
    },
    listTemplatesV2: (input, context) =>
      merge.page(ops.listTemplatesV2, input, context, byID, {
        items: rests.templates(),
        missing: [],
        after: input.nextToken === undefined ? undefined : [0, input.nextToken],
      }),
  };
}

/** A template of set-up is on every node: one line, its counts together. */
function merged(listed: readonly ListedTemplate[]): ListedTemplate[] {
  const all = new Map<string, ListedTemplate>();
  for (const each of listed) {
    const known = all.get(each.templateID);
    const lastSpawnedAt =
      [known?.lastSpawnedAt, each.lastSpawnedAt]
        .filter((at) => at != null)
        .sort()
        .at(-1) ?? null;
    all.set(each.templateID, known === undefined ? each : { ...known, spawnCount: known.spawnCount + each.spawnCount, lastSpawnedAt });
  }
  return [...all.values()];
}
