// A create under an Idempotency-Key: the key's registrar gives one node at a time the turn to create, the next only after that one declined.
import { type declineKey, type registerKey, TURNS_OF_A_REGISTRAR } from "@svc/contract/create-keys.ts";
import { asFailure, Failure } from "@svc/contract/failures.ts";
import type { Output } from "@svc/contract/operation.ts";
import { weightOf } from "../place/place.ts";

/** `life` changes with each start of the node. */
export type Peer = { readonly name: string; readonly isUp: boolean; readonly reason: string; readonly life: number };
type Asked = { readonly key: string; readonly node?: string | undefined; readonly after?: number | undefined; readonly from?: number | undefined };
type Declined = { readonly key: string; readonly turn: number; readonly registrar: string };

/** The nodes as this gateway sees them; simulations build these themselves. */
export type KeyNodes<P extends Peer> = {
  /** Returns all nodes of the deployment except those declared dead. @throws NODE_LOST if one has never reported its name. */
  peers(): readonly P[];
  /** Returns the names of nodes that were declared dead or removed; their decisions are void. */
  gone(): readonly string[];
  /** Returns true if etcd, read now, agrees with this gateway on which nodes there are and which are gone. @throws ETCD_UNAVAILABLE. */
  isCurrent(): Promise<boolean>;
  /** True if the nodes are a list in the settings: a lost node stays in it and is never declared dead. */
  readonly isFixed: boolean;
  /** Returns true if the node answered with a failure before it began anything. */
  beganNothing(error: unknown, peer: P): boolean;
  register(peer: P, asked: Asked): Promise<Output<typeof registerKey>>;
  decline(peer: P, declined: Declined): Promise<Output<typeof declineKey>>;
};

/** Bounds the rounds, since concurrent repeats of the same create may change which node has the turn. */
const MAX_ROUNDS = 5;

export class KeyedCreate<P extends Peer> {
  readonly #nodes: KeyNodes<P>;
  readonly #key: string;
  /** A finished turn of this registrar, or the turn up to which every node has declined; it says nothing about another registrar. */
  #over: { readonly registrar: string; readonly after?: number | undefined; readonly from?: number | undefined } | undefined;

  constructor(nodes: KeyNodes<P>, key: string) {
    this.#nodes = nodes;
    this.#key = key;
  }

  /**
   * Returns the node that has created or may have: it is asked first, however full it is. Returns undefined if none has, so that any node may.
   * @throws NODE_LOST if that is not known.
   */
  async find(): Promise<P | undefined> {
    const registrar = this.#registrar();
    const found = await this.#ask(registrar, {});
    if (found.node !== undefined) return this.#holderOf({ ...found, node: found.node });
    if (found.registrar !== registrar.name) return this.#findElsewhere(registrar, found.registrar);
    const isBehindGone = this.#isBehindGone(registrar);
    return found.isSure && !isBehindGone ? undefined : this.#askAll(registrar, isBehindGone ? undefined : found.others);
  }

