// The indexer's view: its publishers, with those that need attention on top, and a bar that shows where a prompt is cached.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { count, duration } from "../format.ts";
import { Command, Empty, Field, Problem, textFrom } from "../parts.tsx";
import { query, setQuery } from "../router.ts";
import { messageOf, request } from "../session.ts";

type Freshness = {
  readonly lag_ms: number | null;
  readonly age_ms: number | null;
  readonly gap: boolean;
  readonly complete: boolean;
  readonly connected: boolean;
  readonly uncertain: boolean;
};
type Service = {
  readonly endpoint: string;
  readonly type: string;
  readonly modelname: string;
  readonly tenant_id: string;
  readonly instance_id: string;
  readonly block_size: number;
  readonly dp_rank: number;
  readonly freshness: Freshness;
  readonly streams: readonly { readonly medium: string; readonly blocks: number }[];
  readonly batches: Readonly<Record<string, number>>;
  readonly doctor: readonly unknown[];
};
export type EnginesParts = {
  readonly services: { readonly services: readonly Service[]; readonly doctor: readonly unknown[] };
  readonly metrics: Readonly<Record<string, number>>;
};

/** A connected publisher that is silent for longer is marked for attention. */
const SILENT_MS = 60_000;

const saidBy = (line: unknown): string =>
  typeof line === "string"
    ? line
    : ((Object.values(line as Record<string, unknown>).find((value) => typeof value === "string" && value.includes(" ")) as string | undefined) ??
      JSON.stringify(line));

/** Returns why a publisher needs attention; empty if it does not. */
function troubleOf({ freshness, doctor, batches }: Service): string {
  if (!freshness.connected) return "not connected";
  if (doctor.length > 0) return saidBy(doctor[0]);
  if (freshness.gap) return "events were lost";
  if ((batches["malformed"] ?? 0) > 0) return `${count(batches["malformed"] ?? 0)} batches were not understood`;
  if (freshness.age_ms === null) return "no event yet";
  if (freshness.age_ms > SILENT_MS) return `silent for ${duration(freshness.age_ms)}`;
  return freshness.uncertain ? "some blocks are uncertain" : "";
}

