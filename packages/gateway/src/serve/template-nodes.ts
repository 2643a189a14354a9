// Selects the nodes other than its builder on which a template can start: those that fetched it before, and those that can fetch it.
import { Failure } from "@svc/contract/failures.ts";
import { heldBy, isOwn } from "../members/holdings.ts";
import type { Lookups } from "../members/lookups.ts";
import type { Member } from "../members/member.ts";
import type { Members } from "../members/members.ts";
import { type Candidate, place, type Request, type Rules } from "../place/place.ts";

const MIB = 1024 * 1024;
/** Failures of a node that does not have the template itself, returned before it begins anything. */
const declined: ReadonlySet<string> = new Set(["TEMPLATE_NOT_FOUND", "OBJECTS_UNAVAILABLE", "SNAPSHOT_UNSUITABLE"]);

/** Returns the node that built the template. */
export const builderOf = (members: readonly Member[], templateID: string): Member | undefined =>
  members.find((member) => member.held(templateID)?.kind === "template");

/** Returns the memory in bytes of a sandbox of the template if object storage has a build of it. */
function sharedBytes(members: Members, templateID: string): number | undefined {
  for (const member of members.all) {
    const held = member.held(templateID);
    const found = held !== undefined && held.builds.length > 0 ? held : member.copyOf(templateID);
    if (found !== undefined) return found.memoryMB * MIB;
  }
  return undefined;
}

/** Returns the memory in bytes of a sandbox of the template if another node that is up offers it to other nodes. */
function offeredBytes(members: Members, templateID: string): number | undefined {
  for (const member of members.up) {
    const held = heldBy(members, member, templateID);
    const found = held?.isOffered === true ? held : member.copyOf(templateID);
    if (found !== undefined) return found.memoryMB * MIB;
  }
  return undefined;
}

/** Returns true if the node fetches missing templates from other nodes. */
const asksNodes = ({ identity }: Member) => identity?.fetchesFromNodes === true;

/** Returns true if there is no object storage, so that templates exist only on nodes. */
export const isWithoutStorage = (members: Members): boolean => members.up.length > 0 && members.up.every(asksNodes);

/** Returns the nodes that would have to fetch the template first, best first. */
export function fetchersOf(members: Members, request: Request, rules: Rules): readonly Candidate[] {
  const { templateID } = request;
  const storedBytes = isWithoutStorage(members) ? undefined : sharedBytes(members, templateID);
  const memoryBytes = storedBytes ?? offeredBytes(members, templateID);
  if (memoryBytes === undefined) return [];
  const lacking = members.up.filter((member) => !member.has(templateID) && member.held(templateID) === undefined);
  const without = storedBytes === undefined ? lacking.filter(asksNodes) : lacking;
  const candidates = without.map((member) => ({ ...member.candidate(), template: () => ({ memoryBytes, ready: 0 }) }));
  return place(candidates, request, rules).candidates;
}

/** Returns true if the failure only means that this node cannot start the template while others may. */
export function isDeclined(error: unknown, member: Member, templateID: string): error is Failure {
  return error instanceof Failure && declined.has(error.name) && member.held(templateID) === undefined;
}

/** Failures that a node returns before it begins anything. */
const nothingStarted: ReadonlySet<string> = new Set(["TOO_MANY_REQUESTS", "SHUTTING_DOWN", "CAPACITY_EXHAUSTED", "SERVER_UNREACHABLE"]);
export function beganNothing(error: unknown, member: Member, templateID: string): boolean {
  return isDeclined(error, member, templateID) || (error instanceof Failure && nothingStarted.has(error.name));
}

export type Build = { readonly buildID?: string; readonly sourceName?: string };
export type Resolve = (member: Member) => Promise<Build | "unknown">;

/**
 * Resolves, for one create, the build to start at nodes that did not build the template; the builder is asked once. `snapshot` gives the build if
 * a snapshot was requested by name.
 */
export function openResolution(members: Members, lookups: Lookups, templateID: string, snapshot?: (member: Member) => Build): Resolve {
  let asked: Promise<string | undefined> | undefined;
  return async (member) => {
    if (snapshot !== undefined) return snapshot(member);
    if (member.held(templateID) !== undefined) return {};
    const builder = builderOf(members.up, templateID);
    // Without the builder, the other node resolves the name in object storage.
    if (builder === undefined) return {};
    asked ??= lookups.buildOf(templateID, builder);
    const buildID = await asked;
    return buildID === undefined ? "unknown" : { buildID };
  };
}

/** For a snapshot requested by name: a node where it has that name starts it by name, as one of an earlier version must; other nodes use its id. */
export function openNamed(name: string, snapshotID: string): (member: Member) => Build {
  return (member) => {
    const held = member.held(name);
    return isOwn(held) && held?.templateID === snapshotID ? {} : { buildID: snapshotID, sourceName: name };
  };
}
