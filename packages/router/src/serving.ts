// Which engines serve a model, and under which names the indexer knows their blocks; kept until an engine comes, goes, or lists other models.
import type { Engine } from "./engine.ts";

/** Models are named by clients, so only this many are remembered. */
const MAX_MODELS = 1_024;

/** Engines whose blocks the indexer knows under the same model and LoRA adapter. */
export type Group = {
  readonly model: string;
  readonly lora: string;
  readonly engines: readonly Engine[];
  readonly names: readonly string[];
};
export type Served = {
  readonly engines: readonly Engine[];
  /** True if engines of both roles of a pair are among them. */
  readonly hasPairs: boolean;
  readonly groups: readonly Group[];
  /** The part of an engine's blocks that prompts of this model can match: model and adapter, as text. */
  readonly spaces: ReadonlyMap<Engine, string>;
};

export class Serving {
  readonly #engines: readonly Engine[];
  readonly #served = new Map<string, Served>();
  #seen: readonly (Engine | Engine["models"])[] = [];

  constructor(engines: readonly Engine[]) {
    this.#engines = engines;
  }

  of(model: string): Served {
    if (this.#hasChanged()) this.#served.clear();
    const known = this.#served.get(model);
    if (known !== undefined) return known;
    if (this.#served.size >= MAX_MODELS) this.#served.clear();
    const engines = this.#engines.filter((engine) => engine.serves(model) !== undefined);
    const spaces = new Map(engines.map((engine) => [engine, JSON.stringify(identityOf(engine, model))]));
    const groups = [...Map.groupBy(engines, (engine) => spaces.get(engine))].map(([, same]) => {
      const [name, lora] = identityOf(same[0] as Engine, model);
      return { model: name, lora, engines: same, names: same.map((engine) => engine.name) };
    });
    const hasPairs = engines.some(({ role }) => role === "prefill") && engines.some(({ role }) => role === "decode");
    const served = { engines, hasPairs, groups, spaces };
    this.#served.set(model, served);
    return served;
  }

  #hasChanged(): boolean {
    const engines = this.#engines;
    let isSame = this.#seen.length === engines.length * 2;
    for (let at = 0; isSame && at < engines.length; at++) isSame = this.#seen[at * 2] === engines[at] && this.#seen[at * 2 + 1] === engines[at]?.models;
    if (isSame) return false;
    this.#seen = engines.flatMap((engine) => [engine, engine.models]);
    return true;
  }
}

/** A model with a parent is its LoRA adapter: the engine's events name the adapter, and its registration the parent. */
function identityOf(engine: Engine, model: string): readonly [model: string, lora: string] {
  const parent = engine.serves(model)?.parent;
  const base = typeof parent === "string" && parent !== "" ? parent : undefined;
  return [engine.record.indexer_model ?? base ?? model, base === undefined ? "" : model];
}
