// A node as a target of the gateway's proxy: the address to dial, and the answer when the node cannot be reached.
import { type Answer, answer } from "@svc/kit/proxy/answer.ts";
import type { TargetPolicy } from "@svc/kit/proxy/target.ts";
import type { Trouble, Way } from "@svc/kit/proxy/upstream.ts";
import type { Member } from "../members/member.ts";

export class NodeTarget implements TargetPolicy {
  /** Shorter than the time after which a node closes idle connections. */
  readonly idleMs = 30_000;
  readonly saysMoved = true;
  readonly #member: () => Member;
  #ways: readonly Way[] | undefined;

  constructor(member: () => Member) {
    this.#member = member;
  }

  ways(): readonly Way[] {
    const { peers, url } = this.#member();
    this.#ways ??= [{ connect: peers.dial(url) }];
    return this.#ways;
  }

  reached(): void {}

  answerFor(trouble: Trouble, detail: string): Answer {
    const member = this.#member();
    return lost(member, member.isUp ? `${trouble === "malformed" ? "its response is malformed: " : ""}${detail || "the connection ended"}` : member.reason);
  }
}

/**
 * The answer avoids "was not found" and "port is not open": clients take these for a sandbox that is gone for good, or for a closed port, and
 * the gateway knows neither.
 */
function lost(member: Member, reason: string): Answer {
  const members = { node: member.name, error_code: "NODE_LOST" };
  return answer(502, `Node ${member.name}, which holds the sandbox, does not answer: ${reason}`, members, { "x-svc-reason": "node_lost" });
}
