// Answers that the proxy gives itself: always JSON with `code` and `message`, always with their length.
import { STATUS_CODES } from "node:http";

export type Answer = {
  readonly status: number;
  /** Further header lines, each ended by CRLF. */
  readonly lines: string;
  readonly body: string;
};

/** `members` precede `message` and `code` in the body. */
export function answer(
  status: number,
  message: string,
  members: Readonly<Record<string, string | number>> = {},
  headers: Readonly<Record<string, string>> = {},
): Answer {
  let lines = "";
  for (const [name, value] of Object.entries(headers)) lines += `${name}: ${value}\r\n`;
  return { status, lines, body: JSON.stringify({ ...members, message, code: status }) };
}

/** Returns the bytes of an answer as latin1 text; the body is escaped to ASCII, so its length is its number of characters. */
export function renderAnswer(given: Answer, keepAlive: boolean, withoutBody: boolean): string {
  const body = given.body.replace(/[\u0080-\uffff]/g, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);
  const head = `HTTP/1.1 ${given.status} ${STATUS_CODES[given.status] ?? "Unknown"}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n`;
  return `${head}${given.lines}${keepAlive ? "" : "Connection: close\r\n"}\r\n${withoutBody ? "" : body}`;
}

/** Answers a signed URL without an id, whose sandbox can only be found by the signature. */
export const unknownSignature = (): Answer => answer(401, "invalid signature: no sandbox here made it that is running or wakes by itself");
