// Describes the state of a sandbox whose node does not answer, as far as this gateway knows, and what the sandbox waits for.
import { Failure } from "@svc/contract/failures.ts";
import type { EtcdDirectory } from "./etcd-directory.ts";
import type { Member } from "./member.ts";
import type { Members } from "./members.ts";

export type Fate = {
  /** The last state that its node or etcd reported; `unknown` if this gateway has not heard from the node since it started. */
  readonly state: "running" | "paused" | "unknown";
  /** Never contains "was not found" or "port is not open": clients take these for a sandbox that is gone for good, or for a closed port. */
  readonly message: string;
};

export type FateParts = { readonly members: Pick<Members, "moved">; readonly directory: () => Pick<EtcdDirectory, "isDead"> | undefined };

export function fateOf({ members, directory }: FateParts, member: Member, sandboxID: string): Fate {
  const { name, reason } = member;
  const what = `sandbox '${sandboxID}'`;
  const isDead = directory()?.isDead(member) === true;
  const away = isDead ? `node ${name} was declared dead` : `node ${name} does not answer (${reason})`;
  const record = members.moved.get(sandboxID);
  if (record?.manifest !== undefined && record.nodeID === member.nodeID) {
    return { state: "paused", message: `${what} is paused on node ${name} and exported: ${away}, and another node takes it over when a request comes` };
  }
  if (member.paused.has(sandboxID))
    return { state: "paused", message: `${what} is paused on node ${name} and was not exported to object storage, so it waits for that node: ${away}` };
  if (member.running.has(sandboxID)) {
    const then = isDead ? "so it is lost, and what ran in it ended" : "and it goes on when that node is back, unless the node is declared dead";
    return { state: "running", message: `${what} ran on node ${name}: ${away}, ${then}` };
  }
  const then = isDead ? "if it ran, it is lost" : "if it runs, it goes on when that node is back";
  return { state: "unknown", message: `${what} belongs to node ${name}: ${away}; if it is paused there, it waits for that node; ${then}` };
}

export function lostSandbox(parts: FateParts, member: Member, sandboxID: string): Failure {
  const { state, message } = fateOf(parts, member, sandboxID);
  return new Failure("NODE_LOST", message, { details: { node: member.name, state } });
}
