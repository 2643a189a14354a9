// Simulates a large deployment in virtual time: real gateways (members, registry of sandboxes, placement, creates, admission), simulated nodes.
// Longer than 300 lines: one world on one virtual clock, whose parts share its random numbers.
import assert from "node:assert/strict";
import { BEAT_MS, type ClusterFrame, type NodeLoad, type StateFrame } from "@svc/contract/cluster.ts";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { openLog } from "@svc/kit/log.ts";
import type { Target } from "@svc/kit/proxy/target.ts";
import { fingerprintOf } from "@svc/kit/secret.ts";
import type { Context } from "@svc/kit/serve.ts";
import { candidateOf } from "../src/members/holdings.ts";
import type { LinkOptions } from "../src/members/link.ts";
import { Lookups } from "../src/members/lookups.ts";
import { Members } from "../src/members/members.ts";
import { place, type Rules } from "../src/place/place.ts";
import { AdmissionQueue } from "../src/place/queue.ts";
import { openCreate } from "../src/serve/create.ts";
import { openRelay } from "../src/serve/relay.ts";
import { Heap, mulberry } from "./fleet.ts";
import { SimulatedNode } from "./scale-node.ts";

export type ScaleOptions = {
  readonly nodes: number;
  readonly gateways: number;
  readonly running: number;
  readonly paused: number;
  readonly createsPerSecond: number;
  readonly resumesPerSecond: number;
  readonly maxSandboxes: number;
  readonly seconds: number;
  /** The moment at which one of three zones loses power, and the moment at which it is back with its paused sandboxes. */
  readonly zoneLostAtSecond: number;
  readonly zoneBackAtSecond: number;
  readonly seed: number;
  readonly onProgress?: (text: string) => void;
};

export type ScaleReport = {
  /** Events of the virtual clock, and frames that gateways took. */
  readonly events: number;
  readonly frames: number;
  readonly wallSeconds: number;
  readonly created: number;
  readonly outcomes: Readonly<Record<string, number>>;
  /** Creates that failed, by the name of the failure. */
  readonly failed: Readonly<Record<string, number>>;
  readonly createMs: { readonly p50: number; readonly p99: number; readonly max: number };
  readonly resumed: number;
  readonly resumesOnLostNodes: number;
  readonly resumesMisrouted: number;
  readonly refusedByNodes: number;
  /** The most and the fewest sandboxes on one node that was up, before the loss and at the end. */
  readonly spreadBefore: readonly [number, number];
  readonly spreadAfter: readonly [number, number];
  readonly mostOverLimit: number;
  readonly lostRunning: number;
  /** Sandboxes that a gateway attributes to the wrong node at the end. */
  readonly wrongOwners: number;
  /** Real milliseconds: one placement; a whole create until it is sent to a node; the complete states of one zone's nodes taken by one gateway. */
  readonly placeMs: number;
  readonly createCostMs: number;
  readonly zoneStatesMs: number;
  readonly heapMB: number;
};

const API_KEY = "k".repeat(40);
const SEED_FINGERPRINT = fingerprintOf("s".repeat(40), "seed");
const SILENCE_MS = 700;
const ZONES = 3;
const MEAN_LIFE_MS = 500_000;
const QUEUE = { length: 10_000, waitMs: 30_000 };
const RULES: Rules = { strategy: "spread", memoryOvercommit: 2, memoryShare: 0.9 };
const RECREATE_MS = 30_000;
const FLUSHES = 2;

type Gateway = { readonly members: Members; readonly queue: AdmissionQueue; readonly create: ReturnType<typeof openCreate>; readonly links: LinkOptions[] };

