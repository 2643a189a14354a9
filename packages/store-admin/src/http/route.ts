// A route of the admin server: method and path, its input, and its answer.
import { fail } from "@svc/contract/failures.ts";
import type { z } from "zod";

export type Call = {
  /** The decoded path parameters, by the names between braces. */
  readonly params: Readonly<Record<string, string>>;
  readonly search: URLSearchParams;
  /** The JSON object of the body; empty if there is no body. */
  readonly body: Readonly<Record<string, unknown>>;
};

export type Reply = { readonly status: number; readonly value: unknown };

export type Route = {
  readonly method: "GET" | "POST";
  /** For example `/v1/route-migrations/{task_id}`; a path without parameters takes precedence. */
  readonly path: string;
  /** One sentence for the API's page. */
  readonly does: string;
  answer(call: Call): Reply | Promise<Reply>;
};

/** @throws INVALID_REQUEST, naming the wrong member and the reason. */
export function inputOf<T extends z.ZodType>(schema: T, value: unknown): z.output<T> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  if (issue?.code === "unrecognized_keys") return fail("INVALID_REQUEST", `unknown field ${issue.keys.join(", ")}`);
  const path = issue?.path.join(".") ?? "";
  const isMissing = issue?.code === "invalid_type" && issue.path.length === 1 && (value as Record<string, unknown>)[path] === undefined;
  return fail("INVALID_REQUEST", `${path}: ${isMissing ? "is required" : issue?.message}`);
}

/** Parses a boolean of a query as the contract defines it: any other text is false, and a missing one is `otherwise`. */
export function truthOf(text: string | null, otherwise: boolean): boolean {
  return text === null ? otherwise : ["1", "true", "TRUE", "yes", "YES"].includes(text);
}
