// A transaction of etcd: its conditions, the steps if they hold, and the steps otherwise; all take effect at one revision.
import { z } from "zod";
import { behind, deleteAnswer, encode, header, type KeyValue, putAnswer, rangeAnswer } from "./wire.ts";

type Relation = "=" | "!=" | ">" | "<";

/** A condition on a key. An absent key has version, createRevision and modRevision 0, and no value. */
export type Compare = { readonly key: string; readonly is?: Relation } & (
  | { readonly version: bigint }
  | { readonly createRevision: bigint }
  | { readonly modRevision: bigint }
  | { readonly value: string }
);

export type Step =
  | { readonly put: string; readonly value: string; readonly leaseID?: string | undefined }
  | { readonly delete: string; readonly isPrefix?: boolean }
  | { readonly get: string; readonly isPrefix?: boolean };

export type Transaction = { readonly if?: readonly Compare[]; readonly do: readonly Step[]; readonly else?: readonly Step[] };

/** `entries` holds the results of each `get` in the branch that ran, in order. */
export type Transacted = { readonly succeeded: boolean; readonly revision: bigint; readonly entries: readonly (readonly KeyValue[])[] };

/** The condition that no value exists under `key`. */
export const isAbsent = (key: string): Compare => ({ key, createRevision: 0n });

const relations: Readonly<Record<Relation, string>> = { "=": "EQUAL", "!=": "NOT_EQUAL", ">": "GREATER", "<": "LESS" };

function comparison(asked: Compare): object {
  const base = { key: encode(asked.key), result: relations[asked.is ?? "="] };
  if ("version" in asked) return { ...base, target: "VERSION", version: String(asked.version) };
  if ("createRevision" in asked) return { ...base, target: "CREATE", create_revision: String(asked.createRevision) };
  if ("modRevision" in asked) return { ...base, target: "MOD", mod_revision: String(asked.modRevision) };
  return { ...base, target: "VALUE", value: encode(asked.value) };
}

const range = (key: string, isPrefix = false) => ({ key: encode(key), ...(isPrefix ? { range_end: behind(key) } : {}) });

function step(asked: Step): object {
  if ("put" in asked) return { request_put: putRequest(asked.put, asked.value, asked.leaseID) };
  if ("delete" in asked) return { request_delete_range: range(asked.delete, asked.isPrefix) };
  return { request_range: range(asked.get, asked.isPrefix) };
}

export function putRequest(key: string, value: string, leaseID: string | undefined): object {
  return { key: encode(key), value: encode(value), ...(leaseID === undefined ? {} : { lease: leaseID }) };
}

export function transactionRequest({ if: conditions = [], do: steps, else: otherwise = [] }: Transaction): object {
  return { compare: conditions.map(comparison), success: steps.map(step), failure: otherwise.map(step) };
}

const stepAnswer = z.object({
  response_put: putAnswer.optional(),
  response_range: rangeAnswer.optional(),
  response_delete_range: deleteAnswer.optional(),
});

export const transactionAnswer = z.object({ header, succeeded: z.boolean().default(false), responses: z.array(stepAnswer).default([]) }).transform(
  ({ header: { revision }, succeeded, responses }): Transacted => ({
    succeeded,
    revision,
    entries: responses.flatMap(({ response_range: found }) => (found === undefined ? [] : [found.kvs])),
  }),
);
