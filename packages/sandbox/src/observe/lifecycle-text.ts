// Formats a lifecycle event as an entry of the sandbox's log, and as a line of the audit log if the node acted without a request.
import type { LifecycleEvent } from "@svc/contract/observe.ts";
import type { AuditNote } from "./audit.ts";
import type { EventType } from "./events.ts";
import type { Written } from "./sandbox-logs.ts";

type Details = LifecycleEvent["details"];

const sentences: Readonly<Partial<Record<EventType, string>>> = {
  "sandbox.created": "sandbox created",
  "sandbox.paused": "sandbox paused",
  "sandbox.resumed": "sandbox resumed",
  "sandbox.forked": "sandbox forked",
  "sandbox.snapshotted": "snapshot taken",
  "sandbox.network_changed": "network rules replaced",
  "sandbox.timeout_set": "timeout set",
  "sandbox.pause_failed": "pause failed; the sandbox keeps running",
  "sandbox.limit_reached": "a limit of the sandbox took effect",
  "sandbox.moved": "sandbox moved to another node",
  "sandbox.ended": "sandbox ended",
};
/** Ends that a client requested or could expect. */
const expectedEnds: ReadonlySet<unknown> = new Set(["killed", "timeout"]);

/** The causes of pauses and resumes that happen without a request. */
const ownCauses: ReadonlySet<unknown> = new Set(["timeout", "traffic", "drain", "idle", "memory", "places"]);

/** Returns undefined for events that do not concern a sandbox. */
export function lifecycleEntry(type: EventType, details: Details): Written | undefined {
  const sentence = sentences[type];
  if (sentence === undefined) return undefined;
  // The entry's own `kind` is lifecycle, process or network, so a checkpoint's kind needs another name.
  const fields = Object.fromEntries(Object.entries(details).map(([name, value]) => [name === "kind" ? "captureKind" : name, String(value)]));
  const about = Object.entries(fields).map(([name, value]) => `${name} ${value}`);
  return {
    kind: "lifecycle",
    level: levelOf(type, details),
    message: about.length === 0 ? sentence : `${sentence} (${about.join(", ")})`,
    fields: { event: type, ...fields },
  };
}

function levelOf(type: EventType, details: Details): Written["level"] {
  if (type === "sandbox.pause_failed") return "error";
  if (type === "sandbox.limit_reached") return "warn";
  return type === "sandbox.ended" && !expectedEnds.has(details["reason"]) ? "warn" : "info";
}

/** Requests already have an audit line; this returns one for what happens without them: timeouts, deaths, resumes by traffic. */
export function auditNote(type: EventType, subject: { readonly sandboxID?: string | undefined }, details: Details): AuditNote | undefined {
  const { cause, reason, client } = details;
  const isOwn = type === "sandbox.ended" ? reason !== "killed" : ownCauses.has(cause);
  if (!isOwn) return undefined;
  return {
    what: type,
    ...(subject.sandboxID === undefined ? {} : { sandboxID: subject.sandboxID }),
    ...(client === undefined ? {} : { client: String(client) }),
    reason: String(reason ?? cause),
  };
}
