// The error answer of the indexer: {error, reason, field?, index?} under an HTTP status.
import { Failure, type FailureName } from "@svc/contract/failures.ts";
import "@svc/contract/issues.ts";
import type { ZodError } from "zod";

export type Reason =
  | "missing"
  | "invalid_type"
  | "invalid_value"
  | "out_of_range"
  | "unknown_field"
  | "unsupported"
  | "invalid_json"
  | "invalid_msgpack"
  | "invalid_registration"
  | "not_found"
  | "method_not_allowed"
  | "too_large"
  | "timeout"
  | "busy"
  | "disk_full"
  | "unauthorized"
  | "internal";

const failureByReason: Partial<Record<Reason, FailureName>> = {
  not_found: "ROUTE_NOT_FOUND",
  method_not_allowed: "METHOD_NOT_ALLOWED",
  too_large: "PAYLOAD_TOO_LARGE",
  invalid_registration: "REGISTRATION_CONFLICT",
  busy: "CAPACITY_EXHAUSTED",
  disk_full: "DISK_FULL",
  unauthorized: "UNAUTHENTICATED",
  internal: "INTERNAL",
};

export type Where = { field?: string; index?: number };

export class Refusal extends Failure {
  readonly reason: Reason;
  readonly where: Where;

  constructor(reason: Reason, message: string, where: Where = {}, name: FailureName = failureByReason[reason] ?? "INVALID_REQUEST") {
    super(name, message);
    this.reason = reason;
    this.where = where;
  }

  body(): Record<string, string | number> {
    return { error: this.message, reason: this.reason, ...this.where };
  }
}

/** Returns the first complaint about `input` in the terms of the API. */
export function refusalOf(error: ZodError, input: unknown): Refusal {
  const issue = error.issues[0];
  if (issue === undefined) return new Refusal("invalid_value", "the input is not valid");
  if (issue.code === "unrecognized_keys") {
    const field = issue.keys[0] ?? "";
    return new Refusal("unknown_field", `${field}: there is no such field`, { field });
  }
  const field = typeof issue.path[0] === "string" ? issue.path[0] : "";
  const index = issue.path.find((part) => typeof part === "number");
  const where: Where = { ...(field === "" ? {} : { field }), ...(index === undefined ? {} : { index }) };
  const found = issue.path.reduce<unknown>((value, part) => (value as Record<PropertyKey, unknown> | undefined)?.[part], input);
  const at = index === undefined ? field : `${field}[${index}]`;
  const prefix = at === "" ? "" : `${at}: `;
  if (found === undefined && issue.path.length > 0) return new Refusal("missing", `${prefix}is missing`, where);
  const reason = issue.code === "invalid_type" ? "invalid_type" : issue.code === "too_big" || issue.code === "too_small" ? "out_of_range" : "invalid_value";
  const shown = typeof found === "bigint" ? found.toString() : (JSON.stringify(found)?.slice(0, 80) ?? "nothing");
  return new Refusal(reason, `${prefix}${issue.message}, got ${shown}`, where);
}
