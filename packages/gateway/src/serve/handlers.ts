// The gateway's handlers, one short function per operation: an operation of one node is relayed to it, lists of all nodes are merged.
// Longer than 300 lines: every operation has its row in one table.
import { clusterOperations, type FindQuery } from "@svc/contract/cluster.ts";
import { asFailure, Failure, type FailureName, fail } from "@svc/contract/failures.ts";
import { nodeControlOperations } from "@svc/contract/node-control.ts";
import type { nodesOperations } from "@svc/contract/nodes.ts";
import type { Operation, Parsed } from "@svc/contract/operation.ts";
import { nodeOperations } from "@svc/contract/sandbox.ts";
import { apiKeyHandlers } from "@svc/kit/keys/handlers.ts";
import { ownIdempotencyKey } from "@svc/kit/keys/idempotency.ts";
import type { Keys } from "@svc/kit/keys/keys.ts";
import { sees } from "@svc/kit/keys/principal.ts";
import type { TenantQuotas } from "@svc/kit/keys/tenant-quotas.ts";
import type { Context, Handlers } from "@svc/kit/serve.ts";
import type { Arrivals } from "../members/arrivals.ts";
import type { EtcdDirectory } from "../members/etcd-directory.ts";
import { lostSandbox } from "../members/fate.ts";
import { heldBy, isOwn, snapshotNamed } from "../members/holdings.ts";
import type { Lookups } from "../members/lookups.ts";
import type { Member } from "../members/member.ts";
import type { Members } from "../members/members.ts";
import type { StoredOnly } from "../members/stored-only.ts";
import { weightOf } from "../place/place.ts";
import type { Charged } from "./charged.ts";
import type { openCreate } from "./create.ts";
import { openDeleteTemplate } from "./delete-template.ts";
import { gcHandler } from "./gc.ts";
import { listHandlers, withNames } from "./lists.ts";
import type { Merge } from "./merge.ts";
import { shownNode } from "./nodes.ts";
import type { GatewayPreviews } from "./previews.ts";
import { pullHandlers } from "./pull.ts";
import { nodeLost, type Relay } from "./relay.ts";
import type { GatewaySecrets } from "./secrets.ts";
import { builderOf } from "./template-nodes.ts";
import { ownerOf } from "./tenants.ts";
import { usageHandler } from "./usage.ts";
import type { GatewayVolumes } from "./volumes.ts";
import type { GatewayWebhooks } from "./webhooks.ts";

export type HandlerParts = {
  readonly members: Members;
  readonly lookups: Lookups;
  readonly arrivals: Arrivals;
  readonly directory: () => EtcdDirectory | undefined;
  readonly relay: Relay;
  readonly merge: Merge;
  readonly keys: Keys;
  readonly quotas: TenantQuotas;
  readonly charged: Charged;
  readonly storedOnly: StoredOnly;
  readonly create: ReturnType<typeof openCreate>;
  readonly webhooks: Pick<GatewayWebhooks, "handlers">;
  readonly volumes: Pick<GatewayVolumes, "handlers" | "count">;
  readonly scaling: Handlers<typeof nodesOperations>["getScaling"];
  readonly secrets: Pick<GatewaySecrets, "handlers">;
  readonly previews: Pick<GatewayPreviews, "handlers">;
  /** True if the nodes are a list in the settings; there is no etcd then. */
  readonly isFixed: boolean;
  /** @throws SHUTTING_DOWN, SERVER_UNREACHABLE. */
  readonly checkHealth: () => void;
};

type NodeOperations = typeof nodeOperations;
type AllHandlers = Handlers<NodeOperations & typeof nodesOperations & typeof nodeControlOperations>;