export async function simulateScale(options: ScaleOptions): Promise<ScaleReport> {
  const startedMs = performance.now();
  const random = mulberry(options.seed);
  const events = new Heap();
  let nowMs = 0;
  let eventCount = 0;
  let frames = 0;
  const at = (delayMs: number, run: () => void) => events.push({ atMs: nowMs + delayMs, run });
  const exponential = (meanMs: number) => -Math.log(1 - random()) * meanMs;
  const count = { created: 0, resumed: 0, resumesOnLostNodes: 0, resumesMisrouted: 0, refusedByNodes: 0, mostOverLimit: 0, lostRunning: 0 };
  const outcomes: Record<string, number> = {};
  const failed: Record<string, number> = {};
  const latencies: number[] = [];
  let pendingCreates = 0;

  const nodes = Array.from({ length: options.nodes }, (_, index) => new SimulatedNode(index, ZONES, options.maxSandboxes));
  const nodeAt = new Map(nodes.map((node) => [node.url, node]));

  function send(gateway: Gateway, frame: ClusterFrame, node: SimulatedNode): void {
    frames++;
    gateway.links[node.index]?.onFrame(frame);
  }
  /** Each gateway learns of a change at a moment of its own. */
  function changed(node: SimulatedNode, change: Partial<Record<"running" | "paused" | "gone", string[]>>): void {
    const frame: ClusterFrame = { kind: "change", sandboxes: { running: [], paused: [], gone: [], leaving: [], owned: {}, ...change } };
    const { generation } = node;
    for (const gateway of gateways) at(1 + random() * 20, () => node.isUp && node.generation === generation && send(gateway, frame, node));
  }
  const stateOf = (node: SimulatedNode): StateFrame => node.state(fingerprintOf(API_KEY, "api-key"), SEED_FINGERPRINT, options.gateways);

  function runs(node: SimulatedNode, id: string, lifeMs: number, pauses: boolean): void {
    node.running.add(id);
    const { generation } = node;
    at(lifeMs, () => {
      if (node.generation !== generation || !node.running.delete(id)) return;
      if (pauses) node.paused.add(id);
      changed(node, pauses ? { paused: [id] } : { gone: [id] });
    });
  }

  /** The node's side of a create: it refuses if it is full, and answers nothing once it has lost power. */
  function nodeCreates(node: SimulatedNode, answer: (status: number, body: object) => void): void {
    if (!node.isUp) return;
    if (node.running.size + node.starting >= node.maxSandboxes) {
      count.refusedByNodes++;
      at(1, () => answer(429, { code: 429, message: "the node is full", error_code: "TOO_MANY_REQUESTS" }));
      return;
    }
    node.starting++;
    const { generation } = node;
    at(150 + exponential(100), () => {
      if (node.generation !== generation || !node.isUp) return;
      node.starting--;
      const id = node.newID();
      runs(node, id, exponential(MEAN_LIFE_MS), false);
      count.mostOverLimit = Math.max(count.mostOverLimit, node.running.size - node.maxSandboxes);
      changed(node, { running: [id] });
      at(1, () => answer(201, { sandboxID: id, templateID: "base", clientID: node.id, envdVersion: "0.1.0" }));
    });
  }

  const relay = openRelay(API_KEY, ({ url, signals }) => {
    const node = nodeAt.get(new URL(url).origin) as SimulatedNode;
    return new Promise((resolve, reject) => {
      const lost = () => reject(new Error("the connection broke"));
      for (const signal of signals) signal.addEventListener("abort", lost, { once: true });
      const answer = (status: number, body: object) => {
        for (const signal of signals) signal.removeEventListener("abort", lost);
        resolve({ status, headers: new Headers(), text: JSON.stringify(body) });
      };
      at(1, () => nodeCreates(node, answer));
    });
  });

  function openGateway(): Gateway {
    const queue = new AdmissionQueue(QUEUE, () => nowMs);
    const links: LinkOptions[] = [];
    const members = new Members({
      apiKey: API_KEY,
      domain: () => "localhost",
      log: openLog("gateway", "silent"),
      silenceMs: SILENCE_MS,
      openTarget: () => ({ drop() {}, dropWaiting() {} }) as unknown as Target,
      newLink: (link) => {
        links.push(link);
        return { open() {}, reject() {}, close() {} };
      },
      onCapacity: () => queue.release(1),
      onLost() {},
      removedNode: () => undefined,
    });
    const parts = { members, lookups: new Lookups(members, API_KEY), relay, queue, rules: RULES, directory: () => undefined, apiKey: API_KEY };
    const create = openCreate({
      ...parts,
      send: () => Promise.reject(new Error("only creates with a key ask nodes")),
      volumes: { nodesFor: () => Promise.resolve([]) },
      secrets: { settle: () => Promise.resolve() },
      nowMs: () => nowMs,
      onPlaced: (outcome) => void (outcomes[outcome] = (outcomes[outcome] ?? 0) + 1),
    });
    for (const { url, index, id } of nodes) members.add({ url, slot: index, nodeID: id });
    return { members, queue, create, links };
  }

  for (let index = 0; index < options.running; index++) {
    const node = nodes[index % options.nodes] as SimulatedNode;
    runs(node, node.newID(), exponential(MEAN_LIFE_MS), false);
  }
  for (let index = 0; index < options.paused; index++) {
    const node = nodes[index % options.nodes] as SimulatedNode;
    node.paused.add(node.newID());
  }
  const gateways: Gateway[] = Array.from({ length: options.gateways }, openGateway);
  const any = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  for (const node of nodes) {
    const frame = stateOf(node);
    for (const gateway of gateways) send(gateway, frame, node);
  }
  options.onProgress?.(`${options.gateways} gateways know ${options.running + options.paused} sandboxes on ${options.nodes} nodes`);

  function clientCreates(gateway = any(gateways)): void {
    const sinceMs = nowMs;
    const context = {
      status() {},
      header() {},
      requestID: "",
      client: "10.0.0.1",
      signal: new AbortController().signal,
      trace: {},
      principal: { kind: "deployment" },
    } as unknown as Context;
    pendingCreates++;
    const input = createSandbox.input.parse({ templateID: "base" });
    gateway
      .create(createSandbox, input, context)
      .then(
        () => {
          count.created++;
          latencies.push(nowMs - sinceMs);
        },
        (error: Error) => {
          failed[error.name] = (failed[error.name] ?? 0) + 1;
        },
      )
      .finally(() => void pendingCreates--);
  }

  /** A request for a paused sandbox goes where the gateway's registry says, and is checked against the node's own set. */
  function clientResumes(): void {
    const node = any(nodes);
    const id = node.paused.values().next().value;
    if (id === undefined) return;
    const owner = any(gateways).members.ownerOf(id);
    if (owner?.url !== node.url) return void count.resumesMisrouted++;
    if (!owner.isUp || !node.isUp) return void count.resumesOnLostNodes++;
    if (node.running.size + node.starting >= node.maxSandboxes) return;
    node.paused.delete(id);
    count.resumed++;
    runs(node, id, exponential(60_000), true);
    changed(node, { running: [id] });
  }

  function loseZone(): void {
    for (const node of nodes.filter(({ zone }) => zone === 0)) {
      count.lostRunning += node.running.size;
      // Their clients notice, and create again.
      for (let index = 0; index < node.running.size; index++) at(SILENCE_MS + random() * RECREATE_MS, () => clientCreates());
      node.losePower();
      for (const gateway of gateways)
        at(SILENCE_MS + random() * BEAT_MS, () => gateway.links[node.index]?.onDown(`it was silent for ${SILENCE_MS} ms`, "silent"));
    }
  }
  let zoneStatesMs = 0;
  function returnZone(): void {
    for (const node of nodes.filter(({ zone }) => zone === 0)) {
      node.isUp = true;
      const frame = stateOf(node);
      const beganMs = performance.now();
      for (const gateway of gateways) send(gateway, frame, node);
      zoneStatesMs += (performance.now() - beganMs) / gateways.length;
    }
  }

  const spread = (): readonly [number, number] => {
    const sizes = nodes.filter(({ isUp }) => isUp).map(({ running }) => running.size);
    return [sizes.reduce((most, size) => Math.max(most, size), 0), sizes.reduce((least, size) => Math.min(least, size), Number.POSITIVE_INFINITY)];
  };
  const every = (meanMs: () => number, run: () => void) => {
    const next = () => {
      run();
      at(meanMs(), next);
    };
    at(meanMs(), next);
  };
  every(
    () => exponential(1000 / options.createsPerSecond),
    () => clientCreates(),
  );
  every(() => exponential(1000 / options.resumesPerSecond), clientResumes);
  every(
    () => 250,
    () => {
      for (const { queue } of gateways) {
        queue.expire();
        queue.release(1);
      }
    },
  );
  for (const node of nodes) {
    const beat = () => {
      at(BEAT_MS, beat);
      if (!node.isUp) return;
      const load: NodeLoad = node.load(options.gateways);
      for (const gateway of gateways) send(gateway, { kind: "beat", load }, node);
    };
    at(random() * BEAT_MS, beat);
  }
  let spreadBefore: readonly [number, number] = [0, 0];
  at(options.zoneLostAtSecond * 1000, () => {
    spreadBefore = spread();
    loseZone();
  });
  at(options.zoneBackAtSecond * 1000, returnZone);
  every(
    () => 10_000,
    () => options.onProgress?.(`${nowMs / 1000} s of virtual time, ${eventCount} events, ${count.created} created, ${pendingCreates} pending`),
  );

  for (let event = events.pop(); event !== undefined && event.atMs <= options.seconds * 1000; event = events.pop()) {
    const isNext = event.atMs > nowMs;
    nowMs = event.atMs;
    eventCount++;
    event.run();
    // Creates continue in microtasks; a turn of the real event loop ends them before virtual time goes on.
    if (pendingCreates > 0 && isNext) for (let flush = 0; flush < FLUSHES; flush++) await new Promise((resolve) => setImmediate(resolve));
  }

  let wrongOwners = 0;
  for (const { members } of gateways) for (const node of nodes) for (const id of node.paused) if (members.ownerOf(id)?.url !== node.url) wrongOwners++;
  const [first] = gateways as [Gateway];
  const placing = performance.now();
  const ROUNDS = 20;
  for (let round = 0; round < ROUNDS; round++)
    place(
      first.members.all.map((member) => candidateOf(first.members, member)),
      { templateID: "base" },
      RULES,
    );
  const placeMs = (performance.now() - placing) / ROUNDS;
  const { created } = count;
  // Virtual time has ended, so these creates wait for their nodes for ever: what they cost is the gateway's part.
  const creating = performance.now();
  for (let round = 0; round < ROUNDS; round++) {
    clientCreates(first);
    await new Promise((resolve) => setImmediate(resolve));
  }
  const createCostMs = (performance.now() - creating) / ROUNDS;
  assert.deepEqual([count.created, pendingCreates >= ROUNDS], [created, true]);
  latencies.sort((a, b) => a - b);
  const share = (part: number) => Math.round(latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * part))] ?? 0);
  return {
    ...count,
    events: eventCount,
    frames,
    wallSeconds: Math.round((performance.now() - startedMs) / 100) / 10,
    outcomes,
    failed,
    createMs: { p50: share(0.5), p99: share(0.99), max: share(1) },
    spreadBefore,
    spreadAfter: spread(),
    wrongOwners,
    placeMs: Math.round(placeMs * 100) / 100,
    createCostMs: Math.round(createCostMs * 100) / 100,
    zoneStatesMs: Math.round(zoneStatesMs),
    heapMB: Math.round(process.memoryUsage().heapUsed / 2 ** 20),
  };
}
