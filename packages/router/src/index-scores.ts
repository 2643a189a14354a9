// Asks the indexer for scores, and goes without it while it does not answer in time.
import { type ScoreAnswer, type ScoreRow, scoreParameters } from "@svc/contract/index-score.ts";
import type { PeerClient } from "@svc/kit/peers/peer-client.ts";
import { EngineConnections } from "./engine-connection.ts";
import { keptCall } from "./kept-call.ts";

/** After an answer that came too late, requests are placed without the indexer for this long, so that they do not all wait for it. */
const PAUSE_MS = 1_000;
/** A longer list of names would not fit into the request's head; it is left out, and the indexer then answers for all engines of the model. */
const MAX_NAMES_CHARS = 16 * 1024;
/** The indexer refuses longer salts and adapter names, so it knows no block under them. */
const MAX_TEXT_CHARS = 1_024;
const MAX_HEADS = 1_024;

export type IndexScoresOptions = {
  readonly url: string;
  /** Reaches an indexer at an `https://` URL. */
  readonly peers?: PeerClient;
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
  readonly #connections: EngineConnections | undefined;
  /** The heads of requests without adapter and salt, by model, up to the length of their bodies. */
  readonly #heads = new Map<string, string>();
  #pausedUntilMs = 0;

  constructor(options: IndexScoresOptions) {
    this.#options = options;
    const { url, peers } = options;
    if (url !== "") this.#connections = new EngineConnections(url, url.startsWith("https:") ? peers?.dial(url) : undefined);
  }

  get isOff(): boolean {
    return this.#connections === undefined;
  }

  /**
   * Returns one row per candidate if `patient`, which is for the poll, and otherwise only the rows of engines that have some of the prompt: the
   * rows of a hundred others would take longer to read than all else. Undefined without an indexer, or without an answer in time.
   */
  async ask(tokens: Uint32Array, question: IndexQuestion, patient = false): Promise<IndexRows | undefined> {
    const { timeoutMs, tenant, onFailure, onAnswer } = this.#options;
    const { model, lora, salt, candidates } = question;
    if (this.#connections === undefined || candidates.length === 0) return undefined;
    if (model.length > MAX_TEXT_CHARS || lora.length > MAX_TEXT_CHARS || salt.length > MAX_TEXT_CHARS) return undefined;
    if (!patient && performance.now() < this.#pausedUntilMs) return undefined;
    try {
      const { status, text } = await keptCall({
        connections: this.#connections,
        method: "POST",
        head: `${this.#headOf(question, patient)}${tokens.byteLength}\r\n\r\n`,
        body: Buffer.from(tokens.buffer, tokens.byteOffset, tokens.byteLength),
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
    this.#connections?.close();
  }

  #headOf({ model, lora, salt, candidates }: IndexQuestion, patient: boolean): string {
    const isPlain = !patient && lora === "" && salt === "";
    const known = isPlain ? this.#heads.get(model) : undefined;
    if (known !== undefined) return known;
    const { url, tenant, uncertainShare } = this.#options;
    const scope = {
      model,
      tenantID: tenant,
      uncertainShare,
      ...(!patient ? { omitUnmatched: true } : candidates.join().length > MAX_NAMES_CHARS ? {} : { candidates }),
      ...(lora === "" ? {} : { loraName: lora }),
      ...(salt === "" ? {} : { cacheSalt: salt }),
    };
    const host = url.replace(/^https?:\/\//, "");
    const head = `POST /score?${scoreParameters(scope)} HTTP/1.1\r\nhost: ${host}\r\ncontent-type: application/octet-stream\r\ncontent-length: `;
    if (isPlain) {
      if (this.#heads.size >= MAX_HEADS) this.#heads.clear();
      this.#heads.set(model, head);
    }
    return head;
  }
}
