// Looks at each engine again and again: its health while its circuit is open, its load and its models otherwise.
import { call } from "./call.ts";
import type { Engine, ModelCard } from "./engine.ts";
import { readLoad } from "./engine-load.ts";
import type { Placement } from "./placement.ts";
import type { Prompt } from "./prompt.ts";

const CALL_MS = 2_000;
/** Models change seldom: LoRA adapters that are loaded or unloaded. */
const MODELS_EVERY = 10;

export type PollOptions = {
  readonly engines: readonly Engine[];
  readonly placement: Placement;
  readonly everyMs: number;
  readonly onChange: () => void;
};

export class Poll {
  readonly #options: PollOptions;
  readonly #stopped = new AbortController();
  readonly #running = new Set<Promise<void>>();

  constructor(options: PollOptions) {
    this.#options = options;
  }

  /** Resolves after the first look at every engine. */
  async begin(): Promise<void> {
    const { engines } = this.#options;
    await Promise.all(engines.map((engine) => this.#look(engine, 0)));
    await this.#states();
    for (const engine of engines) this.#follow(engine);
    void this.#keep(this.#repeat(() => this.#states()));
  }

  /** An engine that was found later. */
  add(engine: Engine): void {
    void this.#look(engine, 0).then(() => this.#follow(engine));
  }

  async close(): Promise<void> {
    this.#stopped.abort();
    await Promise.all(this.#running);
  }

  /** Looks at it until it is gone and has nothing in flight any more. */
  #follow(engine: Engine): void {
    void this.#keep(
      this.#repeat(
        (round) => (engine.gone ? Promise.resolve() : this.#look(engine, round)),
        () => engine.gone && engine.inFlight === 0,
      ).then(() => {
        if (engine.gone) engine.close();
      }),
    );
  }

  async #keep(running: Promise<void>): Promise<void> {
    this.#running.add(running);
    await running.finally(() => this.#running.delete(running));
  }

  async #repeat(look: (round: number) => Promise<void>, isOver: () => boolean = () => false): Promise<void> {
    for (let round = 1; !this.#stopped.signal.aborted && !isOver(); round++) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(done, this.#options.everyMs);
        const { signal } = this.#stopped;
        function done() {
          clearTimeout(timer);
          signal.removeEventListener("abort", done);
          resolve();
        }
        signal.addEventListener("abort", done, { once: true });
      });
      if (!this.#stopped.signal.aborted) await look(round);
    }
  }

  async #look(engine: Engine, round: number): Promise<void> {
    if (engine.circuit.state === "open") {
      if (performance.now() < engine.circuit.probeAtMs) return;
      const health = await this.#get(engine, "/health");
      if (!health.ok) return;
      engine.recovered();
      engine.models = undefined;
    }
    if (engine.models === undefined || round % MODELS_EVERY === 0) await this.#readModels(engine);
    const ownInFlight = engine.inFlight;
    const metrics = await this.#get(engine, "/metrics");
    if (metrics.ok) {
      const load = readLoad(metrics.text);
      // A request of ours that began or ended meanwhile must not look like another client's.
      engine.load = load === undefined ? undefined : { ...load, ownInFlight: Math.max(ownInFlight, engine.inFlight) };
    } else if (metrics.status === 0) engine.failed(metrics.text, metrics.refused);
    this.#options.onChange();
  }

  async #readModels(engine: Engine): Promise<void> {
    const { ok, text } = await this.#get(engine, "/v1/models");
    if (!ok) return;
    try {
      const { data } = JSON.parse(text) as { data?: unknown };
      if (!Array.isArray(data)) return;
      engine.models = data.filter((card): card is ModelCard => typeof (card as ModelCard | null)?.id === "string");
    } catch {
      // The previous list stays in force; if the engine is broken, its circuit opens by the requests that fail.
    }
  }

  /** Asks the indexer which engines it hears, with a prompt of no tokens per model. */
  async #states(): Promise<void> {
    const { engines, placement, onChange } = this.#options;
    const models = new Set(engines.flatMap((engine) => (engine.models ?? []).filter(({ parent }) => parent == null).map(({ id }) => id)));
    for (const model of models) {
      const prompt: Prompt = { kind: "other", model, body: {}, cacheSalt: "", session: undefined, previousResponse: undefined };
      try {
        await placement.rowsFor(prompt, new Uint32Array(0), true);
      } catch {
        // No engine serves that model any more.
      }
    }
    onChange();
  }

  async #get(engine: Engine, path: string): Promise<{ ok: boolean; status: number; text: string; refused: boolean }> {
    const { record } = engine;
    const headers = record.api_key === undefined ? {} : { authorization: `Bearer ${record.api_key}` };
    try {
      const { status, text } = await call({ agent: engine.agent, base: engine.url, path, headers, timeoutMs: CALL_MS, signal: this.#stopped.signal });
      return { ok: status === 200, status, text, refused: false };
    } catch (error) {
      const { code = "", message } = error as NodeJS.ErrnoException;
      return { ok: false, status: 0, text: `${path}: ${message}`, refused: code === "ECONNREFUSED" };
    }
  }
}
