// Simulates a deployment in one process, with late or lost messages and nodes that fill, die, return and join, for histories of keyed creates.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asFailure, Failure } from "@svc/contract/failures.ts";
import { type KeyedNode, openKeyedNode } from "@svc/harness/keyed-node.ts";
import { KeyedCreate, type KeyNodes, type Peer } from "../src/serve/keyed-create.ts";

const DAY_MS = 24 * 3_600_000;

/** Returns the same numbers for the same seed (mulberry32). */
export function randomOf(seed: number): (below: number) => number {
  let state = seed | 0;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

type State = "up" | "down" | "dead";

class Node {
  readonly name: string;
  readonly #kept: KeyedNode;
  readonly #world: World;
  state: State = "up";
  life = 1;
  capacity: number;
  /** Counts running sandboxes by the key of their create. */
  readonly live = new Map<string, number>();
  keyed: ReturnType<KeyedNode["start"]>;

  constructor(world: World, name: string, home: string, capacity: number) {
    this.#world = world;
    this.name = name;
    this.capacity = capacity;
    this.#kept = openKeyedNode(home, name, () => world.nowMs);
    this.keyed = this.#process();
  }

  #process(): ReturnType<KeyedNode["start"]> {
    return this.#kept.start(this.#world.nodes.map(({ name }) => name).filter((name) => name !== this.name));
  }

  /** The first `register` makes the node record since when it decides about keys; a day later that record is old. */
  grewOld(): void {
    this.keyed.register({ key: "before" });
  }

  kill(): void {
    this.state = "down";
    this.life++;
  }

  start(): void {
    // A node that was declared dead lost its sandboxes, so it forgets its keys.
    if (this.state === "dead") this.#kept.keys.forget();
    this.keyed = this.#process();
    this.state = "up";
  }

  declareDead(): void {
    this.state = "dead";
    this.live.clear();
  }

  create(key: string, turn: number): Promise<string> {
    const life = this.life;
    const mustLive = () => {
      if (this.life !== life || this.state !== "up") throw new Failure("NODE_LOST", "it was killed");
    };
    return this.keyed.once(
      { key, bodyHash: "same", turn },
      async ({ answer }) => answer,
      async () => {
        await this.#world.pause();
        mustLive();
        if (this.capacity === 0) throw new Failure("TOO_MANY_REQUESTS", "full");
        await this.#world.pause();
        mustLive();
        this.capacity = Math.max(0, this.capacity - 1);
        const answer = `${this.name}/${this.#world.made++}`;
        this.#kept.keys.put({ key, bodyHash: "same", answer }, this.#world.nowMs);
        this.live.set(key, (this.live.get(key) ?? 0) + 1);
        return answer;
      },
    );
  }

  close(): void {
    this.#kept.close();
  }
}

export class World {
  readonly random: (below: number) => number;
  readonly nodes: Node[] = [];
  readonly #folder = mkdtempSync(join(tmpdir(), "svc-keys-"));
  #waiting: (() => void)[] = [];
  nowMs = 10 * DAY_MS;
  made = 0;

  constructor(seed: number) {
    this.random = randomOf(seed);
    for (let count = 2 + this.random(3); count > 0; count--) this.join();
    for (const node of this.nodes) node.grewOld();
    // In half of the histories the deployment is younger than the time for which keys are kept.
    this.nowMs += this.random(2) * 2 * DAY_MS;
  }

  join(): void {
    const name = `node-${this.random(1e9)}`;
    this.nodes.push(new Node(this, name, join(this.#folder, name), this.random(3)));
  }

  /** Waits until the scheduler picks this waiter. */
  pause(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Resumes one waiter, picked at random; returns false if there is none. */
  async step(): Promise<boolean> {
    await new Promise(setImmediate);
    const [picked] = this.#waiting.splice(this.random(Math.max(1, this.#waiting.length)), 1);
    picked?.();
    return picked !== undefined;
  }

  /** Sends a request and returns its answer; both are late, and one in forty is lost. */
  async ask<T>(node: Node, work: () => Promise<T> | T): Promise<T> {
    const { life } = node;
    const arrives = async () => {
      await this.pause();
      if (node.state !== "up" || node.life !== life || this.random(40) === 0) throw new Failure("NODE_LOST", "no answer");
    };
    await arrives();
    const answer = await Promise.resolve(work()).catch(asFailure);
    await arrives();
    if (answer instanceof Failure) throw answer;
    return answer;
  }

  /** The nodes as one gateway knows them: it learns of joins and deaths late. */
  view(): { nodes: KeyNodes<Peer>; hear: () => void } {
    let known: readonly { readonly node: Node; readonly isDead: boolean }[] = [];
    const hear = () => {
      known = this.nodes.map((node) => ({ node, isDead: node.state === "dead" }));
    };
    hear();
    const find = (name: string) => this.nodes.find((node) => node.name === name) as Node;
    const isGone = ({ node, isDead }: { node: Node; isDead: boolean }) => isDead && node.state !== "up";
    const nodes: KeyNodes<Peer> = {
      isFixed: false,
      peers: () =>
        known.filter((each) => !isGone(each)).map(({ node }) => ({ name: node.name, isUp: node.state === "up", reason: node.state, life: node.life })),
      gone: () => known.filter(isGone).map(({ node }) => node.name),
      isCurrent: async () => {
        await this.pause();
        const isCurrent = known.length === this.nodes.length && known.every(({ node, isDead }) => isDead === (node.state === "dead"));
        await this.pause();
        return isCurrent;
      },
      beganNothing: (error) => asFailure(error).name === "TOO_MANY_REQUESTS",
      register: ({ name }, asked) => this.ask(find(name), () => find(name).keyed.register(asked)),
      decline: ({ name }, declined) => this.ask(find(name), () => find(name).keyed.decline(declined)),
    };
    return { nodes, hear };
  }

  /** Carries out one request for a create as a gateway does; undefined if it was refused or its outcome is unknown. */
  async create({ nodes }: { nodes: KeyNodes<Peer> }, key: string): Promise<string | undefined> {
    try {
      const keyed = new KeyedCreate(nodes, key);
      const at = (peer: Peer, turn: number) => {
        const node = this.nodes.find(({ name }) => name === peer.name) as Node;
        return this.ask(node, () => node.create(key, turn));
      };
      const holder = await keyed.find();
      const preferred = nodes.peers().filter(({ isUp }) => isUp);
      preferred.sort(() => this.random(3) - 1);
      for (const peer of holder === undefined ? preferred : [holder, ...preferred]) {
        try {
          return await keyed.send(peer, at);
        } catch (error) {
          if (asFailure(error).name !== "TOO_MANY_REQUESTS") throw error;
        }
      }
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
    }
    return undefined;
  }

  close(): void {
    for (const node of this.nodes) node.close();
    rmSync(this.#folder, { recursive: true });
  }
}
