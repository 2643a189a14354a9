// An example router: sends each prompt to the instance that has most of it cached, for the work it has waiting.
//
//   node docs/example-router.ts --model M --block-size N --engine A --engine B [--waiting A=TOKENS] [--indexer URL]
//
// Reads one line of JSON per prompt, a list of token ids, and prints where it goes. A prompt's tokens wait there until the
// program ends; a real router takes them off again when the answer has come (`finish`).
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { IndexClient, type QueryScope } from "@svc/contract/index-client.ts";
import type { Match } from "@svc/contract/indexer.ts";

/** The value of a matched token, in tokens of waiting work: below 1, since waiting work may itself be cached. */
const MATCHED_TOKEN_WORTH = 0.5;
/** The share of a token that lost events may have removed. */
const UNCERTAIN_SHARE = 0.5;
/** After this time the router decides by load only, since waiting longer would cost more than a match saves. */
const INDEXER_TIMEOUT_MS = 50;

export type Choice = { instance: string; matchedTokens: number; finish(): void };

export class Router {
  readonly waitingTokens = new Map<string, number>();
  readonly #index: IndexClient;
  readonly #scope: QueryScope;

  constructor(indexerURL: string, scope: QueryScope, instances: readonly string[], timeoutMs: number = INDEXER_TIMEOUT_MS) {
    this.#index = new IndexClient(indexerURL, { timeoutMs });
    this.#scope = { ...scope, freshness: true };
    for (const instance of instances) this.waitingTokens.set(instance, 0);
  }

  async pick(prompt: Uint32Array): Promise<Choice> {
    const rows = await this.#matches(prompt);
    // Equal scores go to the first instance after a random start, so that prompts without a match do not all go to one instance.
    const instances = [...this.waitingTokens.keys()];
    const start = Math.floor(Math.random() * instances.length);
    let best: { instance: string; matchedTokens: number; score: number } | undefined;
    for (const instance of [...instances.slice(start), ...instances.slice(0, start)]) {
      const matchedTokens = matchedBy(rows[instance]);
      const score = matchedTokens * MATCHED_TOKEN_WORTH - (this.waitingTokens.get(instance) ?? 0);
      if (best === undefined || score > best.score) best = { instance, matchedTokens, score };
    }
    if (best === undefined) throw new Error("the router has no instances");
    const { instance, matchedTokens } = best;
    const added = prompt.length - matchedTokens;
    this.#add(instance, added);
    return { instance, matchedTokens, finish: () => this.#add(instance, -added) };
  }

  /** Without the indexer there is no match to go by, and prompts must still go somewhere. */
  async #matches(prompt: Uint32Array): Promise<Record<string, Match>> {
    try {
      return (await this.#index.query(prompt, this.#scope))[this.#scope.tenantID ?? "default"] ?? {};
    } catch {
      return {};
    }
  }

  #add(instance: string, tokens: number): void {
    this.waitingTokens.set(instance, (this.waitingTokens.get(instance) ?? 0) + tokens);
  }
}

/** Tokens that lost events may have taken count half. A rank that is not connected may be gone. */
function matchedBy(row: Match | undefined): number {
  if (row === undefined) return 0;
  const there = Object.entries(row.DP).filter(([rank]) => row.freshness?.[rank]?.connected !== false);
  return Math.max(0, ...there.map(([rank, tokens]) => tokens + UNCERTAIN_SHARE * (row.uncertain?.DP[rank] ?? 0)));
}

if (process.argv[1] === import.meta.filename) {
  const { values } = parseArgs({
    options: {
      indexer: { type: "string", default: process.env["SVC_INDEXER_URL"] ?? "http://localhost:13333" },
      model: { type: "string", default: "demo" },
      "block-size": { type: "string", default: "16" },
      engine: { type: "string", multiple: true, default: [] },
      waiting: { type: "string", multiple: true, default: [] },
    },
  });
  const router = new Router(values.indexer, { model: values.model, blockSize: Number(values["block-size"]) }, values.engine, 1_000);
  for (const text of values.waiting) {
    const [instance = "", tokens = "0"] = text.split("=");
    router.waitingTokens.set(instance, Number(tokens));
  }
  for await (const line of createInterface({ input: process.stdin })) {
    const { instance, matchedTokens } = await router.pick(Uint32Array.from(JSON.parse(line) as number[]));
    process.stdout.write(`${instance}: ${matchedTokens} tokens are there\n`);
  }
}
