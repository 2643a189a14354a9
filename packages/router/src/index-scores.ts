// Asks the indexer for scores, and goes without it while it does not answer in time.
import { Agent } from "node:http";
import { type ScoreAnswer, type ScoreRow, scoreParameters } from "@svc/contract/index-score.ts";
import { call } from "./call.ts";

/** After an answer that came too late, requests are placed without the indexer for this long, so that they do not all wait for it. */
const PAUSE_MS = 1_000;
/** A longer list of names would not fit into the request's head; it is left out, and the indexer then answers for all engines of the model. */
const MAX_NAMES_CHARS = 16 * 1024;
/** The indexer refuses longer salts and adapter names, so it knows no block under them. */
const MAX_TEXT_CHARS = 1_024;

export type IndexScoresOptions = {
  readonly url: string;
  readonly tenant: string;
  readonly timeoutMs: number;
  readonly uncertainShare: number;
  readonly onFailure: (error: Error) => void;
  readonly onAnswer: () => void;
};
export type IndexQuestion = { readonly model: string; readonly lora: string; readonly salt: string; readonly candidates: readonly string[] };
export type IndexRows = Readonly<Record<string, ScoreRow>>;

export class IndexScores {
  readonly #options: IndexScoresOptions;
  readonly #agent = new Agent({ keepAlive: true, scheduling: "lifo" });
  #pausedUntilMs = 0;

  constructor(options: IndexScoresOptions) {
    this.#options = options;
  }

  /**
   * Returns one row per candidate if `patient`, which is for the poll, and otherwise only the rows of engines that have some of the prompt: the
   * rows of a hundred others would take longer to read than all else. Undefined without an indexer, or without an answer in time.
   */
  async ask(tokens: Uint32Array, { model, lora, salt, candidates }: IndexQuestion, patient = false): Promise<IndexRows | undefined> {
    const { url, tenant, timeoutMs, uncertainShare, onFailure, onAnswer } = this.#options;
    if (url === "" || candidates.length === 0) return undefined;
    if ([model, lora, salt].some((text) => text.length > MAX_TEXT_CHARS)) return undefined;
    if (!patient && performance.now() < this.#pausedUntilMs) return undefined;
    const scope = {
      model,
      tenantID: tenant,
      uncertainShare,
      ...(!patient ? { omitUnmatched: true } : candidates.join().length > MAX_NAMES_CHARS ? {} : { candidates }),
      ...(lora === "" ? {} : { loraName: lora }),
      ...(salt === "" ? {} : { cacheSalt: salt }),
    };
    try {
      const { status, text } = await call({
        agent: this.#agent,
        base: url,
        path: `/score?${scoreParameters(scope)}`,
        method: "POST",
        body: new Uint8Array(tokens.buffer, tokens.byteOffset, tokens.byteLength),
        headers: { "content-type": "application/octet-stream" },
        timeoutMs: patient ? Math.max(timeoutMs, PAUSE_MS) : timeoutMs,
      });
      if (status !== 200) {
        const refused = new Error(`/score answered ${status}: ${text.slice(0, 300)}`);
        if (status >= 500) throw refused;
        // This request is at fault, and others do not have to do without the indexer.
        onFailure(refused);
        return undefined;
      }
      const rows = (JSON.parse(text) as ScoreAnswer)[tenant] ?? {};
      this.#pausedUntilMs = 0;
      onAnswer();
      return rows;
    } catch (error) {
      this.#pausedUntilMs = performance.now() + PAUSE_MS;
      onFailure(error as Error);
      return undefined;
    }
  }

  close(): void {
    this.#agent.destroy();
  }
}
