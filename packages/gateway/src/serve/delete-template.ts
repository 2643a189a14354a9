// Deletes a template or snapshot on the node that made it, then its copies on all other nodes; a node that is down deletes its copy when it is back.
import { clusterOperations } from "@svc/contract/cluster.ts";
import { fail } from "@svc/contract/failures.ts";
import type { Parsed } from "@svc/contract/operation.ts";
import { nodeOperations as ops } from "@svc/contract/sandbox.ts";
import type { Context } from "@svc/kit/serve.ts";
import { isOwn, originOf, snapshotNamed } from "../members/holdings.ts";
import type { Lookups } from "../members/lookups.ts";
import type { Member } from "../members/member.ts";
import type { Members } from "../members/members.ts";
import { nodeLost, type Relay } from "./relay.ts";

export type DeleteTemplateParts = { readonly members: Members; readonly lookups: Lookups; readonly relay: Relay };

export function openDeleteTemplate({ members, lookups, relay }: DeleteTemplateParts) {
  return async (input: Parsed<typeof ops.deleteTemplate>, context: Context): Promise<undefined> => {
    const named = snapshotNamed(members, input.templateID);
    if (named?.snapshotID === "") notFound(input.templateID);
    const asked = named?.snapshotID ?? input.templateID;
    const quiet = { ...context, status: () => {} };
    const copying = members.up.filter((member) => member.copyOf(asked) !== undefined || member.held(asked)?.originNodeID !== undefined);
    const drop = (member: Member, isOrphan = false) => relay(clusterOperations.dropTemplate, { templateID: asked, isOrphan }, quiet, member);
    // A node that cannot be reached now deletes its copy later by itself; until then gateways treat that copy as deleted.
    const dropCopies = () => Promise.allSettled(copying.map((member) => drop(member)));
    const makers = members.all.filter((member) => isOwn(member.held(asked)));
    const up = makers.filter((member) => member.isUp);
    const found = makers.length > 0 ? undefined : (await lookups.find({ templateID: asked }))?.member;
    if (found !== undefined) up.push(found);
    const [maker] = makers;
    if (up.length === 0 && maker !== undefined) throw nodeLost(maker, `'${input.templateID}'`);
    if (up.length > 0) {
      for (const member of up) await relay(ops.deleteTemplate, { ...input, templateID: asked }, context, member);
      await dropCopies();
      return undefined;
    }
    mustBeOrphan(asked, copying);
    const [first = members.up[0]] = copying;
    const dropped = first !== undefined && (await drop(first, true)).dropped;
    if (!dropped) notFound(input.templateID);
    await dropCopies();
    return undefined;
  };

  /** Deletes only if the node that made it has left the deployment and every node can say whether it has a copy. @throws NODE_LOST. */
  function mustBeOrphan(asked: string, copying: readonly Member[]): void {
    for (const member of copying) {
      const held = member.held(asked);
      const origin = held && originOf(members, held);
      if (origin !== undefined && !origin.isUp) throw nodeLost(origin, `snapshot '${asked}' and alone decides about it`);
    }
    const uncertain = members.whyUncertain("");
    if (uncertain === "") return;
    const what = copying.length === 0 ? `no node that answers holds template '${asked}'` : `'${asked}' cannot be deleted everywhere`;
    fail("NODE_LOST", `${what}; ${uncertain}`);
  }
}

const notFound = (asked: string): never => fail("TEMPLATE_NOT_FOUND", `template '${asked}' was not found; \`svc template list\` lists them`);
