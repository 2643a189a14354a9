// Names and arguments are bytes to the kernel and text to JavaScript: bytes that are not UTF-8 go through as lone surrogates.
//
// A byte XX from 0x80 on is the code unit U+DCXX, as in Python (PEP 383). JSON.stringify spells it \udcXX, and envd reads it so.

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const LONE_BYTE = /([\udc80-\udcff])/u;
const FIRST_BYTE = 0xdc00;

export function textOfBytes(bytes: Uint8Array): string {
  const whole = decoded(bytes);
  if (whole !== undefined) return whole;
  let text = "";
  for (let at = 0; at < bytes.length; ) {
    const length = lengthAt(bytes[at] as number);
    const character = length === 0 || at + length > bytes.length ? undefined : decoded(bytes.subarray(at, at + length));
    text += character ?? String.fromCharCode(FIRST_BYTE + (bytes[at] as number));
    at += character === undefined ? 1 : length;
  }
  return text;
}

export function bytesOfText(text: string): Buffer {
  const parts = text.split(LONE_BYTE);
  if (parts.length === 1) return Buffer.from(text);
  return Buffer.concat(parts.map((part, index) => (index % 2 === 0 ? Buffer.from(part) : Buffer.of(part.charCodeAt(0) - FIRST_BYTE))));
}

/** Whether the text stands for bytes that are not UTF-8. */
export function hasBytes(text: string): boolean {
  return LONE_BYTE.test(text);
}

/** For people: such a byte as \xe9. */
export function shownText(text: string): string {
  return text.replace(/[\udc80-\udcff]/gu, (byte) => `\\x${(byte.charCodeAt(0) - FIRST_BYTE).toString(16)}`);
}

/** For a query: each byte as it is. */
export function queryOfText(text: string): string {
  return [...bytesOfText(text)]
    .map((byte) => (/[\w.~/-]/.test(String.fromCharCode(byte)) ? String.fromCharCode(byte) : `%${byte.toString(16).padStart(2, "0")}`))
    .join("");
}

function decoded(bytes: Uint8Array): string | undefined {
  try {
    return decoder.decode(bytes);
  } catch {
    return undefined;
  }
}

/** How many bytes a character has that begins so; 0 where none does. */
function lengthAt(first: number): number {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return 2;
  if (first >= 0xe0 && first < 0xf0) return 3;
  return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}
