// What the nodes have to start sandboxes from, as all their streams tell it together: a copy counts only while its own node has it.
import type { HeldTemplate } from "@svc/contract/cluster.ts";
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

/** The newest snapshot that bears this name on a node that is up; undefined where it is no name of one, or a template's, too. */
export function snapshotNamed(members: Members, asked: string): HeldTemplate | undefined {
  const found = members.up.flatMap((member) => member.held(asked) ?? []).filter((held) => isOwn(held) && held.templateID !== asked);
  if (found.some(({ kind }) => kind === "template")) return undefined;
  return found.sort((a, b) => b.createdAtMs - a.createdAtMs)[0];
}
