// The node's events as E2B lists them and as webhooks send them.
import { createHash } from "node:crypto";
import type { LifecycleEvent } from "@svc/contract/observe.ts";
import { type E2bEvent, type E2bEventType, e2bEvents, TEAM_ID } from "@svc/contract/webhooks.ts";

/** The members of a sandbox that its events show, also after its end. */
export type Facts = {
  readonly templateID: string;
  readonly executionID: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly cpuCount: number;
  readonly memoryMB: number;
  readonly startedAtMs: number;
  /** Absent for a sandbox of the deployment itself. */
  readonly tenant?: string | undefined;
};

const rows: Partial<Record<LifecycleEvent["type"], { readonly type: E2bEventType; readonly label: string }>> = {
  "sandbox.created": { type: "sandbox.lifecycle.created", label: "create" },
  "sandbox.timeout_set": { type: "sandbox.lifecycle.updated", label: "update" },
  "sandbox.network_changed": { type: "sandbox.lifecycle.updated", label: "update" },
  "sandbox.paused": { type: "sandbox.lifecycle.paused", label: "pause" },
  "sandbox.resumed": { type: "sandbox.lifecycle.resumed", label: "resume" },
  "sandbox.snapshotted": { type: "sandbox.lifecycle.checkpointed", label: "checkpoint" },
  "sandbox.ended": { type: "sandbox.lifecycle.killed", label: "kill" },
};

export const isShownToE2b = (type: LifecycleEvent["type"]): boolean => rows[type] !== undefined;

/** The node's own types of the events with one of these types of E2B. */
export function ownTypes(types: readonly E2bEventType[] = e2bEvents): LifecycleEvent["type"][] {
  return Object.entries(rows).flatMap(([own, { type }]) => (types.includes(type) ? [own as LifecycleEvent["type"]] : []));
}

/** Returns undefined for an event that E2B does not have. `nodeID` makes the id unique in a deployment. */
export function e2bEventOf(event: LifecycleEvent, facts: Facts | undefined, nodeID: string): E2bEvent | undefined {
  const row = rows[event.type];
  const { sandboxID } = event;
  if (row === undefined || sandboxID === undefined) return undefined;
  const { type, label } = row;
  const data = eventData(event, facts);
  const templateID = facts?.templateID ?? event.templateID ?? "";
  const executionID = facts?.executionID ?? "";
  return {
    version: "v2",
    id: eventUUID(nodeID, event.id),
    type,
    timestamp: event.at,
    eventData: data,
    sandboxId: sandboxID,
    sandboxExecutionId: executionID,
    sandboxTemplateId: templateID,
    sandboxBuildId: "",
    sandboxTeamId: TEAM_ID,
    event_category: "lifecycle",
    event_label: label,
    event_data: data,
    sandbox_id: sandboxID,
    sandbox_execution_id: executionID,
    sandbox_template_id: templateID,
    sandbox_build_id: "",
    sandbox_team_id: TEAM_ID,
    ...(facts?.tenant === undefined ? {} : { tenant: facts.tenant }),
  };
}

function eventData({ type, at, details }: LifecycleEvent, facts: Facts | undefined): Record<string, unknown> | null {
  const data: Record<string, unknown> = {};
  if (facts !== undefined) data["sandbox_metadata"] = facts.metadata;
  const { parentSandboxID, reason, snapshotID, timeoutSeconds } = details;
  if (parentSandboxID !== undefined) data["source_sandbox_id"] = parentSandboxID;
  if (type === "sandbox.timeout_set") data["set_timeout"] = new Date(Date.parse(at) + Number(timeoutSeconds) * 1000).toISOString();
  if (snapshotID !== undefined) data["snapshot_id"] = snapshotID;
  if (type === "sandbox.ended") data["kill_reason"] = reason;
  if (facts !== undefined && (type === "sandbox.ended" || type === "sandbox.paused"))
    data["execution"] = {
      started_at: new Date(facts.startedAtMs).toISOString(),
      vcpu_count: facts.cpuCount,
      memory_mb: facts.memoryMB,
      execution_time: Math.max(0, Date.parse(at) - facts.startedAtMs),
    };
  return Object.keys(data).length === 0 ? null : data;
}

/** The same event has the same id on every path and at every attempt, so that receivers can drop what they have seen. */
function eventUUID(nodeID: string, id: number): string {
  const hex = createHash("sha256").update(`event:${nodeID}:${id}`).digest("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-5${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
