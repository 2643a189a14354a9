// One small call over connections that are kept: a bounded answer within a bounded time, at a third of the cost of node:http's client.
import type { Answer } from "./call.ts";
import type { EngineConnection, EngineConnections, Exchange } from "./engine-connection.ts";

/** Longer answers are refused: rows of a thousand engines have some hundred kilobytes. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

export type KeptCall = {
  readonly connections: EngineConnections;
  readonly method: "GET" | "POST";
  /** The request's head with its empty line, in single-byte characters. */
  readonly head: string;
  readonly body: Buffer;
  readonly timeoutMs: number;
};

/** @throws Error if nothing answers in time, or with more than the bound. */
export function keptCall(call: KeptCall): Promise<Answer> {
  return new Promise((resolve, reject) => new Asking(call, resolve, reject).begin(false));
}

class Asking implements Exchange {
  readonly method: string;
  readonly #call: KeptCall;
  readonly #resolve: (answer: Answer) => void;
  readonly #reject: (error: Error) => void;
  readonly #timer: NodeJS.Timeout;
  #connection: EngineConnection | undefined;
  #status = 0;
  #text = "";

  constructor(call: KeptCall, resolve: (answer: Answer) => void, reject: (error: Error) => void) {
    this.#call = call;
    this.#resolve = resolve;
    this.#reject = reject;
    this.method = call.method;
    this.#timer = setTimeout(() => this.#give(new Error(`no answer within ${call.timeoutMs} ms`)), call.timeoutMs);
  }

  begin(fresh: boolean): void {
    const { connections, head, body } = this.#call;
    this.#connection = connections.send(this, { head, body }, fresh);
  }

  onConnect(): void {}

  onHead({ status }: { readonly status: number }): void {
    this.#status = status;
  }

  onBody(text: string): void {
    this.#text += text;
    if (this.#text.length > MAX_ANSWER_BYTES) this.#give(new Error(`the answer has more than ${MAX_ANSWER_BYTES} bytes`));
  }

  onEnd(text: string): void {
    clearTimeout(this.#timer);
    const bytes = this.#text + text;
    this.#resolve({ status: this.#status, text: SINGLE_BYTES.test(bytes) ? bytes : Buffer.from(bytes, "latin1").toString("utf8") });
  }

  onFailure(error: Error, isStale: boolean): void {
    if (isStale) this.begin(true);
    else this.#give(error);
  }

  #give(error: Error): void {
    clearTimeout(this.#timer);
    this.#connection?.abort();
    this.#reject(error);
  }
}

/** True for text that is the same in all encodings. */
const SINGLE_BYTES = /^[\s -~]*$/;
