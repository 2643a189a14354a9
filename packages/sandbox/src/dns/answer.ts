// Reads a DNS answer: the addresses of the name in question, along the aliases (CNAME) that lead to them.
import { HEADER_BYTES, questionOf } from "./message.ts";

export type Found = { readonly address: string; readonly ttlSeconds: number };

/** Longer TTLs are lowered to this: an address that a name opened is closed after it. */
export const MAX_OPEN_SECONDS = 3600;
const A_TYPE = 1;
const CNAME_TYPE = 5;
export const AAAA_TYPE = 28;
/** SVCB and HTTPS: they name protocols and keys with which a client hides the name in its handshake. */
export const SERVICE_TYPES: readonly (number | undefined)[] = [64, 65];
const IN_CLASS = 1;
/** Limits on records, on labels of a name and on compression jumps within one; no resolver's answer exceeds them. */
const MAX_RECORDS = 256;
const MAX_LABELS = 128;
const MAX_JUMPS = 16;

/** Host names as rules contain them; a label with other octets matches no rule. */
const LABEL = /^[a-z0-9_-]{1,63}$/;

/** Returns the name in question, in lower case; undefined if it is not a host name. */
export function nameAsked(query: Buffer): string | undefined {
  return questionOf(query) === undefined ? undefined : readName(query, HEADER_BYTES)?.name;
}

export function typeAsked(query: Buffer): number | undefined {
  const question = questionOf(query);
  return question?.readUInt16BE(question.length - 4);
}

type Record = { owner: string; type: number; ttlSeconds: number; ttlAt: number; data: string };

/**
 * Returns the IPv4 addresses of the name in question. Records without a chain of aliases from it are ignored: an answer must not open addresses
 * for
 * other names. TTLs above `maxTtlSeconds` are lowered in the answer itself, so that a client asks again before its address is closed.
 */
export function addressesIn(answer: Buffer, maxTtlSeconds: number): Found[] {
  const asked = nameAsked(answer);
  if (asked === undefined) return [];
  const records = recordsOf(answer);
  const names = new Set([asked]);
  for (let grown = true; grown; ) {
    grown = false;
    for (const { owner, type, data } of records) {
      if (type !== CNAME_TYPE || !names.has(owner) || names.has(data)) continue;
      names.add(data);
      grown = true;
    }
  }
  const found = new Map<string, Found>();
  for (const { owner, type, ttlSeconds, ttlAt, data } of records) {
    if (!names.has(owner)) continue;
    if (ttlSeconds > maxTtlSeconds) answer.writeUInt32BE(maxTtlSeconds, ttlAt);
    if (type === A_TYPE) found.set(data, { address: data, ttlSeconds: Math.min(ttlSeconds, maxTtlSeconds) });
  }
  return [...found.values()];
}

function recordsOf(answer: Buffer): Record[] {
  const question = questionOf(answer);
  if (question === undefined) return [];
  const count = Math.min(answer.readUInt16BE(6), MAX_RECORDS);
  const records: Record[] = [];
  let at = HEADER_BYTES + question.length;
  for (let index = 0; index < count; index++) {
    const owner = readName(answer, at);
    if (owner === undefined || owner.end + 10 > answer.length) break;
    const [type, recordClass, ttlSeconds, length] = [
      answer.readUInt16BE(owner.end),
      answer.readUInt16BE(owner.end + 2),
      answer.readUInt32BE(owner.end + 4),
      answer.readUInt16BE(owner.end + 8),
    ];
    const dataAt = owner.end + 10;
    at = dataAt + length;
    if (at > answer.length) break;
    if (recordClass !== IN_CLASS || owner.name === undefined) continue;
    const data = type === A_TYPE && length === 4 ? answer.subarray(dataAt, at).join(".") : type === CNAME_TYPE ? readName(answer, dataAt)?.name : undefined;
    if (data !== undefined) records.push({ owner: owner.name, type, ttlSeconds, ttlAt: owner.end + 4, data });
  }
  return records;
}

/** Returns a name and the offset after it; `name` is undefined for other than host names, and the result is undefined for malformed bytes. */
function readName(message: Buffer, start: number): { name: string | undefined; end: number } | undefined {
  const labels: string[] = [];
  let end: number | undefined;
  let at = start;
  for (let jumps = 0; labels.length <= MAX_LABELS; ) {
    const length = message[at];
    if (length === undefined) return undefined;
    if (length === 0) {
      end ??= at + 1;
      const plain = labels.length > 0 && labels.every((label) => LABEL.test(label));
      return { name: plain ? labels.join(".") : undefined, end };
    }
    if (length >= 0xc0) {
      if (at + 2 > message.length || ++jumps > MAX_JUMPS) return undefined;
      end ??= at + 2;
      at = message.readUInt16BE(at) & 0x3fff;
      continue;
    }
    if (length > 63 || at + 1 + length > message.length) return undefined;
    labels.push(message.toString("latin1", at + 1, at + 1 + length).toLowerCase());
    at += 1 + length;
  }
  return undefined;
}
