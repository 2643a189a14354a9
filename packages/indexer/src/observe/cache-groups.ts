// The groups of an engine's KV cache, and what the doctor reports about those that the indexer does not understand.

export type CacheGroup = {
  rank: number;
  group: number;
  needs: "whole" | "window" | "chunk" | "state" | "unsaid" | "unknown";
  /** The group's kind as the engine's events name it. */
  kind: string;
  window: number;
  /** If above 0, the group has blocks of this size instead of the registered one. */
  block_size: number;
};

export function groupComplaints(groups: readonly CacheGroup[], blockSize: number): string[] {
  const says: string[] = [];
  const several = new Set(groups.map(({ group }) => group)).size > 1;
  const seen = new Set<number>();
  for (const { group, needs, kind, block_size } of groups) {
    if (seen.has(group)) continue;
    seen.add(group);
    const which = `group ${group} of the engine's KV cache${kind === "" ? "" : ` (${kind})`}`;
    if (block_size !== 0)
      says.push(
        `${which} has blocks of ${block_size} tokens, and the registration says ${blockSize}, so it is not indexed and no prompt counts as matched here; register the size that all groups have, if there is one`,
      );
    else if (needs === "unknown")
      says.push(
        `${which} is not understood, because ${/sliding|chunked/.test(kind) ? "its events do not say how large its window is" : "its kind is not known"}: a prompt counts as matched only as far as this group has every block of it, which may be less than the engine has`,
      );
    else if (needs === "unsaid" && several)
      says.push(
        `${which} is not understood, because its events name no kv_cache_spec_kind: a prompt counts as matched only as far as this group has every block of it; vLLM names it from 0.25 on`,
      );
  }
  return says;
}
