// `svc usage` through a gateway: the sums of all nodes. A node that does not answer is named, and counts again once it does.
import { MISSING_NODES_HEADER } from "@svc/contract/cluster.ts";
import type { nodeOperations } from "@svc/contract/sandbox.ts";
import { addAmounts, getUsage, NO_AMOUNTS, type UsageRow } from "@svc/contract/usage.ts";
import type { Handlers } from "@svc/kit/serve.ts";
import type { Merge } from "./merge.ts";

export function usageHandler(merge: Merge): Handlers<typeof nodeOperations>["getUsage"] {
  return async (input, context) => {
    // All nodes sum the same hours, whatever their clocks say.
    const to = input.to ?? new Date().toISOString();
    const missingNodes: string[] = [];
    const answers = await merge.ask(getUsage, () => ({ ...input, to }), { ...context, header: collecting(context.header, missingNodes) });
    const rows = new Map<string, UsageRow>();
    for (const row of answers.flatMap((each) => each.rows)) {
      const known = rows.get(row.value);
      const sum = addAmounts(known ?? NO_AMOUNTS, row);
      // A sandbox that moved has a row on several nodes, and is still one sandbox.
      const sandboxes = input.by === "sandbox" ? 1 : (known?.sandboxes ?? 0) + row.sandboxes;
      rows.set(row.value, { ...sum, value: row.value, sandboxes });
    }
    const sorted = [...rows.values()].sort((a, b) => Buffer.compare(Buffer.from(a.value), Buffer.from(b.value)));
    const shown = sorted.slice(0, input.limit);
    const last = shown.at(-1);
    const hasMore = sorted.length > shown.length || answers.some((each) => each.next !== undefined);
    return {
      from: sortedTexts(answers.map(({ from }) => from)).at(0) ?? to,
      to: sortedTexts(answers.map(({ to: end }) => end)).at(-1) ?? to,
      rows: shown,
      ...(hasMore && last !== undefined ? { next: last.value } : {}),
      missingNodes,
    };
  };
}

/** Times of one format sort as text. */
const sortedTexts = (texts: readonly string[]): string[] => [...texts].sort();

type SetHeader = (name: string, value: string) => void;

/** Also notes the nodes that the header names. */
function collecting(header: SetHeader, missing: string[]): SetHeader {
  return (name, value) => {
    if (name === MISSING_NODES_HEADER) missing.push(...value.split(","));
    header(name, value);
  };
}
