// A deployment in one process whose messages are late or lost and whose nodes fill, die, return and join, for histories of keyed creates.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asFailure, Failure } from "@svc/contract/failures.ts";
import { type KeyedNode, openKeyedNode } from "@svc/harness/keyed-node.ts";
import { KeyedCreate, type KeyNodes, type Peer } from "../src/serve/keyed-create.ts";

const DAY_MS = 24 * 3_600_000;

/** The same numbers for the same seed (mulberry32). */
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
  places: number;
  /** Sandboxes that run, by the key of their create. */
  readonly live = new Map<string, number>();
  keyed: ReturnType<KeyedNode["start"]>;

  constructor(world: World, name: string, home: string, places: number) {
    this.#world = world;
    this.name = name;
    this.places = places;
    this.#kept = openKeyedNode(home, name, () => world.nowMs);
    this.keyed = this.#process();
  }

  #process(): ReturnType<KeyedNode["start"]> {
    return this.#kept.start(this.#world.nodes.map(({ name }) => name).filter((name) => name !== this.name));
  }

  /** Since when it decides about keys is asked for once, a day before. */
  grewOld(): void {
    this.keyed.register({ key: "before" });
  }

  kill(): void {
    this.state = "down";
    this.life++;
  }

  start(): void {
    // Declared dead: what ran here was given up.
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
        if (this.places === 0) throw new Failure("TOO_MANY_REQUESTS", "full");
        await this.#world.pause();
        mustLive();
        this.places = Math.max(0, this.places - 1);
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
    // In half of the histories the deployment is younger than keys are kept.
    this.nowMs += this.random(2) * 2 * DAY_MS;
  }

  join(): void {
    const name = `node-${this.random(1e9)}`;
    this.nodes.push(new Node(this, name, join(this.#folder, name), this.random(3)));
  }

  /** Until the scheduler picks whoever waits here. */
  pause(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Lets one of those that wait go on, any of them; false where none waits. */
  async step(): Promise<boolean> {
    await new Promise(setImmediate);
    const [picked] = this.#waiting.splice(this.random(Math.max(1, this.#waiting.length)), 1);
    picked?.();
    return picked !== undefined;
  }

  /** A request and its answer: each late, and one in forty lost. */
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

  /** Nodes as one gateway knows them: it hears of joins and deaths late. */
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

  /** One request for a create, as a gateway carries it out; undefined where it was refused or is not known. */
  async create({ nodes }: { nodes: KeyNodes<Peer> }, key: string): Promise<string | undefined> {
    try {
      const keyed = new KeyedCreate(nodes, key);
      const at = (peer: Peer, turn: number) => {
        const node = this.nodes.find(({ name }) => name === peer.name) as Node;
        return this.ask(node, () => node.create(key, turn));
      };
      const holder = await keyed.find();
      const wished = nodes.peers().filter(({ isUp }) => isUp);
      wished.sort(() => this.random(3) - 1);
      for (const peer of holder === undefined ? wished : [holder, ...wished]) {
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
