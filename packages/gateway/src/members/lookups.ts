// Asks the nodes that are up for what no stream has reported: the node of an id, or the sandbox of a signature or token.
import { FIND_PATH, type FindQuery, findAnswer } from "@svc/contract/cluster.ts";
import { Failure } from "@svc/contract/failures.ts";
import type { Member } from "./member.ts";
import type { Members } from "./members.ts";

export type Found = { readonly member: Member; readonly sandboxID: string | undefined };

/** Bounds the concurrent lookups, since anyone may request ids that do not exist. */
const MAX_AT_ONCE = 64;
const TIMEOUT_MS = 2_000;

export class Lookups {
  readonly #members: Members;
  readonly #apiKey: string;
  /** Lookups in flight; concurrent callers with the same query share one. */
  readonly #asking = new Map<string, Promise<Found | undefined>>();

  constructor(members: Members, apiKey: string) {
    this.#members = members;
    this.#apiKey = apiKey;
  }

  get waiting(): number {
    return this.#asking.size;
  }

  /** Asks a node of an earlier version whether it has created a sandbox under this key. */
  async hasCreated(idempotencyKey: string, member: Member): Promise<boolean> {
    return (await this.#askOne(member, new URLSearchParams({ idempotencyKey }).toString()))?.found === true;
  }

  /** Returns the build that a template's name means now, according to the node that built it. */
  async buildOf(templateID: string, builder: Member): Promise<string | undefined> {
    const answer = await this.#askOne(builder, new URLSearchParams({ templateID }).toString()).catch(() => undefined);
    return answer?.buildID;
  }

  /** Returns the node that knows the answer, or undefined if no node that is up does. @throws TOO_MANY_REQUESTS. */
  find(query: FindQuery): Promise<Found | undefined> {
    const text = new URLSearchParams(Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined)).toString();
    const known = this.#asking.get(text);
    if (known !== undefined) return known;
    if (this.#asking.size >= MAX_AT_ONCE) {
      return Promise.reject(
        new Failure("TOO_MANY_REQUESTS", "the gateway is already looking up the maximum number of unknown sandboxes; try again", { retryAfterSeconds: 1 }),
      );
    }
    const asked = this.#ask(text, query.sandboxID, this.#members.up).finally(() => this.#asking.delete(text));
    this.#asking.set(text, asked);
    return asked;
  }

  async #ask(query: string, sandboxID: string | undefined, among: readonly Member[]): Promise<Found | undefined> {
    const answers = await Promise.all(among.map((member) => this.#askOne(member, query).catch(() => undefined)));
    const at = answers.findIndex((each) => each?.found === true);
    const member = among[at];
    if (member === undefined) return undefined;
    const found = answers[at]?.sandboxID ?? sandboxID;
    if (found !== undefined) this.#members.learn(found, member);
    return { member, sandboxID: found };
  }

  async #askOne(member: Member, query: string) {
    const signal = AbortSignal.any([member.signal, AbortSignal.timeout(TIMEOUT_MS)]);
    const response = await member.peers.fetch(`${member.url}${FIND_PATH}?${query}`, { headers: { "x-api-key": this.#apiKey }, signal });
    const text = await response.text();
    return response.ok ? findAnswer.parse(JSON.parse(text)) : undefined;
  }
}
