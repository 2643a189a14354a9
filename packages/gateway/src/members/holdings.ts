// Templates and snapshots that the nodes hold, from all their streams; a copy counts only while its origin node has the original.
import type { HeldTemplate, NameRecord } from "@svc/contract/cluster.ts";
import type { Candidate } from "../place/place.ts";
import type { Member } from "./member.ts";
import type { Members } from "./members.ts";

/** Returns the origin node of a fetched snapshot if that node is part of the deployment. */
export function originOf(members: Members, { originNodeID }: HeldTemplate): Member | undefined {
  return originNodeID === undefined ? undefined : (members.onRecord(originNodeID) ?? members.named(originNodeID));
}

/** Returns true if the origin node answers and no longer has the snapshot, which means that it was deleted. */
export function isOver(members: Members, held: HeldTemplate): boolean {
  const origin = originOf(members, held);
  return origin?.isUp === true && origin.held(held.templateID) === undefined;
}

/** Looks a template or snapshot up by id or name, with or without tag. */
export function heldBy(members: Members, member: Member, asked: string): HeldTemplate | undefined {
  const held = member.held(asked);
  return held === undefined || isOver(members, held) ? undefined : held;
}

/** Returns true if the template was built on the node that reports it; that node decides what the template's name means. */
export const isOwn = (held: HeldTemplate | undefined): boolean => held !== undefined && held.originNodeID === undefined;

export function candidateOf(members: Members, member: Member): Candidate {
  const candidate = member.candidate();
  const isHidden = (asked: string) => {
    const held = member.held(asked);
    return held !== undefined && isOver(members, held);
  };
  return { ...candidate, template: (asked) => (isHidden(asked) ? undefined : candidate.template(asked)) };
}

/**
 * Returns the latest record of a snapshot's name that any node reported, even if the deciding node does not answer. A `snapshotID` of "" means
 * that the snapshot with this name was deleted. Returns undefined for an id, a name without record, or a name that a template also has.
 */
export function snapshotNamed(members: Members, asked: string): NameRecord | undefined {
  const record = members.names.of(asked);
  return record === undefined || isTemplate(members, asked) ? undefined : record;
}

function isTemplate(members: Members, asked: string): boolean {
  const [name = ""] = asked.split(":");
  if (members.all.some((member) => member.held(asked)?.kind === "template" || member.copyOf(asked) !== undefined)) return true;
  return [...members.stored.templates.values()].some(({ listed }) => listed.names.includes(name) || listed.templateID === name);
}

/** Returns the node that decides about a snapshot's name if it is part of the deployment and does not answer. */
export function awayDecider(members: Members, { nodeID }: NameRecord): Member | undefined {
  const decider = members.onRecord(nodeID) ?? members.named(nodeID);
  return decider?.isUp === false ? decider : undefined;
}
