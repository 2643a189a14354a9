// One engine as the router knows it: its circuit, its load, what was just sent there, and what it serves.
import { Agent } from "node:http";
import type { ScoreRow } from "@svc/contract/index-score.ts";
import { EngineConnections } from "./engine-connection.ts";
import type { EngineRecord } from "./engine-list.ts";
import type { EngineLoad } from "./engine-load.ts";
import { RecentPrompts } from "./recent-prompts.ts";

/** An engine whose health is good and whose requests fail is left out for longer each time. */
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;
/** Idle connections that are kept to an engine for small calls. */
const IDLE_CONNECTIONS = 256;

/**
 * ```
 *  closed ── refused, or failures in a row ──▶ open ── GET /health answers 200 ──▶ closed
 *                                               │ ▲
 *                                               └─┘ a probe fails
 * ```
 * While a circuit is open, only probes go to the engine: no request of a user tries whether it works again.
 */
export type Circuit = { readonly state: "closed"; failures: number } | { readonly state: "open"; readonly why: string; readonly probeAtMs: number };

export type Role = "prefill" | "decode" | "both";
export type ModelCard = { readonly id: string; readonly parent?: string | null; readonly [member: string]: unknown };

export type EngineOptions = {
  readonly record: EngineRecord;
  readonly prefillTokensPerSecond: number;
  readonly maxInFlight: number;
  readonly circuitFailures: number;
  readonly speculativeMs: number;
  readonly onCircuit: (engine: Engine) => void;
};

export class Engine {
  readonly name: string;
  readonly url: string;
  /** HOST:PORT. */
  readonly authority: string;
  readonly record: EngineRecord;
  readonly prefillTokensPerSecond: number;
  readonly maxInFlight: number;
  /** For small calls. */
  readonly agent = new Agent({ keepAlive: true, maxFreeSockets: IDLE_CONNECTIONS, scheduling: "lifo" });
  /** For requests of clients. */
  readonly connections: EngineConnections;
  readonly recent: RecentPrompts;
  circuit: Circuit = { state: "closed", failures: 0 };
  draining = false;
  /** True once discovery no longer lists this engine. */
  gone = false;
  /** This engine's state in the indexer; `unregistered` until the indexer has answered. */
  indexState: ScoreRow["state"] = "unregistered";
  /** In tokens, as the indexer says; undefined until it has. */
  blockSize: number | undefined;
  /** Undefined until the engine has listed them. */
  models: readonly ModelCard[] | undefined;
  load: EngineLoad | undefined;
  /** Requests sent there that are not over. */
  inFlight = 0;
  /** Requests in flight without a first answer byte. */
  waiting = 0;
  /** Tokens that those have to prefill. */
  waitingTokens = 0;
  /** Ways of tokenizing that the engine answered with 404; they are tried again once its circuit was open. */
  readonly lacks = new Set<string>();
  readonly #options: EngineOptions;
  /** Times in a row that its circuit opened though it answers. */
  #ejections = 0;

  constructor(options: EngineOptions) {
    this.#options = options;
    this.record = options.record;
    this.name = options.record.name;
    this.url = options.record.url;
    this.authority = this.url.slice("http://".length);
    this.prefillTokensPerSecond = options.record.prefill_tokens_per_second ?? options.prefillTokensPerSecond;
    this.maxInFlight = options.record.max_in_flight ?? options.maxInFlight;
    this.connections = new EngineConnections(this.url);
    this.recent = new RecentPrompts(options.speculativeMs);
  }

  /** Undefined if the engine may be chosen. */
  get unfit(): string | undefined {
    if (this.gone) return "discovery does not name it any more";
    if (this.circuit.state === "open") return `its circuit is open: ${this.circuit.why}`;
    if (this.draining) return "it drains";
    if (this.indexState === "dead" || this.indexState === "disconnected") return `the indexer calls it ${this.indexState}`;
    return undefined;
  }

  get role(): Role {
    return this.record.role ?? "both";
  }

  get isFull(): boolean {
    return this.inFlight >= this.maxInFlight;
  }

  /** The card of a model; undefined if the engine does not serve it. An engine that has not listed its models may serve any. */
  serves(model: string): ModelCard | undefined {
    return this.models === undefined ? { id: model } : this.models.find(({ id }) => id === model);
  }

  succeeded(): void {
    this.#ejections = 0;
    if (this.circuit.state === "closed") this.circuit.failures = 0;
  }

  /** Counts a failure. `certain` means that the connection was refused, so one failure opens the circuit. */
  failed(why: string, certain: boolean): void {
    if (this.circuit.state === "open") return;
    this.circuit.failures++;
    if (!certain && this.circuit.failures < this.#options.circuitFailures) return;
    // A process that ended may be restarted soon, so it is probed at once; one that answers and fails is ejected for a while.
    const pauseMs = certain ? 0 : Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.#ejections++);
    this.circuit = { state: "open", why, probeAtMs: performance.now() + pauseMs };
    this.load = undefined;
    // An engine that was replaced has none of what its predecessor was sent.
    this.recent.clear();
    this.lacks.clear();
    this.#options.onCircuit(this);
  }

  /** A probe was answered. */
  recovered(): void {
    if (this.circuit.state === "closed") return;
    this.circuit = { state: "closed", failures: 0 };
    this.#options.onCircuit(this);
  }

  /** It gets nothing new; `close` may follow once nothing is in flight. */
  leave(): void {
    this.gone = true;
  }

  close(): void {
    this.agent.destroy();
    this.connections.close();
  }
}
