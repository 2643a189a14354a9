// An operation is described once: method, path, input, output, failures; served by `serve`, called by `call`, printed by `openapi`.
import type { z } from "zod";
import type { FailureName } from "./failures.ts";

export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

/** The description of an operation and of how its input is sent. */
export type Operation<I extends z.ZodObject = z.ZodObject, O extends z.ZodType = z.ZodType> = {
  readonly name: string;
  readonly method: Method;
  /** `{sandboxID}` stands for the member of the input with that name. */
  readonly path: string;
  readonly summary: string;
  /** The whole input: path and query or body members together. */
  readonly input: I;
  readonly output: O;
  /** Additional request headers that this operation reads, by member name of the input. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Status of a success; 204 has no body. Some operations choose among several at run time. */
  readonly success: number;
  readonly otherSuccess?: readonly number[];
  /** `none` for operations that need no API key. */
  readonly credential: "apiKey" | "none";
  /** The media type of an answer that is not one JSON value: `output` then describes one event of the stream. */
  readonly media?: "text/event-stream";
  readonly failures: readonly FailureName[];
};

export function operation<I extends z.ZodObject, O extends z.ZodType>(description: Operation<I, O>): Operation<I, O> {
  return description;
}

export type Input<T> = T extends Operation<infer I, z.ZodType> ? z.input<I> : never;
export type Parsed<T> = T extends Operation<infer I, z.ZodType> ? z.output<I> : never;
export type Output<T> = T extends Operation<z.ZodObject, infer O> ? z.output<O> : never;

/** Returns the names in the path, in order: `/sandboxes/{sandboxID}/timeout` → ["sandboxID"]. */
export function pathMembers(path: string): string[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1] ?? "");
}

/** GET sends its members in the query, the others in a JSON body; DELETE is accepted with either, and sent with a body if it has members. */
export function carriesBody(method: Method): boolean {
  return method !== "GET";
}
