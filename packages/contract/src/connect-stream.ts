// The Connect protocol's stream framing with its JSON codec: one flag byte, four bytes of length (big-endian), JSON.
import { type ConnectCode, Failure, type FailureName } from "./failures.ts";

//   0        1                    5
//   ┌────────┬────────────────────┬──────────────┐
//   │ flags  │ length, big-endian │ JSON (UTF-8) │   flags 0x02: the last one, {} or {"error":{…}}
//   └────────┴────────────────────┴──────────────┘
const HEADER_BYTES = 5;
const FLAG_COMPRESSED = 0x01;
const FLAG_END = 0x02;
/** envd sends chunks of 32 KiB; a much larger message is not from envd, and parsing it would block the event loop. */
const MAX_MESSAGE_BYTES = 1024 * 1024;

export type ConnectError = { code: string; message: string };

/** Encodes one message with its header. */
export function envelope(message: unknown): Buffer {
  const body = Buffer.from(JSON.stringify(message));
  const frame = Buffer.allocUnsafe(HEADER_BYTES + body.length);
  frame.writeUInt8(0, 0);
  frame.writeUInt32BE(body.length, 1);
  body.copy(frame, HEADER_BYTES);
  return frame;
}

/**
 * Yields the messages of a response body, with at most one of them in memory. It ends at the end message; throws the failure that message names, or
 * SERVER_UNREACHABLE when the body stops without one.
 */
export async function* messagesOf(body: AsyncIterable<Buffer>, describe: string): AsyncGenerator<Record<string, unknown>> {
  let pending: Buffer[] = [];
  let pendingBytes = 0;
  let neededBytes = HEADER_BYTES;
  for await (const chunk of body) {
    pending.push(chunk);
    pendingBytes += chunk.length;
    if (pendingBytes < neededBytes) continue;
    let rest = pending.length === 1 ? chunk : Buffer.concat(pending);
    for (;;) {
      neededBytes = HEADER_BYTES;
      if (rest.length < HEADER_BYTES) break;
      const flags = rest.readUInt8(0);
      const length = rest.readUInt32BE(1);
      if (length > MAX_MESSAGE_BYTES) throw new Failure("INTERNAL", `${describe}: a message of ${length} bytes; the maximum is ${MAX_MESSAGE_BYTES}`);
      if ((flags & FLAG_COMPRESSED) !== 0) throw new Failure("INTERNAL", `${describe}: a compressed message; expected an uncompressed one`);
      neededBytes = HEADER_BYTES + length;
      if (rest.length < neededBytes) break;
      const message = JSON.parse(rest.toString("utf8", HEADER_BYTES, neededBytes)) as Record<string, unknown>;
      rest = rest.subarray(neededBytes);
      if ((flags & FLAG_END) !== 0) {
        const error = message["error"] as ConnectError | undefined;
        if (error !== undefined) throw failureOfConnect(error, describe);
        return;
      }
      yield message;
    }
    pending = rest.length === 0 ? [] : [rest];
    pendingBytes = rest.length;
  }
  throw new Failure("SERVER_UNREACHABLE", `${describe}: the connection ended before the answer did`);
}

const names: Readonly<Record<ConnectCode, FailureName>> = {
  canceled: "TIMED_OUT",
  unknown: "INTERNAL",
  invalid_argument: "INVALID_REQUEST",
  deadline_exceeded: "TIMED_OUT",
  not_found: "FILE_NOT_FOUND",
  already_exists: "FILE_EXISTS",
  permission_denied: "ACCESS_DENIED",
  resource_exhausted: "DISK_FULL",
  failed_precondition: "INVALID_REQUEST",
  unimplemented: "ROUTE_NOT_FOUND",
  internal: "INTERNAL",
  unavailable: "SANDBOX_NOT_RUNNING",
  unauthenticated: "UNAUTHENTICATED",
};

/** Converts a Connect error to our failure. For process methods `not_found` means the process, for others a file. */
export function failureOfConnect(error: ConnectError, describe: string): Failure {
  const known = Object.hasOwn(names, error.code) ? names[error.code as ConnectCode] : "INTERNAL";
  const name = known === "FILE_NOT_FOUND" && describe.startsWith("process.") ? "PROCESS_NOT_FOUND" : known;
  return new Failure(name, error.message === "" ? `${describe}: ${error.code}` : error.message);
}
