// Parses small request bodies (JSON with exact numbers, or msgpack) and words the refusal of a body that is malformed.
import { exactText } from "@svc/contract/exact-text.ts";
import { Unpackr } from "msgpackr";
import { parseExact } from "./exact-json.ts";
import type { Request } from "./exchange.ts";
import { type Reason, Refusal } from "./refusal.ts";

export const JSON_TYPE = "application/json";
export const MSGPACK_TYPE = "application/msgpack";
export const RAW_TYPE = "application/octet-stream";
const msgpackTypes = [MSGPACK_TYPE, "application/x-msgpack", "application/vnd.msgpack"];
/** Parsed values take many times the size of a body, so only bodies without a long list of numbers are parsed here, and they are small. */
const MAX_PARSED_BYTES = 64 * 1024;

const unpackr = new Unpackr({ useRecords: false, mapsAsObjects: true, int64AsType: "bigint" });

export function isMsgpack(type: string): boolean {
  return msgpackTypes.includes(type);
}

export function takesMsgpack({ accept, type }: Request): boolean {
  return msgpackTypes.some((name) => accept.includes(name)) || (isMsgpack(type) && !accept.includes(JSON_TYPE));
}

/** Only msgpack is recognized by its content type; everything else is read as JSON, as clients of this API expect. */
export function readBody(request: Request): unknown {
  const { body } = request;
  if (body.length > MAX_PARSED_BYTES)
    throw new Refusal("too_large", `the body has ${body.length} bytes; the maximum for ${request.path} is ${MAX_PARSED_BYTES}`);
  return isMsgpack(request.type) ? parseMsgpack(body) : parseJson(body);
}

export function parseMsgpack(body: Buffer): unknown {
  try {
    return safe(unpackr.unpack(body));
  } catch (error) {
    throw new Refusal("invalid_msgpack", `the body is not valid msgpack: ${(error as Error).message}`);
  }
}

export function parseJson(body: Buffer): unknown {
  try {
    return parseExact(exactText(body));
  } catch (error) {
    throw new Refusal("invalid_json", `the body is not valid JSON: ${(error as Error).message}`);
  }
}

/** Converts 64-bit msgpack integers that fit into a number, as msgpackr does with small ones. */
function safe(value: unknown): unknown {
  if (typeof value === "bigint") return value >= 0n && value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value;
  if (Array.isArray(value)) return value.map(safe);
  if (typeof value === "object" && value !== null && !Buffer.isBuffer(value))
    return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, safe(member)]));
  return value;
}

/** The shape that native/src/split_values.h writes. */
export type SplitProblem = { reason: Reason; found: string; offset: number; field?: string; index?: number };

const elements: Record<string, string> = {
  token_ids: "a whole number from 0 to 4294967295",
  seq_hashes: "a whole number from 0 to 18446744073709551615, or its decimal digits as a string",
};

export function splitRefusal({ reason, found, offset, field, index }: SplitProblem): Refusal {
  if (reason === "too_large") return new Refusal(reason, `the members beside the list have more than ${MAX_PARSED_BYTES} bytes together`);
  if (reason === "invalid_json") return new Refusal(reason, `the body is not valid JSON (byte ${offset})`);
  if (reason === "invalid_msgpack") return new Refusal(reason, "the body is not valid msgpack");
  if (field === undefined) return new Refusal(reason, "the body must be an object");
  const expected = elements[field] ?? elements["seq_hashes"];
  const where = { field, ...(index === undefined ? {} : { index }) };
  return new Refusal(reason, `${field}[${index}]: expected ${expected}, got ${found === "" ? "nothing" : found}`, where);
}