export function gatewayHandlers(parts: HandlerParts): AllHandlers {
  const { members, lookups, arrivals, directory, relay, keys, quotas, charged, merge, storedOnly, create, webhooks, volumes, scaling, secrets } = parts;
  const { previews, isFixed, checkHealth } = parts;

  /** @throws NODE_LOST if the node that has it is not up; calls `absent` if all nodes were asked and none has it. */
  async function holderOf(what: string, owner: Member | undefined, query: FindQuery, absent: () => never): Promise<Member> {
    const found = owner?.isUp === true ? owner : (await lookups.find(query))?.member;
    if (found !== undefined) return found;
    if (owner !== undefined) throw query.sandboxID === undefined ? nodeLost(owner, what) : lostSandbox({ members, directory }, owner, query.sandboxID);
    const uncertain = members.whyUncertain(query.sandboxID ?? "");
    return uncertain === "" ? absent() : fail("NODE_LOST", `no node that answers holds ${what}; ${uncertain}`);
  }

  /** Relays an operation on one sandbox. Such a request comes here only if no stream has reported the sandbox, or its node is lost. */
  function onSandbox<T extends Operation>(operation: T) {
    return async (input: Parsed<T>, context: Context) => {
      const { sandboxID } = input as unknown as { sandboxID: string };
      const what = `sandbox '${sandboxID}'`;
      if (arrivals.isNeeded(sandboxID)) {
        await arrivals.bring(sandboxID).catch((error: unknown) => {
          // If the sandbox's own node is up, its answer is more precise than this failure.
          if (members.ownerOf(sandboxID)?.isUp !== true) throw error;
        });
      }
      const member = await holderOf(what, members.ownerOf(sandboxID), { sandboxID }, () => fail("SANDBOX_NOT_FOUND", `${what} was not found`));
      try {
        return await relay(operation, input, context, member);
      } catch (error) {
        const { name, details } = asFailure(error);
        const next = name === "SANDBOX_MOVED" ? members.onRecord(String(details["node"])) : undefined;
        if (next?.isUp !== true || next === member) throw error;
        members.learn(sandboxID, next);
        return relay(operation, input, context, next);
      }
    };
  }

  /** Refuses a template or snapshot that no node holds; a template of a removed node is named as such, since it is listed and its sandboxes start. */
  function unheld(kind: "template" | "snapshot", asked: string, failure: FailureName): never {
    const stored = kind === "template" ? storedOnly.template(asked) : undefined;
    if (stored === undefined) fail(failure, `${kind} '${asked}' was not found; \`svc ${kind} list\` lists them`);
    const why = `template '${asked}' was built on node ${stored.nodeID}, which is not part of the deployment any more: its sandboxes start, but its builds, logs and tags are known there alone`;
    throw new Failure("NODE_LOST", why, { details: { node: stored.nodeID } });
  }

  const templateHolder = (asked: string, failure: "TEMPLATE_NOT_FOUND" | "SNAPSHOT_NOT_FOUND") => {
    const holders = members.all.filter((member) => member.held(asked) !== undefined || member.held(asked.split(":")[0] ?? "") !== undefined);
    const kind = failure === "TEMPLATE_NOT_FOUND" ? "template" : "snapshot";
    const up = holders.filter((member) => member.isUp);
    const maker = up.find((member) => isOwn(member.held(asked) ?? member.held(asked.split(":")[0] ?? "")));
    const holder = maker ?? up.find((member) => heldBy(members, member, asked) !== undefined) ?? holders.find((member) => !member.isUp);
    return holderOf(`${kind} '${asked}'`, holder, { templateID: asked }, () => unheld(kind, asked, failure));
  };

  /** Relays an operation on one template or snapshot, whose id or name is the given field of the input. */
  function onTemplate<T extends Operation>(operation: T, name: string, failure: "TEMPLATE_NOT_FOUND" | "SNAPSHOT_NOT_FOUND" = "TEMPLATE_NOT_FOUND") {
    return async (input: Parsed<T>, context: Context) =>
      relay(operation, input, context, await templateHolder(String((input as Record<string, unknown>)[name]), failure));
  }

  /** Looks a node up by name or URL; `self` is valid only at a node. */
  function memberNamed(nodeID: string): Member {
    const found = members.named(nodeID);
    if (found !== undefined) return found;
    if (nodeID === "self") return fail("NODE_NOT_FOUND", "'self' works only at a node; at a gateway expected a node's id or URL: `svc nodes list` shows them");
    return fail("NODE_NOT_FOUND", `node '${nodeID}' was not found; \`svc nodes list\` lists them`);
  }
  /** @throws INVALID_REQUEST, because the list of nodes comes from the gateway's settings. */
  const notListed = (nodeID: string) =>
    fail(
      "INVALID_REQUEST",
      `this gateway has a fixed list of nodes (gateway.nodes) and no etcd to remove '${nodeID}' from: drain and stop the node, then restart the gateway without its URL`,
    );

  const ops = nodeOperations;
  const control = nodeControlOperations;
  async function builderFor(input: Parsed<typeof ops.requestTemplate>): Promise<Member> {
    const [name = ""] = (input.name ?? input.alias ?? "").split(":");
    const holders = members.all.filter((member) => member.held(name) !== undefined);
    const [holder] = holders;
    if (holder !== undefined && !holders.some((member) => member.isUp)) throw nodeLost(holder, `template '${name}'`);
    // Every gateway picks the same node, so that two of them do not make two templates with one name.
    const [chosen] = [...members.up].sort((a, b) => weightOf(name, b.name) - weightOf(name, a.name));
    const member = holders.find((each) => each.isUp) ?? (await lookups.find({ templateID: name }))?.member ?? chosen;
    return member ?? fail("SERVER_UNREACHABLE", "no node of this deployment answers; GET /nodes says why", { retryAfterSeconds: 1 });
  }

  return {
    createSandbox: charged.create((input, context) => create(ops.createSandbox, ownCreate(input, context), context)),
    createSandboxV1: charged.create((input, context) => create(ops.createSandboxV1, ownCreate(input, context), context)),
    ...listHandlers(merge, storedOnly, members),
    collectGarbage: gcHandler(merge),
    getUsage: usageHandler(merge),
    ...pullHandlers(merge, members),
    async getSandbox(input, context) {
      const manifest = arrivals.storedAs(input.sandboxID);
      const [reader] = manifest === undefined ? [] : members.up;
      // Reading details from object storage needs no move to another node, which would need etcd to answer.
      if (manifest === undefined || reader === undefined) return onSandbox(ops.getSandbox)(input, context);
      return relay(clusterOperations.readSandbox, { manifest }, context, reader);
    },
    async deleteSandbox(input, context) {
      const { sandboxID } = input;
      // If the node of a sandbox is lost, only the record in etcd says whose it is.
      const isOwn = sees(context.principal, ownerOf(members.moved.get(sandboxID)));
      const grave = isOwn ? arrivals.graveOf(sandboxID) : undefined;
      const ender = isOwn ? (arrivals.enderOf(sandboxID) ?? grave?.ender) : undefined;
      if (ender === undefined) return onSandbox(ops.deleteSandbox)(input, context);
      const isExported = arrivals.enderOf(sandboxID) !== undefined;
      // The node that ends it needs neither to fetch the sandbox nor to be able to run it.
      await relay(clusterOperations.endSandbox, isExported ? { sandboxID } : { sandboxID, nodeID: grave?.nodeID }, context, ender);
      members.ended(sandboxID, ender);
      return undefined;
    },
    connectSandbox: charged.resume(onSandbox(ops.connectSandbox)),
    connectSandboxV1: charged.resume(onSandbox(ops.connectSandboxV1)),
    pauseSandbox: onSandbox(ops.pauseSandbox),
    resumeSandbox: charged.resume(onSandbox(ops.resumeSandbox)),
    forkSandbox: charged.fork(onSandbox(ops.forkSandbox)),
    moveSandbox: onSandbox(ops.moveSandbox),
    setSandboxTimeout: onSandbox(ops.setSandboxTimeout),
    refreshSandbox: onSandbox(ops.refreshSandbox),
    setSandboxNetwork: onSandbox(ops.setSandboxNetwork),
    createSnapshot: onSandbox(ops.createSnapshot),
    getSandboxMetrics: onSandbox(ops.getSandboxMetrics),
    getSandboxLogs: onSandbox(ops.getSandboxLogs),
    getSandboxLogsV2: onSandbox(ops.getSandboxLogsV2),
    async getSandboxesMetrics({ sandbox_ids }, context) {
      const ids = sandbox_ids.split(",");
      const answers = await merge.ask(
        ops.getSandboxesMetrics,
        (member) => {
          const own = ids.filter((id) => (members.ownerOf(id) ?? member) === member);
          return own.length === 0 ? undefined : { sandbox_ids: own.join(",") };
        },
        context,
      );
      return { sandboxes: Object.assign({}, ...answers.map(({ sandboxes }) => sandboxes)) };
    },
    async getSnapshot(input, context) {
      const named = snapshotNamed(members, input.snapshotID);
      if (named?.snapshotID === "") return unheld("snapshot", input.snapshotID, "SNAPSHOT_NOT_FOUND");
      const snapshotID = named?.snapshotID ?? input.snapshotID;
      const isHeld = members.up.some((member) => isOwn(member.held(snapshotID)));
      const stored = isHeld ? undefined : storedOnly.snapshot(snapshotID);
      return withNames(members, stored ?? (await onTemplate(ops.getSnapshot, "snapshotID", "SNAPSHOT_NOT_FOUND")({ ...input, snapshotID }, context)));
    },
    requestTemplate: async (input, context) => relay(ops.requestTemplate, input, context, await builderFor(input)),
    requestTemplateV2: async (input, context) => relay(ops.requestTemplateV2, input, context, await builderFor(input)),
    async getTemplateFiles(input, context) {
      const member = await templateHolder(input.templateID, "TEMPLATE_NOT_FOUND");
      const answer = await relay(ops.getTemplateFiles, input, context, member);
      // The URL leads back through a gateway, which has to know which node signed it.
      return answer.url === undefined ? answer : { ...answer, url: throughGateway(answer.url, input, member.name) };
    },
    async buildTemplate(input, context) {
      const member = await templateHolder(input.templateID, "TEMPLATE_NOT_FOUND");
      const from = input.fromTemplate ?? undefined;
      const builder = from === undefined ? undefined : builderOf(members.up, from);
      // Another node may fetch the template, but only the node that built it can resolve its name.
      const fromTemplate = builder === undefined || builder === member || from === undefined ? from : ((await lookups.buildOf(from, builder)) ?? from);
      return relay(ops.buildTemplate, { ...input, fromTemplate }, context, member);
    },
    cancelBuild: onTemplate(ops.cancelBuild, "templateID"),
    getBuildStatus: onTemplate(ops.getBuildStatus, "templateID"),
    getBuildLogs: onTemplate(ops.getBuildLogs, "templateID"),
    getTemplate: onTemplate(ops.getTemplate, "templateID"),
    async getTemplateByAlias(input, context) {
      const isHeld = members.up.some((member) => member.held(input.alias) !== undefined);
      const stored = isHeld ? undefined : storedOnly.template(input.alias)?.listed;
      if (stored !== undefined) return { templateID: stored.templateID, public: stored.public };
      return onTemplate(ops.getTemplateByAlias, "alias")(input, context);
    },
    updateTemplate: onTemplate(ops.updateTemplate, "templateID"),
    updateTemplateV1: onTemplate(ops.updateTemplateV1, "templateID"),
    deleteTemplate: openDeleteTemplate({ members, lookups, relay }),
    assignTags: onTemplate(ops.assignTags, "target"),
    removeTags: onTemplate(ops.removeTags, "name"),
    listTags: onTemplate(ops.listTags, "templateID"),
    countTags: onTemplate(ops.countTags, "templateID"),
    tagExists: onTemplate(ops.tagExists, "templateID"),
    listTagGroups: onTemplate(ops.listTagGroups, "templateID"),
    listTagAssignments: onTemplate(ops.listTagAssignments, "templateID"),
    ...webhooks.handlers,
    ...volumes.handlers,
    ...secrets.handlers,
    ...apiKeyHandlers(keys, quotas, volumes.count),
    ...previews.handlers,
    getHealth() {
      checkHealth();
    },
    setNodeStatus({ nodeID, status }, context) {
      const member = memberNamed(nodeID);
      // If the node does not answer, another one writes the status to etcd, where the node finds it later.
      const asked = member.isUp ? member : members.up.find((each) => each !== member);
      if (asked === undefined || (isFixed && asked !== member))
        fail("NODE_LOST", `node ${member.name} does not answer (${member.reason}), and only it can change its status: try again once it answers`, {
          details: { node: member.name },
        });
      return relay(control.setNodeStatus, { nodeID: asked === member ? "self" : member.name, status }, context, asked);
    },
    getNodeDrain({ nodeID }, context) {
      const member = memberNamed(nodeID);
      if (!member.isUp)
        fail("NODE_LOST", `node ${member.name} does not answer (${member.reason}), and only it knows the progress of its drain`, {
          details: { node: member.name },
        });
      return relay(control.getNodeDrain, { nodeID: "self" }, context, member);
    },
    removeNode({ nodeID, dead }, context) {
      if (isFixed) return notListed(nodeID);
      const member = members.named(nodeID);
      const asked =
        members.up.find((each) => each !== member) ?? fail("SERVER_UNREACHABLE", "no other node of this deployment answers; one is needed to remove it");
      return relay(control.removeNode, { nodeID: member?.name ?? nodeID, dead }, context, asked);
    },
    getScaling: scaling,
    listNodes: () => members.all.map(shownNode),
    async getNode({ nodeID }, context) {
      const member = memberNamed(nodeID);
      const sandboxes = member.isUp ? await relay(ops.listSandboxesV1, { metadata: undefined }, context, member) : [];
      return {
        ...shownNode(member),
        sandboxes,
        cachedBuilds: [...member.templates.filter(({ isReady }) => isReady), ...member.copies].map(({ templateID }) => templateID),
      };
    },
  };
}

const ownCreate = <T extends { idempotencyKey?: string | undefined }>(input: T, { principal }: Context): T => ({
  ...input,
  idempotencyKey: ownIdempotencyKey(principal, input.idempotencyKey),
});

function throughGateway(url: string, { host, protocol }: { host?: string | undefined; protocol?: string | undefined }, nodeID: string): string {
  const { pathname, searchParams } = new URL(url);
  searchParams.set("node", nodeID);
  return `${protocol === "https" ? "https" : "http"}://${host ?? "localhost"}${pathname}?${searchParams}`;
}
