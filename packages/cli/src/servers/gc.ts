// `svc gc`: what retention rules remove on the nodes, or would remove.
import type { GCAnswer } from "@svc/contract/gc.ts";
import { byteSize, type OutputFormat, outputFormat, printJSON, printTable } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { remark } from "../output/complain.ts";
import { localTime } from "../sandbox/list.ts";

const COLUMNS = ["KIND", "ID", "NAME", "SIZE", "SINCE", "RULE", "NODE"] as const;

export function gc({ dryRun = false, output, ...access }: AccessOptions & { dryRun?: boolean; output?: OutputFormat }): Promise<number> {
  return withClient(access, async (client) => {
    const answers: GCAnswer[] = [];
    // One call removes a bounded number.
    do answers.push(await client.gc(dryRun));
    while (!dryRun && answers.at(-1)?.more === true && (answers.at(-1)?.items.length ?? 0) > 0);
    const items = answers.flatMap((each) => each.items);
    const failed = answers.at(-1)?.failed ?? [];
    const unneeded = answers.flatMap((each) => each.unneeded);
    if (outputFormat(output) === "json") printJSON({ dryRun, items, failed, unneeded });
    else if (items.length > 0)
      printTable(
        COLUMNS,
        items.map(({ kind, id, name, sizeBytes, at, rule, nodeID }) => [kind, id, name, byteSize(sizeBytes), localTime(new Date(at)), rule, nodeID]),
      );
    const bytes = byteSize(items.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0));
    remark(dryRun ? `${items.length} would be lost, up to ${bytes}; nothing was changed` : `${items.length} removed, up to ${bytes}`);
    if (!dryRun) {
      const sum = (name: "builds" | "images" | "layers" | "files") => unneeded.reduce((total, each) => total + each[name], 0);
      remark(`not needed any more and removed: builds ${sum("builds")}, images ${sum("images")}, layers ${sum("layers")}, uploads ${sum("files")}`);
    }
    for (const { id, message } of failed) remark(`${id} could not be removed: ${message}`);
    return failed.length === 0 ? 0 : 1;
  });
}
