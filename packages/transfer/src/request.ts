// Transfer requests as callers write them, and their packed form for the core.
import { fail } from "@svc/contract/failures.ts";
import { addressOf, asView, type Memory } from "./memory.ts";
import { OPCODE, type Opcode } from "./status.ts";

/** The location of local bytes: an address in registered memory, or a view of it. */
export type Local = bigint | Memory;

export type TransferRequest = {
  /** READ copies from the target to `source`, WRITE from `source` to the target. */
  readonly opcode: Opcode;
  readonly source: Local;
  readonly targetID: bigint;
  /** In a RAM segment an address at the target, in a file segment an offset in bytes. */
  readonly targetOffset: bigint;
  /** The length in bytes; defaults to that of `source` if that is a view. */
  readonly length?: number | bigint;
  /** Attempts after a broken connection, in addition to the engine's own. */
  readonly adviseRetryCount?: number;
};

/** One range of a transfer whose opcode and target are given separately. */
export type Range = { readonly local: Local; readonly remote: bigint; readonly length?: number | bigint };

/** A list of ranges, or the packed form: local, remote and length of each. */
export type Ranges = readonly Range[] | BigUint64Array;

export function packRanges(ranges: Ranges): BigUint64Array {
  if (ranges instanceof BigUint64Array) {
    if (ranges.length % 3 !== 0) fail("INVALID_REQUEST", `packed ranges: expected local, remote and length of each; got ${ranges.length} words`);
    return ranges;
  }
  const words = new BigUint64Array(ranges.length * 3);
  ranges.forEach((range, index) => {
    const { address, length } = resolve(range.local, range.length);
    words[index * 3] = address;
    words[index * 3 + 1] = unsigned(range.remote, "remote");
    words[index * 3 + 2] = length;
  });
  return words;
}

export function packRequests(requests: readonly TransferRequest[]): BigUint64Array {
  const words = new BigUint64Array(requests.length * 6);
  requests.forEach((request, index) => {
    const { address, length } = resolve(request.source, request.length);
    const opcode = OPCODE[request.opcode] ?? fail("INVALID_REQUEST", `opcode: expected READ or WRITE, got ${String(request.opcode)}`);
    words.set([BigInt(opcode), address, unsigned(request.targetID, "targetID"), unsigned(request.targetOffset, "targetOffset"), length], index * 6);
    words[index * 6 + 5] = BigInt(Math.max(0, Math.trunc(request.adviseRetryCount ?? 0)));
  });
  return words;
}

function resolve(local: Local, length: number | bigint | undefined): { address: bigint; length: bigint } {
  if (typeof local === "bigint") {
    if (length === undefined) fail("INVALID_REQUEST", "length: an address alone does not say how many bytes");
    return { address: unsigned(local, "local"), length: bytes(length) };
  }
  const view = asView(local);
  const wanted = length === undefined ? BigInt(view.byteLength) : bytes(length);
  if (wanted > BigInt(view.byteLength)) fail("INVALID_REQUEST", `length: the maximum is the ${view.byteLength} bytes of the view, got ${wanted}`);
  return { address: addressOf(view), length: wanted };
}

function bytes(length: number | bigint): bigint {
  if (typeof length === "number" && !Number.isSafeInteger(length)) fail("INVALID_REQUEST", `length: expected a whole number of bytes, got ${length}`);
  return unsigned(BigInt(length), "length");
}

function unsigned(value: bigint, what: string): bigint {
  if (value >= 0n && value <= 0xffff_ffff_ffff_ffffn) return value;
  return fail("INVALID_REQUEST", `${what}: expected an unsigned number of 64 bits, got ${value}`);
}
