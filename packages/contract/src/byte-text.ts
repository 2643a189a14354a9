// The kernel treats names and arguments as bytes, JavaScript as text: bytes that are not UTF-8 are represented as lone surrogates.
//
// A byte XX from 0x80 on becomes the code unit U+DCXX, as in Python (PEP 383). JSON.stringify writes it as \udcXX, and envd decodes that.

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

/** Returns true if the text represents bytes that are not UTF-8. */
export function hasBytes(text: string): boolean {
  return LONE_BYTE.test(text);
}

/** Returns the text for display: a byte that is not part of UTF-8 is shown as \xe9, for example. */
export function shownText(text: string): string {
  return text.replace(/[\udc80-\udcff]/gu, (byte) => `\\x${(byte.charCodeAt(0) - FIRST_BYTE).toString(16)}`);
}

/** Text for a URL's query, which percent-encodes each byte. */
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

/** Returns the length of the UTF-8 character that begins with this byte; 0 if no character begins with it. */
function lengthAt(first: number): number {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return 2;
  if (first >= 0xe0 && first < 0xf0) return 3;
  return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}
