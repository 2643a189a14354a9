// A route of the admin server: its method and path, what a request gives it, and what it answers.
import { fail } from "@svc/contract/failures.ts";
import type { z } from "zod";

export type Call = {
  /** By the names between braces in the path, decoded. */
  readonly params: Readonly<Record<string, string>>;
  readonly search: URLSearchParams;
  /** The JSON object of the body; empty where there is none. */
  readonly body: Readonly<Record<string, unknown>>;
};

export type Reply = { readonly status: number; readonly value: unknown };

export type Route = {
  readonly method: "GET" | "POST";
  /** `/v1/route-migrations/{task_id}`; a path without braces is found before one with them. */
  readonly path: string;
  /** One sentence for the page of the API. */
  readonly does: string;
  answer(call: Call): Reply | Promise<Reply>;
};

/** @throws INVALID_REQUEST with the member that is wrong and why. */
export function inputOf<T extends z.ZodType>(schema: T, value: unknown): z.output<T> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  if (issue?.code === "unrecognized_keys") return fail("INVALID_REQUEST", `unknown field ${issue.keys.join(", ")}`);
  const path = issue?.path.join(".") ?? "";
  const isMissing = issue?.code === "invalid_type" && issue.path.length === 1 && (value as Record<string, unknown>)[path] === undefined;
  return fail("INVALID_REQUEST", `${path}: ${isMissing ? "is required" : issue?.message}`);
}

/** As the contract writes a truth in a query; anything else is false, and `otherwise` where it is left out. */
export function truthOf(text: string | null, otherwise: boolean): boolean {
  return text === null ? otherwise : ["1", "true", "TRUE", "yes", "YES"].includes(text);
}
