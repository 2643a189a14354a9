// Header names the proxy acts on, found by number while a head is scanned: no string is made for any other header.

/** Bits of `byteClass`. */
export const TOKEN = 1;
export const VALUE = 2;

/** For each byte, whether a token (name, method) or a field value may contain it. */
export const byteClass: Uint8Array = classify();

function classify(): Uint8Array {
  const classes = new Uint8Array(256);
  for (let byte = 0; byte < 256; byte++) {
    const character = String.fromCharCode(byte);
    if (/[!#$%&'*+\-.^_`|~0-9A-Za-z]/.test(character)) classes[byte] = TOKEN | VALUE;
    else if (byte === 9 || (byte >= 0x20 && byte !== 0x7f)) classes[byte] = VALUE;
  }
  return classes;
}

const slotCount = 256;

/** Hashes regardless of case and from a few characters only, since every match is compared in full anyway. */
function slotOf(length: number, first: number, middle: number, last: number): number {
  const mixed = Math.imul(length, 0x9e3779b1) ^ Math.imul(first | 0x20, 0x85ebca6b) ^ Math.imul(middle | 0x20, 0xc2b2ae35) ^ Math.imul(last | 0x20, 0x27d4eb2f);
  return (mixed >>> 16) & (slotCount - 1);
}

/** A fixed set of lower-case names; a name's number is its index plus one, and 0 means any other name. */
export class HeaderNames {
  readonly names: readonly string[];
  readonly #slots = new Uint8Array(slotCount);

  constructor(names: readonly string[]) {
    if (names.length >= slotCount / 2) throw new RangeError(`${names.length} header names do not fit a table of ${slotCount}`);
    this.names = names;
    for (const [index, name] of names.entries()) {
      let slot = slotOf(name.length, name.charCodeAt(0), name.charCodeAt(name.length >> 1), name.charCodeAt(name.length - 1));
      while (this.#slots[slot] !== 0) slot = (slot + 1) & (slotCount - 1);
      this.#slots[slot] = index + 1;
    }
  }

  /** Returns the number of a name of this set. */
  id(name: string): number {
    const index = this.names.indexOf(name);
    if (index < 0) throw new RangeError(`header name ${name} is not in the table`);
    return index + 1;
  }

  /** Returns the number of the name at [start, end) of `bytes`. */
  find(bytes: Uint8Array, start: number, end: number): number {
    const length = end - start;
    let slot = slotOf(length, bytes[start] as number, bytes[start + (length >> 1)] as number, bytes[end - 1] as number);
    for (;;) {
      const id = this.#slots[slot] as number;
      if (id === 0) return 0;
      if (sameName(bytes, start, end, this.names[id - 1] as string)) return id;
      slot = (slot + 1) & (slotCount - 1);
    }
  }
}

/** Says whether [start, end) of `bytes` is the lower-case `name`, in any case. */
export function sameName(bytes: Uint8Array, start: number, end: number, name: string): boolean {
  if (end - start !== name.length) return false;
  for (let at = 0; at < name.length; at++) {
    const code = bytes[start + at] as number;
    const lower = code >= 65 && code <= 90 ? code | 0x20 : code;
    if (lower !== name.charCodeAt(at)) return false;
  }
  return true;
}