  /** Creates at the node that has the turn: `preferred`, unless another node's turn is not over. @throws NODE_LOST, and what `create` throws. */
  async send<A>(preferred: P, create: (peer: P, turn: number) => Promise<A>): Promise<A> {
    for (let round = 1; round <= MAX_ROUNDS; round++) {
      const lives = new Map(this.#nodes.peers().map(({ name, life }) => [name, life]));
      const first = this.#registrar();
      const { after, from } = this.#over?.registrar === first.name ? this.#over : {};
      const { node, turn, registrar } = await this.#ask(first, { node: preferred.name, after, from });
      const chosen = node === undefined ? await this.find() : await this.#holderOf({ node, turn, registrar });
      // A node that restarted meanwhile may have forgotten which turns it declined.
      if (chosen === undefined || chosen.life !== lives.get(chosen.name)) continue;
      try {
        // With turn 0 the node only answers with what it has created already.
        return await create(chosen, turn ?? 0);
      } catch (error) {
        const isElsewhere = asFailure(error).name === "KEY_ELSEWHERE";
        if (!isElsewhere && !this.#nodes.beganNothing(error, chosen)) throw error;
        // A node that began nothing must decline too: the same create may reach it through another gateway and find capacity.
        if (!isElsewhere && turn !== undefined && (await this.#decline(chosen, turn, registrar)).isHere) continue;
        this.#over = { registrar, after: turn };
        if (chosen === preferred && !isElsewhere) throw error;
      }
    }
    throw this.#inProgress();
  }

  /** Returns the first node in the key's order, which is the same at every gateway. */
  #registrar(): P {
    const [first] = [...this.#nodes.peers()].sort((a, b) => this.#weight(b.name) - this.#weight(a.name));
    if (first === undefined) throw new Failure("SERVER_UNREACHABLE", "no node of this deployment answers; GET /nodes says why", { retryAfterSeconds: 1 });
    if (!first.isUp) throw this.#lost(first.name, first.reason);
    return first;
  }

  #weight(name: string): number {
    return weightOf(this.#key, name);
  }

  #isKnown(name: string): boolean {
    return this.#nodes.peers().some((peer) => peer.name === name) || this.#nodes.gone().includes(name);
  }

  #isBehindGone(registrar: P): boolean {
    const own = this.#weight(registrar.name);
    return this.#nodes.gone().some((name) => this.#weight(name) > own);
  }

  /** Returns the node that has the turn, or undefined if that node is dead, which ends its turn. @throws NODE_LOST. */
  async #holderOf({ node, turn, registrar }: { node: string; turn?: number | undefined; registrar: string }): Promise<P | undefined> {
    const peer = this.#nodes.peers().find(({ name }) => name === node);
    if (peer?.isUp === true) return peer;
    if (peer !== undefined || !this.#nodes.gone().includes(node)) throw this.#lost(node, peer?.reason ?? "this gateway does not know it");
    await this.#mustBeCurrent(node);
    // The node may have been back, and lost again, since this gateway heard of its death.
    if (!this.#nodes.gone().includes(node)) throw this.#lost(node, "it was declared dead, and is part of the deployment again");
    this.#over = { registrar, after: turn };
    return undefined;
  }

  async #mustBeCurrent(name: string): Promise<void> {
    if (this.#nodes.isFixed || (await this.#nodes.isCurrent().catch(() => false))) return;
    throw this.#lost(name, "etcd does not say now that this gateway knows which nodes there are");
  }

  /** Another gateway knows another first node, because a node joined or died. */
  async #findElsewhere(registrar: P, name: string): Promise<P | undefined> {
    const other = this.#nodes.peers().find((peer) => peer.name === name);
    if (other === undefined && this.#nodes.gone().includes(name)) return this.#askAll(registrar);
    if (other?.isUp !== true) throw this.#lost(name, other?.reason ?? "this gateway does not know it yet");
    const { node, turn } = await this.#ask(other, {});
    return (node === undefined ? undefined : await this.#holderOf({ node, turn, registrar: name })) ?? this.#askAll(registrar);
  }

  /**
   * Used if no registrar is known to have decided: asks every node whether it has created the sandbox, and has it decline all earlier grants.
   * `others` are the nodes that were there before the registrar decided; without it, etcd says which nodes there are.
   */
  async #askAll(registrar: P, others?: readonly string[]): Promise<P | undefined> {
    const peers = this.#nodes.peers();
    const unknown = others?.find((name) => !peers.some((peer) => peer.name === name));
    const lost = peers.find((peer) => !peer.isUp);
    if (lost !== undefined && !this.#nodes.isFixed) throw this.#lost(lost.name, lost.reason);
    const up = peers.filter((peer) => peer.isUp);
    for (let round = 1; round <= MAX_ROUNDS; round++) {
      const before = await this.#declineAll(up, 0, registrar.name);
      if ("here" in before) return before.here;
      const from = (Math.floor(before.turn / TURNS_OF_A_REGISTRAR) + 1) * TURNS_OF_A_REGISTRAR;
      const after = await this.#declineAll(up, from, registrar.name);
      if ("here" in after) return after.here;
      // Another gateway asks on behalf of another registrar at the same time: one of the two must reach a higher turn.
      if (after.isTaken) continue;
      // Checked after the answers: a node that joins later asks all nodes and finds what they declined here.
      if (others === undefined || unknown !== undefined) {
        await this.#mustBeCurrent(unknown ?? registrar.name);
        const joined = this.#nodes.peers().find(({ name }) => !peers.some((peer) => peer.name === name));
        if (joined !== undefined) throw this.#lost(joined.name, "it joined the deployment a moment ago");
      }
      this.#over = { registrar: registrar.name, from };
      return undefined;
    }
    throw this.#inProgress();
  }

  /** `isTaken` means that some nodes accept turns of another registrar. */
  async #declineAll(
    peers: readonly P[],
    turn: number,
    registrar: string,
  ): Promise<{ readonly here: P } | { readonly turn: number; readonly isTaken: boolean }> {
    const answers = await Promise.all(peers.map((peer) => this.#decline(peer, turn, registrar)));
    const here = peers[answers.findIndex(({ isHere }) => isHere)];
    if (here !== undefined) return { here };
    // Another gateway knows a node that this gateway has not asked.
    for (const name of answers.flatMap((each) => [each.registrar, each.node]))
      if (name !== undefined && !this.#isKnown(name)) throw this.#lost(name, "this gateway does not know it yet");
    return { turn: Math.max(...answers.map((each) => each.turn)), isTaken: answers.some((each) => (each.registrar ?? registrar) !== registrar) };
  }

  #inProgress(): Failure {
    return new Failure("REQUEST_IN_FLIGHT", `a create with Idempotency-Key '${this.#key}' is in progress; try again when it is done`, { retryAfterSeconds: 1 });
  }

  #ask(peer: P, asked: Omit<Asked, "key">) {
    return this.#nodes.register(peer, { key: this.#key, ...asked }).catch((error: unknown) => this.#unknown(peer, error));
  }

  #decline(peer: P, turn: number, registrar: string) {
    return this.#nodes.decline(peer, { key: this.#key, turn, registrar }).catch((error: unknown) => this.#unknown(peer, error));
  }

  /** A node that cannot be asked may have created a sandbox. */
  #unknown(peer: P, error: unknown): never {
    const failure = asFailure(error);
    if (failure.row.http < 500 || failure.name === "DISK_FULL") throw failure;
    throw this.#lost(peer.name, failure.message);
  }

  #lost(name: string, reason: string): Failure {
    const said = `node ${name}, which may have created a sandbox under this Idempotency-Key, does not answer: ${reason}`;
    return new Failure("NODE_LOST", `${said}; use another key to create a new one`, { details: { node: name } });
  }
}
