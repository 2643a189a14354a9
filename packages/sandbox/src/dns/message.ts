// Reads and writes the parts of DNS messages that the node needs: id, question, and short answers of its own.
export const HEADER_BYTES = 12;
/** The maximum length of a name, whatever its sender claims. */
const MAX_NAME_BYTES = 255;

const OPT_TYPE = 41;
const EXTENDED_ERROR = 15;
const MAX_UDP_PAYLOAD_BYTES = 1232;
/** Every client accepts a datagram of this size (RFC 1035). */
const MAX_PLAIN_BYTES = 512;
const TRUNCATED = 0x02;

const rcodes = { NOERROR: 0, FORMERR: 1, SERVFAIL: 2, NOTIMP: 4, REFUSED: 5 } as const;
export type Rcode = keyof typeof rcodes;

/** Extended DNS Error codes (RFC 8914) for the reason. */
const reasons = { NOERROR: 17, REFUSED: 18, SERVFAIL: 23, NOTIMP: 21, FORMERR: 0 } as const;

/** Returns the question (name, type, class) of a query with exactly one; undefined otherwise. */
export function questionOf(message: Buffer): Buffer | undefined {
  if (message.length < HEADER_BYTES || message.readUInt16BE(4) !== 1) return undefined;
  let at = HEADER_BYTES;
  for (;;) {
    const length = message[at];
    // The first name has nothing to point back to, so compression is invalid.
    if (length === undefined || length > 63 || at - HEADER_BYTES > MAX_NAME_BYTES) return undefined;
    at += 1 + length;
    if (length === 0) break;
  }
  return at + 4 <= message.length ? message.subarray(HEADER_BYTES, at + 4) : undefined;
}

export const isResponse = (message: Buffer): boolean => ((message[2] ?? 0) & 0x80) !== 0;
export const opcodeOf = (message: Buffer): number => ((message[2] ?? 0) >> 3) & 0x0f;

/** True if the response's id and question match the query; servers may change the letter case. */
export function answers(response: Buffer, id: number, question: Buffer): boolean {
  if (response.length < HEADER_BYTES || !isResponse(response) || response.readUInt16BE(0) !== id) return false;
  // A server that cannot parse the query may answer without the question.
  if (response.readUInt16BE(4) === 0) return true;
  const echoed = questionOf(response);
  return echoed !== undefined && echoed.toString("latin1").toLowerCase() === question.toString("latin1").toLowerCase();
}

export function withId(message: Buffer, id: number): Buffer {
  const copy = Buffer.from(message);
  copy.writeUInt16BE(id, 0);
  return copy;
}

/** Returns an answer that came over TCP as a datagram may have it: without records, and marked as truncated, if it is too long. */
export function forDatagram(answer: Buffer, question: Buffer): Buffer {
  if (answer.length <= MAX_PLAIN_BYTES) return answer;
  const short = Buffer.concat([answer.subarray(0, HEADER_BYTES), question]);
  short[2] = (short[2] ?? 0) | TRUNCATED;
  short.fill(0, 6, HEADER_BYTES);
  return short;
}

/** Builds an answer without records; clients that support EDNS get the reason as text. */
export function refusal(query: Buffer, rcode: Rcode, reason: string): Buffer {
  const question = questionOf(query);
  const options = speaksEdns(query, question) ? extendedError(rcode, reason) : undefined;
  const header = Buffer.alloc(HEADER_BYTES);
  query.copy(header, 0, 0, 2); // the id
  // A response (0x80) with the query's opcode and "recursion desired" (0x79); recursion is available (0x80).
  header[2] = 0x80 | ((query[2] ?? 0) & 0x79);
  header[3] = 0x80 | rcodes[rcode];
  header.writeUInt16BE(question === undefined ? 0 : 1, 4);
  header.writeUInt16BE(options === undefined ? 0 : 1, 10);
  return Buffer.concat([header, question ?? Buffer.alloc(0), options ?? Buffer.alloc(0)]);
}

/** True for the usual form of EDNS: only the question, then an OPT record, whose name is the root. */
function speaksEdns(query: Buffer, question: Buffer | undefined): boolean {
  if (question === undefined || query.readUInt32BE(6) !== 0 || query.readUInt16BE(10) === 0) return false;
  const at = HEADER_BYTES + question.length;
  return at + 3 <= query.length && query.readUIntBE(at, 3) === OPT_TYPE;
}

function extendedError(rcode: Rcode, reason: string): Buffer {
  const text = Buffer.from(reason);
  const record = Buffer.alloc(17);
  record.writeUInt16BE(OPT_TYPE, 1);
  record.writeUInt16BE(MAX_UDP_PAYLOAD_BYTES, 3);
  record.writeUInt16BE(6 + text.length, 9); // the options' length
  record.writeUInt16BE(EXTENDED_ERROR, 11);
  record.writeUInt16BE(2 + text.length, 13);
  record.writeUInt16BE(reasons[rcode], 15);
  return Buffer.concat([record, text]);
}
