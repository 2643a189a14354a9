// The frames of the store's RPC: heads of requests and responses, and the format of errors.
import { encodeBody, typeHash } from "./body.ts";
import { bytes } from "./schema.ts";

//  request:  magic u8 21 | version u8 | serialize type u8 | message type u8 | seq u32 | function u32 | body bytes u32 | attachment bytes u32
//  response: magic u8 21 | version u8 | error u8          | message type u8 | seq u32 |                body bytes u32 | attachment bytes u32

export const MAGIC = 21;
export const REQUEST_BYTES = 20;
export const RESPONSE_BYTES = 16;

/** Errors of the wire itself, in the head of a response; the body has a message. */
export const wireError = { invalidArguments: 4, notRegistered: 11, noKey: 30, otherTenant: 31 } as const;

const MESSAGE_HASH = typeHash(bytes.literal);

export const errorBody = (message: string): Buffer => encodeBody(bytes, MESSAGE_HASH, message, bytes.literal);

/** Returns the message of an error's body; an unreadable body is returned as it is. */
export function errorMessage(body: Buffer): string {
  const literalEnd = body.indexOf(0, 5);
  return literalEnd < 0 ? body.toString("latin1") : body.subarray(literalEnd + 2).toString("latin1");
}

export function requestHead(seq: number, functionID: number, bodyBytes: number): Buffer {
  const head = Buffer.alloc(REQUEST_BYTES);
  head[0] = MAGIC;
  head.writeUInt32LE(seq, 4);
  head.writeUInt32LE(functionID, 8);
  head.writeUInt32LE(bodyBytes, 12);
  return head;
}
