// What the nodes have to start sandboxes from, as all their streams tell it together: a copy counts only while its own node has it.
import type { HeldTemplate, NameRecord } from "@svc/contract/cluster.ts";
import type { Candidate } from "../place/place.ts";
import type { Member } from "./member.ts";
import type { Members } from "./members.ts";

/** Of a snapshot that was fetched: the node that took it, where it is part of the deployment. */
export function originOf(members: Members, { originNodeID }: HeldTemplate): Member | undefined {
  return originNodeID === undefined ? undefined : (members.onRecord(originNodeID) ?? members.named(originNodeID));
}

/** The node that took it answers, and has it no more: it was deleted. */
export function isOver(members: Members, held: HeldTemplate): boolean {
  const origin = originOf(members, held);
  return origin?.isUp === true && origin.held(held.templateID) === undefined;
}

/** By id or name, with its tag or without. */
export function heldBy(members: Members, member: Member, asked: string): HeldTemplate | undefined {
  const held = member.held(asked);
  return held === undefined || isOver(members, held) ? undefined : held;
}

/** Made there, so that it decides what its name means. */
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
 * What this snapshot's name means, by all that nodes told of it, whether or not the node answers that decides about it: with a `snapshotID`
 * of "" nothing, since the one that bore it was deleted. Undefined where it is an id, or no name of a snapshot, or a template's, too.
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

/** The node that decides about a snapshot's name, where it is part of the deployment and does not answer. */
export function awayDecider(members: Members, { nodeID }: NameRecord): Member | undefined {
  const decider = members.onRecord(nodeID) ?? members.named(nodeID);
  return decider?.isUp === false ? decider : undefined;
}
