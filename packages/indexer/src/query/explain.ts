// Explains why each instance matched as far as it did: the first block that ended the match, who has that block, and how fresh the data is.
import type { Freshness, Match, QueryAnswer } from "@svc/contract/indexer.ts";
import type { NativeIndex } from "../index/native.ts";
import type { CacheGroup } from "../observe/cache-groups.ts";
import type { Views } from "../observe/views.ts";
import type { Registry } from "../state/registry.ts";
import type { ReadQuery } from "./query-input.ts";

type Probe = { depth: number; hash: string; streams: number[] };
type Reason = { dp_rank: number; matched_blocks: number; because: string };
export type Explanation = { query: { blocks: number; ignored_tokens: number }; instances: Record<string, Match & { reasons: Reason[] }> };

export function explain(index: NativeIndex, registry: Registry, views: Views, { query, list }: ReadQuery): Record<string, Explanation> {
  const answer = JSON.parse(index.answer(query, list).toString("utf8")) as QueryAnswer;
  const rows = answer[query.tenant] ?? {};
  const byTokens = list instanceof Uint32Array;
  const blocks = byTokens ? Math.floor(list.length / query.blockSize) : list.length;
  // Only the depths at which a match ends need an explanation.
  const depths = new Set<number>();
  for (const match of Object.values(rows))
    for (const tokens of Object.values(match.DP)) if (tokens / query.blockSize < blocks) depths.add(tokens / query.blockSize);
  const probes = new Map((JSON.parse(index.explain(query, list, Uint32Array.from(depths))) as Probe[]).map((probe) => [probe.depth, probe]));
  const streams = new Map(views.streams().map((row) => [row.stream, row]));
  const subscriptions = new Map([...registry.subscriptions.values()].flatMap((one) => one.generations.ids.map((id) => [id, one])));

  const freshness = freshnessOf(index, registry, query.tenant);
  const groupsOf = (instance: string, rank: number): CacheGroup[] =>
    [...registry.subscriptions.values()]
      .filter(({ registration, kind }) => registration.instance_id === instance && registration.tenant_id === query.tenant && kind === "engine")
      .flatMap(({ id }) => JSON.parse(index.groups(id)) as CacheGroup[])
      .filter((group) => group.rank === rank)
      .toSorted((one, other) => one.group - other.group);
  const instances: Explanation["instances"] = {};
  for (const [instance, match] of Object.entries(rows)) {
    const reasons = Object.entries(match.DP).map(([rank, tokens]): Reason => {
      const depth = tokens / query.blockSize;
      const probe = probes.get(depth);
      if (probe === undefined) return { dp_rank: Number(rank), matched_blocks: depth, because: "the whole prompt's complete blocks are there" };
      const holders = probe.streams.map((stream) => {
        const row = streams.get(stream);
        const where = `${subscriptions.get(row?.subscription ?? -1)?.registration.instance_id ?? "?"} rank ${row?.rank} on ${row?.medium}`;
        return row?.uncertain === true ? `${where} (uncertain)` : where;
      });
      const groups = groupsOf(instance, Number(rank));
      if (groups.length > 1)
        return {
          dp_rank: Number(rank),
          matched_blocks: depth,
          because: `behind block ${depth} no point of the prompt has what each group of this engine's KV cache needs: ${groups.map(({ group, kind }) => `${group} (${kind || "no kind named"})`).join(", ")}`,
        };
      const others = holders.length === 0 ? "no instance has it" : `held by ${holders.join(", ")}`;
      return {
        dp_rank: Number(rank),
        matched_blocks: depth,
        because: `block ${depth} (hash ${probe.hash}) is not on any medium of rank ${rank}, nor in a shared store: ${others}`,
      };
    });
    if (reasons.length === 0)
      reasons.push({ dp_rank: 0, matched_blocks: 0, because: "no such instance is registered for this tenant, model, LoRA, block size and salt" });
    instances[instance] = { ...match, freshness: freshness.get(instance) ?? {}, reasons };
  }
  return { [query.tenant]: { query: { blocks, ignored_tokens: byTokens ? list.length - blocks * query.blockSize : 0 }, instances } };
}

/** Returns the freshness of every publisher that serves the tenant's instances, by instance and then by data-parallel rank. */
export function freshnessOf(index: NativeIndex, registry: Registry, tenant: string): Map<string, Record<string, Freshness>> {
  const now = Date.now();
  const found = new Map<string, Record<string, Freshness>>();
  // A store's own events may name other tenants than its registration does.
  const giving = [...registry.subscriptions.values()].filter(({ registration, kind }) => registration.tenant_id === tenant || kind === "store");
  // If several publishers serve a rank, the rank's own registration takes precedence, as in native/src/view.cc.
  for (const own of [true, false])
    for (const subscription of giving) {
      const { instance_id, dp_rank } = subscription.registration;
      const ranks = found.get(instance_id) ?? {};
      for (const rank of own ? [dp_rank] : index.ranks(subscription.id)) ranks[String(rank)] ??= subscription.freshness(now);
      found.set(instance_id, ranks);
    }
  return found;
}