export function Engines({ parts }: { readonly parts: Partial<EnginesParts> }): JSX.Element {
  const services = [...(parts.services?.services ?? [])].sort(
    (a, b) => Number(troubleOf(b) !== "") - Number(troubleOf(a) !== "") || (a.instance_id < b.instance_id ? -1 : 1) || a.dp_rank - b.dp_rank,
  );
  const media = [...new Set(services.flatMap(({ streams }) => streams.map(({ medium }) => medium)))].sort();
  const metric = (name: string) => parts.metrics?.[name] ?? 0;
  const asked = metric("svc_indexer_query_blocks_total");
  return (
    <section aria-label="Engines">
      <h2>Engines</h2>
      <p class="muted">
        {count(services.length)} publishers; of {count(asked)} blocks queried,{" "}
        {asked === 0 ? "none" : `${Math.round((100 * metric("svc_indexer_matched_blocks_total")) / asked)} %`} matched;{" "}
        {count(metric("svc_indexer_evicted_blocks_total"))} blocks evicted from the index
      </p>
      {parts.services?.doctor.map((line) => (
        <Problem key={saidBy(line)} error={saidBy(line)} />
      ))}
      {services.length === 0 ? (
        <Empty title="No publisher is registered.">
          <Command text="./svc index simulate --model demo --instance engine-a --stay" />
        </Empty>
      ) : (
        <table>
          <thead>
            <tr>
              <th scope="col">Engine</th>
              <th scope="col">Model</th>
              {media.map((medium) => (
                <th key={medium} scope="col" class="number">
                  Blocks on {medium}
                </th>
              ))}
              <th scope="col" class="number">
                Lag
              </th>
              <th scope="col" class="number">
                Last event
              </th>
              <th scope="col" class="number">
                Gaps
              </th>
              <th scope="col">State</th>
            </tr>
          </thead>
          <tbody>
            {services.map((service) => {
              const { freshness, batches } = service;
              const trouble = troubleOf(service);
              return (
                <tr key={`${service.endpoint} ${service.instance_id} ${service.dp_rank}`}>
                  <th scope="row" title={service.endpoint}>
                    {service.instance_id}
                    {service.dp_rank === 0 ? "" : ` rank ${service.dp_rank}`}
                  </th>
                  <td>
                    {service.modelname} <span class="muted">{service.tenant_id === "default" ? "" : service.tenant_id}</span>
                  </td>
                  {media.map((medium) => (
                    <td key={medium} class="number">
                      {count(service.streams.filter((stream) => stream.medium === medium).reduce((sum, { blocks }) => sum + blocks, 0))}
                    </td>
                  ))}
                  <td class="number">{freshness.lag_ms === null ? "–" : `${Math.round(freshness.lag_ms)} ms`}</td>
                  <td class="number">{freshness.age_ms === null ? "–" : `${duration(freshness.age_ms)} ago`}</td>
                  <td class="number" title={`${count(batches["gaps_healed"] ?? 0)} healed, ${count(batches["gaps_lost"] ?? 0)} lost`}>
                    {count(batches["gaps"] ?? 0)}
                  </td>
                  <td class="wrap">
                    <span class={`state ${trouble === "" ? "running" : "failed"}`}>
                      {trouble === "" ? (freshness.complete ? "complete" : "current") : trouble}
                    </span>
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      )}
      {services.length === 0 ? null : <Explain services={services} />}
    </section>
  );
}

type Instance = {
  readonly longest_matched: number;
  readonly GPU: number;
  readonly CPU: number;
  readonly DISK: number;
  readonly reasons: readonly { readonly because: string }[];
};
type Explanation = Readonly<Record<string, { readonly query: { readonly blocks: number }; readonly instances: Readonly<Record<string, Instance>> }>>;

function Explain({ services }: { readonly services: readonly Service[] }): JSX.Element {
  const models = [...new Set(services.map(({ modelname }) => modelname))];
  const model = query.value.get("model") ?? models[0] ?? "";
  const tokens = query.value.get("tokens") ?? "";
  const [found, setFound] = useState<Explanation>();
  const [problem, setProblem] = useState("");
  const blockSize = services.find(({ modelname }) => modelname === model)?.block_size ?? 16;
  const submit = (event: Event) => {
    event.preventDefault();
    const words = tokens.split(/[\s,]+/).filter((word) => word !== "");
    const ids = words.map(Number);
    const bad = words.find((_, at) => !Number.isInteger(ids[at]));
    if (bad !== undefined) return setProblem(`tokens: expected numbers, got "${bad}"`);
    request<Explanation>("explain", { model, block_size: blockSize, token_ids: ids }).then(
      (answer) => {
        setFound(answer);
        setProblem("");
      },
      (error: unknown) => setProblem(messageOf(error)),
    );
  };
  return (
    <section aria-label="Explain a prompt">
      <h2>Which engine holds a prompt</h2>
      <form class="explain" onSubmit={submit}>
        <Field label="Model">
          <select value={model} onChange={(event) => setQuery({ model: textFrom(event) })}>
            {models.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </Field>
        <Field label="Tokens of the prompt" hint={`Their ids, as the engine's tokenizer gives them; ${blockSize} make a block.`}>
          <textarea rows={2} required value={tokens} onInput={(event) => setQuery({ tokens: textFrom(event) })} placeholder="1, 2, 3 …" />
        </Field>
        <button type="submit" class="primary">
          Explain
        </button>
      </form>
      <Problem error={problem} />
      {Object.entries(found ?? {}).map(([tenant, { query: asked, instances }]) => (
        <ul key={tenant} class="matches">
          {Object.entries(instances)
            .sort(([, a], [, b]) => b.longest_matched - a.longest_matched)
            .map(([name, instance]) => (
              <li key={name}>
                <strong>{name}</strong> {count(instance.longest_matched / blockSize)} of {count(asked.blocks)} blocks
                <Blocks blocks={asked.blocks} instance={instance} blockSize={blockSize} />
                <small>{instance.reasons.map(({ because }) => because).join("; ")}</small>
              </li>
            ))}
        </ul>
      ))}
    </section>
  );
}

/** Draws the prompt as a bar: the part that is cached on each medium, and the rest, which must be computed. */
function Blocks({ blocks, instance, blockSize }: { readonly blocks: number; readonly instance: Instance; readonly blockSize: number }): JSX.Element {
  const share = (tokens: number) => `${(100 * tokens) / Math.max(1, blocks * blockSize)}%`;
  const { GPU, CPU, DISK, longest_matched: matched } = instance;
  const tiers = [
    ["GPU", GPU],
    ["CPU", Math.max(0, Math.max(CPU, GPU) - GPU)],
    ["DISK", Math.max(0, matched - Math.max(CPU, GPU))],
  ] as const;
  return (
    <div class="blocks" role="img" aria-label={`${matched} tokens matched: ${GPU} on GPU, ${CPU} on CPU, ${DISK} on disk`}>
      {tiers.map(([medium, tokens]) =>
        tokens === 0 ? null : <span key={medium} class={medium.toLowerCase()} style={{ width: share(tokens) }} title={`${medium}: ${tokens} tokens`} />,
      )}
    </div>
  );
}
