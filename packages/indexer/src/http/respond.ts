// Encodes an answer in the form that the client accepts: JSON with exact numbers, or msgpack.
import { Packr } from "msgpackr";
import { JSON_TYPE, MSGPACK_TYPE, takesMsgpack } from "./bodies.ts";
import { writeExact } from "./exact-json.ts";
import type { Answer, Request } from "./exchange.ts";

const packr = new Packr({ useRecords: false });

export function respond(request: Request, value: unknown): Answer {
  if (takesMsgpack(request)) return { body: packr.pack(value), type: MSGPACK_TYPE };
  return { body: writeExact(value, /(^|&)u64=string(&|$)/.test(request.search)), type: JSON_TYPE };
}
