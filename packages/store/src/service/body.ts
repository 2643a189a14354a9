// Reads the bodies of the REST service's requests: JSON objects, and the fields that several requests share.

import { exactText } from "@svc/contract/exact-text.ts";
import type { Answer } from "@svc/kit/http/exchange.ts";

const JSON_TYPE = "application/json; charset=utf-8";
export const MAX_GRACE_SECONDS = 7 * 86_400;
export const MAX_LOCAL_DISK_GRACE_SECONDS = 3600;
const MAX_IDS = 4096;
const MAX_NAME_BYTES = 254;

export type Fields = Readonly<Record<string, unknown>>;

/** A refused request, with its answer. */
export class Refused extends Error {
  readonly status: number;
  readonly more: Fields;
  constructor(status: number, message: string, more: Fields = {}) {
    super(message);
    this.status = status;
    this.more = more;
  }
}

export const jsonAnswer = (value: unknown, status = 200): Answer => ({ status, type: JSON_TYPE, body: Buffer.from(JSON.stringify(value)) });

/** @throws Refused (400) */
export function readFields(body: Buffer): Fields {
  let value: unknown;
  try {
    value = JSON.parse(exactText(body));
  } catch {
    throw new Refused(400, "Malformed JSON body");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Refused(400, "Request body must be a JSON object");
  // Such text would be stored as a different one.
  for (const [name, each] of Object.entries(value))
    if (typeof each === "string" && !each.isWellFormed()) throw new Refused(400, `Invalid ${name}, must be Unicode text: a surrogate stands alone in it`);
  return value as Fields;
}

/** Returns a shared memory object's name as the kernel accepts it: with at most one leading slash, and no path. */
export function sharedName(value: unknown): string | undefined {
  if (typeof value !== "string") return undefined;
  const bare = value.startsWith("/") ? value.slice(1) : value;
  const isGood = bare !== "" && bare !== "." && bare !== ".." && !bare.includes("/") && !bare.includes("\0") && Buffer.byteLength(bare) <= MAX_NAME_BYTES;
  return isGood ? bare : undefined;
}

export const positive = (value: unknown): number | undefined => (Number.isSafeInteger(value) && (value as number) > 0 ? (value as number) : undefined);

export function offsetOf({ offset = 0 }: Fields): number {
  if (Number.isSafeInteger(offset) && (offset as number) >= 0) return offset as number;
  throw new Refused(400, "Invalid offset, must be a non-negative integer");
}

export function textOf(fields: Fields, name: string, otherwise: string): string {
  const value = fields[name];
  if (value === undefined || value === null) return otherwise;
  if (typeof value === "string") return value;
  throw new Refused(400, `Invalid ${name}, must be a string`);
}

export function graceSeconds({ grace_period_seconds: value = 0 }: Fields, most: number): number {
  if (Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= most) return value as number;
  throw new Refused(400, `Invalid grace_period_seconds, must be a non-negative integer no greater than ${most}`);
}

/** Returns the ids of a list or a single id, in either of the two forms, each once. */
export function segmentIDs({ segment_ids: value }: Fields): string[] {
  const list = typeof value === "string" ? [value] : value;
  if (!Array.isArray(list) || list.length === 0) throw new Refused(400, "Missing segment_ids");
  if (list.length > MAX_IDS) throw new Refused(400, `Too many segment_ids: the maximum is ${MAX_IDS}, got ${list.length}`);
  const ids = list.map((each: unknown) => (typeof each === "string" ? idOf(each) : undefined));
  const wrong = list.filter((_, at) => ids[at] === undefined);
  if (wrong.length > 0) throw new Refused(400, "Invalid segment_ids, expected ids that a mount returned", { failed_segment_ids: wrong.slice(0, 16) });
  return [...new Set(ids as string[])];
}

/** Returns the form 8-4-4-4-12; also accepts Mooncake's form, two decimal numbers. */
function idOf(text: string): string | undefined {
  if (/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i.test(text)) return text.toLowerCase();
  const [, first, second] = /^(\d{1,20})-(\d{1,20})$/.exec(text) ?? [];
  if (first === undefined || second === undefined) return undefined;
  const hex = [first, second].map((part) => BigInt(part).toString(16).padStart(16, "0")).join("");
  if (hex.length !== 32) return undefined;
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
