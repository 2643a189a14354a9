// Lists what all nodes that answer hold, and what is only in object storage while its node is down; each item appears once.
import { clusterOperations } from "@svc/contract/cluster.ts";
import type { SnapshotInfo } from "@svc/contract/lifecycle.ts";
import { bearsName } from "@svc/contract/list-filter.ts";
import { type Position, parsePositionToken } from "@svc/contract/list-position.ts";
import { type ListedSandbox, listSandboxes, nodeOperations as ops } from "@svc/contract/sandbox.ts";
import type { ListedTemplate } from "@svc/contract/template.ts";
import type { Context, Handlers } from "@svc/kit/serve.ts";
import type { Members } from "../members/members.ts";
import type { StoredOnly } from "../members/stored-only.ts";
import type { Merge, Order } from "./merge.ts";

type ListHandlers = Pick<
  Handlers<typeof ops>,
  "listSandboxes" | "listSandboxesV1" | "listSnapshots" | "listTemplates" | "listTemplatesV2" | "listDefaultTemplates"
>;

/** Removes names that the snapshot has lost, even while its node does not know yet. */
export function withNames(members: Members, snapshot: SnapshotInfo): SnapshotInfo {
  return { ...snapshot, names: snapshot.names.filter((name) => members.names.bears(name, snapshot.snapshotID)) };
}

const byID: Order<ListedTemplate> = { positionOf: ({ templateID }) => [0, templateID], direction: 1, token: "id", merged: withSpawns };

export function listHandlers(merge: Merge, storedOnly: Pick<StoredOnly, "sandboxes" | "snapshots" | "templates">, members: Members): ListHandlers {
  const newestSnapshot = (name: string | undefined): Order<SnapshotInfo> => ({
    positionOf: (each) => [-Date.parse(each.createdAt), each.snapshotID],
    direction: 1,
    token: "position",
    isCopy: ({ originNodeID }) => originNodeID !== undefined,
    isOver: ({ snapshotID, originNodeID, names }) =>
      members.up.some((member) => member.nodeID === originNodeID && member.held(snapshotID) === undefined) ||
      // The snapshot's node may not know yet that the snapshot lost the requested name.
      (name !== undefined &&
        !bearsName(
          names.filter((each) => members.names.bears(each, snapshotID)),
          name,
        )),
    shown: (each) => withNames(members, each),
  });
  /** Adds the starts on nodes that fetched the template, which do not list it. */
  async function counted(listed: readonly ListedTemplate[], context: Context): Promise<ListedTemplate[]> {
    const spawns = (
      await merge.ask(clusterOperations.countSpawns, (member) => (member.isUp && member.identity?.settlesNames === true ? {} : undefined), context)
    ).flat();
    return listed.map((each) => spawns.filter(({ templateID }) => templateID === each.templateID).reduce(withSpawns, each));
  }
  const cursorOf = (nextToken: string | undefined) => (nextToken === undefined ? undefined : parsePositionToken(nextToken));
  return {
    async listSandboxes(input, context) {
      const order: Order<ListedSandbox> = {
        positionOf: (each) => [Date.parse(each.startedAt), each.sandboxID],
        direction: input.order === "asc" ? 1 : -1,
        token: "position",
      };
      return merge.page(listSandboxes, input, context, order, { ...(await storedOnly.sandboxes(input)), after: cursorOf(input.nextToken) });
    },
    async listSandboxesV1(input, context) {
      const { items, missing } = await storedOnly.sandboxes(input);
      const listed = (await merge.ask(ops.listSandboxesV1, () => input, context, missing)).flat();
      return [...new Map([...items, ...listed].map((each) => [each.sandboxID, each])).values()];
    },
    listSnapshots: (input, context) =>
      merge.page(ops.listSnapshots, input, context, newestSnapshot(input.name), {
        items: storedOnly.snapshots(input),
        missing: [],
        after: cursorOf(input.nextToken),
      }),
    async listTemplates(input, context) {
      const listed = await counted(merged((await merge.ask(ops.listTemplates, () => input, context)).flat()), context);
      const there = new Set(listed.map(({ templateID }) => templateID));
      return [...listed, ...storedOnly.templates().filter(({ templateID }) => !there.has(templateID))];
    },
    async listDefaultTemplates(input, context) {
      return counted(merged((await merge.ask(ops.listDefaultTemplates, () => input, context)).flat()), context);
    },
    async listTemplatesV2(input, context) {
      const after: Position | undefined = input.nextToken === undefined ? undefined : [0, input.nextToken];
      return counted(await merge.page(ops.listTemplatesV2, input, context, byID, { items: storedOnly.templates(), missing: [], after }), context);
    },
  };
}

/** A setup template is on every node: it is listed once, with the sum of its counts. */
function merged(listed: readonly ListedTemplate[]): ListedTemplate[] {
  const all = new Map<string, ListedTemplate>();
  for (const each of listed) {
    const known = all.get(each.templateID);
    all.set(each.templateID, known === undefined ? each : withSpawns(known, each));
  }
  return [...all.values()];
}

function withSpawns(known: ListedTemplate, { spawnCount, lastSpawnedAt = null }: Pick<ListedTemplate, "spawnCount" | "lastSpawnedAt">): ListedTemplate {
  const last = [known.lastSpawnedAt, lastSpawnedAt].filter((at) => at != null).sort();
  return { ...known, spawnCount: known.spawnCount + spawnCount, lastSpawnedAt: last.at(-1) ?? null };
}
