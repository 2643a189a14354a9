// The rows of sandboxes that ended before the console's first page was opened, from the events that the server keeps for a day.
import type { Calls } from "@svc/contract/client-calls.ts";
import { type ConsoleRow, MAX_ENDED_ROWS } from "@svc/contract/console.ts";
import { type E2bEvent, listSandboxEvents } from "@svc/contract/webhooks.ts";
import { z } from "zod";

const PAGE = 100;
/** The parts of an event's data that a row shows; a server that has lost them sends none. */
const endData = z.object({
  sandbox_metadata: z.record(z.string(), z.string()),
  execution: z.object({ started_at: z.string(), vcpu_count: z.number(), memory_mb: z.number() }),
  kill_reason: z.string().default("unknown"),
});

/** Returns at most MAX_ENDED_ROWS rows by sandbox, those of the latest ends. @throws the failure of a call. */
export async function endedRows(calls: Calls): Promise<Map<string, ConsoleRow>> {
  const rows = new Map<string, ConsoleRow>();
  for (let offset = 0; offset < MAX_ENDED_ROWS; offset += PAGE) {
    const found = await calls.call(listSandboxEvents, { offset, limit: PAGE, orderAsc: "false", types: ["sandbox.lifecycle.killed"] });
    for (const event of found) if (!rows.has(event.sandboxId)) rows.set(event.sandboxId, rowOf(event));
    if (found.length < PAGE) break;
  }
  return rows;
}

function rowOf({ sandboxId: id, sandboxTemplateId: template, timestamp, eventData }: E2bEvent): ConsoleRow {
  const at = Date.parse(timestamp);
  const { success, data } = endData.safeParse(eventData);
  if (!success) return unknownRow(id, template, at);
  const { sandbox_metadata: metadata, execution, kill_reason: reason } = data;
  const startedAt = Date.parse(execution.started_at);
  return { ...unknownRow(id, template, at), startedAt, endedAt: at, cpu: execution.vcpu_count, memoryMB: execution.memory_mb, metadata, reason };
}

/** The row of an ended sandbox of which only the end is known. */
export function unknownRow(id: string, template: string, at: number): ConsoleRow {
  return { id, template, state: "ended", startedAt: at, endAt: at, cpu: 0, memoryMB: 0, diskMB: 0, metadata: {}, depth: 0 };
}
