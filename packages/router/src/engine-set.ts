// The engines that there are now: those given at the start, and those that discovery finds and loses.
import type { NamedEntry } from "@svc/kit/discovery/engine-entry.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Engine } from "./engine.ts";
import type { EngineRecord } from "./engine-list.ts";

export type EngineSetOptions = {
  readonly open: (record: EngineRecord) => Engine;
  readonly onAdded: (engine: Engine) => void;
  readonly onChange: () => void;
  readonly log: Log;
};

export class EngineSet {
  /** Everything that looks at engines holds this list, whose entries change. */
  readonly engines: Engine[];
  readonly #given: ReadonlySet<Engine>;
  readonly #options: EngineSetOptions;

  constructor(records: readonly EngineRecord[], options: EngineSetOptions) {
    this.#options = options;
    this.engines = records.map(options.open);
    this.#given = new Set(this.engines);
  }

  /** `entries`: all that discovery has now. An engine that is gone ends what it has. */
  discovered(entries: readonly NamedEntry[]): void {
    const { open, onAdded, onChange, log } = this.#options;
    const wanted = new Map(entries.map((entry) => [entry.name, recordOf(entry)]));
    for (const engine of [...this.engines]) {
      if (this.#given.has(engine)) {
        wanted.delete(engine.name);
        continue;
      }
      const record = wanted.get(engine.name);
      if (record !== undefined && JSON.stringify(record) === JSON.stringify(engine.record)) {
        wanted.delete(engine.name);
        continue;
      }
      this.engines.splice(this.engines.indexOf(engine), 1);
      engine.leave();
      log.info({ engine: engine.name, url: engine.url }, "the engine is gone");
    }
    for (const record of wanted.values()) {
      if (this.engines.some(({ url }) => url === record.url)) continue;
      const engine = open(record);
      this.engines.push(engine);
      log.info({ engine: engine.name, url: engine.url }, "an engine was found");
      onAdded(engine);
    }
    onChange();
  }
}

function recordOf({ name, url, modelname, api_key, role, connector, type, bootstrap_port }: NamedEntry): EngineRecord {
  return {
    name,
    url,
    ...(modelname === undefined ? {} : { indexer_model: modelname }),
    ...(api_key === undefined ? {} : { api_key }),
    ...(role === undefined ? {} : { role }),
    ...(connector === undefined && type !== "SGLang" ? {} : { connector: connector ?? "sglang" }),
    ...(bootstrap_port === undefined ? {} : { bootstrap_port }),
  };
}
